// Sums of prompts over ranks of which each keeps a share of the rows until something reads the
// others: sequence parallelism (Korthikanti et al. 2022), over copy engines. Of four ranks:
//
//   stream       others' rows    | own rows   | add, norm own | next: own rows | others' rows ..
//   copy engines   push parts 1 2 3 .........                  push normed to 1 2 3
//
// add_by_shares() multiplies the rows of the others first, those of the next rank at first, and
// sends each its rows as soon as they are made, then multiplies its own. The linear that reads the
// sum behind a norm (NextReader::kOneLinear) finds the own rows added and normed in one pass over
// memory, sends what came out, and multiplies its own rows while those of the others come, which it
// reads where they arrive. So a rank's sums and norms touch its share of the rows, and the links
// carry what they carry when all ranks add all rows of two, and less of more.
//
// In between, the rows of the others lack the sum in the residual here. Ops that cannot touch it
// (cache writes, attention, products of other matrices) leave it so; launch() has everything else
// find all rows whole: join_shares().
#include <algorithm>
#include <utility>

#include "cuda/cuda_backend.h"
#include "cuda/ranks/sum_norm.h"

namespace inferd::cuda {
namespace {

constexpr int64_t kMostWidth = 16384;  // of sum_rms_norm

int64_t row_tiles(int64_t rows) { return (rows + kPieceRows - 1) / kPieceRows; }

}  // namespace

// One exchange of the pipe each, as a second one would have to wait for the first one to be read.
bool CudaBackend::keeps_shares(const Tensor& x) {
  const int32_t ranks = mailboxes_->links().size;
  const int64_t row_bytes = x.cols() * dtype_bytes(x.dtype);
  const int64_t most = (row_tiles(x.rows()) + ranks - 1) / ranks * kPieceRows;
  return x.dtype == info_.activation && x.cols() % 8 == 0 && x.cols() <= kMostWidth &&
         most * row_bytes <= push_bytes(ranks);
}

// Whole tiles of the products, spread evenly.
CudaBackend::RowRange CudaBackend::share_of_sum(int32_t rank) {
  const int32_t ranks = mailboxes_->links().size;
  const int64_t rows = shared_->whole.rows(), tiles = row_tiles(rows);
  const int64_t first = tiles * rank / ranks * kPieceRows;
  return {first, std::min(rows, tiles * (rank + 1) / ranks * kPieceRows) - first};
}

void CudaBackend::add_by_shares(const LinearArgs& args, Tensor inout, float scale) {
  finish_sent();
  if (shared_.has_value() && (!shared_->added || shared_->whole.data != inout.data ||
                              shared_->whole.rows() != inout.rows()))
    join_shares();
  member_->count_op();
  const RankLinks& links = mailboxes_->links();
  shared_ = SharedSum{.whole = inout, .x = args.out, .scale = scale, .added = false};
  for (int32_t behind = 1; behind < links.size; ++behind) {
    const int32_t to = (links.rank + behind) % links.size;
    const auto [first, count] = share_of_sum(to);
    multiply_rows(args, first, count);
    send_rows(to, some_rows(args.out, first, count));
  }
  const auto [first, count] = share_of_sum(links.rank);
  multiply_rows(args, first, count);
}

void CudaBackend::send_rows(int32_t to, const Tensor& rows) {
  sum_pipe_->push(mailboxes_->links(), to, rows.data, rows.size() * dtype_bytes(rows.dtype),
                  stream_.get());
}

// Adds up the own rows, with the norm of them where `norm` is given.
void CudaBackend::add_own_share(const NormArgs* norm) {
  SharedSum& sum = *shared_;
  const RankLinks& links = mailboxes_->links();
  const auto [first, count] = share_of_sum(links.rank);
  const Tensor own = some_rows(sum.whole, first, count);
  SumNormArgs args{.out = norm == nullptr ? nullptr : some_rows(norm->scratch, first, count).data,
                   .residual = own.data,
                   .parts = {},
                   .ranks = links.size,
                   .scale = sum.scale,
                   .weight = norm == nullptr ? nullptr : norm->weight,
                   .eps = norm == nullptr ? 0 : norm->eps,
                   .rows = count,
                   .width = static_cast<int32_t>(own.cols())};
  args.parts[links.rank] = some_rows(sum.x, first, count).data;
  for (int32_t ahead = 1; ahead < links.size; ++ahead) {
    const int32_t from = (links.rank + links.size - ahead) % links.size;
    args.parts[from] = sum_pipe_->await(links, from, stream_.get());
  }
  check(sum_rms_norm(half_, args, own_launch()), "adding rows, with a norm");
  sum.added = true;
}

// Sends the own rows of `x` to all others, and calls work(first, count, rows) with the own ones,
// then with those of each other rank where they arrived, to be read ahead of the next push.
template <typename Work>
void CudaBackend::exchange_shares(const Tensor& x, const Work& work) {
  const RankLinks& links = mailboxes_->links();
  const auto [first, count] = share_of_sum(links.rank);
  const Tensor own = some_rows(x, first, count);
  for (int32_t behind = 1; behind < links.size; ++behind)
    send_rows((links.rank + behind) % links.size, own);
  work(first, count, own);
  for (int32_t ahead = 1; ahead < links.size; ++ahead) {
    const int32_t from = (links.rank + links.size - ahead) % links.size;
    const auto [other, rows] = share_of_sum(from);
    auto* come = const_cast<void*>(sum_pipe_->await(links, from, stream_.get()));
    work(other, rows, Tensor::matrix(come, x.dtype, rows, x.cols()));
  }
}

// `args` of a linear: true where it is the reader that shared_ was made for, and is done.
bool CudaBackend::multiply_shares(const LinearArgs& args) {
  const SharedSum& sum = *shared_;
  if (sum.added || args.norm == nullptr || args.adapters != nullptr || args.weight->format.scaled ||
      args.x.data != sum.whole.data || args.x.rows() != sum.whole.rows())
    return false;
  add_own_share(args.norm);
  LinearArgs part = args;
  part.norm = nullptr;
  exchange_shares(args.norm->scratch, [&](int64_t first, int64_t count, const Tensor& rows) {
    part.x = rows;
    part.out = some_rows(args.out, first, count);
    part.scratch = some_rows(args.scratch, first, count);
    multiply(part);
  });
  return true;
}

void CudaBackend::join_shares() {
  if (!shared_->added) add_own_share(nullptr);
  const Tensor whole = shared_->whole;
  exchange_shares(whole, [&](int64_t first, int64_t count, const Tensor& rows) {
    const Tensor to = some_rows(whole, first, count);
    if (to.data == rows.data) return;
    check(
        cudaMemcpyAsync(to.data, rows.data, static_cast<size_t>(to.size() * dtype_bytes(to.dtype)),
                        cudaMemcpyDeviceToDevice, stream_.get()),
        "copying rows");
  });
  shared_.reset();
}

}  // namespace inferd::cuda
