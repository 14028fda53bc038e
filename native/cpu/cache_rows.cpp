// See cache_rows.h. The numbers are those of the CUDA backend (cuda/attention/rope_kv.cu).
#include "cpu/cache_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/float8.h"

namespace inferd::cpu {
namespace {

constexpr float kInt8Most = 127;

// A row without a number above this is zeros: its scale could not be divided by.
constexpr float kNothing = 1e-30f;

// Returns the scale of the row.
float store_int8(int8_t* to, const float* x, int32_t n) {
  float largest = 0;
  for (int32_t i = 0; i < n; ++i) largest = std::fmax(largest, std::fabs(x[i]));
  const float inverse = largest > kNothing ? kInt8Most / largest : 0;
  for (int32_t i = 0; i < n; ++i) {
    const float code = std::fmin(std::fmax(x[i] * inverse, -kInt8Most), kInt8Most);
    to[i] = static_cast<int8_t>(std::nearbyint(code));
  }
  return largest / kInt8Most;
}

}  // namespace

CacheKind cache_kind(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return kF16Cache;
    case DType::kBF16:
      return kBF16Cache;
    case DType::kI8:
      return kInt8Cache;
    case DType::kF8:
      return kFloat8Cache;
    default:
      return kF32Cache;
  }
}

void store_row(const Kernels& kernels, const KvLayer& kv, void* array, const CacheRow& row,
               const float* x, float scale) {
  char* base = static_cast<char*>(array);
  char* to = base + kv.offset(row.block, row.head, row.place);
  switch (cache_kind(kv.dtype)) {
    case kFloat8Cache:
      for (int32_t i = 0; i < kv.head_dim; ++i)
        to[i] = static_cast<char>(f32_to_e4m3(x[i] / scale));
      return;
    case kInt8Cache: {
      const float step = store_int8(reinterpret_cast<int8_t*>(to), x, kv.head_dim);
      std::memcpy(base + kv.scale_offset(row.block, row.head, row.place), &step, sizeof(step));
      return;
    }
    default:
      kernels.from_f32[static_cast<size_t>(kv.dtype)](to, x, kv.head_dim);
  }
}

}  // namespace inferd::cpu
