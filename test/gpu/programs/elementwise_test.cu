// Norms, activations, rope and cache writes, and embeddings on a GPU: correctness against float64,
// then times beside the machine's read bandwidth.
//   ./elementwise_test [check|quick|bench]     sources: programs.mjs; quick: few sizes, for
//   compute-sanitizer
#include <cuda_fp8.h>

#include <cstring>
#include <numeric>
#include <random>

#include "cuda/attention/rope_kv.h"
#include "cuda/rows/activation.h"
#include "cuda/rows/embedding.h"
#include "cuda/rows/norm.h"
#include "gpu_test.cuh"

using namespace gpu_test;
using namespace inferd;
using namespace inferd::cuda;

namespace {

template <typename T>
double value(const T& x) {
  return static_cast<double>(gpu_test::to_float(x));
}

template <typename T>
void check_norm(int rows, int width, bool fused, bool ones, cudaStream_t stream) {
  const size_t count = static_cast<size_t>(rows) * static_cast<size_t>(width);
  const auto x = noisy<T>(count, 3.f, 1), r = noisy<T>(count, 3.f, 2);
  const auto weight = ones ? std::vector<float>(static_cast<size_t>(width), 1.f)
                           : noisy<float>(static_cast<size_t>(width), 2.f, 3);
  Device<T> dx(x), dr(r), out(count);
  Device<float> dw(weight);
  CHECK_CUDA(rms_norm(half_of<T>, out.get(), dx.get(), fused ? dr.get() : nullptr,
                      ones ? nullptr : dw.get(), rows, width, 1e-5f, Launch(stream, true)));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  std::vector<double> want(count);
  std::vector<T> sums(count);
  for (int i = 0; i < rows; ++i) {
    double squares = 0;
    for (int j = 0; j < width; ++j) {
      const size_t at = static_cast<size_t>(i) * width + j;
      sums[at] = fused ? to_half(gpu_test::to_float(x[at]) + gpu_test::to_float(r[at]),
                                 static_cast<T*>(nullptr))
                       : x[at];
      squares += value(sums[at]) * value(sums[at]);
    }
    for (int j = 0; j < width; ++j) {
      const size_t at = static_cast<size_t>(i) * width + j;
      want[at] =
          value(sums[at]) / std::sqrt(squares / width + 1e-5) * static_cast<double>(weight[j]);
    }
  }
  const std::string name = "norm " + std::to_string(rows) + "x" + std::to_string(width);
  expect(relative_error(out.download(), want) < rounding<T>, name);
  if (fused) {
    expect(std::memcmp(dr.download().data(), sums.data(), count * sizeof(T)) == 0,
           name + " residual");
  }
}

template <typename T>
void check_activation(int rows, int width, Gate gate, cudaStream_t stream) {
  const size_t count = static_cast<size_t>(rows) * static_cast<size_t>(width);
  const auto x = noisy<T>(2 * count, 6.f, 5);
  Device<T> dx(x), out(count), sum(x);
  CHECK_CUDA(gated_mul(half_of<T>, gate, out.get(), dx.get(), rows, width, Launch(stream, true)));
  CHECK_CUDA(add(half_of<T>, sum.get(), dx.get(), static_cast<int64_t>(2 * count), 0.5f, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  std::vector<double> want(count), added(2 * count);
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < width; ++j) {
      const double g = value(x[static_cast<size_t>(i) * 2 * width + j]);
      const double u = value(x[static_cast<size_t>(i) * 2 * width + width + j]);
      const double y = std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g);
      want[static_cast<size_t>(i) * width + j] =
          u * (gate == Gate::kSilu ? g / (1 + std::exp(-g)) : 0.5 * g * (1 + std::tanh(y)));
    }
  }
  for (size_t i = 0; i < 2 * count; ++i) added[i] = 1.5 * value(x[i]);
  expect(relative_error(out.download(), want) < rounding<T>, "gated_mul " + std::to_string(width));
  expect(relative_error(sum.download(), added) < rounding<T>, "add");
}

struct RopeCase {
  int tokens, heads, kv_heads, head_dim, rotary_dim, block_size;
  bool norm;
  KvType kv;
};

template <typename T>
void check_rope(const RopeCase& c, cudaStream_t stream) {
  const int all = c.heads + 2 * c.kv_heads, slots = 5, max_blocks = 64;
  const int blocks = slots * max_blocks + 1;
  const size_t count = static_cast<size_t>(c.tokens) * all * c.head_dim;
  const auto qkv = noisy<T>(count, 2.f, 11);
  const auto q_norm = noisy<float>(static_cast<size_t>(c.head_dim), 2.f, 12);
  const auto k_norm = noisy<float>(static_cast<size_t>(c.head_dim), 2.f, 13);
  std::vector<float> inv_freq;
  for (int i = 0; i < c.rotary_dim / 2; ++i) {
    inv_freq.push_back(static_cast<float>(std::pow(500000.0, -2.0 * i / c.rotary_dim)));
  }
  std::vector<int32_t> tables(static_cast<size_t>(slots) * max_blocks), token_slots, positions;
  std::iota(tables.begin(), tables.end(), 1);
  std::shuffle(tables.begin(), tables.end(), std::mt19937(3));
  for (int i = 0; i < c.tokens; ++i) {
    token_slots.push_back(i % slots);
    positions.push_back(i == 3 ? -1 : (i / slots) % (max_blocks * c.block_size));
  }
  const size_t element = c.kv == KvType::kActivation ? 2 : 1;
  const size_t scales_at = static_cast<size_t>(c.kv_heads) * c.block_size * c.head_dim * element;
  const size_t scale_bytes = c.kv == KvType::kInt8 ? size_t{4} * c.kv_heads * c.block_size : 0;
  const size_t block_bytes = (scales_at + scale_bytes + 15) / 16 * 16;
  Device<T> x(qkv);
  Device<float> qn(q_norm), kn(k_norm), freq(inv_freq);
  Device<int32_t> table(tables), slot(token_slots), position(positions);
  Device<uint8_t> k(blocks * block_bytes), v(blocks * block_bytes);
  k.fill(0);
  v.fill(0);
  CHECK_CUDA(rope_kv(half_of<T>,
                     {.qkv = x.get(),
                      .q_norm = c.norm ? qn.get() : nullptr,
                      .k_norm = c.norm ? kn.get() : nullptr,
                      .norm_eps = 1e-6f,
                      .inv_freq = freq.get(),
                      .attention_factor = 1.25f,
                      .k_cache = k.get(),
                      .v_cache = v.get(),
                      .kv_type = c.kv,
                      .block_bytes = static_cast<int64_t>(block_bytes),
                      .block_tables = table.get(),
                      .token_slots = slot.get(),
                      .positions = position.get(),
                      .max_blocks = max_blocks,
                      .tokens = c.tokens,
                      .heads = c.heads,
                      .kv_heads = c.kv_heads,
                      .head_dim = c.head_dim,
                      .rotary_dim = c.rotary_dim,
                      .block_size = c.block_size},
                     Launch(stream, true)));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  const auto got = x.download();
  const auto keys = k.download(), values = v.download();
  std::vector<double> want_q, want_kv;
  std::vector<float> got_q, got_kv;
  std::vector<bool> written(keys.size(), false);
  for (int t = 0; t < c.tokens; ++t) {
    for (int h = 0; h < all; ++h) {
      const size_t row = (static_cast<size_t>(t) * all + h) * c.head_dim;
      const bool is_q = h < c.heads, is_v = h >= c.heads + c.kv_heads;
      std::vector<double> y(static_cast<size_t>(c.head_dim));
      double squares = 0;
      for (int d = 0; d < c.head_dim; ++d) {
        y[d] = value(qkv[row + d]);
        squares += y[d] * y[d];
      }
      if (c.norm && !is_v) {
        for (int d = 0; d < c.head_dim; ++d) {
          y[d] *= static_cast<double>((is_q ? q_norm : k_norm)[d]) /
                  std::sqrt(squares / c.head_dim + 1e-6);
        }
      }
      for (int d = 0; !is_v && d < c.rotary_dim / 2; ++d) {
        const double angle = positions[t] * static_cast<double>(inv_freq[d]);
        const double a = y[d], b = y[d + c.rotary_dim / 2];
        y[d] = 1.25 * (a * std::cos(angle) - b * std::sin(angle));
        y[d + c.rotary_dim / 2] = 1.25 * (b * std::cos(angle) + a * std::sin(angle));
      }
      const int p = positions[t];
      if (p < 0) {
        expect(std::memcmp(&got[row], &qkv[row], sizeof(T) * c.head_dim) == 0, "rope padding");
        continue;
      }
      if (is_q) {
        for (int d = 0; d < c.head_dim; ++d) {
          want_q.push_back(y[d]);
          got_q.push_back(gpu_test::to_float(got[row + d]));
        }
        continue;
      }
      const int kv_head = h - c.heads - (is_v ? c.kv_heads : 0);
      const int block = tables[static_cast<size_t>(token_slots[t]) * max_blocks + p / c.block_size];
      const uint8_t* place = (is_v ? values : keys).data() + block * block_bytes;
      const size_t at = static_cast<size_t>(kv_head) * c.block_size + p % c.block_size;
      float scale = 1;
      if (c.kv == KvType::kInt8) {
        double largest = 0;
        for (double x : y) largest = std::max(largest, std::abs(x));
        std::memcpy(&scale, place + scales_at + 4 * at, 4);
        expect(std::abs(scale - largest / 127) <= 1e-5 * largest, "rope int8 scale");
      }
      for (size_t i = 0; i < c.head_dim * element; ++i) {
        written[block * block_bytes + at * c.head_dim * element + i] = true;
      }
      for (size_t i = 0; i < 4 && scale_bytes > 0; ++i) {
        written[block * block_bytes + scales_at + 4 * at + i] = true;
      }
      for (int d = 0; d < c.head_dim; ++d) {
        const uint8_t* from = place + (at * c.head_dim + d) * element;
        want_kv.push_back(y[d]);
        if (c.kv == KvType::kActivation) {
          T stored;
          std::memcpy(&stored, from, 2);
          got_kv.push_back(gpu_test::to_float(stored));
        } else if (c.kv == KvType::kFloat8) {
          __nv_fp8_e4m3 stored;
          std::memcpy(&stored, from, 1);
          got_kv.push_back(static_cast<float>(stored));
        } else {
          got_kv.push_back(static_cast<float>(static_cast<int8_t>(*from)) * scale);
        }
      }
    }
  }
  bool clean = true;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (!written[i]) clean = clean && keys[i] == 0 && values[i] == 0;
  }
  char name[120];
  std::snprintf(name, sizeof name, "rope head_dim %d rotary %d heads %d/%d block %d norm %d kv %d",
                c.head_dim, c.rotary_dim, c.heads, c.kv_heads, c.block_size, c.norm,
                static_cast<int>(c.kv));
  expect(relative_error(got_q, want_q) < rounding<T>, std::string(name) + " q");
  const double kv_bound = c.kv == KvType::kActivation ? rounding<T>
                          : c.kv == KvType::kFloat8   ? 0.04
                                                      : 0.01;
  const double error = relative_error(got_kv, want_kv);
  expect(error < kv_bound, std::string(name) + " kv " + std::to_string(error));
  expect(clean, std::string(name) + " wrote elsewhere");
}

template <typename T>
void check_embedding(cudaStream_t stream) {
  const int vocab = 100, hidden = 328;
  const auto table = noisy<float>(static_cast<size_t>(vocab) * hidden, 3.f, 21);
  const auto half_table = noisy<T>(static_cast<size_t>(vocab) * hidden, 3.f, 21);
  const std::vector<int32_t> ids = {0, 99, 5, -1, 100, 7, 7};
  Device<float> f32(table);
  Device<T> f16(half_table), out(ids.size() * hidden), same(ids.size() * hidden),
      rows(ids.size() * hidden);
  Device<int32_t> device_ids(ids);
  CHECK_CUDA(embed(half_of<T>, out.get(), TableType::kF32, f32.get(), vocab, hidden,
                   device_ids.get(), static_cast<int64_t>(ids.size()), 1.f, stream));
  CHECK_CUDA(embed(half_of<T>, same.get(),
                   half_of<T> == Half::kF16 ? TableType::kF16 : TableType::kBF16, f16.get(), vocab,
                   hidden, device_ids.get(), static_cast<int64_t>(ids.size()), 1.f, stream));
  std::vector<int32_t> picks = {3, 0, -1, 2};
  Device<int32_t> device_picks(picks);
  CHECK_CUDA(gather_rows(rows.get(), same.get(), hidden * 2, device_picks.get(), 4, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  const auto got = out.download(), got_same = same.download(), got_rows = rows.download();
  bool good = true;
  for (size_t i = 0; i < ids.size(); ++i) {
    const bool known = ids[i] >= 0 && ids[i] < vocab;
    for (int d = 0; d < hidden; ++d) {
      const float want =
          known ? gpu_test::to_float(half_table[static_cast<size_t>(ids[i]) * hidden + d]) : 0.f;
      good = good && gpu_test::to_float(got[i * hidden + d]) == want &&
             gpu_test::to_float(got_same[i * hidden + d]) == want;
    }
  }
  for (size_t i = 0; i < picks.size(); ++i) {
    for (int d = 0; d < hidden; ++d) {
      const float want =
          picks[i] < 0 ? 0.f
                       : gpu_test::to_float(got_same[static_cast<size_t>(picks[i]) * hidden + d]);
      good = good && gpu_test::to_float(got_rows[i * hidden + d]) == want;
    }
  }
  expect(good, "embedding and gather_rows");
  // A rank's share of the vocabulary without any id.
  CHECK_CUDA(embed(half_of<T>, out.get(), TableType::kF32, nullptr, 0, hidden, device_ids.get(),
                   static_cast<int64_t>(ids.size()), 1.f, stream, vocab));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  for (const T& value : out.download()) good = good && gpu_test::to_float(value) == 0;
  expect(good, "embedding of no ids");
}

template <typename T>
void check_type(bool quick, cudaStream_t stream) {
  for (int width : {8, 64, 192, 4096, 5120, 8200, 16384}) {
    if (quick && width != 192 && width != 8200) continue;  // one group of values a thread, and two
    for (int rows : {1, 37}) {
      check_norm<T>(rows, width, false, false, stream);
      check_norm<T>(rows, width, false, true, stream);
      check_norm<T>(rows, width, true, false, stream);
    }
    check_activation<T>(13, width, Gate::kSilu, stream);
    check_activation<T>(13, width, Gate::kGeluTanh, stream);
  }
  for (KvType kv : {KvType::kActivation, KvType::kFloat8, KvType::kInt8}) {
    check_rope<T>({40, 4, 2, 64, 64, 16, false, kv}, stream);
    if (!quick) check_rope<T>({600, 8, 2, 128, 128, 32, true, kv}, stream);
    check_rope<T>({33, 3, 1, 96, 64, 1, true, kv}, stream);
    check_rope<T>({20, 2, 2, 256, 256, 16, true, kv}, stream);
    check_rope<T>({20, 16, 1, 32, 16, 16, false, kv}, stream);
  }
  check_embedding<T>(stream);
}

void bench(cudaStream_t stream) {
  using T = __nv_bfloat16;
  Device<T> a(size_t{1} << 30), b(size_t{1} << 30);
  fill_noise<<<2048, 256, 0, stream>>>(a.get(), static_cast<int64_t>(a.size()), 1.f, 3);
  fill_noise<<<2048, 256, 0, stream>>>(b.get(), static_cast<int64_t>(b.size()), 1.f, 4);
  const double ceiling = read_ceiling(a.get(), a.size() * 2, stream);
  std::printf("read ceiling %.0f GB/s\n%-34s %9s %9s %8s\n", ceiling, "op", "us", "GB/s", "of rc");
  const auto line = [&](const char* name, double us, double bytes) {
    std::printf("%-34s %9.2f %9.0f %7.0f%%\n", name, us, bytes / us / 1e3,
                100 * bytes / us / 1e3 / ceiling);
  };
  Device<float> weight(noisy<float>(16384, 1.f, 1)), freq(noisy<float>(64, 1.f, 2));
  constexpr int64_t kLarge = 16384;
  constexpr double kHidden = 4096, kInner = 14336;
  for (bool early : {false, true}) {
    const Launch on(stream, early);
    std::printf("%s\n", early ? "with early start" : "plain launches");
    for (int64_t rows : {int64_t{1}, int64_t{128}, kLarge}) {
      const int count = rows == kLarge ? 6 : 40;
      const double n = static_cast<double>(rows);
      char name[80];
      std::snprintf(name, sizeof name, "add + norm %lld x 4096", static_cast<long long>(rows));
      line(name,
           time_in_graph(stream, count, 9,
                         [&](int i) {
                           const int64_t at = i % 3 * rows * 4096;
                           CHECK_CUDA(rms_norm(Half::kBF16, b.get() + at, a.get() + at,
                                               a.get() + (8 + i % 3) * rows * 4096, weight.get(),
                                               rows, 4096, 1e-5f, on));
                         }),
           8 * n * kHidden);
      std::snprintf(name, sizeof name, "silu_mul %lld x 14336", static_cast<long long>(rows));
      line(name,
           time_in_graph(stream, count, 9,
                         [&](int) {
                           CHECK_CUDA(gated_mul(Half::kBF16, Gate::kSilu, b.get(), a.get(), rows,
                                                14336, on));
                         }),
           6 * n * kInner);
      std::vector<int32_t> tables(256 * 1024), slots, positions;
      std::iota(tables.begin(), tables.end(), 0);
      std::shuffle(tables.begin(), tables.begin() + 1024, std::mt19937(1));
      for (int64_t i = 0; i < rows; ++i) {
        slots.push_back(rows == kLarge ? 0 : static_cast<int32_t>(i));
        positions.push_back(rows == kLarge ? static_cast<int32_t>(i) : 1000);
      }
      for (size_t i = 0; i < tables.size(); ++i) tables[i] %= 1024;
      Device<int32_t> table(tables), slot(slots), position(positions);
      std::snprintf(name, sizeof name, "rope_kv %lld tokens, 32/8 x 128",
                    static_cast<long long>(rows));
      line(name,
           time_in_graph(stream, count, 9,
                         [&](int i) {
                           CHECK_CUDA(rope_kv(Half::kBF16,
                                              {.qkv = a.get() + i % 3 * rows * 6144,
                                               .q_norm = nullptr,
                                               .k_norm = nullptr,
                                               .norm_eps = 0,
                                               .inv_freq = freq.get(),
                                               .attention_factor = 1,
                                               .k_cache = b.get(),
                                               .v_cache = b.get() + (1 << 26),
                                               .kv_type = KvType::kActivation,
                                               .block_bytes = int64_t{8} * 16 * 128 * 2,
                                               .block_tables = table.get(),
                                               .token_slots = slot.get(),
                                               .positions = position.get(),
                                               .max_blocks = 1024,
                                               .tokens = static_cast<int32_t>(rows),
                                               .heads = 32,
                                               .kv_heads = 8,
                                               .head_dim = 128,
                                               .rotary_dim = 128,
                                               .block_size = 16},
                                              on));
                         }),
           4 * n * 6144);
    }
  }
  {
    std::vector<int32_t> ids(16384);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * 7919 % 128256);
    Device<int32_t> device_ids(ids);
    line("embed 16384 x 4096",
         time_in_graph(stream, 3, 9,
                       [&](int) {
                         CHECK_CUDA(embed(Half::kBF16, b.get(), TableType::kBF16, a.get(), 128256,
                                          4096, device_ids.get(), 16384, 1.f, stream));
                       }),
         4.0 * 16384 * 4096);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "all";
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreate(&stream));
  const bool quick = what == "quick";
  if (what != "bench") {
    check_type<__nv_bfloat16>(quick, stream);
    check_type<__half>(quick, stream);
    std::printf("elementwise checks: %d failures\n", failures);
  }
  if (what != "check" && !quick) bench(stream);
  return failures == 0 ? 0 : 1;
}
