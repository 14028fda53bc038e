// See sum_pipe.h.
#include "cuda/ranks/sum_pipe.h"

#include <numeric>

#include "cuda/runtime/check.h"

namespace inferd::cuda {

SumPipe::SumPipe(int32_t ranks) : made_(make_event(false)) {
  for (Stream& stream : copies_) stream = make_stream();
  for (size_t i = 0; i + 1 < static_cast<size_t>(ranks); ++i)
    ways_.push_back({.copies = copies_[i % kCopyStreams].get(), .sent = make_event(false)});
  std::vector<uint32_t> words(kFlags + 1);
  std::iota(words.begin(), words.end(), 0);
  const size_t bytes = words.size() * sizeof(uint32_t);
  flags_ = allocate_device(bytes);
  check(cudaMemcpy(flags_.get(), words.data(), bytes, cudaMemcpyHostToDevice), "copying flags");
  check(cudaDeviceSynchronize(), "copying flags");  // which other streams do not wait for
}

const SumPipe::Way& SumPipe::way_to(const RankLinks& links, int32_t rank) const {
  return ways_[static_cast<size_t>((rank - links.rank + links.size) % links.size - 1)];
}

void SumPipe::push(const RankLinks& links, int32_t to, const void* x, int64_t bytes,
                   cudaStream_t stream) {
  const Way& way = way_to(links, to);
  check(cudaEventRecord(made_.get(), stream), "sending rows");
  check(cudaStreamWaitEvent(way.copies, made_.get()), "sending rows");
  check(cudaMemcpyAsync(pushed_rows(links, to, links.rank, parity()), x, static_cast<size_t>(bytes),
                        cudaMemcpyDefault, way.copies),
        "sending rows");
  check(cudaMemcpyAsync(pushed_flag(links, to, links.rank, parity()),
                        static_cast<const uint32_t*>(flags_.get()) + flag(), sizeof(uint32_t),
                        cudaMemcpyDefault, way.copies),
        "sending rows");
  check(cudaEventRecord(way.sent.get(), way.copies), "sending rows");
}

void SumPipe::count_awaited() {
  if (++awaited_ < ways_.size()) return;
  awaited_ = 0;
  ++exchanges_;
}

const void* SumPipe::await(const RankLinks& links, int32_t from, cudaStream_t stream) {
  const uint32_t place = parity();
  // What was sent may be overwritten behind this.
  check(cudaStreamWaitEvent(stream, way_to(links, from).sent.get()), "waiting for rows");
  check(await_pushed(links, from, place, flag(), stream), "waiting for rows");
  count_awaited();
  return pushed_rows(links, links.rank, from, place);
}

void SumPipe::add(const RankLinks& links, const SumArgs& args, int32_t sm_count,
                  cudaStream_t stream) {
  check(cudaStreamWaitEvent(stream, ways_.front().sent.get()), "adding rows");
  check(add_pushed(links, args, parity(), flag(), sm_count, stream), "adding rows");
  count_awaited();
}

}  // namespace inferd::cuda
