// What adapters add to a linear (core/adapters.h), for the runs of rows that use one: A x by the
// matrix kernels of weights, all sections at once, then the columns of B one after the other. A row
// is computed in the same order whatever else is in the batch.
#include <algorithm>
#include <cstring>

#include "cpu/cpu_backend.h"

namespace inferd::cpu {
namespace {

// What one place holds of a section.
struct PlacedSection {
  int64_t first_low = 0;    // its part of A x
  int32_t rank = 0;         // 0: nothing is added
  std::vector<float> cols;  // [rank, outputs] B transposed
};

// Read where it lies by all places that hold it.
struct PackedAdapter {
  std::unique_ptr<CpuWeight> down;  // [ranks of all sections, inputs]
  std::vector<PlacedSection> sections;
};

struct CpuAdapterImage final : AdapterImage {
  std::shared_ptr<const PackedAdapter> packed;
};

struct CpuAdapterBank final : AdapterBank {
  using AdapterBank::AdapterBank;

  // Null: an empty place.
  std::vector<std::shared_ptr<const PackedAdapter>> held{static_cast<size_t>(places)};
};

}  // namespace

AdapterBankPtr CpuBackend::make_adapter_bank(const AdapterBankSpec& spec) {
  const auto lows = static_cast<int64_t>(spec.outputs.size()) * spec.max_rank;
  const auto bytes = static_cast<size_t>(kMaxPackedRows * lows) * sizeof(float);
  if (bytes > adapter_lows_.bytes()) stream_.call([&] { adapter_lows_ = Buffer(bytes); });
  return std::make_unique<CpuAdapterBank>(spec);
}

// On the thread that reads adapters, beside which the pool may be in a step: alone.
AdapterImagePtr CpuBackend::pack_adapter(const AdapterBank& bank,
                                         std::span<const AdapterFactors> factors) {
  int64_t lows = 0;
  for (const AdapterFactors& f : factors) lows += f.rank;
  auto packed = std::make_shared<PackedAdapter>();
  packed->sections.resize(bank.outputs.size());
  packed->down = new_weight(kernels_, {.rows = lows, .cols = bank.inputs, .format = kFormatF32});
  ThreadPool alone(1);
  int64_t low = 0;
  for (const AdapterFactors& f : factors) {
    // The kernels only read what they pack.
    pack_rows(*packed->down, low,
              Tensor::matrix(const_cast<float*>(f.a.data()), DType::kF32, f.rank, bank.inputs),
              alone);
    PlacedSection& section = packed->sections[static_cast<size_t>(f.section)];
    section = {.first_low = low, .rank = f.rank, .cols = std::vector<float>(f.b.size())};
    const int64_t outputs = bank.outputs[static_cast<size_t>(f.section)];
    for (int64_t o = 0; o < outputs; ++o)
      for (int64_t r = 0; r < f.rank; ++r)
        section.cols[static_cast<size_t>(r * outputs + o)] =
            f.b[static_cast<size_t>(o * f.rank + r)];
    low += f.rank;
  }
  auto image = std::make_unique<CpuAdapterImage>();
  image->packed = std::move(packed);
  return image;
}

void CpuBackend::place_adapter(AdapterBank& bank, int32_t place, const AdapterImage* image) {
  static_cast<CpuAdapterBank&>(bank).held[static_cast<size_t>(place)] =
      image == nullptr ? nullptr : static_cast<const CpuAdapterImage*>(image)->packed;
}

void CpuBackend::add_adapters(const Tensor& y, const Tensor& x, const AdapterBank& bank,
                              const AdapterRows& adapters) {
  const TraceScope scope(trace_, "adapters");
  const auto& b = static_cast<const CpuAdapterBank&>(bank);
  for (const AdapterRun& run : adapters.runs) {
    if (b.held[static_cast<size_t>(run.place)] == nullptr) continue;
    const PackedAdapter& held = *b.held[static_cast<size_t>(run.place)];
    const int64_t lows = held.down->rows;
    for (int64_t done = 0; done < run.count; done += kMaxPackedRows) {
      const int64_t first = run.first + done, count = std::min(kMaxPackedRows, run.count - done);
      const Tensor low = Tensor::matrix(adapter_lows_.data(), DType::kF32, count, lows);
      Tensor rows = x;
      rows.data = row_of(x, first);
      rows.shape[0] = count;
      const RowGroup all{0, count, 0, nullptr};
      multiply_groups(low, rows, *held.down, lows, {&all, 1});
      over_rows(count, 2 * lows * y.cols() / std::max<int64_t>(1, b.outputs.size()),
                [&](int64_t begin, int64_t end, int) {
                  for (int64_t i = begin; i < end; ++i) {
                    float* out = row_of(y, first + i);
                    for (size_t s = 0; s < held.sections.size(); out += b.outputs[s++]) {
                      const PlacedSection& section = held.sections[s];
                      const float* low_row = row_of(low, i) + section.first_low;
                      for (int64_t r = 0; r < section.rank; ++r)
                        kernels_.add(out, section.cols.data() + r * b.outputs[s], b.outputs[s],
                                     low_row[r]);
                    }
                  }
                });
    }
  }
}

}  // namespace inferd::cpu
