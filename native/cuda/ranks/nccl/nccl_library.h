// NCCL, which carries sums between GPUs that do not reach each other's memory. Its library is
// opened when it is first asked for and need not be there to build: what is called is declared
// here, after the documented interface (nccl.h, "User Guide: API").
//
// No header of CUDA is needed, so that this compiles without a toolkit. Any thread.
#pragma once
#include <cstddef>
#include <string>

struct ncclComm;     // of NCCL
struct CUstream_st;  // of CUDA: cudaStream_t points to it

namespace inferd::cuda {

using NcclComm = ncclComm*;

// What the ranks of one communicator know each other by; passed by value, as NCCL has it.
struct NcclId {
  char bytes[128];
};

// Values of ncclDataType_t that are used.
enum class NcclType : int { kBytes = 1, kF16 = 6, kF32 = 7, kBF16 = 9 };

// The functions return 0 or a number that error_text explains.
struct NcclLibrary {
  static constexpr int kSum = 0;  // of ncclRedOp_t

  std::string problem{};  // one sentence when it cannot be used: there are no functions then
  std::string version{};  // such as "2.28.3"

  const char* (*error_text)(int result) = nullptr;
  int (*get_id)(NcclId* id) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*join)(NcclComm* comm, int ranks, NcclId id, int rank) = nullptr;
  int (*all_reduce)(const void* from, void* to, size_t count, NcclType type, int op, NcclComm comm,
                    CUstream_st* stream) = nullptr;
  int (*all_gather)(const void* from, void* to, size_t count, NcclType type, NcclComm comm,
                    CUstream_st* stream) = nullptr;
  int (*abort)(NcclComm comm) = nullptr;
  int (*async_error)(NcclComm comm, int* error) = nullptr;
};

// Opens the file that INFERD_NCCL names, else libnccl.so.2: where the system finds libraries, or in
// the Python package nvidia-nccl beside that of cuBLAS.
NcclLibrary open_nccl();

// Opened once in a process, and never closed.
const NcclLibrary& nccl();

}  // namespace inferd::cuda
