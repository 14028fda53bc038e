// What the attention tests share: a paged cache with hostile contents around the valid tokens, a
// float64 reference on the device, error measures, and the machine's own read bandwidth.
// Single-threaded host code of the standalone test programs; any CUDA error ends the program.
#pragma once
#include <cuda_fp8.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "cuda/attention/attention_tile.cuh"
#include "cuda/device/half_type.h"

namespace attention_test {

using inferd::cuda::Half;
using inferd::cuda::KvType;
using inferd::cuda::PagedKv;

inline void check(cudaError_t status, const char* what, int line) {
  if (status == cudaSuccess) return;
  std::printf("%s, line %d: %s\n", what, line, cudaGetErrorString(status));
  std::exit(1);
}
#define CHECK_CUDA(call) attention_test::check((call), #call, __LINE__)

// A device array; lives to the end of its scope.
template <typename T>
class Device {
 public:
  explicit Device(size_t count) : count_(count) {
    CHECK_CUDA(cudaMalloc(&data_, std::max<size_t>(count, 1) * sizeof(T)));
  }
  explicit Device(const std::vector<T>& values) : Device(values.size()) { upload(values); }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device() { cudaFree(data_); }
  void upload(const std::vector<T>& values) {
    CHECK_CUDA(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  std::vector<T> download() const {
    std::vector<T> out(count_);
    CHECK_CUDA(cudaMemcpy(out.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost));
    return out;
  }
  void fill(int byte) { CHECK_CUDA(cudaMemset(data_, byte, count_ * sizeof(T))); }
  T* get() const { return data_; }
  size_t size() const { return count_; }

 private:
  T* data_ = nullptr;
  size_t count_;
};

__device__ inline float noise(uint64_t i, uint32_t seed) {  // uniform in [-1, 1)
  uint32_t x = static_cast<uint32_t>(i ^ i >> 32) * 2654435761u ^ seed;
  x ^= x >> 16;
  x *= 0x85ebca6bu;
  x ^= x >> 13;
  x *= 0xc2b2ae35u;
  x ^= x >> 16;
  return static_cast<float>(x) / 2147483648.f - 1.f;
}

__device__ inline void put(void* p, int64_t i, float x, bool is_bf16, KvType type) {
  if (type == KvType::kFloat8) {
    static_cast<__nv_fp8_storage_t*>(p)[i] = __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
  } else if (type == KvType::kInt8) {
    static_cast<int8_t*>(p)[i] = static_cast<int8_t>(rintf(fminf(fmaxf(x * 50.f, -127.f), 127.f)));
  } else if (is_bf16) {
    static_cast<__nv_bfloat16*>(p)[i] = __float2bfloat16_rn(x);
  } else {
    static_cast<__half*>(p)[i] = __float2half_rn(x);
  }
}
__device__ inline double get(const void* p, int64_t i, bool is_bf16, KvType type) {
  if (type == KvType::kFloat8) {
    const __half_raw h =
        __nv_cvt_fp8_to_halfraw(static_cast<const __nv_fp8_storage_t*>(p)[i], __NV_E4M3);
    return __half2float(__half(h));
  }
  if (type == KvType::kInt8) return static_cast<const int8_t*>(p)[i];
  return is_bf16 ? __bfloat162float(static_cast<const __nv_bfloat16*>(p)[i])
                 : __half2float(static_cast<const __half*>(p)[i]);
}

static __global__ void fill_noise(void* p, int64_t count, float amplitude, uint32_t seed,
                                  bool is_bf16) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < count;
       i += step) {
    put(p, i, amplitude * noise(i, seed), is_bf16, KvType::kActivation);
  }
}

// Where a key or value row of head `head` is: its block, and its row in that block.
struct KvPlace {
  int64_t block_at;
  int32_t row;

  __device__ KvPlace(const PagedKv& kv, int32_t slot, int32_t token, int32_t head)
      : block_at(
            kv.block_tables[static_cast<int64_t>(slot) * kv.max_blocks + token / kv.block_size] *
            kv.block_bytes),
        row(head * kv.block_size + token % kv.block_size) {}

  __device__ uint8_t* data(const void* cache) const {
    return static_cast<uint8_t*>(const_cast<void*>(cache)) + block_at;
  }
  __device__ float* scale(const PagedKv& kv, const void* cache) const {
    return reinterpret_cast<float*>(data(cache) + kv.kv_heads * kv.block_size * kv.head_dim) + row;
  }
  __device__ double get_scale(const PagedKv& kv, const void* cache) const {
    return kv.type == KvType::kInt8 ? *scale(kv, cache) : 1.;
  }
};

// Of int8 rows: a few are much smaller than the others, and some zero.
__device__ inline float row_scale(int64_t at, uint32_t seed) {
  const float x = noise(at, seed);
  return x > 0.98f ? 0.f : x > 0.9f ? 1e-4f : (1.f + 0.5f * x) / 50.f;
}

// Writes tokens 0 .. lengths[slot) of every slot; the rest of the cache keeps its poison.
static __global__ void fill_cache(PagedKv kv, const int32_t* lengths, bool is_bf16, uint32_t seed) {
  const int32_t slot = blockIdx.x;
  for (int32_t token = blockIdx.y; token < lengths[slot]; token += gridDim.y) {
    for (int i = threadIdx.x; i < kv.kv_heads * kv.head_dim; i += blockDim.x) {
      const int head = i / kv.head_dim, dim = i % kv.head_dim;
      const KvPlace place(kv, slot, token, head);
      const int64_t at = static_cast<int64_t>(place.row) * kv.head_dim + dim;
      put(place.data(kv.k), at, 1.5f * noise(place.block_at + at, seed), is_bf16, kv.type);
      put(place.data(kv.v), at, noise(place.block_at + at, seed + 1), is_bf16, kv.type);
      if (kv.type == KvType::kInt8 && dim == 0) {
        *place.scale(kv, kv.k) = row_scale(place.block_at + at, seed + 2);
        *place.scale(kv, kv.v) = row_scale(place.block_at + at, seed + 3);
      }
    }
  }
}

// Block (i, head): query of token tokens[i] at position positions[i] of slot slots[i], in float64.
static __global__ void reference(double* out, const void* q, int64_t q_stride, PagedKv kv,
                                 const int32_t* tokens, const int32_t* slots,
                                 const int32_t* positions, int32_t heads, int32_t window,
                                 double scale, bool is_bf16) {
  __shared__ double score[128];
  const int i = blockIdx.x, head = blockIdx.y, tid = threadIdx.x;
  const int kv_head = head / (heads / kv.kv_heads), dim = kv.head_dim;
  const int32_t position = positions[i];
  const int32_t first = window > 0 ? max(0, position + 1 - window) : 0;
  auto place = [&](int32_t token) { return KvPlace(kv, slots[i], token, kv_head); };
  double top = -1e300, total = 0, sum[2] = {0, 0};
  for (int32_t base = first; base <= position; base += 128) {
    const int32_t mine = base + tid;
    double s = -1e300;
    if (mine <= position) {
      s = 0;
      const KvPlace at = place(mine);
      const int64_t q_at = tokens[i] * q_stride + static_cast<int64_t>(head) * dim;
      for (int d = 0; d < dim; ++d) {
        s += get(q, q_at + d, is_bf16, KvType::kActivation) *
             get(at.data(kv.k), static_cast<int64_t>(at.row) * dim + d, is_bf16, kv.type);
      }
      s *= scale * at.get_scale(kv, kv.k);
    }
    __syncthreads();
    score[tid] = s;
    __syncthreads();
    const int count = min(128, position + 1 - base);
    double best = top;
    for (int j = 0; j < count; ++j) best = fmax(best, score[j]);
    const double keep = exp(top - best);
    top = best;
    total *= keep;
    sum[0] *= keep;
    sum[1] *= keep;
    __syncthreads();
    score[tid] = exp(s - best);
    __syncthreads();
    for (int j = 0; j < count; ++j) {
      const double p = score[j];
      total += p;
      const KvPlace at = place(base + j);
      for (int d = tid, n = 0; d < dim; d += 128, ++n) {
        sum[n] += p * at.get_scale(kv, kv.v) *
                  get(at.data(kv.v), static_cast<int64_t>(at.row) * dim + d, is_bf16, kv.type);
      }
    }
  }
  for (int d = tid, n = 0; d < dim; d += 128, ++n) {
    out[(static_cast<int64_t>(i) * heads + head) * dim + d] = sum[n] / total;
  }
}

// Sums of (out - ref)^2 and ref^2; NaN anywhere makes the first NaN.
static __global__ void compare(double* sums, const double* ref, const void* out, int64_t out_stride,
                               const int32_t* tokens, int32_t width, bool is_bf16) {
  double wrong = 0, size = 0;
  for (int j = threadIdx.x; j < width; j += blockDim.x) {
    const double r = ref[static_cast<int64_t>(blockIdx.x) * width + j];
    const double o = get(out, tokens[blockIdx.x] * out_stride + j, is_bf16, KvType::kActivation);
    wrong += (o - r) * (o - r);
    size += r * r;
  }
  atomicAdd(&sums[0], wrong);
  atomicAdd(&sums[1], size);
}

struct Shape {
  Half type = Half::kBF16;
  KvType kv_type = KvType::kActivation;
  int32_t head_dim = 128, heads = 32, kv_heads = 8, block_size = 16, window = 0;
  bool is_bf16() const { return type == Half::kBF16; }
  int32_t qkv_width() const { return (heads + 2 * kv_heads) * head_dim; }
  int32_t out_width() const { return heads * head_dim; }
  float scale() const { return 1.f / std::sqrt(static_cast<float>(head_dim)); }
  int64_t row_bytes() const {  // of a key or value, with its scale
    return head_dim * (kv_type == KvType::kActivation ? 2 : 1) + (kv_type == KvType::kInt8 ? 4 : 0);
  }
  int64_t block_bytes() const { return (kv_heads * block_size * row_bytes() + 15) / 16 * 16; }
  double tolerance() const { return is_bf16() ? 6e-3 : 1e-3; }  // of ||out - ref|| / ||ref||
  const char* name() const {
    static char text[128];
    std::snprintf(text, sizeof text, "%s kv %s head_dim %d heads %d/%d block %d window %d",
                  is_bf16() ? "bf16" : "f16",
                  kv_type == KvType::kActivation ? "16-bit"
                  : kv_type == KvType::kFloat8   ? "fp8"
                                                 : "int8",
                  head_dim, heads, kv_heads, block_size, window);
    return text;
  }
};

// A cache for sequences of these lengths, blocks in random order, poison outside the tokens.
class Cache {
 public:
  Cache(const Shape& shape, const std::vector<int32_t>& lengths, uint32_t seed)
      : Cache(shape, lengths, seed, total_blocks(shape, lengths)) {}

  Cache(const Shape& shape, const std::vector<int32_t>& lengths, uint32_t seed, int32_t blocks)
      : k_(static_cast<size_t>(blocks * shape.block_bytes())),
        v_(static_cast<size_t>(blocks * shape.block_bytes())),
        tables_(make_tables(shape, lengths, seed, blocks)) {
    k_.fill(0xff);  // NaN, of int8 in the scales
    v_.fill(0xff);
    kv = {.k = k_.get(),
          .v = v_.get(),
          .type = shape.kv_type,
          .block_bytes = shape.block_bytes(),
          .block_tables = tables_.get(),
          .max_blocks = max_blocks(shape, lengths),
          .num_blocks = blocks,
          .kv_heads = shape.kv_heads,
          .block_size = shape.block_size,
          .head_dim = shape.head_dim};
    const Device<int32_t> device_lengths(lengths);
    fill_cache<<<dim3(lengths.size(), 256), 256>>>(kv, device_lengths.get(), shape.is_bf16(), seed);
    CHECK_CUDA(cudaDeviceSynchronize());
  }
  PagedKv kv;

 private:
  static int32_t blocks_of(const Shape& shape, int32_t length) {
    return (length + shape.block_size - 1) / shape.block_size;
  }
  static int32_t max_blocks(const Shape& shape, const std::vector<int32_t>& lengths) {
    int32_t most = 1;
    for (int32_t n : lengths) most = std::max(most, blocks_of(shape, n));
    return most;
  }
  static int32_t total_blocks(const Shape& shape, const std::vector<int32_t>& lengths) {
    int32_t sum = 3;
    for (int32_t n : lengths) sum += blocks_of(shape, n);
    return sum;
  }
  static std::vector<int32_t> make_tables(const Shape& shape, const std::vector<int32_t>& lengths,
                                          uint32_t seed, int32_t blocks) {
    std::vector<int32_t> order(blocks);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(seed));
    const int32_t width = max_blocks(shape, lengths);
    std::vector<int32_t> tables(lengths.size() * width, blocks - 1);
    size_t next = 0;
    for (size_t slot = 0; slot < lengths.size(); ++slot) {
      for (int32_t i = 0; i < blocks_of(shape, lengths[slot]); ++i) {
        tables[slot * width + i] = order[next++ % order.size()];
      }
    }
    return tables;
  }
  Device<uint8_t> k_, v_;
  Device<int32_t> tables_;
};

// ||out - ref|| / ||ref|| over these queries.
inline double relative_error(const Shape& shape, const PagedKv& kv, const void* q, const void* out,
                             const std::vector<int32_t>& tokens, const std::vector<int32_t>& slots,
                             const std::vector<int32_t>& positions) {
  const Device<int32_t> t(tokens), s(slots), p(positions);
  Device<double> ref(tokens.size() * shape.out_width()), sums(2);
  sums.fill(0);
  const int n = static_cast<int>(tokens.size());
  reference<<<dim3(n, shape.heads), 128>>>(ref.get(), q, shape.qkv_width(), kv, t.get(), s.get(),
                                           p.get(), shape.heads, shape.window, shape.scale(),
                                           shape.is_bf16());
  compare<<<n, 256>>>(sums.get(), ref.get(), out, shape.out_width(), t.get(), shape.out_width(),
                      shape.is_bf16());
  CHECK_CUDA(cudaDeviceSynchronize());
  const std::vector<double> host = sums.download();
  return std::sqrt(host[0] / host[1]);
}

// Median time of `run(i)` for i = 0 .. turns - 1, captured into one graph, in microseconds a turn.
template <typename Run>
double time_in_graph(cudaStream_t stream, int turns, int replays, Run run) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < turns; ++i) run(i);
  CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
  CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  cudaEvent_t begin, end;
  CHECK_CUDA(cudaEventCreate(&begin));
  CHECK_CUDA(cudaEventCreate(&end));
  std::vector<double> times;
  for (int i = 0; i < replays + 2; ++i) {
    CHECK_CUDA(cudaEventRecord(begin, stream));
    CHECK_CUDA(cudaGraphLaunch(exec, stream));
    CHECK_CUDA(cudaEventRecord(end, stream));
    CHECK_CUDA(cudaEventSynchronize(end));
    float ms;
    CHECK_CUDA(cudaEventElapsedTime(&ms, begin, end));
    if (i >= 2) times.push_back(ms * 1e3 / turns);
  }
  CHECK_CUDA(cudaEventDestroy(begin));
  CHECK_CUDA(cudaEventDestroy(end));
  CHECK_CUDA(cudaGraphExecDestroy(exec));
  CHECK_CUDA(cudaGraphDestroy(graph));
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

static __global__ void read_all(const uint4* p, int64_t count, uint32_t* out) {
  uint32_t all = 0;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < count;
       i += step) {
    const uint4 x = __ldcs(p + i);
    all ^= x.x ^ x.y ^ x.z ^ x.w;
  }
  if (all == 0x12345678u) *out = all;
}
// What this device needs for a plain read of its memory.
class PlainRead {
 public:
  explicit PlainRead(int sm_count) : sm_count_(sm_count), sink_(1) {}
  void operator()(const void* p, size_t bytes, cudaStream_t stream) const {
    read_all<<<sm_count_ * 16, 512, 0, stream>>>(static_cast<const uint4*>(p),
                                                 static_cast<int64_t>(bytes / 16), sink_.get());
  }
  // The best bandwidth over a large array, in GB/s.
  double ceiling(const void* p, size_t bytes, cudaStream_t stream) const {
    double best = 1e30;
    for (int i = 0; i < 5; ++i) {
      best = std::min(best, time_in_graph(stream, 1, 3, [&](int) { (*this)(p, bytes, stream); }));
    }
    return static_cast<double>(bytes) / best / 1e3;
  }

 private:
  int sm_count_;
  Device<uint32_t> sink_;
};

}  // namespace attention_test
