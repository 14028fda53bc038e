// Creation, memory and steps of the CPU backend; the ops are in *_ops.cpp.
#include "cpu/cpu_backend.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "core/error.h"
#include "core/memory/host_memory.h"
#include "core/quant.h"
#include "cpu/scaled_weights.h"

namespace inferd::cpu {

CpuBackend::CpuBackend(const Kernels& kernels, int threads)
    : kernels_(kernels),
      pool_(threads),
      sampler_scratch_(static_cast<size_t>(threads)),
      attention_scratch_(sizeof(AttentionScratch) * static_cast<size_t>(threads)),
      latent_scratch_(sizeof(LatentScratch) * static_cast<size_t>(threads)),
      head_rows_(kHeadLinearFloats * sizeof(float) * static_cast<size_t>(threads)) {
  const HostMemory memory = host_memory();
  info_ = {.name = format("cpu %s x%d", kernels.name, threads),
           .activation = DType::kF32,
           .total_bytes = memory.total_bytes,
           .free_bytes = memory.free_bytes,
           .host_memory = true,
           .narrow_kv = true,
           .drafters = true,
           .ordered_rows = kernels.panel_cols,
           .spreads_experts = true,
           .float4_linears = true};
}

// The engine plans the KV cache from free_bytes after the weights are in place.
void CpuBackend::refresh_free_bytes() { info_.free_bytes = host_memory().free_bytes; }

void* CpuBackend::allocate(size_t bytes) {
  Buffer buffer(bytes);
  void* p = buffer.data();
  allocations_.emplace(p, std::move(buffer));
  refresh_free_bytes();
  return p;
}

// Called by destructors: what was free before is good enough where there is no memory to look.
void CpuBackend::release(void* p) {
  if (allocations_.erase(p) == 0) return;
  try {
    refresh_free_bytes();
  } catch (const std::bad_alloc&) {
  }
}

void CpuBackend::upload(void* device, const void* host, size_t bytes) {
  if (bytes > 0) std::memcpy(device, host, bytes);
}
void CpuBackend::download(void* host, const void* device, size_t bytes) {
  if (bytes > 0) std::memcpy(host, device, bytes);
}

std::string CpuBackend::refuses(const WeightFormat& format) const {
  return refusal_of(format, kWeightFormats);
}

PackedWeightPtr CpuBackend::make_weight(const WeightSpec& spec) {
  std::unique_ptr<CpuWeight> weight = new_weight(kernels_, spec);
  const int64_t cols = spec.cols;
  const int64_t row_bytes =
      std::max(cols * static_cast<int64_t>(sizeof(float)), quant_blocks(cols) * kCodeBlockBytes);
  const auto bytes = static_cast<size_t>(kMaxPackedRows * row_bytes);
  if (bytes > packed_rows_.bytes()) stream_.call([&] { packed_rows_ = Buffer(bytes); });
  return weight;
}

void CpuBackend::fill_weight(PackedWeight& weight, WeightRole role, int64_t first_row,
                             const Tensor& source) {
  auto& to = static_cast<CpuWeight&>(weight);
  if (role == WeightRole::kScales && to.in_scaled_rows()) {
    stream_.call([&] { fill_scales(to, first_row, source); });
    return refresh_free_bytes();
  }
  // It makes other scales itself.
  if (role != WeightRole::kCodes) {
    throw Error(ErrorCode::kUnsupported,
                "The CPU backend takes no scales and zeros of weights in the format " +
                    format_name(weight.format) + ".");
  }
  // On the stream, because the pool belongs to its thread.
  stream_.call([&] { pack_rows(to, first_row, source, pool_); });
  refresh_free_bytes();
}

void CpuBackend::fill_coded(PackedWeight& weight, int64_t first_row, int64_t rows,
                            const CodedRows& source) {
  stream_.call([&] {
    auto& to = static_cast<CpuWeight&>(weight);
    pack_coded(to, first_row, rows, source, pool_);
    const size_t bytes = static_cast<size_t>(kMaxPackedRows * to.cols) * sizeof(float);
    if (!to.ordered.empty() && bytes > ordered_rows_.bytes()) ordered_rows_ = Buffer(bytes);
  });
  refresh_free_bytes();
}

void CpuBackend::run_step(int done_slot, std::function<void()> step) {
  stream_.submit(done_slot, [this, step = std::move(step)] {
    ++step_;
    step();
  });
}

bool CpuBackend::wait_step(int done_slot, int64_t timeout_us) {
  return stream_.wait(done_slot, timeout_us);
}

bool CpuBackend::read_all(const void* p, size_t bytes) {
  constexpr int64_t kChunk = 1 << 21;  // floats; threads that are put aside hold up one chunk
  const auto* data = static_cast<const float*>(p);
  const auto floats = static_cast<int64_t>(bytes / sizeof(float));
  const int64_t chunks = (floats + kChunk - 1) / kChunk;
  pool_.parallel_for(chunks, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t count = std::min(kChunk, floats - i * kChunk);
      [[maybe_unused]] const volatile float sink = kernels_.read_all(data + i * kChunk, count);
    }
  });
  return true;
}

void CpuBackend::start_trace(Trace& trace) {
  trace.source = "ops";
  stream_.call([&] { trace_ = &trace; });
}

void CpuBackend::stop_trace() {
  stream_.call([&] { trace_ = nullptr; });
}

}  // namespace inferd::cpu
