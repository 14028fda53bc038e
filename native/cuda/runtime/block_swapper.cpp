// See block_swapper.h.
#include "cuda/runtime/block_swapper.h"

#include <algorithm>

#include "cuda/runtime/block_copy.h"

namespace inferd::cuda {

BlockSwapper::BlockSwapper(const SwapPool& pool)
    : stream_(make_stream()),
      ready_(make_event(false)),
      urgent_(make_event(false)),
      done_(make_event(false)),
      pairs_(allocate_device(static_cast<size_t>(pool.num_blocks) * sizeof(BlockCopy))) {
  auto* host = static_cast<std::byte*>(pool.host);
  for (auto first = pool.arrays.begin(); first != pool.arrays.end();) {
    const auto end = std::find_if(first, pool.arrays.end(), [&](const BlockArray& a) {
      return a.block_bytes != first->block_bytes;
    });
    std::vector<void*> bases;
    for (auto a = first; a != end; ++a) bases.push_back(a->base);
    const size_t bytes = bases.size() * sizeof(void*);
    Region region{.bases = allocate_device(bytes),
                  .num_bases = static_cast<int32_t>(bases.size()),
                  .block_bytes = first->block_bytes,
                  .host = host};
    check(cudaMemcpyAsync(region.bases.get(), bases.data(), bytes, cudaMemcpyHostToDevice,
                          stream_.get()),
          "preparing swaps");
    check(cudaStreamSynchronize(stream_.get()), "preparing swaps");
    host += pool.num_blocks * region.num_bases * region.block_bytes;
    regions_.push_back(std::move(region));
    first = end;
  }
}

BlockSwapper::~BlockSwapper() { cudaStreamSynchronize(stream_.get()); }

void BlockSwapper::follow(cudaStream_t compute) {
  used_ = true;
  check(cudaEventRecord(ready_.get(), compute), "starting a swap");
  check(cudaStreamWaitEvent(stream_.get(), ready_.get()), "starting a swap");
}

const BlockCopy* BlockSwapper::send(const BlockCopy* pairs, int32_t n) {
  check(cudaMemcpyAsync(pairs_.get(), pairs, static_cast<size_t>(n) * sizeof(BlockCopy),
                        cudaMemcpyHostToDevice, stream_.get()),
        "starting a swap");
  return static_cast<const BlockCopy*>(pairs_.get());
}

void BlockSwapper::out(const BlockCopy* pairs, int32_t n, int32_t urgent, cudaStream_t compute) {
  follow(compute);
  const BlockCopy* device = send(pairs, n);
  const auto copy = [&](int32_t first, int32_t count) {
    for (const Region& r : regions_) {
      check(swap_out({static_cast<void* const*>(r.bases.get()), r.num_bases, r.block_bytes}, r.host,
                     device + first, count, stream_.get()),
            "swapping out");
    }
  };
  if (urgent > 0) {
    copy(0, urgent);
    check(cudaEventRecord(urgent_.get(), stream_.get()), "swapping out");
    check(cudaStreamWaitEvent(compute, urgent_.get()), "swapping out");
  }
  copy(urgent, n - urgent);
}

void BlockSwapper::in(const BlockCopy* pairs, int32_t n, cudaStream_t compute) {
  follow(compute);
  const BlockCopy* device = send(pairs, n);
  for (const Region& r : regions_) {
    check(swap_in({static_cast<void* const*>(r.bases.get()), r.num_bases, r.block_bytes}, r.host,
                  device, n, stream_.get()),
          "swapping in");
  }
}

cudaError_t BlockSwapper::join(cudaStream_t compute) {
  if (!used_) return cudaSuccess;
  used_ = false;
  const cudaError_t recorded = cudaEventRecord(done_.get(), stream_.get());
  return recorded != cudaSuccess ? recorded : cudaStreamWaitEvent(compute, done_.get());
}

}  // namespace inferd::cuda
