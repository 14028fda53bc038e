// Linear products: their weights, and what the ops of backend.h are told.
#pragma once
#include <cstdint>
#include <memory>

#include "core/adapters.h"
#include "core/gate.h"
#include "core/tensor.h"
#include "core/weight_format.h"

namespace inferd {

// What becomes of a product y = x w^T (+ bias); with LinearArgs::out:
enum class Epilogue {
  kStore,  // out = y
  kAdd,    // out += y
  kGated,  // out [n, d] = gate(g) * u, where y = [g | u] is [n, 2d]
};

struct WeightSpec {
  int64_t rows = 0;  // output features
  int64_t cols = 0;  // input features
  WeightFormat format;
  // How it is used, which a backend tunes for.
  Epilogue epilogue = Epilogue::kStore;
  Gate gate = Gate::kSilu;
  bool stacked = false;  // of several experts, for mix_experts: no product takes all of it
  // All ranks of a group compute the same bits with it, of the same x: no rank chooses how by
  // measuring.
  bool alike = false;
  // Its rows are looked up too, by embed_weight, and more exactly than products need them.
  bool looked_up = false;
};

// A linear weight in the backend's own layout (repacked for the instruction set or tensor cores).
// Its owner lets go of it before the backend.
struct PackedWeight : WeightSpec {
  explicit PackedWeight(const WeightSpec& spec) : WeightSpec(spec) {}
  virtual ~PackedWeight() = default;
};
using PackedWeightPtr = std::unique_ptr<PackedWeight>;

// The norm ahead of a linear op: x / sqrt(mean(x^2) + eps) * weight, a row at a time.
struct NormArgs {
  Tensor scratch;       // of the shape of x: may hold the result
  const float* weight;  // [cols] device; null: folded into the linear's weight by scale_columns
  float eps;
};

// A product by a weight, what is done to x before and to the result after.
struct LinearArgs {
  Tensor out;
  Tensor x;  // [n, inputs]
  const PackedWeight* weight;
  const float* bias = nullptr;     // [outputs] device, or null
  const NormArgs* norm = nullptr;  // not null: of x normalized, which itself stays as it is
  Epilogue epilogue = Epilogue::kStore;
  Tensor scratch{};  // of the shape of y, for epilogues other than kStore: may hold y
  Gate gate = Gate::kSilu;
  // Both or none: what adapters add to y, ahead of the epilogue.
  const AdapterBank* bank = nullptr;
  const AdapterRows* adapters = nullptr;  // of the rows of x
};

// What reads a matrix next, after an op that adds to it.
enum class NextReader {
  kAny,
  kOneLinear,  // one linear op with a norm ahead, of all rows; what else is read comes later
};

}  // namespace inferd
