// Norms, activations, rope and cache writes, embeddings, slot tables and block copies on a GPU:
// correctness against float64 or exact host code, then times beside the machine's read bandwidth.
//   nvcc -std=c++20 -O3 -Inative/cuda -Inative -gencode arch=compute_90a,code=sm_90a
//        test/gpu/elementwise_test.cu native/cuda/{norm,activation,rope_kv,embedding,slots}.cu
//        native/cuda/block_copy.cu -o elementwise_test
//   ./elementwise_test [check|bench]
#include <cuda_fp8.h>

#include <cstring>
#include <map>
#include <numeric>
#include <random>

#include "activation.h"
#include "block_copy.h"
#include "embedding.h"
#include "gpu_test.cuh"
#include "norm.h"
#include "rope_kv.h"
#include "slots.h"

using namespace gpu_test;
using namespace inferd;
using namespace inferd::cuda;

namespace {

template <typename T>
double value(const T& x) {
  return static_cast<double>(gpu_test::to_float(x));
}

template <typename T>
void check_norm(int rows, int width, bool fused, cudaStream_t stream) {
  const size_t count = static_cast<size_t>(rows) * static_cast<size_t>(width);
  const auto x = noisy<T>(count, 3.f, 1), r = noisy<T>(count, 3.f, 2);
  const auto weight = noisy<float>(static_cast<size_t>(width), 2.f, 3);
  Device<T> dx(x), dr(r), out(count);
  Device<float> dw(weight);
  CHECK_CUDA(rms_norm(half_of<T>, out.get(), dx.get(), fused ? dr.get() : nullptr, dw.get(), rows,
                      width, 1e-5f, Launch(stream, true)));
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
  CHECK_CUDA(add(half_of<T>, sum.get(), dx.get(), static_cast<int64_t>(2 * count), stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  std::vector<double> want(count), twice(2 * count);
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < width; ++j) {
      const double g = value(x[static_cast<size_t>(i) * 2 * width + j]);
      const double u = value(x[static_cast<size_t>(i) * 2 * width + width + j]);
      const double y = std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g);
      want[static_cast<size_t>(i) * width + j] =
          u * (gate == Gate::kSilu ? g / (1 + std::exp(-g)) : 0.5 * g * (1 + std::tanh(y)));
    }
  }
  for (size_t i = 0; i < 2 * count; ++i) twice[i] = 2 * value(x[i]);
  expect(relative_error(out.download(), want) < rounding<T>, "gated_mul " + std::to_string(width));
  expect(relative_error(sum.download(), twice) < rounding<T>, "add");
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
  const std::vector<float> k_scale = {0.03f, 0.05f}, v_scale = {0.02f, 0.04f};
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
  const size_t cache = static_cast<size_t>(blocks) * c.kv_heads * c.block_size * c.head_dim;
  const size_t element = c.kv == KvType::kActivation ? 2 : 1;
  Device<T> x(qkv);
  Device<float> qn(q_norm), kn(k_norm), freq(inv_freq), ks(k_scale), vs(v_scale);
  Device<int32_t> table(tables), slot(token_slots), position(positions);
  Device<uint8_t> k(cache * element), v(cache * element);
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
                      .k_scale = ks.get(),
                      .v_scale = vs.get(),
                      .scale_stride = c.kv_heads == 2 ? 1 : 0,
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
  std::vector<bool> written(cache, false);
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
      const float scale = (is_v ? v_scale : k_scale)[c.kv_heads == 2 ? kv_head : 0];
      const auto& cached = is_v ? values : keys;
      for (int d = 0; d < c.head_dim; ++d) {
        const size_t at = ((static_cast<size_t>(block) * c.kv_heads + kv_head) * c.block_size +
                           p % c.block_size) *
                              c.head_dim +
                          d;
        written[at] = true;
        want_kv.push_back(y[d]);
        if (c.kv == KvType::kActivation) {
          T stored;
          std::memcpy(&stored, &cached[at * 2], 2);
          got_kv.push_back(gpu_test::to_float(stored));
        } else if (c.kv == KvType::kFloat8) {
          __nv_fp8_e4m3 stored;
          std::memcpy(&stored, &cached[at], 1);
          got_kv.push_back(static_cast<float>(stored) * scale);
        } else {
          got_kv.push_back(static_cast<float>(static_cast<int8_t>(cached[at])) * scale);
        }
      }
    }
  }
  bool clean = true;
  for (size_t i = 0; i < cache; ++i) {
    if (!written[i] && element == 2) clean = clean && keys[2 * i] == 0 && values[2 * i + 1] == 0;
    if (!written[i] && element == 1) clean = clean && keys[i] == 0 && values[i] == 0;
  }
  char name[120];
  std::snprintf(name, sizeof name, "rope head_dim %d rotary %d heads %d/%d block %d norm %d kv %d",
                c.head_dim, c.rotary_dim, c.heads, c.kv_heads, c.block_size, c.norm,
                static_cast<int>(c.kv));
  expect(relative_error(got_q, want_q) < rounding<T>, std::string(name) + " q");
  const double kv_bound = c.kv == KvType::kActivation ? rounding<T>
                          : c.kv == KvType::kFloat8   ? 0.04
                                                      : 0.03;
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
                   device_ids.get(), static_cast<int64_t>(ids.size()), stream));
  CHECK_CUDA(embed(half_of<T>, same.get(),
                   half_of<T> == Half::kF16 ? TableType::kF16 : TableType::kBF16, f16.get(), vocab,
                   hidden, device_ids.get(), static_cast<int64_t>(ids.size()), stream));
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
}

// Random plans on the device and on the host, compared after each.
void check_slots(cudaStream_t stream) {
  constexpr int32_t kSlots = 24, kLen = 2048, kBlocks = 700, kBias = 8, kMasked = 4;
  struct Tables {
    std::vector<int32_t> tokens, lengths, prompt_lens, blocks, bias_ids, num_bias, masked_ids,
        num_masked;
    std::vector<float> bias_values;
    std::vector<SamplingRow> sampling;
  } host;
  host.tokens.resize(kSlots * kLen);
  host.lengths.resize(kSlots);
  host.prompt_lens.resize(kSlots);
  host.blocks.resize(kSlots * kBlocks);
  host.bias_ids.resize(kSlots * kBias);
  host.bias_values.resize(kSlots * kBias);
  host.num_bias.resize(kSlots);
  host.masked_ids.resize(kSlots * kMasked);
  host.num_masked.resize(kSlots);
  host.sampling.resize(kSlots);
  std::memset(host.sampling.data(), 0, sizeof(SamplingRow) * kSlots);
  Device<int32_t> tokens(host.tokens), lengths(host.lengths), prompt_lens(host.prompt_lens),
      blocks(host.blocks), bias_ids(host.bias_ids), num_bias(host.num_bias),
      masked_ids(host.masked_ids), num_masked(host.num_masked);
  Device<float> bias_values(host.bias_values);
  Device<SamplingRow> sampling(host.sampling);
  const DeviceSlots slots = {tokens.get(),      lengths.get(),  prompt_lens.get(),
                             blocks.get(),      sampling.get(), bias_ids.get(),
                             bias_values.get(), num_bias.get(), masked_ids.get(),
                             num_masked.get(),  kSlots,         kLen,
                             kBlocks,           kBias,          kMasked};
  std::mt19937 random(5);
  const auto pick = [&](int n) {
    return static_cast<int32_t>(random() % static_cast<uint32_t>(n));
  };
  for (int round = 0; round < 60; ++round) {
    std::vector<int32_t> words(16, 0);
    words[3] = pick(3);
    for (int i = 0; i < words[3]; ++i) words.push_back(i);
    words[4] = round % 3 == 2 ? 0 : pick(12);
    std::vector<int32_t> free_slots(kSlots);
    std::iota(free_slots.begin(), free_slots.end(), 0);
    std::shuffle(free_slots.begin(), free_slots.end(), random);
    for (int i = 0; i < words[4]; ++i) {
      NewSlotFixed fixed;
      std::memset(&fixed, 0, sizeof(fixed));
      fixed.slot = free_slots[static_cast<size_t>(i)];
      fixed.fork_of = round % 3 == 1 && pick(2) == 0 ? pick(kSlots) : -1;
      fixed.num_tokens = fixed.fork_of >= 0 ? 0 : pick(kLen);
      fixed.prompt_len = pick(100);
      fixed.num_bias = pick(kBias + 1);
      fixed.num_masked = pick(kMasked + 1);
      fixed.sampling.seed_lo = static_cast<uint32_t>(random());
      fixed.sampling.sequence_index = pick(10);
      fixed.sampling.top_p = 0.5f;
      const auto* raw = reinterpret_cast<const int32_t*>(&fixed);
      words.insert(words.end(), raw, raw + sizeof(fixed) / 4);
      const int64_t s = fixed.slot;
      if (fixed.fork_of >= 0) {
        const int32_t length = host.lengths[static_cast<size_t>(fixed.fork_of)];
        for (int32_t t = 0; t < length; ++t)
          host.tokens[static_cast<size_t>(s * kLen + t)] =
              host.tokens[static_cast<size_t>(fixed.fork_of * kLen + t)];
        host.lengths[static_cast<size_t>(s)] = length;
      } else {
        host.lengths[static_cast<size_t>(s)] = fixed.num_tokens;
      }
      for (int32_t t = 0; t < fixed.num_tokens; ++t) {
        words.push_back(pick(100000));
        host.tokens[static_cast<size_t>(s * kLen + t)] = words.back();
      }
      for (int32_t b = 0; b < fixed.num_bias; ++b) {
        const float bias = static_cast<float>(pick(100)) * 0.25f;
        words.push_back(pick(5000));
        host.bias_ids[static_cast<size_t>(s * kBias + b)] = words.back();
        words.push_back(0);
        std::memcpy(&words.back(), &bias, 4);
        host.bias_values[static_cast<size_t>(s * kBias + b)] = bias;
      }
      for (int32_t m = 0; m < fixed.num_masked; ++m) {
        words.push_back(pick(5000));
        host.masked_ids[static_cast<size_t>(s * kMasked + m)] = words.back();
      }
      host.prompt_lens[static_cast<size_t>(s)] = fixed.prompt_len;
      host.num_bias[static_cast<size_t>(s)] = fixed.num_bias;
      host.num_masked[static_cast<size_t>(s)] = fixed.num_masked;
      host.sampling[static_cast<size_t>(s)] = fixed.sampling;
    }
    words[5] = round % 4 == 3 ? 5000 : pick(40);
    for (int i = 0; i < words[5]; ++i) {  // entries repeat: the later set holds
      const int32_t slot = pick(kSlots), index = pick(round % 2 == 0 ? 5 : kBlocks),
                    block = pick(1 << 20);
      words.insert(words.end(), {slot, index, block});
      host.blocks[static_cast<size_t>(slot) * kBlocks + index] = block;
    }
    std::vector<int32_t> index;
    index_plan(words.data(), index);
    Device<int32_t> device_words(words), device_index(index);
    CHECK_CUDA(apply_slots(slots, device_words.get(), device_index.get(), Launch(stream, true)));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    const bool same =
        tokens.download() == host.tokens && lengths.download() == host.lengths &&
        prompt_lens.download() == host.prompt_lens && blocks.download() == host.blocks &&
        bias_ids.download() == host.bias_ids && bias_values.download() == host.bias_values &&
        num_bias.download() == host.num_bias && masked_ids.download() == host.masked_ids &&
        num_masked.download() == host.num_masked &&
        std::memcmp(sampling.download().data(), host.sampling.data(),
                    sizeof(SamplingRow) * kSlots) == 0;
    expect(same, "apply_slots, plan " + std::to_string(round));
  }
  std::vector<PlanRow> rows;
  std::vector<int32_t> offsets = {0};
  for (int i = 0; i < 40; ++i) {
    const int32_t count = i % 5 == 4 ? 0 : 1 + pick(i % 7 == 0 ? 300 : 3);
    rows.push_back({pick(kSlots), pick(1000), count, 0});
    offsets.push_back(offsets.back() + count);
  }
  const int32_t live = offsets.back(), padded = live + 77;
  Device<PlanRow> device_rows(rows);
  Device<int32_t> device_offsets(offsets), ids(padded), positions(padded), token_rows(padded),
      token_slots(padded);
  CHECK_CUDA(gather_tokens(slots,
                           {device_rows.get(), device_offsets.get(), ids.get(), positions.get(),
                            token_rows.get(), token_slots.get(), 40, padded},
                           Launch(stream, true)));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  const auto got_ids = ids.download(), got_positions = positions.download(),
             got_rows = token_rows.download(), got_slots = token_slots.download();
  bool good = true;
  for (int r = 0; r < 40; ++r) {
    for (int32_t i = 0; i < rows[r].count; ++i) {
      const auto at = static_cast<size_t>(offsets[r] + i);
      const int32_t p = rows[r].start + i;
      good = good && got_rows[at] == r && got_slots[at] == rows[r].slot && got_positions[at] == p &&
             got_ids[at] == host.tokens[static_cast<size_t>(rows[r].slot) * kLen + p];
    }
  }
  for (auto at = static_cast<size_t>(live); at < static_cast<size_t>(padded); ++at) {
    good = good && got_ids[at] == -1 && got_positions[at] == -1 && got_rows[at] == 0 &&
           got_slots[at] == 0;
  }
  expect(good, "gather_tokens");
}

struct Pool {
  Pool(int bases_, int blocks_, int64_t bytes_)
      : num_bases(bases_),
        blocks(blocks_),
        bytes(bytes_),
        memory(static_cast<size_t>(bases_) * blocks_ * bytes_),
        bases(pointers()) {}
  std::vector<void*> pointers() const {
    std::vector<void*> out;
    for (int i = 0; i < num_bases; ++i)
      out.push_back(memory.get() + static_cast<int64_t>(i) * blocks * bytes);
    return out;
  }
  BlockArrays arrays() const { return {bases.get(), num_bases, bytes}; }

  int num_bases, blocks;
  int64_t bytes;
  Device<uint8_t> memory;
  Device<void*> bases;
};

void check_blocks(cudaStream_t stream) {
  for (int64_t bytes : {16, 1008, 32768}) {
    Pool pool(6, 20, bytes);
    std::vector<uint8_t> host(pool.memory.size());
    for (size_t i = 0; i < host.size(); ++i) host[i] = static_cast<uint8_t>(i * 2654435761u >> 13);
    pool.memory.upload(host);
    const std::vector<BlockCopy> pairs = {{1, 2}, {2, 3}, {5, 1},
                                          {7, 7}, {3, 9}, {0, 5}};  // chains
    Device<BlockCopy> device_pairs(pairs);
    CHECK_CUDA(copy_blocks(pool.arrays(), device_pairs.get(), static_cast<int32_t>(pairs.size()),
                           Launch(stream, true)));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    for (const BlockCopy& p : pairs) {
      for (int b = 0; b < 6; ++b) {
        std::memmove(&host[static_cast<size_t>((b * 20 + p.dst) * bytes)],
                     &host[static_cast<size_t>((b * 20 + p.src) * bytes)],
                     static_cast<size_t>(bytes));
      }
    }
    expect(pool.memory.download() == host, "copy_blocks of " + std::to_string(bytes));

    uint8_t* pinned = nullptr;
    CHECK_CUDA(cudaMallocHost(&pinned, static_cast<size_t>(8 * 6 * bytes)));
    const std::vector<BlockCopy> out = {{4, 7}, {19, 0}, {11, 3}}, in = {{7, 10}, {0, 12}, {3, 4}};
    Device<BlockCopy> device_out(out), device_in(in);
    CHECK_CUDA(swap_out(pool.arrays(), pinned, device_out.get(), 3, stream));
    CHECK_CUDA(swap_in(pool.arrays(), pinned, device_in.get(), 3, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    bool good = true;
    std::vector<uint8_t> want = host;
    for (size_t i = 0; i < out.size(); ++i) {
      for (int b = 0; b < 6; ++b) {
        const uint8_t* from = &host[static_cast<size_t>((b * 20 + out[i].src) * bytes)];
        good = good && std::memcmp(pinned + (out[i].dst * 6 + b) * bytes, from,
                                   static_cast<size_t>(bytes)) == 0;
        std::memcpy(&want[static_cast<size_t>((b * 20 + in[i].dst) * bytes)], from,
                    static_cast<size_t>(bytes));
      }
    }
    expect(good && pool.memory.download() == want, "swap of " + std::to_string(bytes));
    cudaFreeHost(pinned);
  }
}

template <typename T>
void check_type(cudaStream_t stream) {
  for (int width : {8, 64, 192, 4096, 5120, 8200, 16384}) {
    for (int rows : {1, 37}) {
      check_norm<T>(rows, width, false, stream);
      check_norm<T>(rows, width, true, stream);
    }
    check_activation<T>(13, width, Gate::kSilu, stream);
    check_activation<T>(13, width, Gate::kGeluTanh, stream);
  }
  for (KvType kv : {KvType::kActivation, KvType::kFloat8, KvType::kInt8}) {
    check_rope<T>({40, 4, 2, 64, 64, 16, false, kv}, stream);
    check_rope<T>({600, 8, 2, 128, 128, 32, true, kv}, stream);
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
                                               .k_scale = nullptr,
                                               .v_scale = nullptr,
                                               .scale_stride = 0,
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
                                          4096, device_ids.get(), 16384, stream));
                       }),
         4.0 * 16384 * 4096);
  }
  {
    std::vector<int32_t> words(16, 0), index;
    words[5] = 16;
    for (int i = 0; i < 16; ++i) words.insert(words.end(), {i, 3, 7});
    index_plan(words.data(), index);
    Device<int32_t> device_words(words), device_index(index), blocks(256 * 64);
    DeviceSlots slots = {};
    slots.blocks = blocks.get();
    slots.max_blocks = 64;
    std::printf("apply_slots, 16 block sets %15.2f us\n", time_in_graph(stream, 40, 9, [&](int) {
                  CHECK_CUDA(apply_slots(slots, device_words.get(), device_index.get(), stream));
                }));
  }
  // Blocks of 16 tokens of Llama-3-8B in bf16: 64 arrays of 32 KB.
  Pool pool(64, 256, 32768);
  std::vector<BlockCopy> pairs;
  for (int i = 0; i < 128; ++i) pairs.push_back({i * 2 % 256, 255 - i * 2 % 256});
  Device<BlockCopy> device_pairs(pairs);
  std::vector<BlockCopy> swaps;
  for (int i = 0; i < 128; ++i) swaps.push_back({(i * 37) % 128, i});
  Device<BlockCopy> device_swaps(swaps);
  const double block_bytes = 64.0 * 32768;
  line("copy 4 blocks, 64 arrays",
       time_in_graph(
           stream, 10, 9,
           [&](int) { CHECK_CUDA(copy_blocks(pool.arrays(), device_pairs.get(), 4, stream)); }),
       2 * 4 * block_bytes);
  line("copy 128 blocks, 64 arrays",
       time_in_graph(
           stream, 3, 9,
           [&](int) { CHECK_CUDA(copy_blocks(pool.arrays(), device_pairs.get(), 128, stream)); }),
       2 * 128 * block_bytes);
  uint8_t* pinned = nullptr;
  CHECK_CUDA(cudaMallocHost(&pinned, static_cast<size_t>(128 * block_bytes)));
  std::memset(pinned, 1, static_cast<size_t>(128 * block_bytes));
  for (int n : {1, 16, 128}) {
    char name[80];
    std::snprintf(name, sizeof name, "swap out %d blocks", n);
    line(name,
         time_in_graph(stream, 2, 7,
                       [&](int) {
                         CHECK_CUDA(swap_out(pool.arrays(), pinned, device_swaps.get(), n, stream));
                       }),
         n * block_bytes);
    std::snprintf(name, sizeof name, "swap in %d blocks", n);
    line(name,
         time_in_graph(stream, 2, 7,
                       [&](int) {
                         CHECK_CUDA(swap_in(pool.arrays(), pinned, device_swaps.get(), n, stream));
                       }),
         n * block_bytes);
  }
  const size_t all = static_cast<size_t>(128 * block_bytes);
  line("memcpy out, one piece",
       time_in_graph(stream, 2, 7,
                     [&](int) {
                       CHECK_CUDA(
                           cudaMemcpyAsync(pinned, a.get(), all, cudaMemcpyDeviceToHost, stream));
                     }),
       128 * block_bytes);
  line("memcpy in, one piece",
       time_in_graph(stream, 2, 7,
                     [&](int) {
                       CHECK_CUDA(
                           cudaMemcpyAsync(a.get(), pinned, all, cudaMemcpyHostToDevice, stream));
                     }),
       128 * block_bytes);
  cudaFreeHost(pinned);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "all";
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreate(&stream));
  if (what != "bench") {
    check_type<__nv_bfloat16>(stream);
    check_type<__half>(stream);
    check_slots(stream);
    check_blocks(stream);
    std::printf("elementwise checks: %d failures\n", failures);
  }
  if (what != "check") bench(stream);
  return failures == 0 ? 0 : 1;
}
