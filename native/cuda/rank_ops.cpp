// Collectives, and what a rank does with its part of a row. Inside run_step, on its thread. A rank
// that is alone (RankGroup::alone) has no member_.
#include <algorithm>
#include <utility>

#include "core/error.h"
#include "cuda/cuda_backend.h"
#include "cuda/ranks/all_reduce_way.h"
#include "cuda/ranks/collectives.h"
#include "cuda/ranks/nccl/nccl_group.h"
#include "cuda/rows/activation.h"
#include "cuda/sampler/sampler.h"

namespace inferd::cuda {
namespace {

SumType sum_type(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return SumType::kF16;
    case DType::kBF16:
      return SumType::kBF16;
    default:
      return SumType::kF32;
  }
}

void check_packed(const Tensor& t) {
  if (t.rows() > 1 && t.stride[0] != t.cols())
    throw Error(ErrorCode::kUsage, "ranks on GPUs share packed rows");
}

// The first two of different devices that cannot reach each other. One that is not there is left to
// its rank, which says so.
std::optional<Apart> first_apart(const std::vector<int32_t>& devices) {
  for (const int32_t from : devices) {
    for (const int32_t to : devices) {
      int can = 1;
      if (from == to) continue;
      if (cudaDeviceCanAccessPeer(&can, from, to) != cudaSuccess) cudaGetLastError();
      if (can == 0) return Apart{from, to};
    }
  }
  return {};
}

}  // namespace

void CudaBackend::join_ranks(const RankGroup& group, std::unique_ptr<Comm> host) {
  if (group.alone) return;
  use_device();
  const AllReduceWay way = choose_all_reduce(group.all_reduce, first_apart(group.devices),
                                             [] { return nccl().problem; });
  if (!way.refusal.empty()) throw Error(ErrorCode::kUnsupported, way.refusal);
  if (way.nccl) {
    member_ = std::make_unique<NcclMember>(group, device_, sm_count_, std::move(host));
  } else {
    auto member = std::make_unique<MailboxMember>(group, device_, sm_count_, std::move(host));
    mailboxes_ = member.get();
    member_ = std::move(member);
    sum_pipe_ = std::make_unique<SumPipe>(group.size);
  }
  refresh_free_bytes();
}

void CudaBackend::meet_ranks() {
  use_device();
  if (member_ != nullptr) member_->meet();
}

void CudaBackend::reserve_bests(int64_t rows) {
  const size_t bytes = static_cast<size_t>(rows) * sizeof(BestToken);
  bests_.get(bytes, stream_.get());
  all_bests_.get(bytes * kMostRanks, stream_.get());
}

void CudaBackend::sum_ranks(void* inout, const Tensor& x, float scale, bool residual) {
  check_packed(x);
  if (member_ == nullptr) {
    if (residual) check(cuda::add(half_, inout, x.data, x.size(), scale, launch()), "add");
    return;
  }
  member_->count_op();
  member_->all_reduce({.type = sum_type(x.dtype),
                       .inout = inout,
                       .x = x.data,
                       .count = x.size(),
                       .scale = scale,
                       .residual = residual},
                      launch());
}

void CudaBackend::all_reduce(Tensor inout) { sum_ranks(inout.data, inout, 1, false); }

void CudaBackend::all_reduce_add(Tensor inout, Tensor x, float scale) {
  check_packed(inout);
  sum_ranks(inout.data, x, scale, true);
}

bool CudaBackend::carries(const Tensor& x) {
  // Shares of fewer rows than 1024 fill a GPU badly.
  constexpr int64_t kLeastRows = 1024;
  if (sum_pipe_ == nullptr || x.rows() < kLeastRows * mailboxes_->links().size) return false;
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream_.get(), &capture), "linear_reduce_add");
  return capture == cudaStreamCaptureStatusNone && !member_->crowded() &&
         x.cols() * dtype_bytes(x.dtype) % 16 == 0;
}

// Pieces of whole tiles of the products. 0: a row is too long.
int64_t CudaBackend::rows_sent_at_once(const Tensor& x) {
  const int64_t row_bytes = x.cols() * dtype_bytes(x.dtype);
  const int64_t most = push_bytes(2) / row_bytes / kPieceRows * kPieceRows;
  if (most == 0) return 0;
  const int64_t pieces = std::max<int64_t>(2, (x.rows() + most - 1) / most);
  const int64_t rows = (x.rows() + pieces - 1) / pieces;
  return std::min(most, (rows + kPieceRows - 1) / kPieceRows * kPieceRows);
}

void CudaBackend::linear_reduce_add(const LinearArgs& args, Tensor inout, float scale,
                                    NextReader next) {
  // A weight of codes is widened for each product of many rows, and so is not for each piece.
  const bool whole =
      args.adapters != nullptr || static_cast<const CudaWeight&>(*args.weight).coded();
  if (whole || !carries(args.out)) return Backend::linear_reduce_add(args, inout, scale, next);
  check_packed(args.out);
  check_packed(inout);
  if (next == NextReader::kOneLinear && keeps_shares(args.out))
    return add_by_shares(args, inout, scale);
  const int64_t piece = mailboxes_->links().size == 2 ? rows_sent_at_once(args.out) : 0;
  if (piece == 0) return Backend::linear_reduce_add(args, inout, scale, next);
  finish_sum();
  member_->count_op();
  const int64_t rows = args.out.rows();
  for (int64_t first = 0; first < rows; first += piece) {
    const int64_t count = std::min(piece, rows - first);
    multiply_rows(args, first, count);
    finish_sent();
    const Tensor x = some_rows(args.out, first, count);
    send_rows(1 - mailboxes_->links().rank, x);
    sent_ = SentRows{.inout = some_rows(inout, first, count),
                     .x = x,
                     .scale = scale,
                     .whole = inout.data,
                     .first = first};
  }
}

void CudaBackend::finish_sent() {
  if (sent_.has_value()) add_sent(*std::exchange(sent_, std::nullopt));
}

void CudaBackend::add_sent(const SentRows& sent) {
  sum_pipe_->add(mailboxes_->links(),
                 {.type = sum_type(sent.x.dtype),
                  .inout = sent.inout.data,
                  .x = sent.x.data,
                  .count = sent.x.size(),
                  .scale = sent.scale,
                  .residual = true},
                 sm_count_, stream_.get());
}

void CudaBackend::all_gather(Tensor out, const Tensor& part) {
  check_packed(out);
  check_packed(part);
  if (member_ == nullptr) return;
  member_->count_op();
  member_->all_gather(out.data, part.data, part.rows(), part.cols() * dtype_bytes(part.dtype),
                      launch());
}

void CudaBackend::square_sums(Tensor sums, const Tensor& x, float scale) {
  check(cuda::square_sums(half_, sums.as<float>(), sums.stride[0], x.data, x.stride[0], x.rows(),
                          static_cast<int32_t>(x.cols()), scale, launch()),
        "square_sums");
}

void CudaBackend::scale_by_sums(Tensor inout, const Tensor& sums, int64_t cols, const float* weight,
                                float eps) {
  check(cuda::scale_by_sums(half_, inout.data, inout.stride[0], sums.as<const float>(),
                            sums.stride[0], inout.rows(), static_cast<int32_t>(inout.cols()), cols,
                            weight, eps, launch()),
        "scale_by_sums");
}

void CudaBackend::sample_greedy(const Tensor& part, int32_t first_id, const SlotTables& t,
                                const StepBatch& batch, const SampleOutputs& out) {
  auto* own = static_cast<BestToken*>(bests_.data());
  auto* all = static_cast<BestToken*>(all_bests_.data());
  const int32_t rows = batch.num_samples;
  check(best_tokens(own, part.as<const float>(), part.stride[0], static_cast<int32_t>(part.cols()),
                    first_id, rows, launch()),
        "best_tokens");
  if (member_ != nullptr) {
    member_->count_op();
    member_->all_gather(all, own, rows, sizeof(BestToken), launch());
  }
  check(take_best(member_ == nullptr ? own : all, member_ == nullptr ? 1 : member_->host().size(),
                  {.logits = nullptr,
                   .row_stride = 0,
                   .vocab = 0,
                   .rows = rows,
                   .samples = batch.samples,
                   .slots = device_slots(t),
                   .out = token_outputs(out),
                   .scratch = nullptr,
                   .drafted = batch.drafted},
                  launch()),
        "take_best");
}

}  // namespace inferd::cuda
