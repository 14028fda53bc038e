// 1. token = the first id with the largest logit, appended to the slot's history; nothing else is
//    asked of any row.
// 2. logits [rows, vocab] f32, any stride; outputs as in sampler.h.
// 3. A row is a cluster of up to 8 blocks of 256 threads, a slice each; a thread reads 16 bytes at
//    a time, 4 reads ahead.
// 4. Some words of shared memory, about 40 registers.
// 5. Compares only. NaN counts as -inf; with nothing above -inf the token is 0.
// 6. Any vocabulary, from sm_80 (one block a row before compute capability 9.0).
// 7. Bytes 4 * rows * vocab, bound by memory for many rows, by launch and one cluster barrier for
//    few. See test/gpu/programs/sampler_test.cu for times.
// 8. No method.
// 9. The sampling kernel with temperature 0: the same answer, but it copies the row to shared
//    memory and holds fewer blocks a multiprocessor.
#include "cuda/device/launch.cuh"
#include "cuda/sampler/sampler_launch.h"
#include "cuda/sampler/sampler_row.cuh"

namespace inferd::cuda::sampler {
namespace {

constexpr int kUnroll = 4;
constexpr int kGreedyThreads = 256, kGreedyWarps = kGreedyThreads / kWarp;
constexpr int kBlocks = 6;  // of a multiprocessor

__global__ void __launch_bounds__(kGreedyThreads, kBlocks)
    greedy_kernel(const SampleParams p, int32_t slice_floats) {
  __shared__ uint64_t words[kGreedyWarps];
  __shared__ uint64_t board[kMaxParts];
  let_next_start();
  parts_begin();
  wait_for_previous();
  const int32_t slot = p.samples[blockIdx.y].slot;  // negative: padding, of all parts
  const int32_t begin = min(static_cast<int32_t>(part_rank()) * slice_floats, p.vocab);
  const int32_t count = min(slice_floats, p.vocab - begin);
  const float* from = p.logits + static_cast<int64_t>(blockIdx.y) * p.row_stride + begin;
  Best best;
  const auto take = [&](float z, int32_t id) { best.take(fmaxf(z, minus_inf()), id); };  // no NaN
  const int32_t wide = reinterpret_cast<uintptr_t>(from) % 16 == 0 ? count / 4 * 4 : 0;
  for (int start = threadIdx.x * 4; start < wide; start += kGreedyThreads * 4 * kUnroll) {
    float4 v[kUnroll];
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) {
      const int i = start + j * kGreedyThreads * 4;
      if (i < wide) v[j] = __ldcg(reinterpret_cast<const float4*>(from + i));
    }
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) {
      const int i = start + j * kGreedyThreads * 4;
      if (i >= wide) break;
      take(v[j].x, begin + i);
      take(v[j].y, begin + i + 1);
      take(v[j].z, begin + i + 2);
      take(v[j].w, begin + i + 3);
    }
  }
  for (int i = wide + threadIdx.x; i < count; i += kGreedyThreads)
    take(__ldcg(from + i), begin + i);
  best.z += 0.f;  // -0 and +0 are one value
  uint64_t key = best.key();
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const auto larger = [](uint64_t a, uint64_t b) { return a > b ? a : b; };
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) {
    key = larger(key, __shfl_xor_sync(kFullWarp, key, step));
  }
  if (lane == 0) words[warp] = key;
  __syncthreads();
  parts_have_begun();
  if (warp == 0) {
    key = words[lane % kGreedyWarps];
#pragma unroll
    for (int step = kGreedyWarps / 2; step > 0; step /= 2) {
      key = larger(key, __shfl_xor_sync(kFullWarp, key, step));
    }
    if (lane == 0) *of_part(&board[part_rank()], 0) = key;
  }
  parts_sync();
  if (slot < 0 || part_rank() != 0 || threadIdx.x != 0) return;
  for (uint32_t r = 0; r < part_count(); ++r) key = larger(key, board[r]);
  const bool draft = drafted_away(p, blockIdx.y, slot);
  const int32_t token = draft ? kNoDraft : id_of(key), length = p.slots.lengths[slot];
  p.out.tokens[blockIdx.y] = token;
  p.out.logprobs[blockIdx.y] = __int_as_float(0x7fc00000);
  p.out.ranks[blockIdx.y] = 0;
  p.out.top_counts[blockIdx.y] = 0;
  if (p.drafted || length >= p.slots.max_len) return;
  p.slots.tokens[static_cast<int64_t>(slot) * p.slots.max_len + length] = token;
  p.slots.lengths[slot] = length + 1;
}

}  // namespace

cudaError_t greedy(const SampleParams& p, const Launch& launch) {
  Layout layout;
  const cudaError_t error = layout_for(p.vocab, layout);
  if (error != cudaSuccess) return error;
  return launch_kernel(
      greedy_kernel,
      {.grid = dim3(static_cast<unsigned>(layout.parts), static_cast<unsigned>(p.rows)),
       .threads = kGreedyThreads,
       .cluster = layout.parts},
      launch, p, layout.slice);
}

}  // namespace inferd::cuda::sampler
