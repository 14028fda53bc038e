// 1. y = x w^T (+ bias) (+ y), or y = silu(x w_gate^T) * (x w_up^T), for 129 to 256 rows: full
//    decode batches and short prompts, in one launch.
// 2. x [m, k] and w [n, k] (gated: [2 n, k], gate rows first) f16 or bf16, y [m, n] of that type,
//    bias of it or null; rows 16-byte aligned, w packed: see gemm_args.h.
// 3. A cluster of two blocks takes all rows of x by 192 rows of w, gated also 224 or 256, each
//    block 128 of the rows of x, so that w is fetched once:
//
//      warpgroup 0   one thread: its block's 128 rows of x, half of the rows of w for both blocks
//      warpgroup 1   rows 0 .. 63 of the block: product, then what becomes of it
//      warpgroup 2   rows 64 .. 127
//
//    Gated tiles are half gate rows and half the matching up rows, so one thread holds both
//    factors; they are as narrow as fills the last wave of clusters. Of the others there are few
//    tiles, and clusters may share the k of one: each leaves its sums in device memory, and the
//    last one to come (a ticket) adds them up in their order. None waits for another.
// 4. 194 to 222 KB: 4 or 5 stages of 64 of k. 232 registers a consumer thread, of which 96 to 128
//    are sums and 48 y to be added; 40 in the producer.
// 5. f32 sums, bias, gate and addition, rounded once to 16 bits: relative error below 2^-8 (bf16)
//    and 2^-11 (f16). The same bits every time.
// 6. Compute capability 9.0; see large_gemm.h.
// 7. 2 m n k flops (gated: 4) and 2 n k (gated: 4) bytes, whichever takes longer. H100, us, back to
//    back with early starts, best cut (beside it cuBLASLt's best of 8, with the kernel of the gate;
//    the read ceiling of w):
//
//      m     gate_up 2x14336x4096   2x12288x4096       down 4096x14336    4096x12288
//      192   86.8 (101.0, 75.3)     81.1 (85.5, 64.6)  55.8 (50.3, 37.7)  51.3 (43.0, 32.3)
//      256   92.4 (107.8)           78.0 (90.6)        56.1 (56.2)        49.1 (50.9)
//
//    Steps of Qwen3-8B, with cuBLASLt alone and with this kernel beside it: 256x128 10.33, 9.94 ms,
//    a prompt of 256 tokens 8.5, 8.2, of 192 8.1, 7.7. Inside one of 256x128 gate_up takes 82 us
//    where product and gate took 90, down 51 where product and sum of parts took 54: there the card
//    is at its 700 W and runs at 1,650 of 1,980 MHz, so that a product costs more than alone. So
//    does an H200, at 1,480 MHz: 256 rows, us, in loops of 2 ms and of 0.2 s (cuBLASLt): gate_up
//    85.2, 100.1 (92.4, 103.3), down 49.9, 58.4 (49.4, 56.8).
// 8. Warp specialisation as in CUTLASS's cooperative kernels; parts of k: its split-K serial.
// 9. Tried, H100, us: parts that wait for all others and finish a share of the columns each, down
//    at 256 rows 53.6 and 47.4, but blocks that wait need all of them to run at a time, which two
//    models on a card do not promise. qkv and o of so few columns: 28.3 and 24.3, cuBLASLt 22.8 and
//    17.2. Up to 768 rows, clusters below one another: 384 rows 198.6 and 167.6 (gate_up), cuBLASLt
//    140.5 and 120.9; 512 rows 197.3 and 167.5, 191.9 and 160.1. 128 rows, half of a cluster idle:
//    92.1 and 86.0, cuBLASLt 92.6 and 79.7. H200, gate_up at 256 rows: clusters of four, which also
//    share x, 102.0 with tiles of 256 (of two 103.9), 132.7 with 224, of which only 30 clusters run
//    at a time (of two 88.1).
#include <algorithm>
#include <vector>

#include "cuda/device/device_limits.h"
#include "cuda/device/tensor_map.h"
#include "cuda/gemm/batch/batch_gemm_sums.cuh"

namespace inferd::cuda {
namespace {

template <typename T, bool kGated, int kColumns>
__global__ void __launch_bounds__(kBatchThreads, 1)
    batch_gemm_kernel(const __grid_constant__ BatchGemmParams p,
                      const __grid_constant__ CUtensorMap x_map,
                      const __grid_constant__ CUtensorMap w_map) {
#ifdef INFERD_HOPPER
  using Shared = BatchShared<kColumns>;
  extern __shared__ uint8_t raw[];
  // The launcher adds 1 KB for the alignment, which is the same in all blocks of a cluster.
  Shared& s = *reinterpret_cast<Shared*>(raw + (0u - shared_address(raw)) % kBatchAtomBytes);
  if (threadIdx.x == 0) {
    for (int i = 0; i < Shared::kStages; ++i) {
      barrier_init(&s.full[i], 1);
      barrier_init(&s.free[i], kBatchCluster * 2);  // the consumers of all
    }
    barrier_init_fence();
  }
  cluster_sync();
  let_next_start();
  if (threadIdx.x < 128) {
    give_registers<40>();
    if (threadIdx.x == 0) feed_batch<kGated, kColumns>(p, s, &x_map, &w_map);
    __syncwarp();
  } else {
    take_registers<232>();
    wait_for_previous();
    BatchConsumer<T, kGated, kColumns>(p, s).run();
  }
  // A block may not end while another of its cluster arrives at its barriers.
  cluster_sync();
#endif
}

int32_t ceil_div(int32_t a, int32_t b) { return (a + b - 1) / b; }

int32_t cluster_count() {
  DeviceLimits limits;
  return ask_limits(limits) == cudaSuccess ? limits.multiprocessors / kBatchCluster : 0;
}
int32_t tiles_of(const GemmArgs& p, const BatchGemmCut& cut) {
  return ceil_div(p.n, p.gated ? cut.columns / 2 : cut.columns);
}
int32_t steps_of(const GemmArgs& p) { return ceil_div(p.k, kBatchDepth); }

// Whether the product can be cut so, and has room for it.
bool holds(const GemmArgs& p, const BatchGemmCut& cut) {
  if (cut.splits == 1) return true;
  const int32_t blocks = tiles_of(p, cut) * kBatchCluster;
  const size_t bytes = size_t{4} * kBatchRows * static_cast<size_t>(cut.columns) *
                       static_cast<size_t>(blocks * cut.splits);
  return !p.gated && cut.splits > 1 && steps_of(p) >= 4 * cut.splits && bytes <= p.spare.bytes &&
         p.tickets != nullptr && blocks <= kGemmTickets;
}

// Stages times columns of the cluster that has the most to do, which ranks cuts.
int32_t longest(const GemmArgs& p, const BatchGemmCut& cut, int32_t clusters) {
  constexpr int32_t kEnds = 4, kGather = 8;  // stages' time that ends take
  const int32_t items = tiles_of(p, cut) * cut.splits;
  const int32_t each = ceil_div(steps_of(p), cut.splits) + kEnds + (cut.splits > 1 ? kGather : 0);
  return ceil_div(items, clusters) * each * cut.columns;
}

template <typename T, bool kGated, int kColumns>
cudaError_t launch_tile(BatchGemmParams p, const CUtensorMap& x_map, const CUtensorMap& w_map,
                        const Launch& launch) {
  constexpr size_t kBytes = sizeof(BatchShared<kColumns>) + kBatchAtomBytes;
  static_assert(kBytes <= 227 * 1024);
  return launch_kernel(batch_gemm_kernel<T, kGated, kColumns>,
                       {.grid = dim3(static_cast<unsigned>(p.clusters * kBatchCluster)),
                        .threads = kBatchThreads,
                        .shared_bytes = kBytes,
                        .cluster = kBatchCluster},
                       launch, p, x_map, w_map);
}

using Launcher = cudaError_t (*)(BatchGemmParams p, const CUtensorMap& x_map,
                                 const CUtensorMap& w_map, const Launch& launch);
template <typename T>
Launcher launcher_of(bool gated, int32_t columns) {
  if (columns == 192) return gated ? launch_tile<T, true, 192> : launch_tile<T, false, 192>;
  if (columns == 224 && gated) return launch_tile<T, true, 224>;
  if (columns == 256 && gated) return launch_tile<T, true, 256>;
  return nullptr;
}

}  // namespace

bool batch_gemm_takes(const GemmArgs& p) {
  return plain_weights(p) && p.m <= kBatchGemmRows && large_gemm_takes(p);
}

int32_t batch_gemm_cuts(const GemmArgs& p, std::span<BatchGemmCut> best) {
  const int32_t clusters = cluster_count();
  if (clusters == 0) return 0;
  std::vector<BatchGemmCut> cuts;
  for (const int32_t columns : {256, 224, 192}) {
    if (columns != 192 && !p.gated) continue;
    for (const int32_t splits : {1, 2, 3, 4})
      if (const BatchGemmCut cut{columns, splits}; holds(p, cut)) cuts.push_back(cut);
  }
  std::stable_sort(cuts.begin(), cuts.end(), [&](const BatchGemmCut& a, const BatchGemmCut& b) {
    return longest(p, a, clusters) < longest(p, b, clusters);
  });
  const size_t count = std::min(best.size(), cuts.size());
  std::copy_n(cuts.begin(), count, best.begin());
  return static_cast<int32_t>(count);
}

cudaError_t batch_gemm(const GemmArgs& p, const BatchGemmCut& cut, const Launch& launch) {
  const int32_t clusters = cluster_count();
  const Launcher launcher = p.type == Half::kBF16 ? launcher_of<__nv_bfloat16>(p.gated, cut.columns)
                                                  : launcher_of<__half>(p.gated, cut.columns);
  if (launcher == nullptr || !batch_gemm_takes(p) || cut.splits < 1 || clusters == 0 ||
      !holds(p, cut))
    return cudaErrorInvalidValue;
  const auto k = static_cast<uint64_t>(p.k);
  const auto map = [&](const void* base, int64_t rows, int64_t stride, int32_t box_rows,
                       CUtensorMap& to) {
    return encode_tensor_map(p.type,
                             {.base = base,
                              .rank = 2,
                              .dims = {k, static_cast<uint64_t>(rows)},
                              .stride_bytes = {static_cast<uint64_t>(stride) * 2},
                              .box = {kBatchDepth, static_cast<uint32_t>(box_rows)}},
                             to);
  };
  CUtensorMap x_map, w_map;
  cudaError_t error = map(p.x, p.m, p.x_stride, kBatchRows, x_map);
  if (error != cudaSuccess) return error;
  error = map(p.w.codes, int64_t{p.n} * (p.gated ? 2 : 1), p.k, cut.columns / kBatchCluster, w_map);
  if (error != cudaSuccess) return error;
  const int32_t tiles = tiles_of(p, cut);
  return launcher({.y = p.y,
                   .bias = p.bias,
                   .y_stride = p.y_stride,
                   .m = p.m,
                   .n = p.n,
                   .k_steps = steps_of(p),
                   .tiles = tiles,
                   .splits = cut.splits,
                   .clusters = std::min(clusters, tiles * cut.splits),
                   .add_to_y = p.add_to_y,
                   .partials = static_cast<float4*>(p.spare.data),
                   .tickets = p.tickets},
                  x_map, w_map, launch);
}

}  // namespace inferd::cuda
