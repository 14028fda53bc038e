// What a kernel needs to talk to the other ranks: where their mailboxes are, and when to give up.
// By value to kernels.
//
// A mailbox lies in the memory of the rank that reads it. Each sender has a place of its own in it,
// twice, by the parity of the op, for either way of sending:
//
//   packets [2][senders][kPacketBytes]     data with flags beside it
//   bulk    [2][senders][kBulkBytes]       data alone
//   tiles   [2][senders][kBulkTiles]       a flag for each tile of bulk
//   pushes  [2][kPushBytes]                of two ranks: what copy engines bring; see sum_pipe.h
//   pushed  [2]                            a flag for each
//   sums    [2][senders][kPacketBytes]     of more: packets of sums that a rank has made for all;
//                                          its tiles of them lie in the second half of bulk; see
//                                          two_shot.cu
//
// Two of each suffice. A rank writes what op n + 2 sends only when its kernel of op n + 1 has
// ended, so after every rank began to send n + 1, so after it had read all of n: kernels of
// collectives send behind their wait for the kernel before. In two shots a rank may hear of another
// only by a sum that a third one made, which then had the part of that other: the same holds.
// A place takes ops of all kinds by turns. Where packets or flags lie, nothing else ever does, so
// that no data is taken for a flag.
#pragma once
#include <cstddef>
#include <cstdint>

namespace inferd::cuda {

constexpr int kMostRanks = 8;
constexpr int64_t kPacketData = 256 << 10;  // of one op: half of its packets are flags
constexpr int64_t kPacketBytes = 2 * kPacketData;
constexpr int64_t kBulkBytes = 32 << 20;
constexpr int64_t kTileBytes = 32 << 10;
constexpr int64_t kBulkTiles = kBulkBytes / kTileBytes;

// A half of 16,384 tokens of 4096 16-bit values.
constexpr int64_t kPushBytes = 64 << 20;

// Bytes of the mailbox ahead of what not all groups have.
constexpr int64_t common_bytes(int ranks) {
  return 2 * ranks * (kPacketBytes + kBulkBytes + kBulkTiles * int64_t{sizeof(uint32_t)});
}
constexpr int64_t mailbox_bytes(int ranks) {
  return common_bytes(ranks) +
         (ranks == 2 ? 2 * (kPushBytes + int64_t{sizeof(uint32_t)}) : 2 * ranks * kPacketBytes);
}

// In memory of this rank's device, zeroed at start.
struct OpCount {
  uint32_t op;     // ops of this rank that are over; the flag of the next is one more, never 0
  uint32_t ended;  // blocks of the op in hand
};

struct RankLinks {
  int32_t rank, size;
  std::byte* boxes[kMostRanks];
  OpCount* count;
  // Host memory: not 0 once the ranks have parted. A kernel that waits for too long says so here.
  uint32_t* end;
  uint64_t limit_ns;  // for one op
};

// Of two ranks: where the other one pushes to the mailbox of rank `of`.
inline std::byte* pushed_rows(const RankLinks& l, int of, uint32_t parity) {
  return l.boxes[of] + common_bytes(2) + parity * kPushBytes;
}
inline uint32_t* pushed_flag(const RankLinks& l, int of, uint32_t parity) {
  return reinterpret_cast<uint32_t*>(l.boxes[of] + common_bytes(2) + 2 * kPushBytes) + parity;
}

// Values of RankLinks::end.
constexpr uint32_t kTold = 1, kTooLong = 2;

}  // namespace inferd::cuda
