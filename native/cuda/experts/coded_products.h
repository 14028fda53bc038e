// Products of experts whose weights are codes in tiles (rows/coded_layout.h): see
// coded_products.cu.
#pragma once
#include "cuda/experts/experts.h"

namespace inferd::cuda {

// As gated_expert_product() or plain_expert_product(), of p.coded.
cudaError_t coded_expert_product(Half type, bool gated, Gate gate, const ExpertProduct& p,
                                 const Launch& launch);

}  // namespace inferd::cuda
