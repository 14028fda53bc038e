# Writes INTERFACE_OUTPUT, a C++ header with a hash of all that crosses between the engine and the CUDA backend: the headers
# core/*.h, core/plan/*.h and cuda/library.h of INTERFACE_FOLDER. Both libraries compile it in, and the engine compares
# (engine/cuda_library.cpp). CMakeLists.txt includes this file; `cmake -DINTERFACE_FOLDER=... -DINTERFACE_OUTPUT=... -P` runs it alone.
file(GLOB INTERFACE_HEADERS "${INTERFACE_FOLDER}/core/*.h" "${INTERFACE_FOLDER}/core/plan/*.h")
list(APPEND INTERFACE_HEADERS "${INTERFACE_FOLDER}/cuda/library.h")
list(SORT INTERFACE_HEADERS)
set(hashes "")
foreach(header ${INTERFACE_HEADERS})
  file(RELATIVE_PATH name "${INTERFACE_FOLDER}" "${header}")
  file(SHA256 "${header}" hash)
  string(APPEND hashes "${name} ${hash}\n")
endforeach()
string(SHA256 hash "${hashes}")
string(SUBSTRING "${hash}" 0 16 hash)
# A header that stays the same is not written, so that nothing is compiled again for it.
file(CONFIGURE OUTPUT "${INTERFACE_OUTPUT}" CONTENT "// Written by cuda_interface.cmake.
#pragma once
namespace inferd {
constexpr char kCudaInterface[] = \"${hash}\";
}
" @ONLY)
