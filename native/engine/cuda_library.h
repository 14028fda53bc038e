// The CUDA backend, a shared library of its own beside this one, so that one build serves machines
// with and without a GPU. It is loaded when a CUDA device is asked for, and stays loaded.
#pragma once
#include <memory>

#include "cuda/library.h"

namespace inferd {

// Throws Error(kUnsupported) with one sentence when the library, the driver, a GPU or cuBLAS is
// missing.
std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options);

// What a CUDA device could do here; `problem` says in one sentence why nothing can. Never throws;
// the library and the driver are asked once a process.
const CudaProbe& probe_cuda();

// Whether NCCL is there for ranks on GPUs. Opens it. Never throws.
CudaNccl find_nccl();

}  // namespace inferd
