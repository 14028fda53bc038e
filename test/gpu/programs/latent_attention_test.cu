// Attention to latents on a GPU: correctness against float64, then timing of decode steps.
//   latent_attention_test [check|quick|bench]
// Fails (exit 1) when an error exceeds its tolerance, padding is written, a number of parts changes
// more than roundings, or a captured launch does not follow changed lengths. What an earlier owner
// left in the rows of a block behind its keys is infinite here.
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <random>

#include "cuda/device/launch.cuh"
#include "cuda/latent/latent_attention.h"
#include "gpu_test.cuh"

using namespace gpu_test;
using namespace inferd::cuda;

namespace {

struct Shape {
  int32_t heads, head_dim, value_dim, block_size, window;
};

int sm_count() {
  int count = 0;
  CHECK_CUDA(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0));
  return count;
}

// One token each of sequences of these lengths, at their ends; 0: padding.
template <typename T>
struct Case {
  Shape shape;
  std::vector<int32_t> lengths, tables;
  int32_t max_blocks, num_blocks = 0;
  std::unique_ptr<Device<T>> keys, queries, out;
  std::unique_ptr<Device<int32_t>> block_tables, slots, positions;
  Device<float> partials;

  Case(const Shape& s, const std::vector<int32_t>& of, bool on_host, uint32_t seed = 1)
      : shape(s),
        lengths(of),
        max_blocks((*std::max_element(of.begin(), of.end()) + s.block_size - 1) / s.block_size + 1),
        partials(latent_attention_partial_bytes(s.value_dim, s.heads, sm_count()) / sizeof(float)) {
    std::vector<int32_t> numbers;
    for (const int32_t length : lengths) num_blocks += (length + s.block_size - 1) / s.block_size;
    num_blocks += 1;
    numbers.resize(static_cast<size_t>(num_blocks));
    std::iota(numbers.begin(), numbers.end(), 0);
    std::shuffle(numbers.begin(), numbers.end(), std::mt19937(seed));
    tables.assign(lengths.size() * static_cast<size_t>(max_blocks), -1);
    size_t next = 0;
    for (size_t i = 0; i < lengths.size(); ++i)
      for (int32_t b = 0; b * s.block_size < lengths[i]; ++b)
        tables[i * static_cast<size_t>(max_blocks) + static_cast<size_t>(b)] = numbers[next++];
    const size_t values = static_cast<size_t>(num_blocks) * static_cast<size_t>(s.block_size) *
                          static_cast<size_t>(s.head_dim);
    keys = std::make_unique<Device<T>>(values);
    if (on_host) {
      keys->upload(host_keys(values, seed));
    } else {
      fill_noise<<<512, 256>>>(keys->get(), static_cast<int64_t>(values), 1.f, seed);
    }
    const size_t rows = lengths.size() * static_cast<size_t>(s.heads);
    queries =
        std::make_unique<Device<T>>(noisy<T>(rows * static_cast<size_t>(s.head_dim), 1, seed + 1));
    out = std::make_unique<Device<T>>(rows * static_cast<size_t>(s.value_dim));
    block_tables = std::make_unique<Device<int32_t>>(tables);
    std::vector<int32_t> slot(lengths.size());
    std::iota(slot.begin(), slot.end(), 0);
    slots = std::make_unique<Device<int32_t>>(slot);
    positions = std::make_unique<Device<int32_t>>(lengths.size());
    upload_positions();
  }
  void upload_positions() {
    std::vector<int32_t> at;
    for (const int32_t length : lengths) at.push_back(length - 1);
    positions->upload(at);
  }
  size_t row_of(size_t sequence, int32_t token) const {
    const int32_t block = tables[sequence * static_cast<size_t>(max_blocks) +
                                 static_cast<size_t>(token / shape.block_size)];
    return static_cast<size_t>(block) * static_cast<size_t>(shape.block_size) +
           static_cast<size_t>(token % shape.block_size);
  }
  std::vector<T> host_keys(size_t values, uint32_t seed) const {
    std::vector<T> all(values, rounded<T>(std::numeric_limits<float>::infinity()));
    const auto dim = static_cast<size_t>(shape.head_dim);
    for (size_t i = 0; i < lengths.size(); ++i)
      for (int32_t token = 0; token < lengths[i]; ++token)
        for (size_t j = 0, at = row_of(i, token) * dim; j < dim; ++j)
          all[at + j] = rounded<T>(noise(at + j, seed));
    return all;
  }
  LatentAttentionParams params() const {
    return {.q = queries->get(),
            .out = out->get(),
            .kv = {.k = keys->get(),
                   .v = nullptr,
                   .type = KvType::kActivation,
                   .block_bytes = int64_t{shape.block_size} * shape.head_dim * 2,
                   .block_tables = block_tables->get(),
                   .max_blocks = max_blocks,
                   .num_blocks = num_blocks,
                   .kv_heads = 1,
                   .block_size = shape.block_size,
                   .head_dim = shape.head_dim},
            .token_slots = slots->get(),
            .positions = positions->get(),
            .tokens = static_cast<int32_t>(lengths.size()),
            .heads = shape.heads,
            .value_dim = shape.value_dim,
            .window = shape.window,
            .splits = 1,
            .scale = 0.1f,
            .partials = partials.get()};
  }
  int32_t splits() const {
    const int32_t longest = *std::max_element(lengths.begin(), lengths.end());
    return latent_attention_splits(params(), longest, sm_count());
  }
  void launch(int32_t splits, cudaStream_t stream = nullptr) const {
    LatentAttentionParams p = params();
    p.splits = splits;
    CHECK_CUDA(latent_attention(half_of<T>, p, Launch(stream)));
  }
  // Of the token of one sequence.
  std::vector<double> reference(size_t sequence, const std::vector<T>& k,
                                const std::vector<T>& q) const {
    const int32_t length = lengths[sequence];
    const int32_t first = shape.window > 0 ? std::max(0, length - shape.window) : 0;
    const auto dim = static_cast<size_t>(shape.head_dim),
               values = static_cast<size_t>(shape.value_dim);
    std::vector<double> want;
    for (int32_t head = 0; head < shape.heads; ++head) {
      const T* query =
          q.data() +
          (sequence * static_cast<size_t>(shape.heads) + static_cast<size_t>(head)) * dim;
      std::vector<double> scores;
      for (int32_t token = first; token < length; ++token) {
        const T* key = k.data() + row_of(sequence, token) * dim;
        double score = 0;
        for (size_t j = 0; j < dim; ++j)
          score += static_cast<double>(to_float(query[j])) * static_cast<double>(to_float(key[j]));
        scores.push_back(score * static_cast<double>(0.1f));
      }
      const double top = *std::max_element(scores.begin(), scores.end());
      std::vector<double> sum(values);
      double total = 0;
      for (int32_t token = first; token < length; ++token) {
        const double p = std::exp(scores[static_cast<size_t>(token - first)] - top);
        const T* key = k.data() + row_of(sequence, token) * dim;
        total += p;
        for (size_t j = 0; j < values; ++j) sum[j] += p * static_cast<double>(to_float(key[j]));
      }
      for (const double x : sum) want.push_back(x / total);
    }
    return want;
  }
  void check(const char* name) const {
    const std::vector<T> k = keys->download(), q = queries->download(), got = out->download();
    const size_t each = static_cast<size_t>(shape.heads * shape.value_dim);
    for (size_t i = 0; i < lengths.size(); ++i) {
      const std::vector<T> mine(got.begin() + static_cast<int64_t>(i * each),
                                got.begin() + static_cast<int64_t>((i + 1) * each));
      char text[160];
      std::snprintf(text, sizeof text, "%s, %d heads of %d, blocks of %d, window %d, length %d",
                    name, shape.heads, shape.head_dim, shape.block_size, shape.window, lengths[i]);
      if (lengths[i] == 0) {
        const auto* bytes = reinterpret_cast<const uint8_t*>(mine.data());
        expect(std::all_of(bytes, bytes + each * sizeof(T), [](uint8_t b) { return b == 0xff; }),
               text);
        continue;
      }
      const double error = relative_error(mine, reference(i, k, q));
      char what[220];
      std::snprintf(what, sizeof what, "%s: off by %.2e", text, error);
      expect(error < 2 * rounding<T>, what);
    }
  }
};

template <typename T>
void check(const Shape& shape, const std::vector<int32_t>& lengths, const char* name) {
  Case<T> c(shape, lengths, true);
  for (const int32_t splits : {1, 2, 3, c.splits()}) {
    c.out->fill(0xff);
    c.launch(splits);
    CHECK_CUDA(cudaDeviceSynchronize());
    char text[80];
    std::snprintf(text, sizeof text, "%s in %d parts", name, splits);
    c.check(text);
  }
}

template <typename T>
void check_type(const char* name, bool quick) {
  const std::vector<int32_t> lengths{1, 0, 63, 64, 65, 128, 129, 200};
  for (const int32_t heads : {1, 16, 20, 64, 80}) {
    if (quick && heads != 16 && heads != 80) continue;
    check<T>({heads, 576, 512, 16, 0}, lengths, name);
    check<T>({heads, 576, 512, 24, 70}, lengths, name);
    if (quick) continue;
    check<T>({heads, 576, 512, 64, 0}, {1000, 5, 321}, name);
    check<T>({heads, 576, 512, 128, 1}, lengths, name);
    check<T>({heads, 576, 512, 4, 0}, lengths, name);
    check<T>({heads, 288, 256, 16, 0}, lengths, name);
  }
}

// A recorded launch of sequences that grow.
template <typename T>
void check_recorded(const char* name) {
  Case<T> c({16, 576, 512, 16, 0}, {300, 40, 7}, true);
  const int32_t splits = c.splits();
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  c.launch(splits, stream);
  CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
  CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  for (const int32_t shorter : {0, 3, 3}) {
    for (int32_t& length : c.lengths) length -= shorter;
    c.upload_positions();
    c.out->fill(0xff);
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK_CUDA(cudaGraphLaunch(exec, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    c.check(name);
  }
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

void bench() {
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  Device<uint8_t> memory(size_t{2} << 30);
  std::printf("read %.0f GB/s\n", read_ceiling(memory.get(), memory.size(), stream));
  std::printf("heads  sequences  keys each     us    GB/s of keys read once   TFLOP/s  parts\n");
  for (const int32_t heads : {16, 32, 128}) {
    for (const auto& [sequences, length] :
         {std::pair{64, 8192}, std::pair{64, 1024}, std::pair{128, 4096}, std::pair{1, 8192}}) {
      const Case<__nv_bfloat16> c({heads, 576, 512, 16, 0},
                                  std::vector<int32_t>(static_cast<size_t>(sequences), length),
                                  false);
      const int32_t splits = c.splits();
      const double us = time_in_graph(stream, 10, 5, [&](int) { c.launch(splits, stream); });
      const double keys = static_cast<double>(sequences) * length;
      std::printf("%5d %10d %10d %6.1f %12.0f %20.0f %6d\n", heads, sequences, length, us,
                  keys * 1152 / us / 1e3, keys * heads * 2 * (576 + 512) / us / 1e6, splits);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "all";
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (what != "bench") {
    check_type<__nv_bfloat16>("bf16", what == "quick");
    check_type<__half>("f16", what == "quick");
    check_recorded<__nv_bfloat16>("recorded");
    std::printf("latent attention checks: %d failures\n", failures);
  }
  if (what == "bench" || what == "all") bench();
  return failures == 0 ? 0 : 1;
}
