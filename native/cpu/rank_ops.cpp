// What a rank does with the others, or by halves: collectives, norms and greedy samples of which it
// has a share. On the stream thread. The ranks compute the same from the same bits, so nothing is
// sent round but sums and bests.
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "core/error.h"
#include "cpu/cpu_backend.h"

namespace inferd::cpu {
namespace {

// A best of sample_greedy is two floats: the logit, and the bits of the id.
constexpr int64_t kBestFloats = 2;
constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

int32_t bits_of(float f) {
  int32_t bits;
  std::memcpy(&bits, &f, sizeof(bits));
  return bits;
}

}  // namespace

void CpuBackend::join_ranks(const RankGroup&, std::unique_ptr<Comm> host) {
  comm_ = std::move(host);
}

void CpuBackend::all_reduce(Tensor inout) {
  const TraceScope scope(trace_, "all_reduce");
  comm_->all_reduce(inout);
}

void CpuBackend::all_gather(Tensor out, const Tensor& part) {
  const TraceScope scope(trace_, "all_gather");
  comm_->all_gather(out, part);
}

GatheredRows CpuBackend::gather_rows(Tensor out, const Tensor& part) {
  const TraceScope scope(trace_, "gather_rows_of_ranks");
  return comm_->gather_rows(out, part);
}

void CpuBackend::scatter_sums(Tensor out, const Tensor& sums, int64_t first) {
  const TraceScope scope(trace_, "scatter_sums");
  comm_->scatter_sums(out, sums, first);
}

void CpuBackend::square_sums(Tensor sums, const Tensor& x, float scale) {
  const TraceScope scope(trace_, "square_sums");
  over_rows(x.rows(), 2 * x.cols(), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const float* row = row_of(x, i);
      double sum = 0;
      for (int64_t c = 0; c < x.cols(); ++c) {
        const auto value = static_cast<double>(row[c]);
        sum += value * value;
      }
      *row_of(sums, i) = scale * static_cast<float>(sum);
    }
  });
}

void CpuBackend::scale_by_sums(Tensor inout, const Tensor& sums, int64_t cols, const float* weight,
                               float eps) {
  const TraceScope scope(trace_, "scale_by_sums");
  over_rows(inout.rows(), 2 * inout.cols(), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      float* row = row_of(inout, i);
      const float factor = 1 / std::sqrt(*row_of(sums, i) / static_cast<float>(cols) + eps);
      for (int64_t c = 0; c < inout.cols(); ++c) row[c] *= factor * weight[c];
    }
  });
}

void CpuBackend::sample_greedy(const Tensor& part, int32_t first_id, const SlotTables& t,
                               const StepBatch& batch, const SampleOutputs& out) {
  const TraceScope scope(trace_, "sample_greedy");
  const int64_t n = batch.num_samples, ranks = comm_->size(), cols = part.cols();
  best_.resize(static_cast<size_t>(n * kBestFloats));
  all_best_.resize(static_cast<size_t>(n * ranks * kBestFloats));
  over_rows(n, cols, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const float* row = row_of(part, i);
      const int64_t at = cols > 0 ? kernels_.argmax(row, cols) : 0;
      const int32_t id = first_id + static_cast<int32_t>(at);
      float* best = best_.data() + i * kBestFloats;
      best[0] = cols > 0 ? row[at] : kMinusInf;
      std::memcpy(best + 1, &id, sizeof(id));
    }
  });
  all_gather(Tensor::matrix(all_best_.data(), DType::kF32, n, ranks * kBestFloats),
             Tensor::matrix(best_.data(), DType::kF32, n, kBestFloats));
  for (int64_t i = 0; i < n; ++i) {
    // Shares are in the order of ids, so the first of equals has the lowest. Where nothing is above
    // -inf, which NaN is not, id 0 is taken as on one rank.
    float most = kMinusInf;
    int32_t token = 0;
    for (int64_t r = 0; r < ranks; ++r) {
      const float* best = all_best_.data() + (i * ranks + r) * kBestFloats;
      if (!(best[0] > most)) continue;
      most = best[0];
      token = bits_of(best[1]);
    }
    out.tokens[i] = token;
    out.logprobs[i] = std::numeric_limits<float>::quiet_NaN();
    out.ranks[i] = out.top_counts[i] = 0;
    const auto [slot, offset] = batch.host_samples[i];
    if (offset > 0 && offset > t.num_drafts[slot]) out.tokens[i] = kNoDraft;
    if (batch.drafted) continue;
    int32_t& length = t.lengths[slot];
    // A full history has no next step to read the token.
    if (length < t.max_len) t.tokens[int64_t{slot} * t.max_len + length++] = token;
  }
}

}  // namespace inferd::cpu
