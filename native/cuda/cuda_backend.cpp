// Creation, memory and start-up of the CUDA backend; see cuda_backend.h.
#include "cuda/cuda_backend.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>

#include "core/error.h"
#include "cuda/gemm/gemm.h"
#include "cuda/latent/latent_attention.h"
#include "cuda/rows/weights.h"

namespace inferd::cuda {

CudaBackend::CudaBackend(const CudaOptions& options)
    : device_(options.device_id),
      half_(options.activation == DType::kF16 ? Half::kF16 : Half::kBF16) {
  int count = 0;
  check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  if (device_ < 0 || device_ >= count) {
    throw Error(ErrorCode::kUnsupported,
                format("There is no GPU %d; the driver sees %d.", device_, count));
  }
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device_), "cudaGetDeviceProperties");
  major_ = properties.major;
  minor_ = properties.minor;
  sm_count_ = properties.multiProcessorCount;
  if (major_ < kOldestMajor) {
    throw Error(
        ErrorCode::kUnsupported,
        format("The GPU %s has compute capability %d.%d and the kernels need %d.0 or newer.",
               properties.name, major_, minor_, kOldestMajor));
  }
  check(cudaSetDevice(device_), "cudaSetDevice");
  info_ = {.name = format("cuda %s", properties.name),
           .activation = options.activation,
           .total_bytes = static_cast<int64_t>(properties.totalGlobalMem),
           .free_bytes = 0,
           .host_memory = false,
           .graphs = true,
           .narrow_kv = true,
           .drafters = true};
  stream_ = make_stream();
  host_stream_ = make_stream();
  host_work_done_ = make_event(false);
  for (StepSlot& slot : slots_) {
    slot.begin = make_event(true);
    slot.end = make_event(true);
  }
  gemm_ = make_gemm();
  refresh_free_bytes();
}

// What the kernels take; each launcher says so of its own.
std::string CudaBackend::refuses(const LayerShape& layer) const {
  constexpr int32_t kHeadDims[] = {64, 96, 128, 256};
  constexpr int64_t kWidest = 16384;  // row of a norm
  const auto known = std::find(std::begin(kHeadDims), std::end(kHeadDims), layer.head_dim);
  if (layer.value_dim > 0) {
    if (std::string why = latent_attention_refuses(layer.head_dim, layer.value_dim); !why.empty())
      return why;
  } else if (layer.heads > 0 && known == std::end(kHeadDims)) {
    return format("head_dim is %d, not 64, 96, 128 or 256", layer.head_dim);
  } else if (layer.heads > 16 * layer.kv_heads) {
    return format("%d heads share one of keys and values, more than 16",
                  layer.heads / layer.kv_heads);
  }
  if (layer.rotary_dim % 16 != 0)
    return format("rotary dimension is %d, not a multiple of 16", layer.rotary_dim);
  if (layer.hidden_size % 8 != 0 || layer.hidden_size > kWidest) {
    return format("hidden_size is %lld, not a multiple of 8 up to %lld",
                  static_cast<long long>(layer.hidden_size), static_cast<long long>(kWidest));
  }
  if (layer.coded_experts && layer.intermediate_size % kTileRows16 != 0) {
    return format("experts are quantized and have %lld features, not a multiple of %d",
                  static_cast<long long>(layer.intermediate_size), kTileRows16);
  }
  if (layer.intermediate_size % 8 != 0) {
    return format("intermediate_size is %lld, not a multiple of 8",
                  static_cast<long long>(layer.intermediate_size));
  }
  return "";
}

CudaBackend::~CudaBackend() {
  cudaSetDevice(device_);
  cudaStreamSynchronize(stream_.get());
}

// The engine plans the KV cache from free_bytes after the weights are in place.
void CudaBackend::refresh_free_bytes() {
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  info_.free_bytes = static_cast<int64_t>(free);
  info_.total_bytes = static_cast<int64_t>(total);
}

void* CudaBackend::allocate(size_t bytes) {
  use_device();
  DeviceMemory memory = allocate_device(std::max<size_t>(bytes, 1));
  void* p = memory.get();
  check(cudaMemsetAsync(p, 0, bytes, stream_.get()), "clearing memory");
  allocations_.emplace(p, std::move(memory));
  refresh_free_bytes();
  return p;
}

// Called by destructors: a lost context has nothing to say here that a step has not said.
void CudaBackend::release(void* p) {
  use_device();
  cudaStreamSynchronize(stream_.get());
  graphs_.clear();
  kv_maps_.erase(p);
  narrow_biases_.erase(static_cast<const float*>(p));
  allocations_.erase(p);
  size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) == cudaSuccess) info_.free_bytes = static_cast<int64_t>(free);
  cudaGetLastError();
}

void CudaBackend::upload(void* device, const void* host, size_t bytes) {
  use_device();
  uploader_.copy(device, host, bytes, stream_.get());
}

void CudaBackend::download(void* host, const void* device, size_t bytes) {
  use_device();
  copy_out(host, device, bytes);
  check(cudaStreamSynchronize(stream_.get()), "copying from the GPU");
}

std::string CudaBackend::refuses(const WeightFormat& format) const {
  return refusal_of(format, kWeightFormats);
}

bool CudaBackend::embeds(const WeightFormat& format) const {
  return !format.scaled || in_plain_tiles(format);
}

int64_t CudaBackend::lookup_bytes(const WeightFormat& format, int64_t rows, int64_t cols) const {
  return scale_remainder_bytes(format, rows, cols);
}

PackedWeightPtr CudaBackend::make_weight(const WeightSpec& spec) {
  const bool takes =
      spec.stacked ? !spec.format.scaled || in_tiles(spec.format) : spec.format != kCodedFloat4;
  if (!takes) {
    throw Error(ErrorCode::kUnsupported,
                format("The CUDA backend has no products of %s that are %s.",
                       spec.stacked ? "experts" : "linear weights outside of experts",
                       format_name(spec.format).c_str()));
  }
  use_device();
  std::unique_ptr<CudaWeight> weight = new_weight(spec, stream_.get());
  if (!spec.stacked) weights_.push_back(weight.get());  // there is nothing to choose for experts
  weight->at_end = [this](const CudaWeight* ended) { forget(ended); };
  refresh_free_bytes();
  return weight;
}

// Its memory goes after this, which steps and what was recorded of them may still use.
void CudaBackend::forget(const CudaWeight* weight) {
  use_device();
  cudaStreamSynchronize(stream_.get());
  graphs_.clear();
  std::erase(weights_, weight);
  bias_of_weight_.erase(weight);
}

void CudaBackend::fill_weight(PackedWeight& weight, WeightRole role, int64_t first_row,
                              const Tensor& source) {
  use_device();
  auto& to = static_cast<CudaWeight&>(weight);
  const WeightUpload upload{uploader_, loaded_rows_, half_, stream_.get()};
  if (role == WeightRole::kCodes) return upload_rows(to, first_row, source, upload);
  if (role == WeightRole::kScales) return upload_scales(to, first_row, source, upload);
  throw Error(ErrorCode::kUnsupported, "The CUDA backend takes no zeros of weights in the format " +
                                           format_name(weight.format) + ".");
}

void CudaBackend::fill_coded(PackedWeight& weight, int64_t first_row, int64_t rows,
                             const CodedRows& source) {
  use_device();
  upload_codes(static_cast<CudaWeight&>(weight), first_row, rows, source,
               {uploader_, loaded_rows_, half_, stream_.get()});
}

bool CudaBackend::fill_dummy(const Tensor& rows, const DummyRows& numbers) {
  use_device();
  check(fill_dummy_rows(rows, numbers, stream_.get()), "making dummy weights");
  return true;
}

bool CudaBackend::fill_dummy(PackedWeight& weight, int64_t first_row, int64_t rows,
                             const DummyRows& numbers) {
  use_device();
  auto& to = static_cast<CudaWeight&>(weight);
  if (!to.format.scaled) return fill_dummy(to.some_rows(first_row, rows), numbers);
  const auto bytes = static_cast<size_t>(rows * to.cols * dtype_bytes(info_.activation));
  const Tensor made =
      Tensor::matrix(loaded_rows_.get(bytes, stream_.get()), info_.activation, rows, to.cols);
  fill_dummy(made, numbers);
  quantize_into(to, first_row, made, half_, stream_.get());
  return true;
}

// f16 stays as it is: a weight of 2^-14 and less would lose digits.
bool CudaBackend::scale_columns(PackedWeight& weight, const float* factors) {
  use_device();
  if (half_ != Half::kBF16 || weight.format != kFormatBF16 || weight.cols % 8 != 0) return false;
  void* rows = static_cast<CudaWeight&>(weight).memory.get();
  check(scale_weight_columns(half_, rows, factors, weight.rows, weight.cols, stream_.get()),
        "folding a norm");
  return true;
}

// Checkpoint biases are 16-bit values held as f32; products take them in the type of their result.
void CudaBackend::take_bias(const PackedWeight& weight, const float* bias) {
  use_device();
  DeviceMemory narrow = allocate_device(static_cast<size_t>(weight.rows) * 2);
  check(narrow_floats(half_, narrow.get(), bias, weight.rows, stream_.get()), "bias");
  bias_of_weight_[&weight] = narrow.get();
  narrow_biases_[bias] = std::move(narrow);
}

void* CudaBackend::allocate_host(size_t bytes) {
  use_device();
  const size_t at_least = std::max<size_t>(bytes, 1);
  PinnedMemory memory = allocate_pinned(at_least);
  void* p = std::memset(memory.get(), 0, at_least);
  host_allocations_.emplace(p, std::move(memory));
  return p;
}

void CudaBackend::release_host(void* p) { host_allocations_.erase(p); }

void CudaBackend::reserve_swap(const SwapPool& pool) {
  use_device();
  swapper_ = std::make_unique<BlockSwapper>(pool);
  refresh_free_bytes();
}

int64_t CudaBackend::reserve_steps(const StepShape& s) {
  use_device();
  const int64_t before = info_.free_bytes;
  // The most of each that any layer needs.
  int64_t lists = 0;
  for (const LayerShape& layer : s.layers) {
    if (layer.heads == 0) continue;
    if (layer.value_dim > 0) {
      partials_.get(latent_attention_partial_bytes(layer.value_dim, layer.heads, sm_count_),
                    stream_.get());
      continue;
    }
    const int32_t tile_tokens = prefill_tile_tokens(layer.heads, layer.kv_heads);
    const int64_t most_tiles = s.max_rows + (s.max_tokens + tile_tokens - 1) / tile_tokens;
    lists = std::max(lists, 3 * int64_t{s.max_rows} * static_cast<int64_t>(sizeof(int32_t)) +
                                most_tiles * static_cast<int64_t>(sizeof(PrefillTile)) + 64);
    tickets_.get(
        static_cast<size_t>(s.max_rows) * static_cast<size_t>(layer.kv_heads) * sizeof(int32_t),
        stream_.get());
    const int32_t resident = decode_attention_resident(layer.kv_heads, sm_count_);
    const int32_t blocks = decode_attention_grid(s.max_rows, s.max_context, resident).blocks;
    partials_.get(decode_attention_partial_bytes(blocks, layer.heads, layer.head_dim),
                  stream_.get());
    for (DecodePlan& plan : decode_plans_)
      plan.shares.get(static_cast<size_t>(blocks) * 4 * sizeof(DecodeShare), stream_.get());
  }
  loaded_rows_ = {};  // everything is loaded
  uploader_.end_threads();
  for (const CudaWeight* w : weights_) {
    const bool head = w->rows == s.head_rows;
    const int64_t most = head ? s.max_logit_rows : s.max_tokens;
    spare_of(*w, most);
    if (widens(*w, most)) widened_.get(static_cast<size_t>(w->rows * w->cols * 2), stream_.get());
  }
  prefill_rows_.reserve(static_cast<size_t>(s.max_rows));
  plan_index_.reserve(static_cast<size_t>(s.max_rows) + 16);
  row_lists_.get(static_cast<size_t>(lists), stream_.get());
  plan_words_.get(kPlanBytes, stream_.get());
  token_slots_.get(static_cast<size_t>(s.max_tokens) * sizeof(int32_t), stream_.get());
  tile_counters_.get(2 * sizeof(int32_t), stream_.get());
  sampler_scratch(s.vocab_size, s.max_logit_rows);
  if (s.head_rows < s.vocab_size) reserve_bests(s.max_logit_rows);
  // The lists of a step are made for all tokens, and for the picked ones.
  for (StepSlot& slot : slots_) slot.staging.reserve(kPlanBytes + 2 * static_cast<size_t>(lists));
  reserve_adapters(s.max_tokens);
  tune_products(s);
  check(cudaStreamSynchronize(stream_.get()), "reserving step memory");
  refresh_free_bytes();
  return std::max<int64_t>(0, before - info_.free_bytes);
}

}  // namespace inferd::cuda
