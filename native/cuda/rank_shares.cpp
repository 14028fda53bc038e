// Sums of prompts over two ranks, of which each keeps half of the rows until something reads the
// others: sequence parallelism (Korthikanti et al. 2022), over copy engines.
//
//   stream       others' rows | own rows   | add and norm own | next: own rows | next: others' rows
//   copy engine                 push parts                      push normed
//
// add_by_halves() multiplies the other rank's rows first and sends this rank's part of them, then
// multiplies its own. The linear that reads the sum behind a norm (NextReader::kOneLinear) finds
// the own rows added and normed in one pass over memory, sends what came out, and multiplies its
// own rows while those of the other rank come, which it reads where they arrive. So sums and norms
// touch half of the rows each, and the links carry what they carry when both ranks add all.
//
// In between, the rows of the other rank lack the sum in the residual here. Ops that cannot touch
// it (cache writes, attention, products of other matrices) leave it so; launch() has everything
// else find all rows whole: join_halves().
#include <algorithm>
#include <utility>

#include "cuda/cuda_backend.h"
#include "cuda/ranks/sum_norm.h"

namespace inferd::cuda {
namespace {

constexpr int64_t kMostWidth = 16384;  // of sum_rms_norm

int64_t first_half(int64_t rows) { return (rows / 2 + kPieceRows - 1) / kPieceRows * kPieceRows; }

}  // namespace

// One piece of the pipe each, as a second one would have to wait for the first one to be read.
bool CudaBackend::keeps_halves(const Tensor& x) {
  const int64_t row_bytes = x.cols() * dtype_bytes(x.dtype);
  return x.dtype == info_.activation && x.cols() % 8 == 0 && x.cols() <= kMostWidth &&
         first_half(x.rows()) * row_bytes <= kPushBytes;
}

void CudaBackend::add_by_halves(const LinearArgs& args, Tensor inout, float scale) {
  finish_sent();
  if (halves_.has_value() && (!halves_->added || halves_->whole.data != inout.data ||
                              halves_->whole.rows() != inout.rows()))
    join_halves();
  member_->count_op();
  const RankLinks& links = mailboxes_->links();
  const int64_t rows = args.out.rows(), middle = first_half(rows);
  HalvedSum sum{.whole = inout,
                .x = args.out,
                .scale = scale,
                .first_own = 0,
                .own = middle,
                .first_other = middle,
                .other = rows - middle,
                .added = false};
  if (links.rank == 1) {
    std::swap(sum.first_own, sum.first_other);
    std::swap(sum.own, sum.other);
  }
  multiply_rows(args, sum.first_other, sum.other);
  const Tensor theirs = some_rows(sum.x, sum.first_other, sum.other);
  sum_pipe_->push(links, theirs.data, theirs.size() * dtype_bytes(theirs.dtype), stream_.get());
  multiply_rows(args, sum.first_own, sum.own);
  halves_ = sum;
}

// `args` of a linear: true where it is the reader that halves_ was made for, and is done.
bool CudaBackend::multiply_halves(const LinearArgs& args) {
  HalvedSum& sum = *halves_;
  if (sum.added || args.norm == nullptr || args.adapters != nullptr || args.weight->format.scaled ||
      args.x.data != sum.whole.data || args.x.rows() != sum.whole.rows())
    return false;
  const RankLinks& links = mailboxes_->links();
  const auto own = [&](const Tensor& t) { return some_rows(t, sum.first_own, sum.own); };
  const auto other = [&](const Tensor& t) { return some_rows(t, sum.first_other, sum.other); };
  const Tensor normed = own(args.norm->scratch);
  const void* mine = own(sum.x).data;
  const void* theirs = sum_pipe_->await(links, stream_.get());
  check(sum_rms_norm(half_,
                     {.out = normed.data,
                      .residual = own(sum.whole).data,
                      .first = links.rank == 0 ? mine : theirs,
                      .second = links.rank == 0 ? theirs : mine,
                      .scale = sum.scale,
                      .weight = args.norm->weight,
                      .eps = args.norm->eps,
                      .rows = sum.own,
                      .width = static_cast<int32_t>(normed.cols())},
                     own_launch()),
        "adding rows, with a norm");
  sum.added = true;
  sum_pipe_->push(links, normed.data, normed.size() * dtype_bytes(normed.dtype), stream_.get());
  LinearArgs part = args;
  part.norm = nullptr;
  part.x = normed;
  part.out = own(args.out);
  part.scratch = own(args.scratch);
  multiply(part);
  // Read where they came, ahead of the next push.
  auto* come = const_cast<void*>(sum_pipe_->await(links, stream_.get()));
  part.x = Tensor::matrix(come, normed.dtype, sum.other, normed.cols());
  part.out = other(args.out);
  part.scratch = other(args.scratch);
  multiply(part);
  return true;
}

void CudaBackend::join_halves() {
  const HalvedSum sum = *std::exchange(halves_, std::nullopt);
  const RankLinks& links = mailboxes_->links();
  const Tensor own = some_rows(sum.whole, sum.first_own, sum.own);
  const Tensor other = some_rows(sum.whole, sum.first_other, sum.other);
  if (!sum.added) {
    const Tensor x = some_rows(sum.x, sum.first_own, sum.own);
    add_sent({.inout = own, .x = x, .scale = sum.scale, .whole = sum.whole.data, .first = 0});
  }
  sum_pipe_->push(links, own.data, own.size() * dtype_bytes(own.dtype), stream_.get());
  const void* come = sum_pipe_->await(links, stream_.get());
  check(cudaMemcpyAsync(other.data, come,
                        static_cast<size_t>(other.size() * dtype_bytes(other.dtype)),
                        cudaMemcpyDeviceToDevice, stream_.get()),
        "copying rows");
}

}  // namespace inferd::cuda
