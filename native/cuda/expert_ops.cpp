// Mixture of experts: see core/experts.h. Inside run_step, on its thread.
#include <algorithm>

#include "cuda/cuda_backend.h"
#include "cuda/experts/experts.h"
#include "cuda/experts/grouped_gemm.h"
#include "cuda/experts/groups.h"
#include "cuda/rows/activation.h"

namespace inferd::cuda {

void CudaBackend::route(const RouteArgs& a) {
  check(route_tokens({.logits = a.logits.as<const float>(),
                      .correction = a.correction,
                      .positions = a.positions,
                      .rule = a.rule,
                      .tokens = static_cast<int32_t>(a.logits.rows()),
                      .first_held = a.first_held,
                      .held = a.held,
                      .routing = a.routing},
                     launch()),
        "route");
}

void CudaBackend::gate_rows(Tensor inout, const Tensor& logits) {
  check(cuda::gate_rows(half_, inout.data, logits.as<const float>(), logits.stride[0], inout.rows(),
                        static_cast<int32_t>(inout.cols()), launch()),
        "gate_rows");
}

namespace {

void take_weight(ExpertProduct& product, const PackedWeight* weight, int64_t rows) {
  const auto& w = static_cast<const CudaWeight&>(*weight);
  product.w = w.view().codes;
  product.w_rows = stacked_rows(rows);
  product.coded = w.coded();
  if (w.coded()) product.layout = w.layout();
}

// Tokens an expert, on average, from which on products go by tiles of kGroupTileRows.
constexpr int32_t kManyTokens = 48;

}  // namespace

// Many tokens an expert: their rows side by side, and products by the large GEMM. False where it
// does not take them.
bool CudaBackend::mix_expert_groups(const ExpertArgs& a) {
  const auto hidden = static_cast<int32_t>(a.out.cols()), inner = static_cast<int32_t>(a.inner);
  const auto tokens = static_cast<int32_t>(a.out.rows()), pairs = tokens * a.chosen;
  const int32_t room = static_cast<int32_t>(std::min(a.gathered.rows(), a.activated.rows())) -
                       a.held * (kGroupRowStep - 1);
  if (pairs / a.held < kManyTokens || std::min(room, pairs) / a.held < kManyTokens ||
      a.gate_up->format.scaled || a.down->format.scaled || a.gate != Gate::kSilu ||
      a.gate_up_bias != nullptr || a.down_bias != nullptr) {
    return false;
  }
  ExpertRows rows{.routing = a.routing,
                  .first_held = a.first_held,
                  .held = a.held,
                  .chosen = a.chosen,
                  .first = 0,
                  .count = std::min(room, pairs)};
  place_expert_rows(rows, a.products.data);
  GroupedGemmArgs gate_up{.x = a.gathered.data,
                          .w = static_cast<const CudaWeight&>(*a.gate_up).view().codes,
                          .y = a.activated.data,
                          .rows = rows.rows(),
                          .groups = a.held,
                          .w_step = static_cast<int32_t>(stacked_rows(2 * a.inner)),
                          .n = inner,
                          .k = hidden,
                          .tiles = rows.tiles,
                          .tile_count = rows.tile_count,
                          .most_tiles = rows.most_tiles(),
                          .gated = true};
  if (expert_row_bytes(rows) > static_cast<size_t>(a.products.rows() * a.products.cols()) * 2 ||
      !grouped_gemm_takes(gate_up) || a.x.stride[0] % 8 != 0) {
    return false;
  }
  for (; rows.first < pairs; rows.first += room) {
    rows.count = std::min(room, pairs - rows.first);
    check(plan_expert_rows(rows, launch()), "experts, plan");
    check(gather_expert_rows(rows, a.x.data, a.x.stride[0], a.gathered.data, hidden, launch()),
          "experts, gather");
    check(grouped_gemm(half_, gate_up, launch()), "experts, gate and up");
    GroupedGemmArgs down = gate_up;
    down.x = a.activated.data;
    down.w = static_cast<const CudaWeight&>(*a.down).view().codes;
    down.y = a.downs.data;  // 16 bits of the 32 that there is room for
    down.w_step = static_cast<int32_t>(stacked_rows(hidden));
    down.n = hidden;
    down.k = inner;
    down.gated = false;
    check(grouped_gemm(half_, down, launch()), "experts, down");
    check(sum_expert_rows(half_, rows,
                          {.sums = a.sums.as<float>(),
                           .out = a.out.data,
                           .downs = a.downs.data,
                           .tokens = tokens,
                           .cols = hidden,
                           .starts = rows.first == 0,
                           .ends = rows.first + room >= pairs,
                           .adds = a.add_to_out},
                          launch()),
          "experts, sum");
  }
  return true;
}

// How many pairs there are here is known on the device alone: the pieces are of those that there
// may be.
void CudaBackend::mix_experts(const ExpertArgs& a) {
  if (mix_expert_groups(a)) return;
  const auto hidden = static_cast<int32_t>(a.out.cols()), inner = static_cast<int32_t>(a.inner);
  const auto tokens = static_cast<int32_t>(a.out.rows()), pairs = tokens * a.chosen;
  const auto room = static_cast<int32_t>(a.activated.rows());
  for (int32_t first = 0; first < pairs; first += room) {
    ExpertProduct product{.offsets = a.routing.offsets,
                          .pairs = a.routing.pairs,
                          .chosen = a.chosen,
                          .held = a.held,
                          .first = first,
                          .count = std::min(room, pairs - first),
                          .x = a.x.data,
                          .x_stride = a.x.stride[0],
                          .w = nullptr,
                          .w_rows = 0,
                          .coded = false,
                          .layout = {},
                          .bias = a.gate_up_bias,
                          .y = a.activated.data,
                          .outputs = inner,
                          .k = hidden};
    take_weight(product, a.gate_up, 2 * a.inner);
    check(gated_expert_product(half_, a.gate, product, launch()), "experts, gate and up");
    product.pairs = nullptr;
    product.x = a.activated.data;
    product.x_stride = a.activated.stride[0];
    take_weight(product, a.down, hidden);
    product.bias = a.down_bias;
    product.y = a.downs.data;
    product.outputs = hidden;
    product.k = inner;
    check(plain_expert_product(half_, product, launch()), "experts, down");
    check(sum_experts(half_,
                      {.sums = a.sums.as<float>(),
                       .out = a.out.data,
                       .downs = a.downs.as<const float>(),
                       .weights = a.routing.weights,
                       .places = a.routing.places,
                       .tokens = tokens,
                       .chosen = a.chosen,
                       .cols = hidden,
                       .first = first,
                       .count = product.count,
                       .starts = first == 0,
                       .ends = first + room >= pairs,
                       .adds = a.add_to_out},
                      launch()),
          "experts, sum");
  }
}

}  // namespace inferd::cuda
