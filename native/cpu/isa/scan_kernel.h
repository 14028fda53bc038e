// Kernels over the logits of one row for the sampler: largest, first largest, exponentials with
// block sums, rank. Over `Simd`.
//
// NaN never wins: vector max returns its second operand where the first is NaN, and ordered
// compares are false on NaN.
#pragma once
#include "cpu/isa/kernels.h"
#include "cpu/isa/rows_kernel.h"

namespace inferd::cpu {
namespace {

constexpr float kMinusInf = -__builtin_inff();

float max_value(const float* x, int64_t n) {
  Simd::V best[4] = {Simd::set(kMinusInf), Simd::set(kMinusInf), Simd::set(kMinusInf),
                     Simd::set(kMinusInf)};
  int64_t i = 0;
  for (; i + 4 * Simd::kWidth <= n; i += 4 * Simd::kWidth) {
    for (int j = 0; j < 4; ++j) best[j] = Simd::max(Simd::load(x + i + j * Simd::kWidth), best[j]);
  }
  float top = Simd::largest(Simd::max(Simd::max(best[0], best[1]), Simd::max(best[2], best[3])));
  for (; i < n; ++i) top = x[i] > top ? x[i] : top;
  return top;
}

int64_t argmax(const float* x, int64_t n) {
  const float top = max_value(x, n);
  if (!(top > kMinusInf)) return 0;
  const Simd::V wanted = Simd::set(top);
  int64_t i = 0;
  while (i + Simd::kWidth <= n && !Simd::any_equal(Simd::load(x + i), wanted)) i += Simd::kWidth;
  while (i < n - 1 && x[i] != top) ++i;
  return i;
}

float clean_copy(float* dst, const float* src, int64_t n) {
  const Simd::V low = Simd::set(kMinusInf), high = Simd::set(__FLT_MAX__);
  Simd::V best = low;
  each_vector(n, [&](int64_t i, int lanes) {
    const Simd::V v = Simd::min(Simd::max(load_some(src + i, lanes), low), high);
    store_some(dst + i, v, lanes);
    if (lanes == Simd::kWidth) best = Simd::max(v, best);
  });
  float top = Simd::largest(best);
  for (int64_t i = n - n % Simd::kWidth; i < n; ++i) top = dst[i] > top ? dst[i] : top;
  return top;
}

double exp_sum(float* e, double* sums, const float* z, int64_t n, float max, float temperature) {
  const Simd::V top = Simd::set(max), heat = Simd::set(temperature);
  double total = 0;
  for (int64_t start = 0; start < n; start += kExpBlock) {
    const int64_t count = n - start < kExpBlock ? n - start : kExpBlock;
    Simd::V sum = Simd::zero();
    float tail = 0;
    each_vector(count, [&](int64_t i, int lanes) {
      const Simd::V v = exp_of(Simd::div(Simd::sub(load_some(z + start + i, lanes), top), heat));
      store_some(e + start + i, v, lanes);
      if (lanes == Simd::kWidth) {
        sum = Simd::add(sum, v);
      } else {
        for (int j = 0; j < lanes; ++j) tail += e[start + i + j];
      }
    });
    const double block = static_cast<double>(Simd::sum(sum)) + static_cast<double>(tail);
    sums[start / kExpBlock] = block;
    total += block;
  }
  return total;
}

int64_t count_better(const float* x, int64_t n, int64_t id, float value) {
  const Simd::V v = Simd::set(value);
  int64_t count = 0, i = 0;
  for (; i + Simd::kWidth <= id; i += Simd::kWidth)
    count += Simd::count_at_least(Simd::load(x + i), v);
  for (; i < id; ++i) count += x[i] >= value;
  ++i;
  for (; i + Simd::kWidth <= n; i += Simd::kWidth)
    count += Simd::count_greater(Simd::load(x + i), v);
  for (; i < n; ++i) count += x[i] > value;
  return count;
}

}  // namespace
}  // namespace inferd::cpu
