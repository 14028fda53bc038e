// Decode attention on a GPU: correctness against float64 over ragged shapes, then timing.
// Longer than other files: checks and timings share one setup of a step and one reference.
//   attention_decode_test [check|quick|bench|runs] [part of a name in the table]
// Fails (exit 1) when an error exceeds its tolerance, a repeat differs in a bit, padding is
// written, a ticket stays taken, a captured launch does not follow changed lengths, an early start
// reads what is written while it waits, or a rope within differs from rope_kv ahead.
#include <cstring>
#include <string>

#include "attention_reference.cuh"
#include "cuda/attention/attention_decode.h"
#include "cuda/attention/rope_kv.h"
#include "cuda/device/launch.cuh"

using namespace attention_test;
using namespace inferd::cuda;

namespace {

int sm_count() {
  int device = 0, count = 0;
  CHECK_CUDA(cudaGetDevice(&device));
  CHECK_CUDA(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return count;
}

bool capable_of_early() {
  int device = 0, major = 0;
  CHECK_CUDA(cudaGetDevice(&device));
  CHECK_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  return major >= 9;
}

// The last `each` tokens of every sequence, in as few rows as they fit in: a row each, or runs.
struct Setup {
  Setup(const Shape& shape_, const std::vector<int32_t>& lengths_, uint32_t seed, int32_t each_ = 1)
      : shape(shape_),
        lengths(lengths_),
        cache(shape, lengths, seed),
        each(each_),
        pieces((each + most_tokens() - 1) / most_tokens()),
        rows(static_cast<int32_t>(lengths.size()) * pieces),
        all_tokens(static_cast<int32_t>(lengths.size()) * each + 2),
        q(static_cast<size_t>(all_tokens) * shape.qkv_width()),
        out(static_cast<size_t>(all_tokens) * shape.out_width()),
        tokens(rows),
        slots(rows),
        positions(rows),
        token_positions(all_tokens),
        tickets(static_cast<size_t>(rows) * shape.kv_heads),
        partials(decode_attention_partial_bytes(rows + 1000, shape.heads, shape.head_dim,
                                                most_tokens())),
        shares(4 * (rows + 1000)),
        runs(rows) {
    fill_noise<<<256, 256>>>(q.get(), q.size(), 2.f, seed + 7, shape.is_bf16());
    tickets.fill(0);
    const auto sequences = static_cast<int32_t>(lengths.size());
    std::vector<int32_t> order(sequences + (each == 1 ? 2 : 0));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(seed));
    for (int32_t i = 0; i < rows; ++i) {
      const int32_t sequence = i / pieces, piece = i % pieces, slot = sequences - 1 - sequence;
      const int32_t begin = each * piece / pieces, end = each * (piece + 1) / pieces;
      host_tokens.push_back(order[sequence] * each + begin);
      host_slots.push_back(slot);
      host_positions.push_back(lengths[slot] < each ? -1 : lengths[slot] - each + begin);
      host_runs.push_back({static_cast<int16_t>(end - begin), static_cast<int16_t>(end)});
    }
    tokens.upload(host_tokens);
    slots.upload(host_slots);
    runs.upload(host_runs);
    upload_positions();
  }
  int32_t most_tokens() const {
    return each == 1 ? 1 : decode_attention_most_tokens(shape.heads / shape.kv_heads);
  }
  void upload_positions() {
    positions.upload(host_positions);
    std::vector<int32_t> by_token(token_positions.size(), -1);
    for (int32_t i = 0; i < rows; ++i) {
      for (int32_t j = 0; j < host_runs[i].tokens && host_positions[i] >= 0; ++j)
        by_token[host_tokens[i] + j] = host_positions[i] + j;
    }
    token_positions.upload(by_token);
  }
  bool narrow() const { return shape.kv_type != KvType::kActivation; }
  int32_t warps() const { return decode_attention_warps(shape.head_dim, narrow()); }
  int32_t resident() const { return decode_attention_resident(shape.kv_heads, sm_count()); }
  DecodePlanParams plan(DecodeGrid grid) const {
    return {.tokens = tokens.get(),
            .slots = slots.get(),
            .runs = each == 1 ? nullptr : runs.get(),
            .positions = token_positions.get(),
            .rows = rows,
            .window = shape.window,
            .grid = grid,
            .warps = warps(),
            .resident = resident(),
            .shares = shares.get()};
  }
  DecodeAttentionParams params(DecodeGrid grid) const {
    return {.q = q.get(),
            .q_stride = shape.qkv_width(),
            .out = out.get(),
            .out_stride = shape.out_width(),
            .kv = cache.kv,
            .shares = shares.get(),
            .rows = rows,
            .grid = grid,
            .heads = shape.heads,
            .scale = shape.scale(),
            .most_tokens = most_tokens(),
            .window = shape.window,
            .tickets = tickets.get(),
            .partials = partials.get()};
  }
  void launch(DecodeGrid grid, cudaStream_t stream) const {
    CHECK_CUDA(plan_decode_attention(plan(grid), stream));
    CHECK_CUDA(decode_attention(shape.type, params(grid), stream));
  }
  DecodeGrid default_grid() const {
    return decode_attention_grid(rows, *std::max_element(lengths.begin(), lengths.end()),
                                 resident());
  }
  double error() const {
    std::vector<int32_t> t, s, p;
    for (int32_t i = 0; i < rows; ++i) {
      for (int32_t j = 0; j < host_runs[i].tokens && host_positions[i] >= 0; ++j) {
        t.push_back(host_tokens[i] + j);
        s.push_back(host_slots[i]);
        p.push_back(host_positions[i] + j);
      }
    }
    return relative_error(shape, cache.kv, q.get(), out.get(), t, s, p);
  }
  Shape shape;
  std::vector<int32_t> lengths;
  Cache cache;
  int32_t each, pieces, rows, all_tokens;
  Device<uint16_t> q, out;
  Device<int32_t> tokens, slots, positions, token_positions, tickets;
  Device<uint8_t> partials;
  Device<DecodeShare> shares;
  Device<DecodeRun> runs;
  std::vector<int32_t> host_tokens, host_slots, host_positions;
  std::vector<DecodeRun> host_runs;
};

int failures = 0, cases = 0;
double worst_bf16 = 0, worst_f16 = 0;

void expect(bool good, const Shape& shape, const char* what, double value) {
  if (good) return;
  ++failures;
  if (failures < 20) std::printf("FAILED %s: %s (%g)\n", shape.name(), what, value);
}

void check_case(const Shape& shape, const std::vector<int32_t>& lengths, uint32_t seed,
                cudaStream_t stream, int32_t each = 1) {
  ++cases;
  Setup setup(shape, lengths, seed, each);
  const DecodeGrid usual = setup.default_grid();
  std::vector<uint16_t> first;
  int turn = 0;
  for (DecodeGrid grid :
       {usual, usual, DecodeGrid{setup.rows, 1}, DecodeGrid{setup.rows + 3, setup.rows + 3}}) {
    setup.out.fill(0xff);
    setup.launch(grid, stream);
    CHECK_CUDA(cudaStreamSynchronize(stream));
    const double error = setup.error();
    expect(error < shape.tolerance(), shape, "error", error);
    double& worst = shape.is_bf16() ? worst_bf16 : worst_f16;
    worst = std::max(worst, error);
    const std::vector<uint16_t> bits = setup.out.download();
    if (turn == 1) expect(bits == first, shape, "repeat differs", grid.ctas);
    if (turn++ == 0) first = bits;
    std::vector<bool> used(setup.all_tokens, false);
    for (int32_t i = 0; i < setup.rows; ++i) {
      for (int32_t j = 0; j < setup.host_runs[i].tokens && setup.host_positions[i] >= 0; ++j)
        used[setup.host_tokens[i] + j] = true;
    }
    for (int32_t i = 0; i < setup.all_tokens; ++i) {
      if (!used[i]) {
        expect(bits[static_cast<size_t>(i) * shape.out_width()] == 0xffff, shape,
               "padding was written", i);
      }
    }
  }
  for (int32_t ticket : setup.tickets.download()) expect(ticket == 0, shape, "ticket", ticket);
}

// A captured launch must follow the device arrays.
void check_capture(const std::vector<int32_t>& lengths, int turns, cudaStream_t stream) {
  ++cases;
  const Shape shape;
  Setup setup(shape, lengths, 99);
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  setup.launch(setup.default_grid(), stream);
  CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
  CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  std::mt19937 rng(5);
  for (int turn = 0; turn < turns; ++turn) {
    for (int32_t i = 0; i < setup.rows; ++i) {
      setup.host_positions[i] =
          static_cast<int32_t>(rng() % (setup.lengths[setup.host_slots[i]] + 1)) - 1;
    }
    setup.host_positions[0] = 0;
    setup.upload_positions();
    setup.out.fill(0xff);
    CHECK_CUDA(cudaGraphLaunch(exec, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    const double error = setup.error();
    expect(error < shape.tolerance(), shape, "captured launch", error);
  }
  CHECK_CUDA(cudaGraphExecDestroy(exec));
  CHECK_CUDA(cudaGraphDestroy(graph));
}

// A kernel that runs for long, lets the next begin at once, and spoils what this step writes.
__global__ void spoil_last_keys(PagedKv kv, const int32_t* slots, const int32_t* positions) {
  let_next_start();
  wait_for_previous();
  const int64_t start = clock64();
  while (clock64() - start < 100'000) {
  }
  const int32_t row = blockIdx.x, position = positions[row];
  if (position < 0) return;
  for (int head = 0; head < kv.kv_heads; ++head) {
    const KvPlace place(kv, slots[row], position, head);
    for (const void* cache : {kv.k, kv.v}) {
      const int bytes = kv.head_dim * (kv.type == KvType::kActivation ? 2 : 1);
      for (int i = threadIdx.x; i < bytes; i += blockDim.x) {
        place.data(cache)[place.row * bytes + i] = 0xff;
      }
      if (kv.type == KvType::kInt8) *place.scale(kv, cache) = 1e30f;
    }
  }
}

RopeKvParams rope_of(const Setup& setup, const float* inv_freq, const int32_t* slots,
                     const int32_t* positions, int32_t rows) {
  const PagedKv& kv = setup.cache.kv;
  return {.qkv = setup.q.get(),
          .q_norm = nullptr,
          .k_norm = nullptr,
          .norm_eps = 0,
          .inv_freq = inv_freq,
          .attention_factor = 1,
          .k_cache = const_cast<void*>(kv.k),
          .v_cache = const_cast<void*>(kv.v),
          .kv_type = kv.type,
          .block_bytes = kv.block_bytes,
          .block_tables = kv.block_tables,
          .token_slots = slots,
          .positions = positions,
          .max_blocks = kv.max_blocks,
          .tokens = rows,
          .heads = setup.shape.heads,
          .kv_heads = kv.kv_heads,
          .head_dim = kv.head_dim,
          .rotary_dim = kv.head_dim,
          .block_size = kv.block_size};
}

// The chain of a layer with early starts, behind a kernel that is slow to come to its end.
void check_early(const Shape& shape, int32_t rows, cudaStream_t stream) {
  ++cases;
  std::mt19937 rng(rows);
  std::vector<int32_t> lengths(rows);
  for (int32_t& length : lengths) length = 1 + rng() % 700;
  Setup setup(shape, lengths, 5);
  // Row i is token i, as in a step of decode rows.
  for (int32_t i = 0; i < rows; ++i) setup.host_tokens[i] = i;
  setup.tokens.upload(setup.host_tokens);
  setup.upload_positions();
  const Device<float> inv_freq(std::vector<float>(shape.head_dim / 2, 0.3f));
  const std::vector<uint16_t> q = setup.q.download();
  const DecodeGrid grid = setup.default_grid();
  const RopeKvParams rope =
      rope_of(setup, inv_freq.get(), setup.slots.get(), setup.positions.get(), rows);
  CHECK_CUDA(rope_kv(shape.type, rope, stream));
  setup.out.fill(0xff);
  setup.launch(grid, stream);
  CHECK_CUDA(cudaStreamSynchronize(stream));
  const std::vector<uint16_t> want = setup.out.download();
  for (int turn = 0; turn < 10; ++turn) {
    setup.q.upload(q);
    setup.launch(grid, stream);  // settles what comes before it
    setup.out.fill(0xff);
    for (bool both : {true, false}) {
      if (both) {
        CHECK_CUDA(launch_kernel(spoil_last_keys, {dim3(rows), 64}, Launch(stream, true),
                                 setup.cache.kv, setup.slots.get(), setup.positions.get()));
        CHECK_CUDA(rope_kv(shape.type, rope, Launch(stream, true)));
      }
      CHECK_CUDA(decode_attention(shape.type, setup.params(grid), Launch(stream, true)));
    }
    CHECK_CUDA(cudaStreamSynchronize(stream));
    expect(setup.out.download() == want, shape, "early start differs", turn);
  }
}

// The largest |a - b| / max(1, |b|); the same bits are equal, whatever they say.
double difference(const Shape& shape, const std::vector<uint16_t>& a,
                  const std::vector<uint16_t>& b) {
  const auto value = [&](uint16_t bits) {
    return shape.is_bf16() ? __bfloat162float(__nv_bfloat16(__nv_bfloat16_raw{bits}))
                           : __half2float(__half(__half_raw{bits}));
  };
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i]) continue;
    const double error = std::abs(value(a[i]) - value(b[i])) / std::max(1.f, std::abs(value(b[i])));
    if (!(error <= most)) most = std::isnan(error) ? 1e30 : error;
  }
  return most;
}

// Rotation in the kernel of attention gives the bits that rope_kv ahead of it gives, in its output
// and in the caches. Sums of the norms' squares have another order: with norms nearly.
void check_rope(const Shape& shape, const std::vector<int32_t>& lengths, bool norms,
                cudaStream_t stream, float softcap = 0) {
  ++cases;
  Setup setup(shape, lengths, 11 + norms);
  for (int32_t i = 0; i < setup.rows; ++i) setup.host_tokens[i] = i;
  setup.tokens.upload(setup.host_tokens);
  setup.upload_positions();
  const int32_t dims = shape.head_dim;
  std::vector<float> frequencies(dims / 2), weight(dims);
  for (int32_t i = 0; i < dims; ++i) weight[i] = 0.5f + 0.01f * static_cast<float>(i);
  for (int32_t i = 0; i < dims / 2; ++i)
    frequencies[i] = std::pow(10000.f, -2.f * static_cast<float>(i) / static_cast<float>(dims));
  const Device<float> inv_freq(frequencies), q_norm(weight);
  std::reverse(weight.begin(), weight.end());
  const Device<float> k_norm(weight);
  RopeKvParams apart =
      rope_of(setup, inv_freq.get(), setup.slots.get(), setup.positions.get(), setup.rows);
  apart.attention_factor = 1.25f;
  apart.norm_eps = 1e-5f;
  if (norms) {
    apart.q_norm = q_norm.get();
    apart.k_norm = k_norm.get();
  }
  std::vector<float> sink(shape.heads);
  std::iota(sink.begin(), sink.end(), -5.f);
  const Device<float> sinks(sink);
  const auto params_of = [&](DecodeGrid grid) {
    DecodeAttentionParams params = setup.params(grid);
    params.softcap = softcap;
    if (softcap > 0) params.sinks = sinks.get();
    return params;
  };
  const PagedKv& kv = setup.cache.kv;
  const size_t bytes = static_cast<size_t>(kv.num_blocks * kv.block_bytes);
  const auto contents = [&](const void* cache) {
    std::vector<uint16_t> values(bytes / 2);
    CHECK_CUDA(cudaMemcpy(values.data(), cache, bytes, cudaMemcpyDeviceToHost));
    return values;
  };
  const auto spoil = [&](bool early) {
    CHECK_CUDA(launch_kernel(spoil_last_keys, {dim3(setup.rows), 64}, Launch(stream, early), kv,
                             setup.slots.get(), setup.positions.get()));
  };
  const std::vector<uint16_t> q = setup.q.download();
  const DecodeGrid usual = setup.default_grid();
  const bool early = capable_of_early();
  for (DecodeGrid grid : {usual, DecodeGrid{setup.rows, 1}, DecodeGrid{setup.rows + 3, 2}}) {
    CHECK_CUDA(plan_decode_attention(setup.plan(grid), stream));
    spoil(false);
    CHECK_CUDA(rope_kv(shape.type, apart, stream));
    setup.out.fill(0xff);
    CHECK_CUDA(decode_attention(shape.type, params_of(grid), stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    const std::vector<uint16_t> out = setup.out.download(), k = contents(kv.k), v = contents(kv.v);

    setup.q.upload(q);
    DecodeAttentionParams params = params_of(grid);
    params.rope = {.inv_freq = inv_freq.get(),
                   .attention_factor = apart.attention_factor,
                   .q_norm = apart.q_norm,
                   .k_norm = apart.k_norm,
                   .norm_eps = apart.norm_eps,
                   .k_cache = apart.k_cache,
                   .v_cache = apart.v_cache};
    // Behind a launch that settles what comes before it, a slow one, as in check_early, with the
    // last key's place spoiled long before: what is fetched early must not be used.
    spoil(false);
    CHECK_CUDA(decode_attention(shape.type, params_of(grid), stream));
    setup.out.fill(0xff);
    spoil(early);
    CHECK_CUDA(decode_attention(shape.type, params, Launch(stream, early)));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    expect(setup.q.download() == q, shape, "q was written", grid.ctas);
    const double most = norms ? 2 * shape.tolerance() : 0;  // a bit of some keys
    const double of_out = difference(shape, setup.out.download(), out);
    const double of_k = difference(shape, contents(kv.k), k);
    expect(of_out <= most, shape, "rotated in attention", of_out);
    expect(of_k <= most, shape, "rotated keys in the cache", of_k);
    expect(contents(kv.v) == v, shape, "values in the cache", grid.ctas);
  }
  for (int32_t ticket : setup.tickets.download()) expect(ticket == 0, shape, "ticket", ticket);
}

// `quick`: fewer cases and shorter rows, for compute-sanitizer.
void check_all(cudaStream_t stream, bool quick) {
  const std::vector<int32_t> ragged =
      quick ? std::vector<int32_t>{1, 16, 33, 0, 130, 300}
            : std::vector<int32_t>{1,   2,   15,  16,  17,   31,   33,   0,   64,
                                   100, 127, 129, 500, 1023, 1025, 2048, 777, 3000};
  const int32_t groups[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  const int32_t block_sizes[] = {16, 1, 32, 48, 8, 64, 128, 80};
  const int32_t windows[] = {0, 0, 100, 1, 1024};
  int n = 0;
  for (Half type : {Half::kBF16, Half::kF16}) {
    for (KvType kv_type : {KvType::kActivation, KvType::kFloat8, KvType::kInt8}) {
      for (int32_t head_dim : {64, 96, 128, 256}) {
        for (int i = 0; i < 4; ++i, ++n) {
          if (quick && n % 9 != 0) continue;
          const int32_t kv_heads = 1 + n % 3;
          const Shape shape = {.type = type,
                               .kv_type = kv_type,
                               .head_dim = head_dim,
                               .heads = kv_heads * groups[n * 5 % 16],
                               .kv_heads = kv_heads,
                               .block_size = block_sizes[n % 8],
                               .window = windows[n % 5]};
          check_case(shape, ragged, 17 + n, stream);
          check_case(shape, ragged, 17 + n, stream, 2 + n % 7);  // runs
        }
      }
    }
  }
  if (capable_of_early()) {
    for (KvType kv_type : {KvType::kActivation, KvType::kFloat8, KvType::kInt8}) {
      check_early({.kv_type = kv_type}, 5, stream);
      if (!quick) check_early({.kv_type = kv_type}, 130, stream);
    }
    if (!quick) check_early({.block_size = 1}, 40, stream);
  }
  int turn = 0;
  for (int32_t head_dim : {64, 96, 128}) {
    for (int32_t group : {1, 4, 7, 16}) {
      for (bool norms : {false, true}) {
        if (++turn % 5 != 0 && quick) continue;
        check_rope({.type = turn % 4 < 2 ? Half::kBF16 : Half::kF16,
                    .head_dim = head_dim,
                    .heads = 2 * group,
                    .kv_heads = 2,
                    .block_size = block_sizes[turn % 8],
                    .window = windows[turn % 5]},
                   ragged, norms, stream, turn % 3 == 0 ? 3.f : 0.f);
      }
    }
  }
  if (quick) return check_capture({300, 70, 33, 200, 1}, 2, stream);
  std::mt19937 rng(3);
  for (int rows : {1, 1, 2, 7, 40, 256}) {
    std::vector<int32_t> lengths(rows);
    for (int32_t& length : lengths) length = 1 + rng() % 8193;
    lengths[0] = 8193;
    check_case({}, lengths, rows, stream);
  }
  check_case({}, {20000, 5, 60, 9}, 1, stream);
  for (int32_t each : {2, 5, 8}) {
    check_case({}, {8193}, each, stream, each);
    check_case({}, {20000, 5, 60, 9, 16}, each, stream, each);
    check_case({.window = 300}, std::vector<int32_t>(200, 700), each, stream, each);
  }
  {
    std::vector<int32_t> lengths(500);
    for (int32_t& length : lengths) length = rng() % 300;
    check_rope({}, lengths, false, stream);
    check_rope({.head_dim = 64}, lengths, true, stream);
    check_rope({}, {9000, 1, 60, 16}, true, stream);
  }
  for (int head_dim : {64, 96, 128, 256}) {  // many short rows among a few long ones: packed
    for (KvType kv_type : {KvType::kActivation, KvType::kFloat8, KvType::kInt8}) {
      std::vector<int32_t> lengths(401);
      for (int32_t& length : lengths) length = rng() % 600;
      lengths[30] = 5000;
      lengths[130] = 900;
      check_case(
          {.kv_type = kv_type, .head_dim = head_dim, .heads = 8 + head_dim / 64 * 8, .kv_heads = 8},
          lengths, head_dim, stream);
    }
  }
  check_capture({4096, 700, 33, 2000, 1}, 8, stream);
}

// In place of the product before: has the whole device, but leaves room for small blocks.
__global__ void stand_in() {
  let_next_start();
  wait_for_previous();
  const int64_t start = clock64();
  while (clock64() - start < 8'000) {
  }
}

void bench(cudaStream_t stream, const std::string& only) {
  const int sms = sm_count();
  struct Case {
    int rows, length;
  };
  Device<uint8_t> big(size_t{4} << 30);
  big.fill(0x5a);
  const PlainRead read(sms);
  const double ceiling = read.ceiling(big.get(), big.size(), stream);
  std::printf("read ceiling %.0f GB/s\n", ceiling);
  {
    const Setup setup({}, std::vector<int32_t>(256, 100), 1);
    std::printf("plan of 256 rows: %.1f us\n", time_in_graph(stream, 20, 9, [&](int) {
                  CHECK_CUDA(plan_decode_attention(setup.plan(setup.default_grid()), stream));
                }));
  }
  // early: each launch begins while the one before it ends. layer: what rope_kv and decode add to a
  // chain of stand-ins, with early starts and without; in one: with the rope in decode; roomy: with
  // stand-ins that leave room for decode.
  std::printf("%-18s %4s %8s %8s %6s %8s %8s %8s %8s %8s %8s %8s %8s\n", "rows x keys, kv", "ctas",
              "us", "early", "of max", "GB/s", "layer", "in one", "roomy", "in one", "l. plain",
              "rope", "plain rd");
  const Device<float> inv_freq(std::vector<float>(64, 0.3f));
  for (KvType kv_type : {KvType::kActivation, KvType::kFloat8, KvType::kInt8}) {
    for (Case c : {Case{1, 128},
                   {1, 1024},
                   {16, 1024},
                   {128, 128},
                   {128, 200},
                   {256, 128},
                   {256, 200},
                   {40, 512},
                   {140, 200},
                   {128, 1024},
                   {8, 8192},
                   {32, 8192},
                   {1, 16384},
                   {1, 65536},
                   {0, 0}}) {
      const Shape shape = {.kv_type = kv_type};
      char name[48];
      std::snprintf(name, sizeof name, "%d x %d %s", c.rows, c.length,
                    kv_type == KvType::kActivation ? "bf16"
                    : kv_type == KvType::kFloat8   ? "fp8"
                                                   : "int8");
      if (std::string(name).find(only) == std::string::npos) continue;
      std::vector<int32_t> lengths(c.rows, c.length);
      if (c.rows == 0) {  // one long row among many short ones
        lengths.assign(64, 512);
        lengths[20] = 32768;
      }
      const int64_t keys = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
      const double bytes = static_cast<double>(keys) * 2 * shape.kv_heads * shape.row_bytes();
      // Layers, used in turn, so that the caches do not hold the next one.
      const Setup setup(shape, lengths, 1);
      const int32_t rows = setup.rows;
      const size_t layer_bytes =
          static_cast<size_t>(setup.cache.kv.num_blocks * shape.block_bytes());
      const int layers = static_cast<int>(std::clamp(6e8 / bytes, 2.0, 100.0));
      Device<uint8_t> pool(2 * layers * layer_bytes);
      for (int i = 0; i < 2 * layers; ++i) {
        CHECK_CUDA(cudaMemcpy(pool.get() + i * layer_bytes,
                              i % 2 == 0 ? setup.cache.kv.k : setup.cache.kv.v, layer_bytes,
                              cudaMemcpyDeviceToDevice));
      }
      const DecodeGrid grid = setup.default_grid();
      CHECK_CUDA(plan_decode_attention(setup.plan(grid), stream));
      auto rope = [&](int i, bool early) {
        RopeKvParams params =
            rope_of(setup, inv_freq.get(), setup.slots.get(), setup.positions.get(), rows);
        params.k_cache = pool.get() + 2 * i * layer_bytes;
        params.v_cache = pool.get() + (2 * i + 1) * layer_bytes;
        CHECK_CUDA(rope_kv(shape.type, params, Launch(stream, early)));
      };
      auto decode = [&](int i, bool early, bool rotates) {
        DecodeAttentionParams params = setup.params(grid);
        params.kv.k = pool.get() + 2 * i * layer_bytes;
        params.kv.v = pool.get() + (2 * i + 1) * layer_bytes;
        if (rotates) {
          params.rope = {.inv_freq = inv_freq.get(),
                         .k_cache = pool.get() + 2 * i * layer_bytes,
                         .v_cache = pool.get() + (2 * i + 1) * layer_bytes};
        }
        CHECK_CUDA(decode_attention(shape.type, params, Launch(stream, early)));
      };
      struct Parts {
        int product_kb = 0;  // of shared memory that it takes; 0: none
        bool rope = false, decode = false, rotates = false;
      };
      auto time = [&](Parts parts, bool early) {
        early = early && capable_of_early();
        return time_in_graph(stream, layers, 9, [&](int i) {
          const Launch on(stream, early && i > 0);
          if (parts.product_kb > 0) {
            const auto shared_bytes = static_cast<size_t>(parts.product_kb) << 10;
            CHECK_CUDA(launch_kernel(stand_in, {dim3(sms), 128, shared_bytes}, on));
          }
          if (parts.rope) rope(i, on.early);
          if (parts.decode) decode(i, on.early, parts.rotates);
        });
      };
      const double us = time({.decode = true}, false), early_us = time({.decode = true}, true);
      // What a layer's rope and attention add to a product that leaves room for this kernel beside
      // it, or for small ones alone.
      const auto layer_us = [&](int kb, bool rotates, bool early) {
        if (rotates && shape.kv_type != KvType::kActivation) return 0.;
        const Parts all = {kb, !rotates, true, rotates};
        return time(all, early) - time({.product_kb = kb}, early);
      };
      const double apart_us = layer_us(160, false, true),
                   plain_layer_us = layer_us(160, false, false);
      const double beside_us = layer_us(100, false, true);
      const double one_us = layer_us(160, true, true), one_beside_us = layer_us(100, true, true);
      const double rope_us = time({.rope = true}, true);
      // A plain read of as many bytes, elsewhere in memory each time: what any kernel would need.
      const size_t step = static_cast<size_t>(bytes) / 16 * 16;
      const int places = static_cast<int>(std::min<size_t>(big.size() / step, 20));
      const double plain_us = time_in_graph(
          stream, places, 9, [&](int i) { read(big.get() + i * step, step, stream); });
      std::printf("%-18s %4d %8.1f %8.1f %5.0f%% %8.0f %8.1f %8.1f %8.1f %8.1f %8.1f %8.1f %8.1f\n",
                  c.rows == 0 ? "63x512+1x32768" : name, grid.ctas, us, early_us,
                  100 * bytes / early_us / 1e3 / ceiling, bytes / early_us / 1e3, apart_us, one_us,
                  beside_us, one_beside_us, plain_layer_us, rope_us, plain_us);
    }
  }
}

// Runs: the last `each` tokens of every sequence in one row, in us of a chain with early starts.
void bench_runs(cudaStream_t stream) {
  const int each_of[] = {1, 2, 4, 5, 8};
  std::printf("%-14s", "runs, bf16");
  for (int each : each_of) std::printf(" %5d tok", each);
  std::printf("\n");
  for (const auto& [rows, length] :
       {std::pair{1, 1024}, {1, 8192}, {8, 1024}, {8, 8192}, {64, 1024}}) {
    std::printf("%5d x %-6d", rows, length);
    for (int each : each_of) {
      const Setup setup({}, std::vector<int32_t>(rows, length), 1, each);
      const size_t layer_bytes =
          static_cast<size_t>(setup.cache.kv.num_blocks * setup.shape.block_bytes());
      const int layers = static_cast<int>(std::clamp(3e8 / layer_bytes, 2.0, 40.0));
      Device<uint8_t> pool(2 * layers * layer_bytes);
      for (int i = 0; i < 2 * layers; ++i) {
        CHECK_CUDA(cudaMemcpy(pool.get() + i * layer_bytes,
                              i % 2 == 0 ? setup.cache.kv.k : setup.cache.kv.v, layer_bytes,
                              cudaMemcpyDeviceToDevice));
      }
      const DecodeGrid grid = setup.default_grid();
      CHECK_CUDA(plan_decode_attention(setup.plan(grid), stream));
      const double us = time_in_graph(stream, layers, 9, [&](int i) {
        DecodeAttentionParams params = setup.params(grid);
        params.kv.k = pool.get() + 2 * i * layer_bytes;
        params.kv.v = pool.get() + (2 * i + 1) * layer_bytes;
        CHECK_CUDA(decode_attention(setup.shape.type, params,
                                    Launch(stream, i > 0 && capable_of_early())));
      });
      std::printf(" %9.1f", us);
    }
    std::printf("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "all";
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreate(&stream));
  if (what != "bench" && what != "runs") {
    check_all(stream, what == "quick");
    std::printf("decode attention: %d cases, %d failures, worst error bf16 %.1e f16 %.1e\n", cases,
                failures, worst_bf16, worst_f16);
  }
  if (what == "runs") {
    bench_runs(stream);
  } else if (what != "check" && what != "quick") {
    bench_runs(stream);
    bench(stream, argc > 2 ? argv[2] : "");
  }
  return failures == 0 ? 0 : 1;
}
