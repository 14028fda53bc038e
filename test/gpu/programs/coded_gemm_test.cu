// Weights of codes on the device: laid out, quantized and widened against exact host code, and
// their products against float64 ones: of what the codes stand for where weights are not rounded,
// of the widened weight where they are.
//   coded_gemm_test [check | quick | small | bench] [small]
// `small`: without the kernel for Hopper.
#include <cstring>
#include <tuple>

#include "core/quant.h"
#include "cuda/gemm/small_gemm.h"
#include "cuda/gemm/stream_gemm.h"
#include "cuda/rows/coded_weights.h"
#include "cuda/rows/weights.h"
#include "gemm_reference.cuh"

namespace {

using namespace gpu_test;
using namespace inferd;
using namespace inferd::cuda;

constexpr WeightFormat kLongGroups = coded_format(CodeType::kSint4, 128, Zeros::kNone);

std::string name_of(const WeightFormat& f) {
  return std::to_string(code_bits(f.codes)) + " bits by " + std::to_string(f.block_cols) +
         (f.zeros == Zeros::kMinima ? " with minima" : "");
}

// Random codes of a format, of which neighbours in a group share scales.
struct RandomCodes {
  std::vector<CodedRecord> records;
  std::vector<float> weights;  // [rows, cols], of scales and minima in T

  template <typename T>
  static RandomCodes of(const CodedLayout& layout, uint32_t seed, T*) {
    RandomCodes out;
    const int blocks = (layout.cols + 31) / 32;
    for (int row = 0; row < layout.rows; ++row) {
      for (int block = 0; block < blocks; ++block) {
        CodedBlock b = {};
        for (int i = 0; i < 32; ++i) {
          const uint64_t at = uint64_t(row) * 100003 + uint64_t(block * 32 + i);
          const float u = noise(at, seed) * 0.5f + 0.5f;
          b.codes[i] = static_cast<int16_t>(layout.bits == 4 ? (layout.minima ? u * 16 : u * 16 - 8)
                                                             : u * 254 - 127);
        }
        for (int half = 0; half < 2; ++half) {
          const uint64_t group =
              uint64_t(row) * 5003 + uint64_t((block * 32 + half * 16) / layout.group);
          const float scale = 0.01f + 0.008f * noise(group, seed + 1);
          const float min = layout.minima ? 0.05f * noise(group, seed + 2) : 0.f;
          b.scale[half] = to_float(to_half(scale, static_cast<T*>(nullptr)));
          b.min[half] = to_float(to_half(min, static_cast<T*>(nullptr)));
        }
        CodedRecord record;
        coded_records(&b, 1, layout, &record);
        out.records.push_back(record);
        for (int i = 0; i < 32 && block * 32 + i < layout.cols; ++i) {
          const int half = i / 16;
          // Of codes with a sign and a minimum, what is added is rounded once more.
          const float added = to_float(to_half(record.min[half], static_cast<T*>(nullptr)));
          out.weights.push_back(record.scale[half] * static_cast<float>(record.codes[i]) + added);
        }
      }
    }
    return out;
  }
};

// What codes at `tiles` stand for, scale times code and minimum, without rounding: [rows, cols].
template <typename T>
std::vector<float> exact_weights(const CodedLayout& layout, const std::vector<uint8_t>& tiles) {
  std::vector<float> out;
  const double scale_unit = std::is_same_v<T, __half> ? 1. : 1. / kCodedScale;
  const double min_unit = std::is_same_v<T, __half> ? 1. : kCodedUnit;
  for (int row = 0; row < layout.rows; ++row) {
    const int place = layout.place_of(row), r = place % 16, g = r % 8, below = r / 8;
    for (int col = 0; col < layout.cols; ++col) {
      const int tile = place / 16 * layout.across() + col / 128, c = col % 128, step = c / 16;
      const int high = c % 16 / 8, odd = c % 2, lane = 4 * g + c % 8 / 2;
      const uint8_t* at = tiles.data() + int64_t{tile} * layout.tile_bytes();
      const int wide = layout.bits / 4;  // words of a step
      const uint8_t* word = at + step * wide / 4 * 512 + lane * 16 + step * wide % 4 * 4;
      const int code = layout.bits == 8 ? word[below * 4 + 2 * high + odd]
                                        : word[2 * odd + below] >> (4 * high) & 15;
      const uint8_t* entry =
          at + layout.code_bytes() + (c / layout.group * 8 + g) * layout.entry_bytes();
      T numbers[4];
      std::memcpy(numbers, entry, static_cast<size_t>(layout.entry_bytes()));
      const double scale = to_float(numbers[below]) * scale_unit;
      const double min = layout.minima ? to_float(numbers[2 + below]) * min_unit
                                       : -scale * (layout.bits == 4 ? 8 : 128);
      out.push_back(static_cast<float>(scale * code + min));
    }
  }
  return out;
}

template <typename T>
double largest_error(const std::vector<T>& got, const std::vector<float>& want) {
  double most = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double error =
        std::abs(static_cast<double>(to_float(got[i])) - static_cast<double>(want[i]));
    const double scaled = error / std::max(1e-3, std::abs(static_cast<double>(want[i])));
    if (!(scaled <= most)) most = scaled;
  }
  return most;
}

template <typename T>
void check_layout(const WeightFormat& format, int rows, int cols, bool paired,
                  cudaStream_t stream) {
  const CodedLayout layout = coded_layout(format, rows, cols, paired);
  Device<uint8_t> tiles(static_cast<size_t>(layout.bytes()));
  tiles.fill(0);
  Device<T> wide(static_cast<size_t>(rows) * static_cast<size_t>(cols));
  const std::string what = name_of(format) + (paired ? " paired " : " ") + std::to_string(rows) +
                           "x" + std::to_string(cols);
  if (is_coded(format)) {
    const RandomCodes random = RandomCodes::of(layout, 17, static_cast<T*>(nullptr));
    const Device<CodedRecord> records(random.records);
    const int blocks = (cols + 31) / 32, half = rows / 3;
    // In two parts.
    CHECK_CUDA(store_records(half_of<T>, {layout, tiles.get(), 0, half}, records.get(), stream));
    CHECK_CUDA(store_records(half_of<T>, {layout, tiles.get(), half, rows - half},
                             records.get() + static_cast<int64_t>(half) * blocks, stream));
    CHECK_CUDA(widen_codes(half_of<T>, layout, tiles.get(), wide.get(), stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    const double error = largest_error(wide.download(), random.weights);
    expect(error <= rounding<T>, what + " widened, off by " + std::to_string(error));
    return;
  }
  const std::vector<float> source = noisy<float>(static_cast<size_t>(rows) * cols, 0.1f, 5);
  const Device<float> on_device(source);
  CHECK_CUDA(quantize_to_codes(half_of<T>, {layout, tiles.get(), 0, rows},
                               Tensor::matrix(on_device.get(), DType::kF32, rows, cols), stream));
  CHECK_CUDA(widen_codes(half_of<T>, layout, tiles.get(), wide.get(), stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  std::vector<float> want(source.size());
  for (int row = 0; row < rows; ++row) {
    for (int k = 0; k < cols; k += 32) {
      const size_t at = static_cast<size_t>(row) * cols + k;
      float values[32];
      const int count = std::min(32, cols - k);
      for (int i = 0; i < 32; ++i) values[i] = source[at + (i < count ? i : 0)];
      QuantBlock q{};
      layout.bits == 4 ? quantize_int4(values, q) : quantize_int8(values, q);
      const float scale = bf16_to_f32(q.scale), min = bf16_to_f32(q.min);
      for (int i = 0; i < count; ++i) {
        const float code = static_cast<float>(q.codes[i]);
        want[at + i] = layout.bits == 4 ? scale * code + min : scale * (code - 128);
      }
    }
  }
  // Contraction may choose another code now and then.
  const std::vector<T> got = wide.download();
  double difference = 0, size = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double d = static_cast<double>(to_float(got[i]) - want[i]);
    difference += d * d;
    size += static_cast<double>(want[i]) * static_cast<double>(want[i]);
  }
  const double error = std::sqrt(difference / size);
  expect(error <= 2 * rounding<T>, what + " quantized, off by " + std::to_string(error));
}

struct Case {
  int m, n, k;
  bool bias = false, add = false, gated = false;
  int norm = 0;  // 1: norm_x, 2: with its weight
};

enum class Way { kFew, kSmall, kStream };

const char* name_of(Way way) {
  return way == Way::kFew ? "few " : way == Way::kSmall ? "small " : "stream ";
}

template <typename T, typename Y>
void check_case(const WeightFormat& format, const Case& c, Way way, cudaStream_t stream) {
  const int rows = c.gated ? 2 * c.n : c.n;
  const CodedLayout layout = coded_layout(format, rows, c.k, c.gated);
  Device<uint8_t> tiles(static_cast<size_t>(layout.bytes()));
  tiles.fill(0);
  {
    Device<T> source(static_cast<size_t>(rows) * c.k);
    fill_noise<<<512, 256, 0, stream>>>(source.get(), int64_t{rows} * c.k, 0.05f, 3);
    if (is_coded(format)) {
      const RandomCodes random = RandomCodes::of(layout, 29, static_cast<T*>(nullptr));
      const Device<CodedRecord> records(random.records);
      CHECK_CUDA(store_records(half_of<T>, {layout, tiles.get(), 0, rows}, records.get(), stream));
      CHECK_CUDA(cudaStreamSynchronize(stream));
    } else {
      const DType dtype = std::is_same_v<T, __half> ? DType::kF16 : DType::kBF16;
      CHECK_CUDA(quantize_to_codes(half_of<T>, {layout, tiles.get(), 0, rows},
                                   Tensor::matrix(source.get(), dtype, rows, c.k), stream));
      CHECK_CUDA(cudaStreamSynchronize(stream));
    }
  }
  Device<T> wide(static_cast<size_t>(rows) * c.k);
  CHECK_CUDA(widen_codes(half_of<T>, layout, tiles.get(), wide.get(), stream));
  const int64_t x_stride = c.norm > 0 ? c.k : c.k + 8, y_stride = c.n + (c.m % 2 == 0 ? 8 : 3);
  const std::vector<T> x_values = noisy<T>(static_cast<size_t>(c.m * x_stride), 1.f, 7);
  const Device<T> x(x_values);
  const std::vector<float> norm_values = noisy<float>(static_cast<size_t>(c.k), 1.5f, 8);
  const Device<float> norm(norm_values);
  const std::vector<Y> before = noisy<Y>(static_cast<size_t>(c.m * y_stride), 1.f, 9);
  Device<Y> y(before);
  const Device<Y> bias(noisy<Y>(static_cast<size_t>(rows), 1.f, 10));
  GemmArgs args = {.type = half_of<T>,
                   .out = sizeof(Y) == 4 ? GemmOut::kF32 : GemmOut::kHalf,
                   .x = x.get(),
                   .x_stride = x_stride,
                   .w = {.format = format, .codes = tiles.get()},
                   .y = y.get(),
                   .y_stride = y_stride,
                   .bias = c.bias ? bias.get() : nullptr,
                   .add_to_y = c.add,
                   .m = c.m,
                   .n = c.n,
                   .k = c.k,
                   .gated = c.gated,
                   .norm_x = c.norm > 0,
                   .norm_eps = 0.01f,
                   .norm_weight = c.norm == 2 ? norm.get() : nullptr};
  std::vector<T> scaled = x_values;
  if (c.norm == 2) {
    for (size_t i = 0; i < scaled.size(); ++i)
      scaled[i] = to_half(to_float(scaled[i]) * norm_values[i % c.k], static_cast<T*>(nullptr));
  }
  const Device<T> reference_x(scaled);
  const std::vector<double> factor_values =
      c.norm > 0 ? row_factors(x_values, c.m, x_stride, c.k, 0.01) : std::vector<double>(1);
  const Device<double> factors(factor_values);
  GemmArgs plain = args;
  plain.x = reference_x.get();
  plain.w = plain_weight(half_of<T>, wide.get());
  Device<double> want(static_cast<size_t>(c.m) * c.n);
  const Device<Y> old(before);
  const double* of_rows = c.norm > 0 ? factors.get() : nullptr;
  const Device<float> exact(way == Way::kFew ? exact_weights<T>(layout, tiles.download())
                                             : std::vector<float>(1));
  if (way == Way::kFew) {
    plain.w.codes = exact.get();
    reference<T, Y, float>(want.get(), plain, old.get(), of_rows, stream);
  } else {
    reference<T, Y>(want.get(), plain, old.get(), of_rows, stream);
  }
  CHECK_CUDA(cudaStreamSynchronize(stream));
  const auto check_cut = [&](const CodedCut& cut) {
    const std::string what = name_of(way) + name_of(format) + " m " + std::to_string(c.m) + " n " +
                             std::to_string(c.n) + " k " + std::to_string(c.k) +
                             (c.bias ? " bias" : "") + (c.add ? " add" : "") +
                             (c.gated ? " gated" : "") + " norm " + std::to_string(c.norm) +
                             " cut " + std::to_string(cut.row_blocks) + "/" +
                             std::to_string(cut.splits) + (sizeof(Y) == 4 ? " f32" : "");
    y.upload(before);
    for (int turn = 0; turn < (c.add ? 1 : 2); ++turn) {
      const Launch launch(stream, turn == 1);
      const cudaError_t error = way == Way::kFew     ? coded_few_gemm(args, launch)
                                : way == Way::kSmall ? coded_small_gemm(args, launch)
                                                     : coded_stream_gemm(args, cut, launch);
      if (error != cudaSuccess) {
        expect(false, what + ": " + cudaGetErrorString(error));
        cudaGetLastError();
        return;
      }
    }
    CHECK_CUDA(cudaStreamSynchronize(stream));
    const Result<Y> got(args, y.download(), before);
    const double error = relative_error(got.values, want.download());
    expect(error < (sizeof(Y) == 4 ? 1e-5 : rounding<T>), what + " error " + std::to_string(error));
    expect(got.rest_same, what + " wrote outside of its columns");
  };
  if (way != Way::kStream) return check_cut({});
  std::array<CodedCut, 16> cuts;
  const int32_t count = coded_stream_cuts(args, cuts);
  for (int32_t i = 0; i < count; i += 3) check_cut(cuts[static_cast<size_t>(i)]);
}

template <typename T>
void check_type(bool quick, bool hopper, cudaStream_t stream) {
  for (const WeightFormat& format : kWeightFormats) {
    if (!in_plain_tiles(format)) continue;
    check_layout<T>(format, 48, 256, false, stream);
    check_layout<T>(format, 37, 136, false, stream);
    check_layout<T>(format, 48, 320, true, stream);
    check_layout<T>(format, 2 * 13, 40, true, stream);
  }
  for (const WeightFormat& format : kWeightFormats) {
    if (!in_plain_tiles(format)) continue;
    for (const Way way : {Way::kFew, Way::kSmall, Way::kStream}) {
      const bool small = way != Way::kStream;
      if (!small && !hopper) continue;
      for (const int m : way == Way::kFew     ? std::vector{1, 2, 3, 4}
                         : way == Way::kSmall ? std::vector{1, 5, 16}
                                              : std::vector{17, 64, 200}) {
        for (const auto& [n, k] : {std::pair{136, 1096}, {96, 4096}, {80, 5120}}) {
          if (quick && (k > 2000 || m > 64)) continue;
          if (way == Way::kFew && k > 4096) continue;
          check_case<T, T>(format, {m, n, k, m % 2 == 0, m % 3 == 1}, way, stream);
          check_case<T, T>(format, {m, n, k, m % 2 == 0, false, true}, way, stream);
          check_case<T, float>(format, {m, n - 3, k, m % 2 == 1, m % 3 == 0}, way, stream);
          if (!small || k > 4096) continue;
          check_case<T, T>(format, {m, n, k, true, false, m % 2 == 1, 1 + m % 2}, way, stream);
        }
      }
      if (quick || format.codes != CodeType::kUint4) continue;
      // Several bands a block.
      check_case<T, T>(format,
                       {way == Way::kFew ? 3
                        : small          ? 5
                                         : 128,
                        4096, 1024, true, true},
                       way, stream);
      check_case<T, T>(format, {small ? 1 : 128, 4096, 512, false, false, true}, way, stream);
    }
  }
}

struct Shape {
  int n, k;
  bool gated;
  const char* name;
};
constexpr Shape kShapes[] = {{6144, 4096, false, "qkv"},
                             {4096, 4096, false, "o"},
                             {14336, 4096, true, "gate_up"},
                             {4096, 14336, false, "down"},
                             {128256, 4096, false, "head"}};

// Of shapes whose name is `only`, or of all.
void bench(const std::string& only, cudaStream_t stream) {
  using T = __nv_bfloat16;
  constexpr size_t kBytes = size_t{1} << 30;
  Device<uint8_t> memory(kBytes);
  fill_noise<<<1024, 256, 0, stream>>>(reinterpret_cast<T*>(memory.get()), kBytes / 2, 1.f, 3);
  Device<T> x(size_t{1024} * 16384), y(size_t{128} * 131072 * 2);
  fill_noise<<<256, 256, 0, stream>>>(x.get(), static_cast<int64_t>(x.size()), 1.f, 9);
  const double ceiling = read_ceiling(memory.get(), kBytes, stream);
  std::printf("read ceiling %.0f GB/s\n%-8s %-24s %4s %8s %6s %8s  cuts (blocks/splits us)\n",
              ceiling, "shape", "format", "m", "us", "of rc", "TFLOP/s");
  double layer[8] = {};
  for (const Shape& s : kShapes) {
    const bool head = s.n > 100000;
    if (!only.empty() && only != s.name) continue;
    const std::vector<WeightFormat> formats =
        head ? std::vector{kFormatInt8} : std::vector{kFormatInt4, kLongGroups};
    for (const WeightFormat& format : formats) {
      const CodedLayout layout = coded_layout(format, s.gated ? 2 * s.n : s.n, s.k, s.gated);
      const auto size = static_cast<size_t>(layout.bytes());
      const int copies = static_cast<int>(std::clamp<size_t>(kBytes / size, 1, 24));
      int column = 0;
      for (const int m : {1, 4, 8, 16, 32, 64, 128, 512}) {
        if (head && m > 128) continue;
        const auto turn = [&](int i) {
          return GemmArgs{.type = Half::kBF16,
                          .out = head ? GemmOut::kF32 : GemmOut::kHalf,
                          .x = x.get(),
                          .x_stride = s.k,
                          .w = {.format = format, .codes = memory.get() + i * size},
                          .y = y.get(),
                          .y_stride = s.n,
                          .bias = nullptr,
                          .add_to_y = false,
                          .m = m,
                          .n = s.n,
                          .k = s.k,
                          .gated = s.gated};
        };
        double best = 1e30;
        std::string all;
        if (m <= kCodedSmallRows) {
          best = time_in_graph(stream, copies, 5, [&](int i) {
            CHECK_CUDA(coded_small_gemm(turn(i), Launch(stream, true)));
          });
          if (coded_few_takes(turn(0))) {
            const double us = time_in_graph(stream, copies, 5, [&](int i) {
              CHECK_CUDA(coded_few_gemm(turn(i), Launch(stream, true)));
            });
            char one[64];
            std::snprintf(one, sizeof one, " small %.1f, few %.1f", best, us);
            all += one;
            best = std::min(best, us);
          }
        } else {
          std::array<CodedCut, kCodedCuts> cuts;
          const int32_t count = coded_stream_cuts(turn(0), cuts);
          for (int32_t c = 0; c < count; ++c) {
            const CodedCut& cut = cuts[static_cast<size_t>(c)];
            const double us = time_in_graph(stream, copies, 3, [&](int i) {
              CHECK_CUDA(coded_stream_gemm(turn(i), cut, Launch(stream, true)));
            });
            best = std::min(best, us);
            char one[64];
            std::snprintf(one, sizeof one, " %d/%d %.1f", cut.row_blocks, cut.splits, us);
            all += one;
          }
        }
        const double floor = static_cast<double>(size) / ceiling / 1e3;
        const double flops = 2.0 * m * s.n * (s.gated ? 2 : 1) * s.k;
        if (format == kFormatInt4) layer[column++] += best;
        std::printf("%-8s %-24s %4d %8.1f %5.0f%% %8.0f %s\n", s.name, name_of(format).c_str(), m,
                    best, 100 * floor / best, flops / best / 1e6, all.c_str());
      }
    }
  }
  std::printf("a layer's products, us, m 1 4 8 16 32 64 128 512:");
  for (const double us : layer) std::printf(" %.1f", us);
  Device<T> wide(size_t{28672} * 4096);
  const CodedLayout layout = coded_layout(kFormatInt4, 28672, 4096, true);
  const double us = time_in_graph(stream, 4, 5, [&](int) {
    CHECK_CUDA(widen_codes(Half::kBF16, layout, memory.get(), wide.get(), stream));
  });
  std::printf("\nwiden gate_up %.1f us, %.0f GB/s\n", us,
              (28672. * 4096 * 2 + static_cast<double>(layout.bytes())) / us / 1e3);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "all";
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreate(&stream));
  if (what != "bench") {
    const bool hopper = what != "small" && (argc < 3 || std::string(argv[2]) != "small");
    check_type<__nv_bfloat16>(what == "quick", hopper, stream);
    check_type<__half>(true, hopper, stream);
    std::printf("coded gemm checks: %d failures\n", failures);
  }
  if (what == "bench" || what == "all") bench(argc > 2 ? argv[2] : "", stream);
  return failures == 0 ? 0 : 1;
}
