// Mixture of experts: see core/experts.h. Inside run_step, on its thread.
#include <algorithm>

#include "cuda/cuda_backend.h"
#include "cuda/experts/experts.h"

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

// How many pairs there are here is known on the device alone: the pieces are of those that there
// may be.
void CudaBackend::mix_experts(const ExpertArgs& a) {
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
                          .w = static_cast<const CudaWeight&>(*a.gate_up).view().codes,
                          .w_rows = stacked_rows(2 * a.inner),
                          .bias = a.gate_up_bias,
                          .y = a.activated.data,
                          .outputs = inner,
                          .k = hidden};
    check(gated_expert_product(half_, a.gate, product, launch()), "experts, gate and up");
    product.pairs = nullptr;
    product.x = a.activated.data;
    product.x_stride = a.activated.stride[0];
    product.w = static_cast<const CudaWeight&>(*a.down).view().codes;
    product.w_rows = stacked_rows(hidden);
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
                       .ends = first + room >= pairs},
                      launch()),
          "experts, sum");
  }
}

}  // namespace inferd::cuda
