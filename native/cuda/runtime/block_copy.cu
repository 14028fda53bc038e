// 1. block[dst] = block[src] in the key and value arrays of all layers with one launch; the same
//    between the device and a pinned host pool.
// 2. Arrays [num_blocks, block_bytes] of bytes, 16-byte aligned, `bases` and `pairs` in device
//    memory; host pool [host blocks, num_bases, block_bytes].
// 3. Copy: a thread owns one 16-byte column of a base and takes all pairs in order, so that chains
//    of copies hold without a barrier. Swap: a warp moves 4 KB pieces, each wholly inside a block,
//    so that the bus sees full-size requests; kSwapBlocks blocks share all pieces.
// 4. No shared memory; swap keeps 8 x 16 bytes a thread in flight: the bus takes microseconds.
// 5. Bytes, exact.
// 6. Any architecture from sm_80 with unified addressing; block_bytes not a multiple of 16 is
//    cudaErrorInvalidValue.
// 7. Copy 2 * num_bases * count * block_bytes, bound by memory; swap half of that over the bus.
// 8. Copy-on-write blocks and swapping: vLLM (Kwon et al. 2023).
// 9. cudaMemcpyAsync a block and layer: 64 calls a block of a 32-layer model, 2 us each on the
//    host.
#include "cuda/device/common.cuh"
#include "cuda/device/launch.cuh"
#include "cuda/runtime/block_copy.h"

namespace inferd::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kSwapBlocks = 32, kSwapThreads = 512, kUnroll = 8;
constexpr int kPieceWords = kWarp * kUnroll;  // of 16 bytes

__global__ void __launch_bounds__(kThreads)
    copy_blocks_kernel(const BlockArrays arrays, const BlockCopy* pairs, int32_t count) {
  let_next_start();
  wait_for_previous();
  const int64_t words = arrays.block_bytes / 16;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (column >= words) return;
  uint4* base = static_cast<uint4*>(arrays.bases[blockIdx.y]) + column;
  for (int32_t i = 0; i < count; ++i) base[pairs[i].dst * words] = base[pairs[i].src * words];
}

template <bool kOut>
__global__ void __launch_bounds__(kSwapThreads)
    swap_kernel(const BlockArrays arrays, uint4* host, const BlockCopy* pairs, int32_t count) {
  const int64_t words = arrays.block_bytes / 16;
  const int64_t pieces = (words + kPieceWords - 1) / kPieceWords;
  const int64_t all = pieces * arrays.num_bases * count;
  constexpr int kWarps = kSwapThreads / kWarp;
  const int lane = threadIdx.x % kWarp;
  for (int64_t i = blockIdx.x * kWarps + threadIdx.x / kWarp; i < all;
       i += int64_t{kSwapBlocks} * kWarps) {
    const int64_t at = i % pieces * kPieceWords + lane;
    const int64_t base = i / pieces % arrays.num_bases;
    const BlockCopy pair = pairs[i / pieces / arrays.num_bases];
    const int64_t on_device = kOut ? pair.src : pair.dst, on_host = kOut ? pair.dst : pair.src;
    uint4* device_block = static_cast<uint4*>(arrays.bases[base]) + on_device * words;
    uint4* host_block = host + (on_host * arrays.num_bases + base) * words;
    const uint4* from = kOut ? device_block : host_block;
    uint4* to = kOut ? host_block : device_block;
    uint4 held[kUnroll];
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) {
      if (at + j * kWarp < words) held[j] = __ldcs(from + at + j * kWarp);
    }
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) {
      if (at + j * kWarp < words) __stcs(to + at + j * kWarp, held[j]);
    }
  }
}

bool valid(const BlockArrays& arrays, int32_t count) {
  return arrays.block_bytes > 0 && arrays.block_bytes % 16 == 0 && arrays.num_bases > 0 &&
         arrays.num_bases <= 65535 && count >= 0;
}

}  // namespace

cudaError_t copy_blocks(const BlockArrays& arrays, const BlockCopy* pairs, int32_t count,
                        const Launch& launch) {
  if (!valid(arrays, count)) return cudaErrorInvalidValue;
  if (count == 0) return cudaSuccess;
  const int64_t blocks = (arrays.block_bytes / 16 + kThreads - 1) / kThreads;
  return launch_kernel(
      copy_blocks_kernel,
      {.grid = dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(arrays.num_bases)),
       .threads = kThreads},
      launch, arrays, pairs, count);
}

cudaError_t swap_out(const BlockArrays& arrays, void* host_pool, const BlockCopy* pairs,
                     int32_t count, cudaStream_t stream) {
  if (!valid(arrays, count)) return cudaErrorInvalidValue;
  if (count == 0) return cudaSuccess;
  return launch_kernel(swap_kernel<true>, {.grid = dim3(kSwapBlocks), .threads = kSwapThreads},
                       stream, arrays, static_cast<uint4*>(host_pool), pairs, count);
}

cudaError_t swap_in(const BlockArrays& arrays, const void* host_pool, const BlockCopy* pairs,
                    int32_t count, cudaStream_t stream) {
  if (!valid(arrays, count)) return cudaErrorInvalidValue;
  if (count == 0) return cudaSuccess;
  // The kernel only reads the pool in this direction.
  uint4* host = static_cast<uint4*>(const_cast<void*>(host_pool));
  return launch_kernel(swap_kernel<false>, {.grid = dim3(kSwapBlocks), .threads = kSwapThreads},
                       stream, arrays, host, pairs, count);
}

}  // namespace inferd::cuda
