// Functions that the host and kernels of CUDA compute alike.
#pragma once

#ifdef __CUDACC__
#define INFERD_HOST_DEVICE __host__ __device__
#else
#define INFERD_HOST_DEVICE
#endif
