// Who carries the sums of a group of GPUs. Pure: all its ranks ask the same and find the same.
#pragma once
#include <optional>
#include <string>
#include <utility>

#include "core/comm.h"

namespace inferd::cuda {

// Two GPUs, of which the first cannot reach the memory of the second.
using Apart = std::pair<int32_t, int32_t>;

struct AllReduceWay {
  bool nccl = false;
  std::string refusal;  // one sentence; empty: it can be done so
};

//   asked   the GPUs reach each other   some do not
//   own     own                         own, which refuses them when it joins them (rank_group)
//   nccl    NCCL, or refused            NCCL, or refused
//   auto    own                         NCCL, or refused
//
// `nccl_problem()` is why NCCL cannot be used, or ""; not called where it does not matter, as it
// opens a library.
template <typename Problem>
AllReduceWay choose_all_reduce(AllReduce asked, const std::optional<Apart>& apart,
                               const Problem& nccl_problem) {
  if (asked == AllReduce::kOwn || (asked == AllReduce::kAuto && !apart.has_value())) return {};
  const std::string problem = nccl_problem();
  if (problem.empty()) return {.nccl = true, .refusal = ""};
  if (asked == AllReduce::kNccl)
    return {.nccl = true, .refusal = "parallel.all_reduce is \"nccl\", but: " + problem};
  return {.nccl = true,
          .refusal = format("GPU %d cannot reach the memory of GPU %d, which ranks of one model "
                            "need; choose others in inference.device_ids, or have NCCL carry their "
                            "sums, but: %s",
                            apart->first, apart->second, problem.c_str())};
}

}  // namespace inferd::cuda
