// The kernel table in plain C++: what the vector kernels are read against, and what runs where no
// vector table fits the CPU.
//
// Weights stay row-major (a panel of one output feature), sums are taken in double in index order.
// Same invariants as the others.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/float8.h"
#include "core/half.h"
#include "cpu/isa/kernels.h"

namespace inferd::cpu {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

template <DType kType>
float element(const void* data, int64_t i) {
  return load_f32(data, kType, i);
}

template <DType kType>
void gemm(const GemmTask& g) {
  for (int64_t r = 0; r < g.rows; ++r) {
    const float* x = g.packed + r * g.cols;
    for (int64_t o = g.first_panel; o < g.first_panel + g.num_panels; ++o) {
      const char* w = g.panels + o * g.panel_bytes;
      double sum = 0;
      for (int64_t k = 0; k < g.cols; ++k)
        sum += static_cast<double>(x[k]) * static_cast<double>(element<kType>(w, k));
      g.out[r * g.out_stride + o] =
          static_cast<float>(sum + (g.bias ? static_cast<double>(g.bias[o]) : 0.0));
    }
  }
}

// How a block of one output feature (panel of one column) is written down; see kernels.h.
struct BlockForm {
  int bits, offset, parts;
  bool minima, f16;
  bool float4 = false, powers = false;  // numbers e2m1; scales e8m0
  int run = 1;                          // blocks of codes with the same scales

  constexpr int64_t code_bytes() const { return kScaleBlock * bits / 8; }
  constexpr int64_t bytes() const {
    return run * code_bytes() + (powers ? 1 : 2) * parts * (minima ? 2 : 1);
  }
};

template <BlockForm kForm>
double dequantized(const char* block, int64_t input) {
  const int64_t k = input % kScaleBlock;
  const char* codes = block + input / kScaleBlock * kForm.code_bytes();
  const int64_t part = k * kForm.parts / kScaleBlock;
  const auto number = [&](int64_t at) {
    if (kForm.powers) {
      const auto exponent = static_cast<uint8_t>(block[kForm.run * kForm.code_bytes() + at]);
      return static_cast<double>(std::bit_cast<float>(uint32_t{exponent} << 23));
    }
    uint16_t half;
    std::memcpy(&half, block + kForm.run * kForm.code_bytes() + 2 * at, 2);
    return static_cast<double>(kForm.f16 ? f16_to_f32(half) : bf16_to_f32(half));
  };
  const auto byte = [&](int64_t at) { return static_cast<int>(static_cast<uint8_t>(codes[at])); };
  constexpr int64_t kHalf = kScaleBlock / 2;
  int code = kForm.bits == 8 ? byte(k) : k < kHalf ? byte(k) & 15 : byte(k - kHalf) >> 4;
  if (kForm.bits == 6) code |= (byte(kHalf + k % 8) >> (2 * (k / 8)) & 3) << 4;
  if (kForm.float4) code = kTwiceE2m1[code];
  const double min = kForm.minima ? number(kForm.parts + part) : 0.0;
  return number(part) * (code - kForm.offset) + min;
}

template <BlockForm kForm>
void quant_gemm(const GemmTask& g) {
  constexpr int64_t kInputs = kForm.run * kScaleBlock;
  for (int64_t r = 0; r < g.rows; ++r) {
    const float* x = g.packed + r * g.cols;
    for (int64_t o = g.first_panel; o < g.first_panel + g.num_panels; ++o) {
      const char* w = g.panels + o * g.panel_bytes;
      double sum = 0;
      for (int64_t k = 0; k < g.cols; ++k) {
        sum += static_cast<double>(x[k]) *
               dequantized<kForm>(w + k / kInputs * kForm.bytes(), k % kInputs);
      }
      g.out[r * g.out_stride + o] =
          static_cast<float>(sum + (g.bias ? static_cast<double>(g.bias[o]) : 0.0));
    }
  }
}

// 8-bit floats with scales of all inputs of a row, or of runs of them.
constexpr int kAllInputs = 1;
template <int kInputs>
void float8_gemm(const GemmTask& g) {
  const int64_t codes = (g.cols + 1) / 2 * 2;
  for (int64_t r = 0; r < g.rows; ++r) {
    const float* x = g.packed + r * g.cols;
    for (int64_t o = g.first_panel; o < g.first_panel + g.num_panels; ++o) {
      const char* w = g.panels + o * g.panel_bytes;
      double sum = 0;
      for (int64_t k = 0; k < g.cols; ++k) {
        const int64_t run = kInputs == kAllInputs ? 0 : k / kInputs;
        float scale;
        std::memcpy(&scale, w + codes + run * 4, sizeof(scale));
        const float code = e4m3_to_f32(static_cast<uint8_t>(w[k]));
        sum += static_cast<double>(x[k]) * (static_cast<double>(code) * static_cast<double>(scale));
      }
      g.out[r * g.out_stride + o] =
          static_cast<float>(sum + (g.bias ? static_cast<double>(g.bias[o]) : 0.0));
    }
  }
}

// Number `d` of the row of a cache that begins with element `first`; `scale` is where rows of codes
// have theirs.
template <CacheKind kKind>
double cached(const void* data, int64_t first, int32_t d, const char* scale) {
  (void)scale;
  if constexpr (kKind == kFloat8Cache) {
    return static_cast<double>(e4m3_to_f32(static_cast<const uint8_t*>(data)[first + d]));
  } else if constexpr (kKind == kInt8Cache) {
    float step;
    std::memcpy(&step, scale, sizeof(step));
    return static_cast<double>(static_cast<const int8_t*>(data)[first + d]) *
           static_cast<double>(step);
  } else {
    constexpr DType kType = kKind == kF32Cache   ? DType::kF32
                            : kKind == kF16Cache ? DType::kF16
                                                 : DType::kBF16;
    return static_cast<double>(element<kType>(data, first + d));
  }
}

// One query: two passes over its keys, the second with the exact largest score.
template <CacheKind kKind>
void attend(const AttentionTask& t, int32_t position, int32_t head, const float* q, float* out) {
  const int32_t oldest = t.window > 0 ? std::max(0, position - t.window + 1) : 0;
  const auto first_element = [&](int32_t j) {
    return t.blocks[j / t.block_size] * t.block_stride + int64_t{j % t.block_size} * t.head_dim;
  };
  const auto scale_of = [&](const void* cache, int32_t j) {
    return static_cast<const char*>(cache) + t.blocks[j / t.block_size] * t.block_stride +
           t.row_scales + int64_t{j % t.block_size} * 4;
  };
  const auto score = [&](int32_t j) {
    double dot = 0;
    for (int32_t d = 0; d < t.head_dim; ++d) {
      dot += static_cast<double>(q[d]) * cached<kKind>(t.k, first_element(j), d, scale_of(t.k, j));
    }
    const double scaled = dot * static_cast<double>(t.scale), cap = static_cast<double>(t.softcap);
    return cap > 0 ? cap * std::tanh(scaled / cap) : scaled;
  };
  const double sink =
      t.sinks ? static_cast<double>(t.sinks[head]) : -std::numeric_limits<double>::infinity();
  double best = sink;
  for (int32_t j = oldest; j <= position; ++j) best = std::max(best, score(j));
  double acc[kMaxLatentDim] = {}, sum = t.sinks ? std::exp(sink - best) : 0;
  const void* values = t.v != nullptr ? t.v : t.k;
  for (int32_t j = oldest; j <= position; ++j) {
    const double p = std::exp(score(j) - best);
    sum += p;
    for (int32_t d = 0; d < t.value_dim; ++d)
      acc[d] += p * cached<kKind>(values, first_element(j), d, scale_of(values, j));
  }
  sum /= static_cast<double>(t.value_scale);
  for (int32_t d = 0; d < t.value_dim; ++d) out[d] = static_cast<float>(acc[d] / sum);
}

template <CacheKind kKind, class Scratch>
void attention(const AttentionTask& t, Scratch&) {
  for (int32_t i = 0; i < t.tokens; ++i) {
    for (int32_t h = 0; h < t.heads; ++h) {
      attend<kKind>(t, t.first_position + i, h, t.q + i * t.q_stride + int64_t{h} * t.head_dim,
                    t.out + i * t.out_stride + int64_t{h} * t.value_dim);
    }
  }
}

template <DType kType>
void to_f32(float* dst, const void* src, int64_t n) {
  for (int64_t i = 0; i < n; ++i) dst[i] = element<kType>(src, i);
}

template <DType kType>
void from_f32(void* dst, const float* src, int64_t n) {
  for (int64_t i = 0; i < n; ++i) store_f32(dst, kType, i, src[i]);
}

void rms_norm(float* out, const float* x, const float* weight, int64_t n, float eps) {
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  const double scale = 1.0 / std::sqrt(squares / static_cast<double>(n) + static_cast<double>(eps));
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(x[i] * scale) * weight[i];
}

void add(float* inout, const float* x, int64_t n, float scale) {
  for (int64_t i = 0; i < n; ++i) inout[i] += scale * x[i];
}

float silu(float x) { return x / (1.0f + std::exp(-x)); }
float gelu_tanh(float x) {
  return 0.5f * x * (1.0f + std::tanh(0.7978845608f * (x + 0.044715f * x * x * x)));
}

template <float (*kGate)(float)>
void gated_mul(float* out, const float* gate, const float* up, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = kGate(gate[i]) * up[i];
}

void clamped_swiglu(float* out, const float* gate, const float* up, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float g = std::min(gate[i], 7.0f), u = std::clamp(up[i], -7.0f, 7.0f);
    out[i] = g / (1.0f + std::exp(-1.702f * g)) * (u + 1.0f);
  }
}

void scale_cap(float* x, int64_t n, float scale, float cap) {
  for (int64_t i = 0; i < n; ++i) {
    x[i] *= scale;
    if (cap > 0) x[i] = cap * std::tanh(x[i] / cap);
  }
}

void rotate(float* x, const float* cos, const float* sin, int32_t half) {
  for (int32_t i = 0; i < half; ++i) {
    const float a = x[i], b = x[i + half];
    x[i] = a * cos[i] - b * sin[i];
    x[i + half] = b * cos[i] + a * sin[i];
  }
}

float max_value(const float* x, int64_t n) {
  float top = kMinusInf;
  for (int64_t i = 0; i < n; ++i) top = x[i] > top ? x[i] : top;
  return top;
}

int64_t argmax(const float* x, int64_t n) {
  int64_t best = 0;
  float top = kMinusInf;
  for (int64_t i = 0; i < n; ++i) {
    if (x[i] > top) {
      top = x[i];
      best = i;
    }
  }
  return best;
}

float clean_copy(float* dst, const float* src, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    dst[i] = std::isnan(src[i]) ? kMinusInf : std::min(src[i], std::numeric_limits<float>::max());
  return max_value(dst, n);
}

double exp_sum(float* e, double* sums, const float* z, int64_t n, float max, float temperature) {
  double total = 0;
  for (int64_t start = 0; start < n; start += kExpBlock) {
    double block = 0;
    for (int64_t i = start; i < std::min(n, start + kExpBlock); ++i) {
      e[i] = std::exp((z[i] - max) / temperature);
      block += static_cast<double>(e[i]);
    }
    sums[start / kExpBlock] = block;
    total += block;
  }
  return total;
}

int64_t count_better(const float* x, int64_t n, int64_t id, float value) {
  int64_t count = 0;
  for (int64_t i = 0; i < n; ++i) count += x[i] > value || (x[i] == value && i < id);
  return count;
}

float read_all(const float* data, int64_t n) {
  float sum[16] = {};
  for (int64_t i = 0; i + 16 <= n; i += 16)
    for (int64_t j = 0; j < 16; ++j) sum[j] += data[i + j];
  float all = 0;
  for (const float s : sum) all += s;
  return all;
}

constexpr int kChains = 32;

float fma_chains(int64_t steps) {
  float acc[kChains] = {};
  for (int64_t s = 0; s < steps; ++s)
    for (float& a : acc) a = a * 0.999f + 0.5f;
  float sum = 0;
  for (const float a : acc) sum += a;
  return sum;
}

constexpr int64_t kFmaStepFlops = 2 * kChains;

// `t` with the products of this file.
constexpr Kernels with_products(Kernels t) {
  t.gemm[kF32Weights] = gemm<DType::kF32>;
  t.gemm[kF16Weights] = gemm<DType::kF16>;
  t.gemm[kBF16Weights] = gemm<DType::kBF16>;
  t.gemm[kInt8Weights] = quant_gemm<BlockForm{8, 128, 1, false, false}>;
  t.gemm[kInt4Weights] = quant_gemm<BlockForm{4, 0, 1, true, false}>;
  t.gemm[kCodedInt8Weights] = quant_gemm<BlockForm{8, 128, 1, false, true}>;
  t.gemm[kCodedInt4Weights] = quant_gemm<BlockForm{4, 8, 1, false, true}>;
  t.gemm[kCodedInt4MinimaWeights] = quant_gemm<BlockForm{4, 0, 1, true, true}>;
  t.gemm[kCodedInt8HalvesWeights] = quant_gemm<BlockForm{8, 128, 2, true, true}>;
  t.gemm[kCodedInt6MinimaWeights] = quant_gemm<BlockForm{6, 0, 1, true, true}>;
  t.gemm[kCodedInt6HalvesWeights] = quant_gemm<BlockForm{6, 32, 2, false, true}>;
  t.gemm[kFloat8RowsWeights] = float8_gemm<kAllInputs>;
  t.gemm[kFloat8BlocksWeights] = float8_gemm<kFloat8Block>;
  t.gemm[kFloat8GroupsWeights] = float8_gemm<kFloat8Block>;
  t.gemm[kCodedFloat4Weights] = quant_gemm<BlockForm{4, 0, 1, false, false, true, true}>;
  t.gemm[kCodedFloat4HalvesWeights] = quant_gemm<BlockForm{4, 0, 2, false, true, true}>;
  t.gemm[kCodedInt8By64Weights] = quant_gemm<BlockForm{8, 128, 1, false, true, false, false, 2}>;
  t.gemm[kCodedInt8By128Weights] = quant_gemm<BlockForm{8, 128, 1, false, true, false, false, 4}>;
  t.gemm[kCodedInt4By64Weights] = quant_gemm<BlockForm{4, 8, 1, false, true, false, false, 2}>;
  t.gemm[kCodedInt4By128Weights] = quant_gemm<BlockForm{4, 8, 1, false, true, false, false, 4}>;
  t.gemm[kCodedInt4MinimaBy64Weights] = quant_gemm<BlockForm{4, 0, 1, true, true, false, false, 2}>;
  t.gemm[kCodedInt4MinimaBy128Weights] =
      quant_gemm<BlockForm{4, 0, 1, true, true, false, false, 4}>;
  return t;
}

constexpr Kernels kTable = with_products({
    .name = "reference",
    .panel_cols = 1,
    .tile_rows = 1,
    .bf16_pairs = false,
    .quant_group = 1,
    .code_rows = 0,
    .gemm = {},
    .quantize_tile = nullptr,
    .attention = {attention<kF32Cache, AttentionScratch>, attention<kF16Cache, AttentionScratch>,
                  attention<kBF16Cache, AttentionScratch>, attention<kInt8Cache, AttentionScratch>,
                  attention<kFloat8Cache, AttentionScratch>},
    .latent_attention = {attention<kF32Cache, LatentScratch>, attention<kF16Cache, LatentScratch>,
                         attention<kBF16Cache, LatentScratch>, attention<kInt8Cache, LatentScratch>,
                         attention<kFloat8Cache, LatentScratch>},
    .to_f32 = {to_f32<DType::kF32>, to_f32<DType::kF16>, to_f32<DType::kBF16>},
    .from_f32 = {from_f32<DType::kF32>, from_f32<DType::kF16>, from_f32<DType::kBF16>},
    .rms_norm = rms_norm,
    .add = add,
    .gated_mul = {gated_mul<silu>, gated_mul<gelu_tanh>, clamped_swiglu},
    .scale_cap = scale_cap,
    .rotate = rotate,
    .max_value = max_value,
    .argmax = argmax,
    .clean_copy = clean_copy,
    .exp_sum = exp_sum,
    .count_better = count_better,
    .read_all = read_all,
    .fma_chains = fma_chains,
    .fma_step_flops = kFmaStepFlops,
    .dot_chains = nullptr,
    .dot_step_ops = 0,
});
static_assert(multiplies_all(kTable));

}  // namespace

const Kernels* reference_kernels() { return &kTable; }

}  // namespace inferd::cpu
