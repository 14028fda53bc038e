// See adapter_bank.h.
#include "cuda/adapters/adapter_bank.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "core/half.h"
#include "cuda/runtime/check.h"

namespace inferd::cuda {
namespace {

constexpr int64_t kHalfBytes = 2;

int64_t sum_of(const std::vector<int64_t>& outputs) {
  return std::accumulate(outputs.begin(), outputs.end(), int64_t{0});
}

// Rows [0, rows) of `from`, [rows, cols] f32, as rows of `row_values` values, zeros behind them.
void round_rows(Half type, void* to, const float* from, int64_t rows, int64_t cols,
                int64_t row_values) {
  const DType dtype = type == Half::kBF16 ? DType::kBF16 : DType::kF16;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) store_f32(to, dtype, r * row_values + c, from[r * cols + c]);
}

}  // namespace

CudaAdapterBank::CudaAdapterBank(const AdapterBankSpec& spec, cudaStream_t stream)
    : AdapterBank(spec) {
  const auto sections = static_cast<int64_t>(outputs.size());
  if (inputs % 8 != 0 || sections > kMostAdapterSections || places > kMostAdapterPlaces ||
      rank_room() > kMostAdapterRank) {
    throw Error(
        ErrorCode::kUnsupported,
        format("The CUDA backend adds adapters to linears whose inputs are a multiple of 8, "
               "in %d places and of rank %d at most, and one has %lld inputs; set "
               "lora.enabled = false.",
               kMostAdapterPlaces, kMostAdapterRank, static_cast<long long>(inputs)));
  }
  const auto allocate = [&](DeviceMemory& memory, int64_t bytes) {
    memory = allocate_device(static_cast<size_t>(bytes));
    check(cudaMemsetAsync(memory.get(), 0, static_cast<size_t>(bytes), stream), "clearing memory");
  };
  allocate(a, places * sections * rank_room() * inputs * kHalfBytes);
  allocate(b, places * sum_of(outputs) * rank_room() * kHalfBytes);
  allocate(ranks, places * sections * static_cast<int64_t>(sizeof(int32_t)));
}

AdapterFactorsView CudaAdapterBank::view() const {
  AdapterFactorsView view{.a = a.get(),
                          .b = b.get(),
                          .ranks = static_cast<const int32_t*>(ranks.get()),
                          .inputs = static_cast<int32_t>(inputs),
                          .sections = static_cast<int32_t>(outputs.size()),
                          .outputs = {},
                          .rank_room = rank_room(),
                          .all_outputs = static_cast<int32_t>(sum_of(outputs))};
  std::copy(outputs.begin(), outputs.end(), view.outputs);
  return view;
}

AdapterImagePtr make_adapter_image(Half type, const CudaAdapterBank& bank,
                                   std::span<const AdapterFactors> factors) {
  constexpr int64_t kRankBytes = kMostAdapterSections * sizeof(int32_t);
  int64_t bytes = kRankBytes;
  for (const AdapterFactors& f : factors)
    bytes += padded_adapter_rank(f.rank) * kHalfBytes *
             (bank.inputs + bank.outputs[static_cast<size_t>(f.section)]);
  auto image = std::make_unique<CudaAdapterImage>();
  image->memory = allocate_pinned(static_cast<size_t>(bytes));
  auto* at = static_cast<char*>(image->memory.get());
  std::fill_n(at, bytes, char{0});
  auto* ranks = reinterpret_cast<int32_t*>(at);
  image->ranks = ranks;
  at += kRankBytes;
  for (const AdapterFactors& f : factors) {
    const int64_t outputs = bank.outputs[static_cast<size_t>(f.section)];
    const int32_t rank = ranks[f.section] = padded_adapter_rank(f.rank);
    char* const b = at + rank * bank.inputs * kHalfBytes;
    round_rows(type, at, f.a.data(), f.rank, bank.inputs, bank.inputs);
    round_rows(type, b, f.b.data(), outputs, f.rank, rank);
    image->sections.push_back({.section = f.section, .rank = rank, .a = at, .b = b});
    at = b + rank * outputs * kHalfBytes;
  }
  return image;
}

void copy_adapter(const CudaAdapterBank& bank, int32_t place, const CudaAdapterImage* image,
                  cudaStream_t stream) {
  const auto sections = static_cast<int64_t>(bank.outputs.size());
  auto* ranks = static_cast<int32_t*>(bank.ranks.get()) + place * sections;
  const auto rank_bytes = static_cast<size_t>(sections) * sizeof(int32_t);
  const auto copy = [&](void* to, const void* from, int64_t bytes) {
    check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream),
          "placing an adapter");
  };
  if (image == nullptr) {
    check(cudaMemsetAsync(ranks, 0, rank_bytes, stream), "placing an adapter");
    return;
  }
  copy(ranks, image->ranks, static_cast<int64_t>(rank_bytes));
  for (const CudaAdapterImage::Section& s : image->sections) {
    const auto first = bank.outputs.begin();
    const int64_t before = std::accumulate(first, first + s.section, int64_t{0});
    const int64_t a_row = (place * sections + s.section) * bank.rank_room();
    const int64_t b_at = (place * sum_of(bank.outputs) + before) * bank.rank_room();
    copy(static_cast<char*>(bank.a.get()) + a_row * bank.inputs * kHalfBytes, s.a,
         s.rank * bank.inputs * kHalfBytes);
    copy(static_cast<char*>(bank.b.get()) + b_at * kHalfBytes, s.b,
         s.rank * bank.outputs[static_cast<size_t>(s.section)] * kHalfBytes);
  }
}

}  // namespace inferd::cuda
