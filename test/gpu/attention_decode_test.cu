// Decode attention on a GPU: correctness against float64 over ragged shapes, then timing.
//   nvcc -std=c++20 -O3 -Inative/cuda -gencode arch=compute_90a,code=sm_90a
//        test/gpu/attention_decode_test.cu native/cuda/attention_decode.cu
//        native/cuda/attention_decode_plan.cu -o decode_test
//   ./decode_test [check|smoke|bench|sweep] [part of a name in the table]
// Fails (exit 1) when an error exceeds its tolerance, a repeat differs in a bit, padding is
// written, a ticket stays taken, or a captured launch does not follow changed lengths.
#include <cstring>
#include <string>

#include "attention_decode.h"
#include "attention_reference.cuh"

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

struct Setup {
  Setup(const Shape& shape_, const std::vector<int32_t>& lengths_, uint32_t seed)
      : shape(shape_),
        lengths(lengths_),
        cache(shape, lengths, seed),
        rows(static_cast<int32_t>(lengths.size())),
        q(static_cast<size_t>(rows + 2) * shape.qkv_width()),
        out(static_cast<size_t>(rows + 2) * shape.out_width()),
        tokens(lengths.size()),
        slots(lengths.size()),
        positions(lengths.size()),
        tickets(lengths.size() * shape.kv_heads),
        partials(decode_attention_partial_bytes(rows + 100, shape.heads, shape.kv_heads,
                                                shape.head_dim, sm_count())),
        shares(4 * (rows + 1000)) {
    fill_noise<<<256, 256>>>(q.get(), q.size(), 2.f, seed + 7, shape.is_bf16());
    tickets.fill(0);
    std::vector<int32_t> order(rows + 2);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(seed));
    for (int32_t i = 0; i < rows; ++i) {
      host_tokens.push_back(order[i]);
      host_slots.push_back(rows - 1 - i);
      host_positions.push_back(lengths[rows - 1 - i] - 1);
    }
    tokens.upload(host_tokens);
    slots.upload(host_slots);
    positions.upload(host_positions);
  }
  int32_t warps() const {
    return decode_attention_warps(shape.head_dim, shape.kv_type != KvType::kActivation);
  }
  DecodePlanParams plan(int32_t ctas) const {
    return {.tokens = tokens.get(),
            .slots = slots.get(),
            .positions = positions.get(),
            .rows = rows,
            .window = shape.window,
            .ctas = ctas,
            .warps = warps(),
            .kv_heads = shape.kv_heads,
            .sm_count = sm_count(),
            .shares = shares.get()};
  }
  DecodeAttentionParams params(int32_t ctas) const {
    return {.q = q.get(),
            .q_stride = shape.qkv_width(),
            .out = out.get(),
            .out_stride = shape.out_width(),
            .kv = cache.kv,
            .shares = shares.get(),
            .rows = rows,
            .ctas = ctas,
            .heads = shape.heads,
            .scale = shape.scale(),
            .tickets = tickets.get(),
            .partials = partials.get()};
  }
  void launch(int32_t ctas, cudaStream_t stream) const {
    CHECK_CUDA(plan_decode_attention(plan(ctas), stream));
    CHECK_CUDA(decode_attention(shape.type, params(ctas), stream));
  }
  int32_t default_ctas() const {
    return decode_attention_ctas(rows, shape.kv_heads,
                                 *std::max_element(lengths.begin(), lengths.end()), sm_count());
  }
  double error() const {
    std::vector<int32_t> t, s, p;
    for (int32_t i = 0; i < rows; ++i) {
      if (host_positions[i] < 0) continue;
      t.push_back(host_tokens[i]);
      s.push_back(host_slots[i]);
      p.push_back(host_positions[i]);
    }
    return relative_error(shape, cache.kv, q.get(), out.get(), t, s, p);
  }
  Shape shape;
  std::vector<int32_t> lengths;
  Cache cache;
  int32_t rows;
  Device<uint16_t> q, out;
  Device<int32_t> tokens, slots, positions, tickets;
  Device<uint8_t> partials;
  Device<DecodeShare> shares;
  std::vector<int32_t> host_tokens, host_slots, host_positions;
};

int failures = 0, cases = 0;
double worst_bf16 = 0, worst_f16 = 0;

void expect(bool good, const Shape& shape, const char* what, double value) {
  if (good) return;
  ++failures;
  if (failures < 20) std::printf("FAILED %s: %s (%g)\n", shape.name(), what, value);
}

void check_case(const Shape& shape, const std::vector<int32_t>& lengths, uint32_t seed,
                cudaStream_t stream) {
  ++cases;
  Setup setup(shape, lengths, seed);
  const int32_t most = setup.default_ctas();
  std::vector<uint16_t> first;
  for (int32_t ctas : {most, most, setup.rows, setup.rows + 3}) {
    setup.out.fill(0xff);
    setup.launch(ctas, stream);
    CHECK_CUDA(cudaStreamSynchronize(stream));
    const double error = setup.error();
    expect(error < shape.tolerance(), shape, "error", error);
    double& worst = shape.is_bf16() ? worst_bf16 : worst_f16;
    worst = std::max(worst, error);
    const std::vector<uint16_t> bits = setup.out.download();
    if (!first.empty() && ctas == most) expect(bits == first, shape, "repeat differs", ctas);
    if (ctas == most) first = bits;
    std::vector<bool> used(setup.rows + 2, false);
    for (int32_t i = 0; i < setup.rows; ++i) {
      if (setup.host_positions[i] >= 0) used[setup.host_tokens[i]] = true;
    }
    for (int32_t i = 0; i < setup.rows + 2; ++i) {
      if (!used[i]) {
        expect(bits[static_cast<size_t>(i) * shape.out_width()] == 0xffff, shape,
               "padding was written", i);
      }
    }
  }
  for (int32_t ticket : setup.tickets.download()) expect(ticket == 0, shape, "ticket", ticket);
}

// A captured launch must follow the device arrays.
void check_capture(cudaStream_t stream) {
  ++cases;
  const Shape shape;
  Setup setup(shape, {4096, 700, 33, 2000, 1}, 99);
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  setup.launch(setup.default_ctas(), stream);
  CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
  CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  std::mt19937 rng(5);
  for (int turn = 0; turn < 8; ++turn) {
    for (int32_t i = 0; i < setup.rows; ++i) {
      setup.host_positions[i] =
          static_cast<int32_t>(rng() % (setup.lengths[setup.host_slots[i]] + 1)) - 1;
    }
    setup.host_positions[0] = 0;
    setup.positions.upload(setup.host_positions);
    setup.out.fill(0xff);
    CHECK_CUDA(cudaGraphLaunch(exec, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    const double error = setup.error();
    expect(error < shape.tolerance(), shape, "captured launch", error);
  }
  CHECK_CUDA(cudaGraphExecDestroy(exec));
  CHECK_CUDA(cudaGraphDestroy(graph));
}

void check_all(cudaStream_t stream, bool smoke) {
  const std::vector<int32_t> ragged = {1,   2,   15,  16,  17,   31,   33,   0,   64,
                                       100, 127, 129, 500, 1023, 1025, 2048, 777, 3000};
  const int32_t groups[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  const int32_t block_sizes[] = {16, 1, 32, 48, 8, 64, 128, 80};
  const int32_t windows[] = {0, 0, 100, 1, 1024};
  int n = 0;
  for (Half type : {Half::kBF16, Half::kF16}) {
    for (KvType kv_type : {KvType::kActivation, KvType::kFloat8, KvType::kInt8}) {
      for (int32_t head_dim : {64, 96, 128, 256}) {
        for (int i = 0; i < 4; ++i, ++n) {
          if (smoke && n % 5 != 0) continue;
          const int32_t kv_heads = 1 + n % 3;
          const Shape shape = {.type = type,
                               .kv_type = kv_type,
                               .head_dim = head_dim,
                               .heads = kv_heads * groups[n * 5 % 16],
                               .kv_heads = kv_heads,
                               .block_size = block_sizes[n % 8],
                               .window = windows[n % 5]};
          check_case(shape, ragged, 17 + n, stream);
        }
      }
    }
  }
  if (smoke) return check_capture(stream);
  std::mt19937 rng(3);
  for (int rows : {1, 1, 2, 7, 40, 256}) {
    std::vector<int32_t> lengths(rows);
    for (int32_t& length : lengths) length = 1 + rng() % 8193;
    lengths[0] = 8193;
    check_case({}, lengths, rows, stream);
  }
  check_case({}, {20000, 5, 60, 9}, 1, stream);
  for (int head_dim : {64, 96, 128, 256}) {  // many short rows among a few long ones: packed
    for (KvType kv_type : {KvType::kActivation, KvType::kFloat8}) {
      std::vector<int32_t> lengths(201);
      for (int32_t& length : lengths) length = rng() % 600;
      lengths[30] = 5000;
      lengths[130] = 900;
      check_case(
          {.kv_type = kv_type, .head_dim = head_dim, .heads = 8 + head_dim / 64 * 8, .kv_heads = 8},
          lengths, head_dim, stream);
    }
  }
  check_capture(stream);
}

void bench(cudaStream_t stream, bool sweep, const std::string& only) {
  const int sms = sm_count();
  struct Case {
    int rows, length;
  };
  Device<uint8_t> big(size_t{4} << 30);
  big.fill(0);
  const PlainRead read(sms);
  const double ceiling = read.ceiling(big.get(), big.size(), stream);
  std::printf("read ceiling %.0f GB/s\n", ceiling);
  {
    const Setup setup({}, std::vector<int32_t>(256, 100), 1);
    std::printf("plan of 256 rows: %.1f us\n", time_in_graph(stream, 20, 9, [&](int) {
                  CHECK_CUDA(plan_decode_attention(setup.plan(setup.default_ctas()), stream));
                }));
  }
  std::printf("%-20s %5s %9s %8s %6s %9s %9s\n", "rows x keys, kv", "ctas", "us", "GB/s", "of max",
              "early us", "plain us");
  for (KvType kv_type : {KvType::kActivation, KvType::kFloat8}) {
    for (Case c : {Case{1, 128},
                   {1, 1024},
                   {16, 1024},
                   {128, 128},
                   {256, 128},
                   {128, 1024},
                   {8, 8192},
                   {32, 8192},
                   {1, 16384},
                   {1, 65536},
                   {0, 0}}) {
      const Shape shape = {.kv_type = kv_type};
      char name[48];
      std::snprintf(name, sizeof name, "%d x %d %s", c.rows, c.length,
                    kv_type == KvType::kActivation ? "bf16" : "fp8");
      if (std::string(name).find(only) == std::string::npos) continue;
      std::vector<int32_t> lengths(c.rows, c.length);
      if (c.rows == 0) {  // one long row among many short ones
        lengths.assign(64, 512);
        lengths[20] = 32768;
      }
      const int64_t keys = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
      const double bytes =
          static_cast<double>(keys) * 2 * shape.kv_heads * shape.head_dim * shape.kv_bytes();
      // Copies of the batch, used in turn, so that the caches do not hold the next one.
      const int copies = static_cast<int>(std::clamp(6e8 / bytes, 2.0, 400.0));
      std::vector<int32_t> all;
      for (int i = 0; i < copies; ++i) all.insert(all.end(), lengths.begin(), lengths.end());
      Setup setup(shape, all, 1);
      const int32_t rows = static_cast<int32_t>(lengths.size());
      const int32_t best = decode_attention_ctas(
          rows, shape.kv_heads, *std::max_element(lengths.begin(), lengths.end()), sms);
      std::vector<int32_t> choices = {best};
      if (sweep) {
        for (int32_t spare : {16, 33, 49, 66}) {
          if (rows + spare != best) choices.push_back(rows + spare);
        }
      }
      for (int32_t ctas : choices) {
        Device<DecodeShare> shares(static_cast<size_t>(copies) * ctas * setup.warps());
        for (int i = 0; i < copies; ++i) {
          DecodePlanParams plan = setup.plan(ctas);
          plan.rows = rows;
          plan.tokens = nullptr;
          plan.slots += i * rows;
          plan.positions += i * rows;
          plan.shares = shares.get() + static_cast<size_t>(i) * ctas * setup.warps();
          CHECK_CUDA(plan_decode_attention(plan, stream));
        }
        auto time = [&](bool early) {
          return time_in_graph(stream, std::min(copies, 100), 9, [&](int i) {
            DecodeAttentionParams params = setup.params(ctas);
            params.rows = rows;
            params.shares = shares.get() + static_cast<size_t>(i) * ctas * setup.warps();
            CHECK_CUDA(decode_attention(shape.type, params, Launch(stream, early)));
          });
        };
        const double us = time(false), early_us = capable_of_early() ? time(true) : us;
        // A plain read of as many bytes, elsewhere in memory each time: what any kernel would need.
        const size_t step = static_cast<size_t>(bytes) / 16 * 16;
        const int places = static_cast<int>(std::min<size_t>(big.size() / step, 20));
        const double plain_us = time_in_graph(
            stream, places, 9, [&](int i) { read(big.get() + i * step, step, stream); });
        std::printf("%-20s %5d %9.1f %8.0f %5.0f%% %9.1f %9.1f\n",
                    c.rows == 0 ? "63x512 + 1x32768" : name, ctas, us, bytes / us / 1e3,
                    100 * bytes / us / 1e3 / ceiling, early_us, plain_us);
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "all";
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreate(&stream));
  if (what != "bench" && what != "sweep") {
    check_all(stream, what == "smoke");
    std::printf("decode attention: %d cases, %d failures, worst error bf16 %.1e f16 %.1e\n", cases,
                failures, worst_bf16, worst_f16);
  }
  if (what != "check" && what != "smoke") bench(stream, what == "sweep", argc > 2 ? argv[2] : "");
  return failures == 0 ? 0 : 1;
}
