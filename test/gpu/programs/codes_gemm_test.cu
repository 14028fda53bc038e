// Products of 8-bit weights with scales on a GPU: quantizing and widening, the product for few rows
// and those of codes on both sides against float64, then times.
//   ./codes_gemm_test [check|quick|bench]     sources: programs.mjs; quick: few cases, for
//   compute-sanitizer
#include <array>
#include <cstring>
#include <memory>

#include "core/float8.h"
#include "cuda/device/device_limits.h"
#include "cuda/gemm/gemm_codes.h"
#include "cuda/gemm/gemm_kernels.h"
#include "cuda/gemm/large_gemm.h"
#include "cuda/gemm/small_gemm.h"
#include "cuda/gemm/stream_gemm.h"
#include "cuda/rows/scaled_rows.h"
#include "gemm_reference.cuh"
#include "gpu_test.cuh"

using namespace gpu_test;
using namespace inferd;
using namespace inferd::cuda;

namespace {

constexpr float kEps = 0.01f;
constexpr WeightFormat kFormats[] = {kFloat8Rows, kFloat8Blocks, kFloat8Groups, kInt8Rows};

float decode(CodeType codes, uint8_t code) {
  return codes == CodeType::kFloat8 ? e4m3_to_f32(code)
                                    : static_cast<float>(static_cast<int8_t>(code));
}

// A weight, and the numbers that it stands for.
struct Weight {
  WeightFormat format;
  int rows, cols;
  Device<uint8_t> codes;
  Device<float> scales;
  std::vector<float> numbers;

  // Of any numbers, for timings.
  Weight(const WeightFormat& f, int rows, int cols)
      : format(f),
        rows(rows),
        cols(cols),
        codes(static_cast<size_t>(rows) * cols),
        scales(static_cast<size_t>(scales_down(f, rows) * scales_across(f, cols))) {
    Device<float> source(static_cast<size_t>(rows) * cols);
    fill_noise<<<2048, 256>>>(source.get(), static_cast<int64_t>(source.size()), 0.02f, 7);
    CHECK_CUDA(quantize_weight_rows(f, codes.get(), scales.get(),
                                    Tensor::matrix(source.get(), DType::kF32, rows, cols),
                                    nullptr));
    CHECK_CUDA(cudaDeviceSynchronize());
  }
  // Rows of magnitudes of their own, so that a scale at the wrong place shows.
  Weight(const WeightFormat& f, int rows, int cols, float scale)
      : format(f),
        rows(rows),
        cols(cols),
        codes(static_cast<size_t>(rows) * cols),
        scales(static_cast<size_t>(scales_down(f, rows) * scales_across(f, cols))) {
    std::vector<float> made = noisy<float>(static_cast<size_t>(rows) * cols, scale, 2);
    for (size_t i = 0; i < made.size(); ++i)
      made[i] *= 1.f + static_cast<float>(i / static_cast<size_t>(cols) % 7) +
                 static_cast<float>(i % static_cast<size_t>(cols) / 128 % 5);
    Device<float> source(made);
    CHECK_CUDA(quantize_weight_rows(f, codes.get(), scales.get(),
                                    Tensor::matrix(source.get(), DType::kF32, rows, cols),
                                    nullptr));
    CHECK_CUDA(cudaDeviceSynchronize());
    const std::vector<uint8_t> c = codes.download();
    const std::vector<float> s = scales.download();
    const int64_t across = scales_across(f, cols);
    const int64_t block = f.block_cols == 0 ? cols : f.block_cols;
    numbers.resize(c.size());
    double error = 0, size = 0;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t k = 0; k < cols; ++k) {
        const auto at = static_cast<size_t>(r * cols + k);
        numbers[at] =
            decode(f.codes, c[at]) * s[static_cast<size_t>(r / f.block_rows * across + k / block)];
        error += (numbers[at] - made[at]) * (numbers[at] - made[at]);
        size += made[at] * made[at];
      }
    }
    // Rounding to 4 bits of a float, or to a step of 1/254 of the largest.
    expect(std::sqrt(error / size) < 0.035, format_name(f) + " is not what was quantized");
  }
  WeightView view() const {
    return {.format = format, .codes = codes.get(), .scales = scales.get()};
  }
};

int few_cases = 0;  // of codes_few_gemm.cu

struct Case {
  int m, n, k;
  bool bias = false, add = false, gated = false, norm = false;
  bool plain_norm = false;  // without a weight
};

std::string name_of(const Case& c, const WeightFormat& f, const char* type, const char* out) {
  char text[200];
  std::snprintf(text, sizeof text, "%s, %s->%s m %d n %d k %d%s%s%s%s%s", format_name(f).c_str(),
                type, out, c.m, c.n, c.k, c.bias ? " bias" : "", c.add ? " add" : "",
                c.gated ? " gated" : "", c.norm ? " norm" : "",
                c.plain_norm ? " of no weight" : "");
  return text;
}

// What the rows of x are by the codes in spare memory.
std::vector<float> decoded_rows(const GemmArgs& q) {
  const auto count = static_cast<size_t>(q.m) * q.k;
  const bool blocks = q.w.format.block_cols > 0;
  const int across = blocks ? (q.k + 127) / 128 : 1;
  std::vector<uint8_t> codes(count);
  std::vector<float> scales(static_cast<size_t>(across) * q.m), out(count);
  CHECK_CUDA(cudaMemcpy(codes.data(), q.x, count, cudaMemcpyDefault));
  CHECK_CUDA(cudaMemcpy(scales.data(), q.x_scales, scales.size() * 4, cudaMemcpyDefault));
  for (int r = 0; r < q.m; ++r) {
    for (int i = 0; i < q.k; ++i) {
      const size_t at = static_cast<size_t>(r) * q.k + i;
      out[at] = decode(q.w.format.codes, codes[at]) * scales[(blocks ? i / 128 : 0) * q.m + r];
    }
  }
  return out;
}

template <typename T, typename Y>
void check_case(const Case& c, const Weight& w, cudaStream_t stream) {
  const WeightFormat& format = w.format;
  const bool few = c.m <= kSmallGemmRows;
  const int64_t x_stride = c.norm ? c.k : c.k + 8, y_stride = few ? c.n + 3 : c.n + 8;
  const int rows = c.gated ? 2 * c.n : c.n;
  const std::vector<T> host_x = noisy<T>(static_cast<size_t>(c.m * x_stride), 1.f, 1);
  Device<T> x(host_x);
  Device<float> norm(noisy<float>(static_cast<size_t>(c.k), 2.f, 9));
  Device<Y> bias(noisy<Y>(static_cast<size_t>(rows), 3.f, 3));
  const std::vector<Y> before = noisy<Y>(static_cast<size_t>(c.m * y_stride), 3.f, 4);
  Device<Y> y(before), old(before);
  Device<double> wants(static_cast<size_t>(c.m) * c.n);
  Device<uint8_t> spare(spare_bytes(format, c.m, rows, c.k));
  GemmArgs args = {.type = half_of<T>,
                   .out = std::is_same_v<Y, float> ? GemmOut::kF32 : GemmOut::kHalf,
                   .x = x.get(),
                   .x_stride = x_stride,
                   .w = w.view(),
                   .y = y.get(),
                   .y_stride = y_stride,
                   .bias = c.bias ? bias.get() : nullptr,
                   .add_to_y = c.add,
                   .m = c.m,
                   .n = c.n,
                   .k = c.k,
                   .gated = c.gated,
                   .norm_x = c.norm,
                   .norm_eps = kEps,
                   .norm_weight = c.norm && !c.plain_norm ? norm.get() : nullptr,
                   .spare = {spare.get(), spare.size()}};
  const std::string name = name_of(c, format, half_of<T> == Half::kF16 ? "f16" : "bf16",
                                   sizeof(Y) == 4 ? "f32" : "half");
  const GemmArgs q = with_codes(args);
  const bool quantized = q.x_scales != nullptr;
  if (first_kernel(q) == nullptr) return;  // widened
  // The rows that the product should be of: as they are, times the norm's, and rounded.
  std::vector<float> numbers(static_cast<size_t>(c.m) * c.k);
  const std::vector<double> factors = row_factors(host_x, c.m, x_stride, c.k, kEps);
  const std::vector<float> weights = norm.download();
  for (int r = 0; r < c.m; ++r) {
    for (int i = 0; i < c.k; ++i) {
      const auto at = static_cast<size_t>(r) * c.k + i;
      numbers[at] = to_float(host_x[static_cast<size_t>(r * x_stride) + i]);
      if (c.norm) numbers[at] *= static_cast<float>(factors[static_cast<size_t>(r)]);
      if (c.norm && !c.plain_norm) numbers[at] *= weights[static_cast<size_t>(i)];
    }
  }
  if (quantized) {
    CHECK_CUDA(quantize_x(args, q, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    const std::vector<float> decoded = decoded_rows(q);
    std::vector<double> exact(numbers.begin(), numbers.end());
    const double error = relative_error(decoded, exact);
    expect(error < (format.codes == CodeType::kFloat8 ? 0.04 : 0.01),
           name + ": x is quantized with an error of " + std::to_string(error));
    numbers = decoded;
  }
  Device<float> x_numbers(numbers), w_numbers(w.numbers);
  GemmArgs wide = args;
  wide.x = x_numbers.get();
  wide.x_stride = c.k;
  wide.w.codes = w_numbers.get();
  reference<float>(wants.get(), wide, old.get(), nullptr, stream);
  for (const GemmKernel& kernel : gemm_kernels()) {
    if (!kernel.takes(q)) continue;
    if (kernel.takes == codes_few_takes) ++few_cases;
    std::vector<GemmVariant> variants(kGemmVariants);
    variants.resize(
        kernel.variants(q, std::span<GemmVariant, kGemmVariants>(variants.data(), kGemmVariants)));
    expect(!variants.empty(), name + " has no variant by " + kernel.name);
    for (const GemmVariant& variant : variants) {
      std::vector<Y> runs[2];
      for (std::vector<Y>& run : runs) {
        y.upload(before);
        CHECK_CUDA(kernel.run(q, variant, Launch(stream, &run == &runs[1])));
        const cudaError_t error = cudaStreamSynchronize(stream);
        if (error != cudaSuccess) std::printf("%s by %s\n", name.c_str(), kernel.name);
        CHECK_CUDA(error);
        run = y.download();
      }
      const Result<Y> got(args, runs[0], before);
      const double error = relative_error(got.values, wants.download());
      // Tensor cores add up e4m3 in some 14 bits; x times a norm's weight is rounded once.
      const double bound =
          (sizeof(Y) == 4 ? 1e-5 : rounding<T>)*(c.norm ? 2 : 1) + (quantized ? 0x1p-9 : 0);
      expect(error < bound, name + " by " + kernel.name + " error " + std::to_string(error));
      expect(got.rest_same, name + " by " + kernel.name + " wrote outside of its columns");
      expect(std::memcmp(runs[0].data(), runs[1].data(), runs[0].size() * sizeof(Y)) == 0,
             name + " by " + kernel.name + " differs on repeat");
    }
  }
}

template <typename T>
void check_type(bool quick, cudaStream_t stream) {
  constexpr float kPlain = 1.f, kGated = 0.02f;  // keeps silu off its flat ends
  for (const WeightFormat& format : kFormats) {
    int turn = 0;
    for (const auto& [n, k] :
         {std::pair{64, 64}, {200, 144}, {1024, 512}, {384, 4096}, {256, 4224}}) {
      if (quick && (k > 512 || k < 144)) continue;
      const Weight plain(format, n, k, kPlain), gated(format, 2 * n, k, kGated);
      for (const int m : {1, 3, 8, 9, 16, 17, 40, 64, 65, 100, 128, 130, 300, 700}) {
        // Racecheck takes minutes for more of them: one of each kernel, and of its borders.
        if (quick && m != 1 && m != 9 && m != 17 && m != 100) continue;
        ++turn;
        check_case<T, T>({m, n, k, turn % 2 == 0, turn % 3 == 0}, plain, stream);
        if (k <= 512) check_case<T, float>({m, n, k, turn % 2 == 1, false}, plain, stream);
        check_case<T, T>({m, n, k, turn % 2 == 1, false, true, turn % 3 == 0}, gated, stream);
        check_case<T, T>({m, n, k, false, false, false, true}, plain, stream);
      }
    }
    if (quick || std::is_same_v<T, __half>) continue;
    const Weight down(format, 1000, 14336, kPlain);
    for (const int m : {1, 16, 128, 300})
      check_case<T, T>({m, 1000, 14336, false, true}, down, stream);
  }
}

// The kernel for up to kFewRows rows: ends of w and of its rows within a tile, a block with many
// bands, warps without a tile.
template <typename T>
void check_few(bool quick, cudaStream_t stream) {
  constexpr float kPlain = 1.f, kGated = 0.02f;
  for (const WeightFormat& format : kFormats) {
    int turn = 0;
    for (const auto& [n, k] :
         {std::pair{203, 272}, {5, 16}, {37, 4080}, {100, 2064}, {8500, 144}}) {
      if (quick && n != 203) continue;
      const Weight plain(format, n, k, kPlain), gated(format, 2 * n, k, kGated);
      for (int m = 1; m <= kFewRows; ++m) {
        if (quick && m % 2 != 0) continue;
        ++turn;
        check_case<T, T>({m, n, k, turn % 2 == 0, turn % 3 == 0}, plain, stream);
        check_case<T, float>({m, n, k, turn % 2 == 1, turn % 3 == 1}, plain, stream);
        check_case<T, T>({m, n, k, turn % 2 == 1, false, true, turn % 3 == 0}, gated, stream);
        check_case<T, T>({m, n, k, false, false, turn % 2 == 0, true, turn % 3 != 0},
                         turn % 2 == 0 ? gated : plain, stream);
      }
    }
  }
}

// Widened rows are the numbers, rounded.
template <typename T>
void check_widening(cudaStream_t stream) {
  for (const WeightFormat& format : kFormats) {
    const Weight w(format, 300, 264, 1.f);
    Device<T> out(static_cast<size_t>(100) * 264);
    CHECK_CUDA(widen_weight_rows(half_of<T>, out.get(), w.view(), 150, 100, 264, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    const std::vector<double> want(w.numbers.begin() + 150 * 264, w.numbers.begin() + 250 * 264);
    expect(relative_error(out.download(), want) < rounding<T>, format_name(format) + " widened");
  }
}

struct Layer {
  const char* name;
  int n, k;
  bool gated, add, norm;
};
constexpr Layer kLayers[] = {{"qkv", 6144, 4096, false, false, true},
                             {"o", 4096, 4096, false, true, false},
                             {"gate_up", 14336, 4096, true, false, true},
                             {"down", 4096, 14336, false, true, false}};

// Microseconds of each kernel's best variant, weights in turn; of rows above those of the kernel
// for few, with x quantized in the same launch, and without.
void time_layer(const Layer& l, const WeightFormat& format, int m, cudaStream_t stream) {
  using T = __nv_bfloat16;
  const int rows = l.gated ? 2 * l.n : l.n;
  const int copies = m > 1024 ? 1 : static_cast<int>(300e6 / (static_cast<double>(rows) * l.k)) + 2;
  std::vector<std::unique_ptr<Weight>> weights;
  for (int i = 0; i < copies; ++i) weights.push_back(std::make_unique<Weight>(format, rows, l.k));
  Device<T> x(static_cast<size_t>(m) * l.k), y(static_cast<size_t>(m) * l.n);
  Device<float> norm(noisy<float>(static_cast<size_t>(l.k), 1.f, 9));
  fill_noise<<<512, 256, 0, stream>>>(x.get(), static_cast<int64_t>(x.size()), 1.f, 5);
  fill_noise<<<512, 256, 0, stream>>>(y.get(), static_cast<int64_t>(y.size()), 1.f, 6);
  Device<uint8_t> spare(spare_bytes(format, m, rows, l.k));
  const GemmArgs args = {.type = Half::kBF16,
                         .out = GemmOut::kHalf,
                         .x = x.get(),
                         .x_stride = l.k,
                         .w = weights[0]->view(),
                         .y = y.get(),
                         .y_stride = l.n,
                         .bias = nullptr,
                         .add_to_y = l.add,
                         .m = m,
                         .n = l.n,
                         .k = l.k,
                         .gated = l.gated,
                         .norm_x = l.norm,
                         .norm_eps = kEps,
                         .norm_weight = l.norm ? norm.get() : nullptr,
                         .spare = {spare.get(), spare.size()}};
  GemmArgs q = with_codes(args);
  const Launch launch(stream, true);
  const int repeat = m > 1024 ? 4 : 40, rounds = m > 1024 ? 3 : 5;
  const double bytes = static_cast<double>(rows) * l.k, flops = 2.0 * m * rows * l.k;
  for (const GemmKernel& kernel : gemm_kernels()) {
    if (!kernel.takes(q)) continue;
    std::array<GemmVariant, kGemmVariants> variants{};
    const size_t count = kernel.variants(q, variants);
    double best = 0, alone = 0;
    for (size_t v = 0; v < count; ++v) {
      const auto time = [&](bool all) {
        return time_in_graph(stream, repeat, rounds, [&](int i) {
          q.w = weights[static_cast<size_t>(i % copies)]->view();
          if (all && q.x_scales != nullptr) CHECK_CUDA(quantize_x(args, q, launch));
          CHECK_CUDA(kernel.run(q, variants[v], launch));
        });
      };
      const double us = time(true);
      if (best != 0 && us >= best) continue;
      best = us;
      alone = q.x_scales == nullptr ? us : time(false);
    }
    std::printf(
        "%-8s m %-6d %-14s %-12s %8.1f us (product alone %8.1f)  %5.0f GB/s  %5.0f TFLOP/s\n",
        l.name, m,
        format == kFloat8Rows ? "fp8 rows"
        : format == kInt8Rows ? "int8 rows"
                              : "fp8 blocks",
        kernel.name, best, alone, bytes / best / 1e3, flops / alone / 1e6);
    std::fflush(stdout);
  }
}

void bench(cudaStream_t stream) {
  for (const WeightFormat& format : {kFloat8Rows, kFloat8Blocks, kInt8Rows})
    for (const int m : {1, 2, 4, 16, 64, 128, 256, 1024, 16384})
      for (const Layer& layer : kLayers) time_layer(layer, format, m, stream);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreate(&stream));
  if (mode != "bench") {
    check_type<__nv_bfloat16>(mode == "quick", stream);
    check_type<__half>(mode == "quick", stream);
    check_few<__nv_bfloat16>(mode == "quick", stream);
    check_few<__half>(mode == "quick", stream);
    DeviceLimits device;
    CHECK_CUDA(ask_limits(device));
    expect(few_cases > 0 || device.most_shared < 161 << 10, "codes_few_gemm.cu took no product");
    check_widening<__nv_bfloat16>(stream);
    check_widening<__half>(stream);
    std::printf("%d failures\n", failures);
  }
  if (mode == "bench" || mode.empty()) bench(stream);
  return failures > 0 ? 1 : 0;
}
