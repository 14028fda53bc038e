// Prefill attention on a GPU: both kernels against float64 over ragged shapes, then timing.
//   attention_prefill_test [check|quick|mma|bench|bench8]
// Fails (exit 1) when an error exceeds its tolerance, a repeat differs in a bit, or a token that is
// in no row is written. The cache holds NaN wherever no token of the sequence is.
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "attention_reference.cuh"
#include "cuda/attention/attention_prefill.h"
#include "cuda/attention/row_lists.h"

using namespace attention_test;
using namespace inferd;
using namespace inferd::cuda;

namespace {

int attribute(cudaDeviceAttr which) {
  int device = 0, value = 0;
  CHECK_CUDA(cudaGetDevice(&device));
  CHECK_CUDA(cudaDeviceGetAttribute(&value, which, device));
  return value;
}

bool mma_only = false;  // for builds without code for sm_90a

struct Chunk {
  int32_t start, count;  // the sequence has start tokens in the cache before this chunk
};

struct Setup {
  Setup(const Shape& shape_, const std::vector<Chunk>& chunks, uint32_t seed)
      : shape(shape_),
        rows(make_rows(chunks)),
        num_tokens(rows.back().first_token + rows.back().count + 5),
        cache(shape, lengths_of(chunks), seed),
        q(static_cast<size_t>(num_tokens) * shape.qkv_width()),
        out(static_cast<size_t>(num_tokens) * shape.out_width()),
        tiles(make_tiles()),
        tile_count(std::vector<int32_t>{static_cast<int32_t>(tiles.size())}),
        counters(2) {
    counters.fill(0);
    fill_noise<<<1024, 256>>>(q.get(), q.size(), 2.f, seed + 7, shape.is_bf16());
    if (prefill_attention_sm90_takes(9, 0, cache.kv)) {
      CHECK_CUDA(encode_kv_maps(shape.type, cache.kv, maps));
    }
  }
  bool hopper() const {
    return !mma_only &&
           prefill_attention_sm90_takes(attribute(cudaDevAttrComputeCapabilityMajor),
                                        attribute(cudaDevAttrComputeCapabilityMinor), cache.kv);
  }
  // `bounded`: the device alone knows how many tiles there are.
  void launch(bool sm90, cudaStream_t stream, bool bounded = false) const {
    PrefillAttentionParams params = {
        .q = q.get(),
        .q_stride = shape.qkv_width(),
        .out = out.get(),
        .out_stride = shape.out_width(),
        .kv = cache.kv,
        .tiles = tiles.get(),
        .num_tiles = static_cast<int32_t>(tiles.size()),
        .num_tokens = num_tokens,
        .heads = shape.heads,
        .window = shape.window,
        .sm_count = attribute(cudaDevAttrMultiProcessorCount),
        .counters = counters.get(),
        .scale = shape.scale(),
    };
    if (bounded) {
      params.num_tiles += 50;
      params.tile_count = tile_count.get();
    }
    CHECK_CUDA(sm90 ? prefill_attention_sm90(shape.type, params, maps, stream)
                    : prefill_attention(shape.type, params, stream));
  }
  // Error over at most about `most` of the tokens, the first and last of each row among them.
  double error(int32_t most) const {
    std::vector<int32_t> t, s, p;
    const int32_t step = std::max(1, num_tokens / most);
    for (const PrefillTile& row : rows) {
      for (int32_t i = 0; i < row.count;
           i = i + step < row.count || i == row.count - 1 ? i + step : row.count - 1) {
        t.push_back(row.first_token + i);
        s.push_back(row.slot);
        p.push_back(row.first_position + i);
      }
    }
    return relative_error(shape, cache.kv, q.get(), out.get(), t, s, p);
  }
  static std::vector<PrefillTile> make_rows(const std::vector<Chunk>& chunks) {
    std::vector<PrefillTile> rows;
    int32_t token = 3;  // tokens 0..2 belong to no row
    for (size_t i = 0; i < chunks.size(); ++i) {
      rows.push_back({static_cast<int32_t>(i), token, chunks[i].count, chunks[i].start});
      token += chunks[i].count + static_cast<int32_t>(i % 2);  // sometimes a foreign token between
    }
    return rows;
  }
  static std::vector<int32_t> lengths_of(const std::vector<Chunk>& chunks) {
    std::vector<int32_t> lengths;
    for (const Chunk& c : chunks) lengths.push_back(c.start + c.count);
    return lengths;
  }
  std::vector<PrefillTile> make_tiles() const {
    const int32_t size = prefill_tile_tokens(shape.heads, shape.kv_heads);
    std::vector<PrefillTile> built(count_prefill_tiles(rows, size));
    build_prefill_tiles(rows, size, built);
    return built;
  }
  Shape shape;
  std::vector<PrefillTile> rows;
  int32_t num_tokens;
  Cache cache;
  Device<uint16_t> q, out;
  Device<PrefillTile> tiles;
  Device<int32_t> tile_count, counters;
  KvTensorMaps maps;
};

int failures = 0, cases = 0;
double worst[2][2] = {};  // [sm90][bf16]

void expect(bool good, const Shape& shape, bool sm90, const char* what, double value) {
  if (good) return;
  ++failures;
  if (failures < 20) {
    std::printf("FAILED %s, %s: %s (%g)\n", shape.name(), sm90 ? "sm90" : "mma", what, value);
  }
}

// Compares about `most` of the tokens with float64.
void check_case(const Shape& shape, const std::vector<Chunk>& chunks, uint32_t seed, int32_t most,
                cudaStream_t stream) {
  Setup setup(shape, chunks, seed);
  std::vector<bool> used(setup.num_tokens, false);
  for (const PrefillTile& row : setup.rows) {
    for (int32_t i = 0; i < row.count; ++i) used[row.first_token + i] = true;
  }
  for (bool sm90 : {false, true}) {
    if (sm90 && !setup.hopper()) continue;
    ++cases;
    std::vector<uint16_t> first;
    for (int repeat = 0; repeat < 3; ++repeat) {
      setup.out.fill(0xff);
      setup.launch(sm90, stream, repeat == 2);
      CHECK_CUDA(cudaStreamSynchronize(stream));
      const std::vector<uint16_t> bits = setup.out.download();
      if (repeat > 0) expect(bits == first, shape, sm90, "repeat differs", repeat);
      first = bits;
    }
    const double error = setup.error(most);
    expect(error < shape.tolerance(), shape, sm90, "error", error);
    double& largest = worst[sm90][shape.is_bf16()];
    largest = std::max(largest, error);
    for (int32_t i = 0; i < setup.num_tokens; ++i) {
      if (used[i]) continue;
      for (int32_t j = 0; j < shape.out_width(); j += shape.head_dim) {
        expect(first[static_cast<size_t>(i) * shape.out_width() + j] == 0xffff, shape, sm90,
               "a foreign token was written", i);
      }
    }
  }
}

enum class Extent { kAll, kSome, kQuick };  // the last for compute-sanitizer

void check_all(cudaStream_t stream, Extent extent) {
  const bool quick = extent == Extent::kQuick;
  const std::vector<Chunk> ragged =
      quick ? std::vector<Chunk>{{0, 1}, {0, 17}, {5, 3}, {0, 128}, {100, 33}, {31, 70}}
            : std::vector<Chunk>{{0, 1},   {0, 17},  {5, 3},    {0, 128}, {16, 64},  {100, 129},
                                 {0, 300}, {700, 2}, {513, 95}, {31, 33}, {1000, 77}};
  const int every = quick ? 9 : extent == Extent::kSome ? 5 : 1;
  const int32_t most = quick ? 40 : 4000;
  const int32_t block_sizes[] = {16, 1, 32, 48, 16, 64, 128, 80, 16, 256, 8};
  const int32_t windows[] = {0, 0, 100, 1, 0, 640};
  int n = 0;
  for (Half type : {Half::kBF16, Half::kF16}) {
    for (KvType kv_type : {KvType::kActivation, KvType::kFloat8, KvType::kInt8}) {
      for (int32_t head_dim : {64, 96, 128, 256}) {
        for (int i = 0; i < (kv_type == KvType::kActivation ? 8 : 4); ++i, ++n) {
          if (n % every != 0) continue;
          const int32_t kv_heads = 1 + n % 3;
          const Shape shape = {.type = type,
                               .kv_type = kv_type,
                               .head_dim = head_dim,
                               .heads = kv_heads * (1 + n * 5 % 16),
                               .kv_heads = kv_heads,
                               .block_size = block_sizes[n % 11],
                               .window = windows[n % 6]};
          check_case(shape, ragged, 17 + n, most, stream);
        }
      }
    }
  }
  if (extent != Extent::kAll) return;
  std::mt19937 rng(3);
  for (int rows : {1, 3, 60}) {
    std::vector<Chunk> chunks(rows);
    for (Chunk& c : chunks)
      c = {static_cast<int32_t>(rng() % 3000), 1 + static_cast<int32_t>(rng() % 600)};
    chunks[0] = {0, 8193};
    check_case({}, chunks, rows, most, stream);
  }
  check_case({.window = 1000}, {{0, 5000}, {3000, 500}}, 9, most, stream);
}

// Rows sorted on the device are the lists that the host makes of them.
void check_lists(cudaStream_t stream) {
  std::mt19937 random(5);
  for (int round = 0; round < 60; ++round) {
    const int32_t bound = 1 + static_cast<int32_t>(random() % kMostListedRows);
    const int32_t tile_tokens = 8 << random() % 5;
    std::vector<PlanRow> rows(static_cast<size_t>(bound), PlanRow{0, 0, 0, 0});
    std::vector<int32_t> offsets(static_cast<size_t>(bound) + 1, 0);
    std::vector<int32_t> tokens(rows.size(), -1), slots(rows.size(), 0);
    std::vector<PrefillTile> prompts;
    const int32_t there = round == 0 ? 0 : static_cast<int32_t>(random() % (bound + 1));
    int32_t first = 0, singles = 0;
    for (int32_t r = 0; r < bound; ++r) {
      PlanRow& row = rows[static_cast<size_t>(r)];
      const bool single = random() % 3 > 0;
      const int32_t count = single ? 1 : 2 + static_cast<int32_t>(random() % 40);
      if (r < there && first + count <= bound) {
        row = {.slot = static_cast<int32_t>(random() % 64),
               .start = static_cast<int32_t>(random() % 500),
               .count = count,
               .flags = 0};
        if (single) {
          tokens[static_cast<size_t>(singles)] = first;
          slots[static_cast<size_t>(singles++)] = row.slot;
        } else {
          prompts.push_back({row.slot, first, count, row.start});
        }
      }
      first += row.count;
      offsets[static_cast<size_t>(r) + 1] = first;
    }
    std::vector<PrefillTile> tiles(static_cast<size_t>(count_prefill_tiles(prompts, tile_tokens)));
    build_prefill_tiles(prompts, tile_tokens, tiles);
    Device<PlanRow> device_rows(rows);
    Device<int32_t> device_offsets(offsets), device_tokens(rows.size()), device_slots(rows.size()),
        count(1);
    Device<PrefillTile> device_tiles(
        static_cast<size_t>(most_prefill_tiles(bound, bound, tile_tokens)));
    CHECK_CUDA(list_rows({.rows = device_rows.get(),
                          .row_offsets = device_offsets.get(),
                          .num_rows = bound,
                          .tile_tokens = tile_tokens,
                          .decode_tokens = device_tokens.get(),
                          .decode_slots = device_slots.get(),
                          .tiles = device_tiles.get(),
                          .num_tiles = count.get()},
                         stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    const std::vector<PrefillTile> made = device_tiles.download();
    bool same = count.download()[0] == static_cast<int32_t>(tiles.size());
    for (size_t i = 0; same && i < tiles.size(); ++i) {
      same = made[i].slot == tiles[i].slot && made[i].first_token == tiles[i].first_token &&
             made[i].count == tiles[i].count && made[i].first_position == tiles[i].first_position;
    }
    const bool listed =
        same && device_tokens.download() == tokens && device_slots.download() == slots;
    ++cases;
    if (listed) continue;
    ++failures;
    std::printf("FAILED lists of %d of %d rows\n", there, bound);
  }
}

void bench(cudaStream_t stream, bool only_8_bit) {
  std::printf("%-22s %-16s %10s %9s   %10s %9s\n", "rows x (start + new)", "", "sm90 ms", "TFLOP/s",
              "mma ms", "TFLOP/s");
  struct Case {
    int rows, start, count;
    Shape shape;
  };
  const Shape f16 = {.type = Half::kF16}, d64 = {.head_dim = 64},
              d256 = {.head_dim = 256, .heads = 16};
  const Shape windowed = {.window = 4096}, blocks64 = {.block_size = 64}, mha = {.kv_heads = 32};
  const Shape fp8 = {.kv_type = KvType::kFloat8}, int8 = {.kv_type = KvType::kInt8};
  for (const Case& c : {Case{128, 0, 128, {}}, {16, 0, 1024, {}},       {4, 0, 4096, {}},
                        {1, 0, 16384, {}},     {1, 0, 65536, {}},       {1, 32768, 2048, {}},
                        {64, 1000, 16, {}},    {1, 0, 16384, f16},      {1, 0, 16384, d64},
                        {1, 0, 16384, d256},   {1, 0, 16384, windowed}, {1, 0, 16384, blocks64},
                        {128, 0, 128, mha},    {16, 0, 1024, mha},      {1, 0, 16384, mha},
                        {128, 0, 128, fp8},    {16, 0, 1024, fp8},      {1, 0, 16384, fp8},
                        {128, 0, 128, int8},   {16, 0, 1024, int8},     {1, 0, 16384, int8}}) {
    if (only_8_bit && c.shape.kv_type == KvType::kActivation) continue;
    Setup setup(c.shape, std::vector<Chunk>(c.rows, Chunk{c.start, c.count}), 1);
    double pairs = 0;
    for (int32_t i = 0; i < c.count; ++i) {
      const int32_t keys = c.start + i + 1;
      pairs += c.shape.window > 0 ? std::min(keys, c.shape.window) : keys;
    }
    const double flops = 4.0 * c.shape.head_dim * c.shape.heads * pairs * c.rows;
    char name[40], more[40];
    std::snprintf(name, sizeof name, "%d x (%d + %d)", c.rows, c.start, c.count);
    std::snprintf(more, sizeof more, "%s d%d g%d%s", c.shape.is_bf16() ? "bf16" : "f16",
                  c.shape.head_dim, c.shape.heads / c.shape.kv_heads,
                  c.shape.window > 0                   ? " window"
                  : c.shape.block_size > 16            ? " b64"
                  : c.shape.kv_type == KvType::kFloat8 ? " fp8"
                  : c.shape.kv_type == KvType::kInt8   ? " int8"
                                                       : "");
    std::printf("%-22s %-16s", name, more);
    for (bool sm90 : {true, false}) {
      if (sm90 && !setup.hopper()) {
        std::printf(" %10s %9s  ", "-", "-");
        continue;
      }
      const double us = time_in_graph(stream, 1, c.count > 40000 ? 3 : 9,
                                      [&](int) { setup.launch(sm90, stream); });
      std::printf(" %10.3f %9.0f  ", us / 1e3, flops / us / 1e6);
    }
    std::printf("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "all";
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreate(&stream));
  mma_only = what == "mma";
  if (what.substr(0, 5) != "bench") {
    check_all(stream, what == "quick" ? Extent::kQuick
                      : what == "mma" ? Extent::kSome
                                      : Extent::kAll);
    check_lists(stream);
    std::printf(
        "prefill attention: %d cases, %d failures, worst error mma bf16 %.1e f16 %.1e, "
        "sm90 bf16 %.1e f16 %.1e\n",
        cases, failures, worst[0][1], worst[0][0], worst[1][1], worst[1][0]);
  }
  if (what.substr(0, 5) == "bench" || what == "all") bench(stream, what == "bench8");
  return failures == 0 ? 0 : 1;
}
