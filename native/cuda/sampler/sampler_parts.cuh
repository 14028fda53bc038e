// The blocks that share one row of logits, and what they tell each other.
//
// A row is cut into parts, one block each: a cluster (compute capability 9.0) whose blocks write to
// each other's shared memory; elsewhere one block with the whole row. All functions are called by
// all threads of all parts of a row unless they say otherwise.
//
//   id   0 ......... begin(1) ........ begin(2) ...            vocab
//        part 0       part 1            part 2        ...  part n - 1
#pragma once
#include "cuda/device/common.cuh"

namespace inferd::cuda::sampler {

constexpr int kThreads = 512, kWarps = kThreads / kWarp;
constexpr int kMaxParts = 8;
constexpr int kBins = 2048, kGroups = kBins / kWarp;  // bins are searched in groups of a warp
constexpr int kListMax = 1024;                        // candidates that one part can sort
static_assert(kListMax == 2 * kThreads);

// Where the wanted count or mass is reached, going from the best bin on.
struct Bound {
  double before;  // in better bins
  double inside;  // in this bin
  double goal;
  int32_t bin;
  int32_t found;  // 0: the bins hold less than the goal
};

struct alignas(16) Shared {
  uint64_t keys[kListMax];  // the list of candidates
  uint32_t bins[2 * kBins];
  float masses[kListMax];  // of the list
  double groups[kGroups];  // sums of kWarp bins
  double folds[kWarps];
  uint64_t words[kWarps];
  uint64_t board[2][kMaxParts];  // a word of each part
  Bound bound;
  double uniform;
  int32_t list_count, crossing, token;

  // Counts, or the low and high words of masses.
  __device__ uint32_t* low() { return bins; }
  __device__ uint32_t* high() { return bins + kBins; }
  __device__ const uint32_t* low() const { return bins; }
  __device__ const uint32_t* high() const { return bins + kBins; }
};

__device__ inline uint32_t part_rank() {
  uint32_t rank = 0;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
  return rank;
}

__device__ inline uint32_t part_count() {
  uint32_t count = 1;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(count));
#endif
  return count;
}

// Barrier of all threads of all parts; orders their shared memory accesses, remote ones too.
__device__ inline void parts_sync() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
#else
  __syncthreads();
#endif
}

// A part's shared memory may be written from afar only once its block has begun: every thread
// says so first, and waits for all others before its part's first remote write. A kernel may end
// without the wait.
__device__ inline void parts_begin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
#endif
}
__device__ inline void parts_have_begun() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
}

// The same variable in another part's shared memory.
template <typename T>
__device__ T* of_part(T* mine, uint32_t rank) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  uint64_t theirs;
  asm("mapa.u64 %0, %1, %2;" : "=l"(theirs) : "l"(reinterpret_cast<uint64_t>(mine)), "r"(rank));
  return reinterpret_cast<T*>(theirs);
#else
  return mine;
#endif
}

// Shows `mine` (the same in the first threads of the part) to all parts; returns the words of all.
// They stay until the second call from here. `turn` starts anywhere and is the same in all threads.
__device__ inline const uint64_t* show(Shared& s, int& turn, uint64_t mine) {
  turn ^= 1;
  if (threadIdx.x < part_count()) *of_part(&s.board[turn][part_rank()], threadIdx.x) = mine;
  parts_sync();
  return s.board[turn];
}

// Folds a value of each thread over all parts; the order is fixed, the result the same everywhere.
template <class Op>
__device__ uint64_t fold_parts(Shared& s, int& turn, uint64_t x, const Op& op) {
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) x = op(x, __shfl_xor_sync(kFullWarp, x, step));
  if (lane == 0) s.words[warp] = x;
  __syncthreads();
  if (warp == 0) {
    x = s.words[lane % kWarps];
#pragma unroll
    for (int step = kWarps / 2; step > 0; step /= 2) x = op(x, __shfl_xor_sync(kFullWarp, x, step));
  }
  const uint64_t* all = show(s, turn, x);
  uint64_t result = all[0];
  for (uint32_t r = 1; r < part_count(); ++r) result = op(result, all[r]);
  return result;
}

__device__ inline uint64_t max_of_parts(Shared& s, int& turn, uint64_t x) {
  return fold_parts(s, turn, x, [](uint64_t a, uint64_t b) { return a > b ? a : b; });
}
__device__ inline uint64_t count_of_parts(Shared& s, int& turn, uint64_t x) {
  return fold_parts(s, turn, x, [](uint64_t a, uint64_t b) { return a + b; });
}
__device__ inline double as_double(uint64_t bits) {
  return __longlong_as_double(static_cast<long long>(bits));
}
__device__ inline uint64_t as_bits(double x) {
  return static_cast<uint64_t>(__double_as_longlong(x));
}
__device__ inline double sum_of_parts(Shared& s, int& turn, double x) {
  return as_double(fold_parts(s, turn, as_bits(x), [](uint64_t a, uint64_t b) {
    return as_bits(as_double(a) + as_double(b));
  }));
}

// Inclusive sum over the lanes of a warp, and its total.
__device__ inline double warp_prefix(double x, double& total) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int step = 1; step < kWarp; step *= 2) {
    const double before = __shfl_up_sync(kFullWarp, x, step);
    if (lane >= step) x += before;
  }
  total = __shfl_sync(kFullWarp, x, kWarp - 1);
  return x;
}

// The lane of a warp at which `held` plus the lanes' masses passes the target; by rounding the last
// that has mass. `held` becomes what lies before it.
__device__ inline int passing_lane(double mass, double target, double& held) {
  double total;
  const double upto = held + warp_prefix(mass, total);
  unsigned hits = __ballot_sync(kFullWarp, upto > target && mass > 0);
  if (hits == 0) hits = 1u << (31 - __clz(__ballot_sync(kFullWarp, mass > 0) | 1));
  const int lane = __ffs(static_cast<int>(hits)) - 1;
  held = __shfl_sync(kFullWarp, upto - mass, lane);
  return lane;
}

}  // namespace inferd::cuda::sampler
