// What a kernel needs to talk to the other ranks: where their mailboxes are, and when to give up.
// By value to kernels.
//
// A mailbox lies in the memory of the rank that reads it. Each sender has a place of its own in it,
// twice, by the parity of the op, for either way of sending:
//
//   packets [2][senders][kPacketBytes]     data with flags beside it
//   bulk    [2][senders][kBulkBytes]       data alone
//   tiles   [2][senders][kBulkTiles]       a flag for each tile of bulk
//   sums    [2][senders][kPacketBytes]     of more ranks than two: packets of sums that a rank has
//                                          made for all; its tiles of them lie in the second half
//                                          of bulk; see two_shot.cu
//   pushes  [2][senders - 1][push_bytes]   what copy engines bring, from the rank behind this one,
//                                          the one behind that, ..; see sum_pipe.h
//   pushed  [2][senders - 1]               a flag for each
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

// A half of 16,384 tokens of 4096 16-bit values, a quarter of as many of 8192, or an eighth.
constexpr int64_t push_bytes(int ranks) { return int64_t{ranks > 4 ? 32 : 64} << 20; }

// Bytes of the mailbox ahead of what not all groups have.
constexpr int64_t common_bytes(int ranks) {
  return 2 * ranks * (kPacketBytes + kBulkBytes + kBulkTiles * int64_t{sizeof(uint32_t)});
}
constexpr int64_t pushes_at(int ranks) {
  return common_bytes(ranks) + (ranks == 2 ? 0 : 2 * ranks * kPacketBytes);
}
constexpr int64_t pushed_at(int ranks) {
  return pushes_at(ranks) + 2 * (ranks - 1) * push_bytes(ranks);
}
constexpr int64_t mailbox_bytes(int ranks) {
  return pushed_at(ranks) + 2 * (ranks - 1) * int64_t{sizeof(uint32_t)};
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

// Where rank `sender` pushes to the mailbox of rank `of`, another one, and its flag there.
inline int64_t push_place(const RankLinks& l, int of, int sender, uint32_t parity) {
  return int64_t{parity} * (l.size - 1) + (sender - of + l.size) % l.size - 1;
}
inline std::byte* pushed_rows(const RankLinks& l, int of, int sender, uint32_t parity) {
  return l.boxes[of] + pushes_at(l.size) + push_place(l, of, sender, parity) * push_bytes(l.size);
}
inline uint32_t* pushed_flag(const RankLinks& l, int of, int sender, uint32_t parity) {
  return reinterpret_cast<uint32_t*>(l.boxes[of] + pushed_at(l.size)) +
         push_place(l, of, sender, parity);
}

// Values of RankLinks::end.
constexpr uint32_t kTold = 1, kTooLong = 2;

}  // namespace inferd::cuda
