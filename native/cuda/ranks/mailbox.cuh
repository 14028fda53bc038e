// How kernels of collectives use the mailboxes of links.h: how long to wait, packets and flags,
// where they lie, and how an op is counted.
//
// Packets: 8 bytes of data and their flag twice, NCCL's LL protocol (Hu et al. 2025, "Demystifying
// NCCL"). A store of 16 bytes need not arrive whole, so each half of 8 bytes has a flag of its own.
// Data and flag arrive together: nothing else orders them.
// Bulk: data, then a fence and a flag for a tile of it; whoever reads the flag sees the data.
#pragma once
#include <cstdint>

#include "cuda/device/common.cuh"
#include "cuda/ranks/links.h"

namespace inferd::cuda {

__device__ inline uint64_t now_ns() {
  uint64_t t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}

// Counts polls of one thread; true when it is time to leave. Threads look at host memory rarely,
// and of those of a warp that wait one looks for all. A look takes 22 ns of the way to the host,
// and the looks of 32,768 threads 0.7 ms, in which the other rank waits until it looks too. When
// each looked every 1024 polls, sums of 256 KB one after the other took 470 us each in half of all
// runs; they take 4.7.
class Patience {
 public:
  __device__ explicit Patience(const RankLinks& links) : links_(links) {}
  __device__ bool over() {
    if (++polls_ % kPollsBetweenLooks != 0) return false;
    const uint32_t together = __activemask();
    const int lane = static_cast<int>(threadIdx.x % kWarp), first = __ffs(together) - 1;
    uint32_t ended = 0;
    if (lane == first) ended = *reinterpret_cast<volatile uint32_t*>(links_.end);
    if (__shfl_sync(together, ended, first) != 0) return true;
    const uint64_t now = now_ns();
    if (since_ == 0) since_ = now;
    if (now - since_ < links_.limit_ns) return false;
    *reinterpret_cast<volatile uint32_t*>(links_.end) = kTooLong;
    return true;
  }

 private:
  static constexpr int kPollsBetweenLooks = 8192;  // some ms
  const RankLinks& links_;
  uint32_t polls_ = 0;
  uint64_t since_ = 0;
};

__device__ inline void send_packet(std::byte* to, uint2 data, uint32_t flag) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(data.x),
               "r"(flag), "r"(data.y), "r"(flag)
               : "memory");
}

__device__ inline uint4 look_at_packet(const std::byte* from) {
  uint4 p;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(p.x), "=r"(p.y), "=r"(p.z), "=r"(p.w)
               : "l"(from)
               : "memory");
  return p;
}

__device__ inline bool has_come(const uint4& packet, uint32_t flag) {
  return packet.y == flag && packet.w == flag;
}

__device__ inline uint2 await_packet(const std::byte* from, uint32_t flag, Patience& patience) {
  uint4 p;
  do {
    p = look_at_packet(from);
  } while (!has_come(p, flag) && !patience.over());
  return {p.x, p.z};
}

__device__ inline void send_flag(uint32_t* to, uint32_t flag) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(flag) : "memory");
}

__device__ inline void await_flag(const uint32_t* from, uint32_t flag, Patience& patience) {
  uint32_t got;
  do {
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(got) : "l"(from) : "memory");
  } while (got != flag && !patience.over());
}

// Where rank `sender` writes in the mailbox of rank `of`.
__device__ inline std::byte* packets(const RankLinks& l, int of, int sender, uint32_t parity) {
  return l.boxes[of] + (parity * l.size + sender) * kPacketBytes;
}
__device__ inline std::byte* bulk(const RankLinks& l, int of, int sender, uint32_t parity) {
  return l.boxes[of] + 2 * l.size * kPacketBytes + (parity * l.size + sender) * kBulkBytes;
}
__device__ inline uint32_t* tiles(const RankLinks& l, int of, int sender, uint32_t parity) {
  return reinterpret_cast<uint32_t*>(l.boxes[of] + 2 * l.size * (kPacketBytes + kBulkBytes)) +
         (parity * l.size + sender) * kBulkTiles;
}

// The number of the op in hand, which is its flag. Behind the wait for the kernel before.
__device__ inline uint32_t begin_op(const RankLinks& l) {
  const uint32_t op = *reinterpret_cast<volatile uint32_t*>(&l.count->op) + 1;
  return op == 0 ? 2 : op;  // the parity goes on
}

// The last block counts the op. Every block has read the count before.
__device__ inline void end_op(const RankLinks& l, uint32_t flag) {
  __syncthreads();
  if (threadIdx.x != 0) return;
  __threadfence();
  if (atomicAdd(&l.count->ended, 1) != gridDim.x - 1) return;
  l.count->ended = 0;
  l.count->op = flag;
}

}  // namespace inferd::cuda
