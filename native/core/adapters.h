// Adapters: low-rank additions to the linears of a model (LoRA, Hu et al. 2021). A linear y = W x
// becomes, for the rows of a batch that use an adapter,
//
//   y[section] += B (A x)        A [rank, inputs], B [outputs of the section, rank]
//
// A backend keeps the factors of a few adapters at once, each in a place. Rows name places, so one
// batch may hold rows of many adapters and rows of none. A place may be filled while steps that do
// not use it are in flight.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/plan/adapter_rows.h"

namespace inferd {

// What an adapter adds to one section of a linear; host memory, f32. The factor of the adapter
// (alpha / rank) is part of `b`.
struct AdapterFactors {
  int32_t section = 0;
  int32_t rank = 0;
  std::vector<float> a;  // [rank, inputs]
  std::vector<float> b;  // [outputs of the section, rank]
};

// Of one linear: how wide it is, and for how many adapters of which ranks there is room.
struct AdapterBankSpec {
  int64_t inputs = 0;
  std::vector<int64_t> outputs;  // of each section, which lie one behind the other in y
  int32_t places = 0;
  int32_t max_rank = 0;
};

// The factors of all places of one linear, in the backend's own layout. Its owner lets go of it
// before the backend.
struct AdapterBank : AdapterBankSpec {
  explicit AdapterBank(const AdapterBankSpec& spec) : AdapterBankSpec(spec) {}
  virtual ~AdapterBank() = default;
};
using AdapterBankPtr = std::unique_ptr<AdapterBank>;

// What one adapter adds to one linear, in host memory and in the layout of the backend, ready to
// take a place.
struct AdapterImage {
  virtual ~AdapterImage() = default;
};
using AdapterImagePtr = std::unique_ptr<AdapterImage>;

}  // namespace inferd
