// The keys and values of a warp of the decode kernel on their way from the paged cache to its ring
// in shared memory. Device code of attention_decode_kernel.cuh alone.
//
//   shares of the warp   | row 3: t0 t1 .. t9 | row 9: t0 t1 t2 .. | ..     (next, in a chain)
//   ring of kStages      | t7 | t8 | t9 | t0 | t1 | t2 |
//                          used ^         copied ^            the copies run ahead across rows
#pragma once
#include "cuda/attention/attention_decode_args.cuh"

namespace inferd::cuda {

__device__ inline DecodeShare load_share(const DecodeShare* at) {
  static_assert(sizeof(DecodeShare) == 3 * sizeof(int4));
  union {
    int4 words[3];
    DecodeShare share;
  } u;
#pragma unroll
  for (int i = 0; i < 3; ++i) u.words[i] = __ldcg(reinterpret_cast<const int4*>(at) + i);
  return u.share;
}

// The keys of a share's row.
__device__ inline KvRange range_of(const DecodeArgs& p, const DecodeShare& share) {
  return {.table = p.tables + static_cast<int64_t>(share.slot) * p.max_blocks,
          .block_size = p.block_size,
          .block_bytes = p.block_bytes,
          .kv_head = static_cast<int32_t>(blockIdx.x),
          .kv_heads = static_cast<int32_t>(gridDim.x),
          .first = share.first_key,
          .end = share.end_key};
}

// Which tiles of a share are this warp's: first + i * step for 0 <= i < count.
template <typename C>
struct WarpTiles {
  int32_t first, step, count;

  __device__ WarpTiles(const DecodeShare& share, int warp)
      : first(share.tile_begin + (share.team ? warp : 0)),
        step(share.team ? C::kWarps : 1),
        count(max(0, (share.tile_end - first + step - 1) / step)) {}

  // Of the first `most` tiles, those that hold no key of the step at hand.
  __device__ int32_t settled(const DecodeShare& share, int32_t most) const {
    const int32_t fresh = (share.end_key - share.run.fresh) / kTileTokens;
    return min(most, min(count, max(0, (fresh - first + step - 1) / step)));
  }

  // The tile of the row's last key, or -1 where another warp has it.
  __device__ int32_t last_of_row(const DecodeShare& share) const {
    const int32_t tile = (share.end_key - 1) / kTileTokens;
    return count > 0 && first + (count - 1) * step == tile ? tile : -1;
  }
};

template <typename S, int kHeadDim>
class KvStream {
 public:
  using C = DecodeConfig<S, kHeadDim>;
  using Tile = KvTile<S, kHeadDim>;

  __device__ KvStream(const DecodeArgs& args, uint8_t* ring, int warp, int lane)
      : p_(args), ring_(ring), warp_(warp), lane_(lane) {}

  // Begins anew, with this share; no copy may be under way.
  __device__ void start(const DecodeShare& share) {
    stage_ = 0;
    open(share);
  }

  // Starts the copy of the next tile, if there is one, as one group of copies.
  __device__ void copy_next() {
    if (left_ == 0 && follows_ != 0) open(load_share(p_.shares + follows_));
    if (left_ > 0) {
      if (at_ == kWarp) {
        at_ = 0;
        blocks_ = next_blocks_;
        if (left_ > kWarp) next_blocks_ = blocks_from(kWarp);
      }
      const int32_t block = __shfl_sync(kFullWarp, blocks_, at_);
      uint8_t* to = ring_ + stage_ * C::kStageBytes;
      // Not of int8: ptxas 13.0 gives these copies of unusual strides an illegal encoding.
      const auto copy16 = [this](uint8_t* shared, const uint8_t* global) {
        if constexpr (Tile::kScaled) {
          copy16_async(shared, global);
        } else {
          copy16_async_once(shared, global, policy_);
        }
      };
      Tile::template copy<false>(to, p_.k, range_, tile_, block, lane_, copy16);
      Tile::template copy<true>(to + Tile::kBytes, p_.v, range_, tile_, block, lane_, copy16);
      tile_ += step_;
      --left_;
      ++at_;
    }
    copy_commit();
    stage_ = stage_ + 1 == C::kStages ? 0 : stage_ + 1;
  }

 private:
  __device__ void open(const DecodeShare& share) {
    range_ = range_of(p_, share);
    const WarpTiles<C> tiles(share, warp_);
    tile_ = tiles.first;
    step_ = tiles.step;
    left_ = tiles.count;
    follows_ = share.team ? 0 : share.next;
    at_ = 0;
    if (left_ > 0) blocks_ = blocks_from(0);
    if (left_ > kWarp) next_blocks_ = blocks_from(kWarp);
  }

  // The blocks of the tiles `ahead` and on from tile_, one a lane.
  __device__ int32_t blocks_from(int32_t ahead) const {
    const int32_t tile = tile_ + min(ahead + lane_, left_ - 1) * step_;
    return __ldcg(range_.entry_of(tile * kTileTokens));
  }

  const DecodeArgs& p_;
  uint8_t* ring_;
  const int warp_, lane_;
  const uint64_t policy_ = l2_first();
  KvRange range_;
  int32_t tile_ = 0, step_ = 0, left_ = 0;  // the next tile to copy, and how many there are
  int32_t follows_ = 0;                     // the share after this one, 0: none
  int32_t blocks_ = 0, next_blocks_ = 0;    // of 32 tiles from that at_ = 0 on, and of 32 more
  int32_t at_ = 0, stage_ = 0;
};

}  // namespace inferd::cuda
