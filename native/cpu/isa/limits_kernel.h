// Loops that do nothing but reach a limit of the machine: reading, fused multiply-adds, byte dot
// products. Benchmarks run them beside the real work, on the same threads, so that a figure can be
// given as a share of what was possible at that moment. Over the vector face `Simd`.
#pragma once
#include "cpu/isa/kernels.h"

namespace inferd::cpu {
namespace {

// Four streams with prefetches into the second-level cache: as fast as any way that was tried.
float read_all(const float* data, int64_t n) {
  constexpr int kLine = 64 / static_cast<int>(sizeof(float));
  constexpr int kAheadFloats = 2048 / static_cast<int>(sizeof(float));
  const int64_t part = n / 4 / kLine * kLine;
  Simd::V sum[4] = {Simd::zero(), Simd::zero(), Simd::zero(), Simd::zero()};
  for (int64_t i = 0; i < part; i += kLine) {
#pragma GCC unroll 4
    for (int s = 0; s < 4; ++s) {
      const float* p = data + s * part + i;
      __builtin_prefetch(p + kAheadFloats, 0, 2);
#pragma GCC unroll 16
      for (int j = 0; j < kLine; j += Simd::kWidth) sum[s] = Simd::add(sum[s], Simd::load(p + j));
    }
  }
  return Simd::sum(Simd::add(Simd::add(sum[0], sum[1]), Simd::add(sum[2], sum[3])));
}

// Twelve independent chains hide the latency of a multiply-add on every known core.
constexpr int kChains = 12;

float fma_chains(int64_t steps) {
  Simd::V acc[kChains];
  for (int i = 0; i < kChains; ++i) acc[i] = Simd::set(static_cast<float>(i));
  const Simd::V a = Simd::set(0.999f), b = Simd::set(0.5f);
  for (int64_t s = 0; s < steps; ++s) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) acc[i] = Simd::fma(acc[i], a, b);
  }
  Simd::V sum = acc[0];
  for (int i = 1; i < kChains; ++i) sum = Simd::add(sum, acc[i]);
  return Simd::sum(sum);
}

constexpr int64_t kFmaStepFlops = int64_t{2} * kChains * Simd::kWidth;

}  // namespace
}  // namespace inferd::cpu
