// Which tokens of a step are asked for hidden states, and what that leaves of its rows.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "core/plan/adapter_rows.h"
#include "core/plan/step_plan.h"

namespace inferd {

// Tokens of the batch whose hidden states are asked for, in any order; one may come twice.
struct Picks {
  const int32_t* rows = nullptr;       // [count] device
  const int32_t* host_rows = nullptr;  // the same on the host
  int32_t count = 0;
  const AdapterRows* adapters = nullptr;  // of the picks; null: none uses an adapter
};

// Tokens [begin, end) of a row, counted from the row's first in the batch.
struct TokenSpan {
  int32_t begin, end;
};

// The least span of each row that holds all of its picked tokens. Keeps its memory for the next
// step.
class PickedSpans {
 public:
  // One span a row, empty where nothing is picked; whole rows when `picks` is null. Valid until the
  // next call.
  std::span<const TokenSpan> of(std::span<const PlanRow> rows, const Picks* picks) {
    spans_.resize(std::max(spans_.size(), rows.size()));
    if (picks != nullptr) {
      sorted_.assign(picks->host_rows, picks->host_rows + picks->count);
      std::sort(sorted_.begin(), sorted_.end());
    }
    auto next = sorted_.cbegin();
    int32_t first = 0;
    for (size_t r = 0; r < rows.size(); ++r) {
      TokenSpan& span = spans_[r];
      span = {0, picks == nullptr ? rows[r].count : 0};
      const int32_t end = first + rows[r].count;
      if (picks != nullptr) {
        if (next != sorted_.cend() && *next < end) span.begin = *next - first;
        for (; next != sorted_.cend() && *next < end; ++next) span.end = *next - first + 1;
      }
      first = end;
    }
    return {spans_.data(), rows.size()};
  }

 private:
  std::vector<int32_t> sorted_;
  std::vector<TokenSpan> spans_;
};

}  // namespace inferd
