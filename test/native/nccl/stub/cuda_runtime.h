// As much of CUDA's runtime as the group of ranks over NCCL names, for nccl_group_check.cpp, which
// defines what is called: no toolkit is needed to test who waits for whom.
#pragma once
#include <cstddef>
#include <cstdint>

enum cudaError_t { cudaSuccess = 0 };
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive };

using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;
using cudaGraphExec_t = struct CUgraphExec_st*;

cudaError_t cudaSetDevice(int device);
cudaError_t cudaMemset(void* at, int value, size_t bytes);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status);
cudaError_t cudaFree(void* at);
cudaError_t cudaFreeHost(void* at);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph);
