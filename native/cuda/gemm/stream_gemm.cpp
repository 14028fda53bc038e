// Host side of the streaming GEMM: which cuts of a shape are worth measuring, and the launch.
#include "cuda/gemm/stream_gemm.h"

#include <algorithm>
#include <array>

#include "cuda/gemm/stream_gemm_kernel.h"

namespace inferd::cuda {
namespace {

constexpr int32_t kChunk = 64;       // values of k in one box
constexpr int32_t kMostCluster = 8;  // more is not portable

int32_t ceil_div(int32_t a, int32_t b) { return (a + b - 1) / b; }

cudaError_t attribute(int* value, cudaDeviceAttr what) {
  int device = 0;
  const cudaError_t error = cudaGetDevice(&device);
  return error != cudaSuccess ? error : cudaDeviceGetAttribute(value, what, device);
}

int32_t cluster_size(const StreamGemmCut& cut) { return cut.across * cut.down * cut.splits; }
int32_t tile_width(const GemmArgs& p, const StreamGemmCut& cut) {  // columns of y
  return p.gated ? cut.columns / 2 : cut.columns;
}
int32_t w_pieces(const GemmArgs& p, const StreamGemmCut& cut) {
  return std::max(cut.down, p.gated ? 2 : 1);
}
int32_t tile_sets(const GemmArgs& p, const StreamGemmCut& cut) {
  return ceil_div(ceil_div(p.n, tile_width(p, cut)), cut.across);
}
// A halved cluster may be placed while the kernel ahead still holds multiprocessors. A large one
// may then find no GPC with room, and runs only after the others: 43 clusters of 5, where at most
// 47 fit, took 53 us instead of 33. Hence an eighth of the places is left free.
bool finds_places(const GemmArgs& p, const StreamGemmCut& cut) {
  return !cut.halved || cluster_size(cut) <= 2 || tile_sets(p, cut) * 8 <= cut.resident * 7;
}
bool power_of_two(int32_t x) { return x > 0 && (x & (x - 1)) == 0; }

// Sums of other parts of k arrive in the memory of the queues, of which there are at least 192 KB.
bool exchange_fits(const StreamGemmCut& cut) {
  const int32_t turns = ceil_div(ceil_div(cut.columns, 32), cut.splits);
  return cut.splits * turns * cut.groups * 8 <= (cut.halved ? 80 : 192);
}

// `p` in words: see as_words().
bool holds(const GemmArgs& p, const StreamGemmCut& cut) {
  return stream_gemm_has_tile(p.x_scales != nullptr, cut.groups, cut.columns, cut.halved) &&
         power_of_two(cut.across) && power_of_two(cut.down) && cut.splits >= 1 &&
         cluster_size(cut) <= kMostCluster && cut.resident > 0 &&
         cut.groups * 64 * cut.down >= p.m && cut.columns % (8 * w_pieces(p, cut)) == 0 &&
         (cut.splits == 1 || (!p.gated && p.k >= cut.splits * 2 * kChunk && exchange_fits(cut)));
}

// Microseconds by a model of an H200: memory, L2, tensor cores and shared memory each at its rate,
// and what comes after the last product. The constants are a fit to 1500 measured times of the cuts
// of Llama-3-8B's layers at 32 to 256 rows, made so that the fastest is among the first six, when
// tiles ended more slowly; they rank, and do not predict. A fit to 916 new times, with cuts among
// its six that were up to 9 % faster alone, made steps of 24 to 128 rows no shorter.
float estimate(const GemmArgs& p, const StreamGemmCut& cut, int32_t multiprocessors) {
  const int32_t sets = tile_sets(p, cut);
  const int32_t waves = ceil_div(sets, cut.resident);
  const float busy = static_cast<float>(std::min(sets, cut.resident) * cluster_size(cut));
  const float sms = static_cast<float>(multiprocessors);
  const float groups = static_cast<float>(cut.groups), columns = static_cast<float>(cut.columns);
  const float chunks = static_cast<float>(ceil_div(ceil_div(p.k, kChunk), cut.splits));
  // Cycles a chunk: of the tensor cores, of shared memory, of the queue.
  const float cycles = std::max({2 * groups * columns, groups * (columns + 128) + columns, 200.f});
  const float compute =
      std::max(1.f, busy / sms) * static_cast<float>(waves) * chunks * cycles / 1.96e3f;
  const float k_bytes = static_cast<float>(p.k) * 2;
  const float w_bytes = static_cast<float>(p.gated ? 2 * p.n : p.n) * k_bytes;
  const float x_bytes = static_cast<float>(p.m) * k_bytes * static_cast<float>(sets);
  // Few blocks do not keep all of memory busy.
  const float filled = busy / (cut.halved ? 2 * sms : sms);
  const float memory = w_bytes / (4.4e6f * std::min(1.f, 0.74f + 0.36f * filled));
  const float l2 = (w_bytes + x_bytes) / 32e6f;
  const float parts = static_cast<float>(cut.splits);
  const float exchange =
      cut.splits == 1 ? 0.f : groups * columns * 256 * (parts - 1) / parts / 17.7e3f - 0.87f;
  const bool shares_few = cut.groups == 1 && cut.down > 1;
  return 0.66f * std::max({compute, memory, l2}) + 0.34f * (compute + memory + l2) + exchange +
         (cut.halved ? 0.f : 0.36f) + (shares_few ? 0.72f * static_cast<float>(cut.down - 1) : 0.f);
}

}  // namespace

bool stream_gemm_takes(const GemmArgs& p) {
  int major = 0, minor = 0;
  const bool codes = float8_operands(p);
  const int32_t unit = codes ? 16 : 8;  // 16 bytes
  return (codes || plain_weights(p)) && p.m >= 1 && p.m <= kStreamGemmRows && p.n >= 1 &&
         p.k >= unit && p.k % unit == 0 && p.x_stride % unit == 0 && !p.norm_x &&
         !(p.gated && (p.add_to_y || p.out == GemmOut::kF32)) &&
         attribute(&major, cudaDevAttrComputeCapabilityMajor) == cudaSuccess && major == 9 &&
         attribute(&minor, cudaDevAttrComputeCapabilityMinor) == cudaSuccess && minor == 0 &&
         INFERD_MOST_MAJOR >= 9;
}

bool stream_gemm_has_tile(bool codes, int32_t groups, int32_t columns, bool halved) {
  const StreamLauncher launcher = codes ? stream_codes_launcher(Half::kF16, false, groups, columns)
                                        : stream_launcher(Half::kF16, groups, columns);
  return launcher != nullptr &&
         (!halved || columns <= (codes ? widest_codes_of_two(groups) : widest_of_two(groups)));
}

int32_t stream_gemm_cuts(const GemmArgs& args, std::span<StreamGemmCut> best) {
  const GemmArgs p = as_words(args);
  int multiprocessors = 0;
  if (attribute(&multiprocessors, cudaDevAttrMultiProcessorCount) != cudaSuccess) return 0;
  int32_t resident[2][kMostCluster + 1] = {};  // [halved][size]
  for (int32_t size = 1; size <= kMostCluster; ++size) {
    resident[0][size] = stream_gemm_resident(size, false);
    resident[1][size] = stream_gemm_resident(size, true);
  }
  std::array<float, 64> cost;  // of best[i]
  const size_t room = std::min(best.size(), cost.size());
  size_t count = 0;
  const auto consider = [&](const StreamGemmCut& cut) {
    if (!holds(p, cut) || !finds_places(p, cut)) return;
    const float us = estimate(p, cut, multiprocessors);
    if (count == room && (room == 0 || us >= cost[room - 1])) return;
    size_t at = count < room ? count++ : room - 1;
    for (; at > 0 && us < cost[at - 1]; --at) {
      best[at] = best[at - 1];
      cost[at] = cost[at - 1];
    }
    best[at] = cut;
    cost[at] = us;
  };
  for (int32_t groups = 1; groups <= 2; ++groups) {
    int32_t down = 1;
    while (groups * 64 * down < p.m) down *= 2;
    if (groups > 1 && (groups - 1) * 64 * down >= p.m) continue;  // fewer would do
    for (int32_t columns = kNarrowestTile; columns <= kWidestTile; columns += kTileStep) {
      for (int32_t across = 1; across <= 2; ++across) {
        for (int32_t splits = 1; splits <= kMostCluster; ++splits) {
          const int32_t size = across * down * splits;
          if (size > kMostCluster) continue;
          consider({groups, columns, across, down, splits, false, resident[0][size]});
          consider({groups, columns, across, down, splits, true, resident[1][size]});
        }
      }
    }
  }
  return static_cast<int32_t>(count);
}

cudaError_t stream_gemm(const GemmArgs& args, const StreamGemmCut& cut, const Launch& launch) {
  const GemmArgs p = as_words(args);
  if (!stream_gemm_takes(args) || !holds(p, cut)) return cudaErrorInvalidValue;
  const StreamLauncher launcher =
      args.x_scales == nullptr
          ? stream_launcher(p.type, cut.groups, cut.columns)
          : stream_codes_launcher(p.type, p.w.format == kFloat8Blocks, cut.groups, cut.columns);
  if (launcher == nullptr) return cudaErrorInvalidValue;
  const auto map = [&](const void* base, int64_t rows, int64_t stride, int32_t box_rows,
                       CUtensorMap& to) {
    const TensorView view = {.base = base,
                             .rank = 2,
                             .dims = {static_cast<cuuint64_t>(p.k), static_cast<cuuint64_t>(rows)},
                             .stride_bytes = {static_cast<cuuint64_t>(stride) * 2},
                             .box = {kChunk, static_cast<cuuint32_t>(box_rows)}};
    return encode_tensor_map(p.type, view, to);
  };
  CUtensorMap x_map, w_map;
  const int32_t tile_tokens = 64 * cut.groups;
  const int32_t x_box = cut.across * cut.down == 1 ? std::min(tile_tokens, ceil_div(p.m, 8) * 8)
                                                   : tile_tokens / cut.across;
  cudaError_t error = map(p.x, p.m, p.x_stride, x_box, x_map);
  if (error != cudaSuccess) return error;
  const int32_t pieces = w_pieces(p, cut);
  error = map(p.w.codes, p.gated ? int64_t{2} * p.n : p.n, p.k, cut.columns / pieces, w_map);
  if (error != cudaSuccess) return error;
  const int64_t y_bytes = p.out == GemmOut::kF32 ? 4 : 2;
  const StreamGemmParams params = {.y = p.y,
                                   .bias = p.bias,
                                   .y_stride = p.y_stride,
                                   .m = p.m,
                                   .n = p.n,
                                   .k = p.k,
                                   .tile_sets = tile_sets(p, cut),
                                   .across = cut.across,
                                   .down = cut.down,
                                   .splits = cut.splits,
                                   .x_stages = 0,
                                   .w_stages = 0,
                                   .x_box = x_box,
                                   .w_pieces = pieces,
                                   .f32_out = p.out == GemmOut::kF32,
                                   .gated = p.gated,
                                   .add_to_y = p.add_to_y,
                                   .wide_access = p.n % 8 == 0 && p.y_stride * y_bytes % 16 == 0 &&
                                                  reinterpret_cast<uintptr_t>(p.y) % 16 == 0,
                                   .codes = codes_view(args)};
  // Blocks that split k exchange their sums through the memory of their queues: one tile each.
  const int32_t clusters =
      cut.splits > 1 ? params.tile_sets : std::min(params.tile_sets, cut.resident);
  return launcher(cluster_size(cut), clusters, cut.halved, params, x_map, w_map, launch);
}

}  // namespace inferd::cuda
