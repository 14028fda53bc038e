// See sum_pipe.h.
#include "cuda/ranks/sum_pipe.h"

#include <numeric>
#include <vector>

#include "cuda/runtime/check.h"

namespace inferd::cuda {

SumPipe::SumPipe() : copies_(make_stream()), made_(make_event(false)), sent_(make_event(false)) {
  std::vector<uint32_t> words(kFlags + 1);
  std::iota(words.begin(), words.end(), 0);
  const size_t bytes = words.size() * sizeof(uint32_t);
  flags_ = allocate_device(bytes);
  check(cudaMemcpy(flags_.get(), words.data(), bytes, cudaMemcpyHostToDevice), "copying flags");
}

void SumPipe::push(const RankLinks& links, const void* x, int64_t bytes, cudaStream_t stream) {
  const int other = 1 - links.rank;
  const uint32_t parity = pieces_ % 2;
  check(cudaEventRecord(made_.get(), stream), "sending rows");
  check(cudaStreamWaitEvent(copies_.get(), made_.get()), "sending rows");
  check(cudaMemcpyAsync(pushed_rows(links, other, parity), x, static_cast<size_t>(bytes),
                        cudaMemcpyDefault, copies_.get()),
        "sending rows");
  check(cudaMemcpyAsync(pushed_flag(links, other, parity),
                        static_cast<const uint32_t*>(flags_.get()) + flag(), sizeof(uint32_t),
                        cudaMemcpyDefault, copies_.get()),
        "sending rows");
  check(cudaEventRecord(sent_.get(), copies_.get()), "sending rows");
}

void SumPipe::add(const RankLinks& links, const SumArgs& args, int32_t sm_count,
                  cudaStream_t stream) {
  // What was sent may be overwritten behind this.
  check(cudaStreamWaitEvent(stream, sent_.get()), "adding rows");
  check(add_pushed(links, args, pieces_ % 2, flag(), sm_count, stream), "adding rows");
  ++pieces_;
}

const void* SumPipe::await(const RankLinks& links, cudaStream_t stream) {
  const uint32_t parity = pieces_ % 2;
  check(cudaStreamWaitEvent(stream, sent_.get()), "waiting for rows");
  check(await_pushed(links, parity, flag(), stream), "waiting for rows");
  ++pieces_;
  return pushed_rows(links, links.rank, parity);
}

}  // namespace inferd::cuda
