// Norm and rotation of a row's query and newest key in the decode kernel, and the way of that key
// and its value to the cache: what rope_kv does, without a kernel of its own. Device code of
// attention_decode_kernel.cuh alone.
//
// Each warp rotates the queries that it needs in the registers that the mma reads them from: dims d
// and d + head_dim / 2 are in the same lane. The warp that has the row's last tile makes the new
// key too, when it comes to that tile, and writes it over what was copied there, which may be older
// than the key, and to the cache for later steps.
#pragma once
#include "cuda/attention/attention_decode_stream.cuh"
#include "cuda/attention/rope_turn.cuh"

namespace inferd::cuda {

// Dims d, d + 1 (low) and those half a head above them (high).
template <typename T, int kHeadDim>
struct RopePair {
  float2 low, high;

  __device__ RopePair(uint32_t low_bits, uint32_t high_bits)
      : low(unpack2<T>(low_bits)), high(unpack2<T>(high_bits)) {}

  __device__ float squares() const {
    return fmaf(low.x, low.x, fmaf(low.y, low.y, fmaf(high.x, high.x, high.y * high.y)));
  }
  __device__ void norm(const float* weight, float scale, int d) {
    const float2 a = *reinterpret_cast<const float2*>(weight + d);
    const float2 b = *reinterpret_cast<const float2*>(weight + d + kHeadDim / 2);
    low = {low.x * scale * a.x, low.y * scale * a.y};
    high = {high.x * scale * b.x, high.y * scale * b.y};
  }
  // turns: of d and of d + 1.
  __device__ void rotate(float4 turns, uint32_t& low_bits, uint32_t& high_bits) const {
    const float2 even = {turns.x, turns.y}, odd = {turns.z, turns.w};
    low_bits = pack2<T>(turned(low.x, -high.x, even), turned(low.y, -high.y, odd));
    high_bits = pack2<T>(turned(high.x, low.x, even), turned(high.y, low.y, odd));
  }
};

template <typename T, int kHeadDim>
class RowRope {
 public:
  using Tile = KvTile<T, kHeadDim>;
  using Pair = RopePair<T, kHeadDim>;
  static constexpr bool kActive = true;
  static constexpr int kHalf = kHeadDim / 2;
  static constexpr int kBytes = kHalf * 8;  // of shared memory a warp
  static_assert(kHalf % 16 == 0 && kHalf / 2 <= kWarp);

  __device__ RowRope(const DecodeArgs& args, uint8_t* own, int lane)
      : p_(args), turn_(reinterpret_cast<float2*>(own)), lane_(lane) {}

  // Turns to the row of a share, of which the warp has these tiles. Comes ahead of the wait: reads
  // weights, and what is settled.
  __device__ void aim(const DecodeShare& share, const WarpTiles<DecodeConfig<T, kHeadDim>>& tiles) {
    new_tile_ = tiles.last_of_row(share);
    if (new_tile_ >= 0) block_ = __ldcg(range_of(p_, share).entry_of(share.end_key - 1));
    __syncwarp();  // nobody needs the last row's turns any more
    for (int i = lane_; i < kHalf; i += kWarp) {
      turn_[i] = turn_of(share.end_key - 1, p_.rope.inv_freq[i], p_.rope.attention_factor);
    }
    __syncwarp();
  }

  // Begins to fetch the row's new key and value.
  __device__ void load_key(const DecodeShare& share) {
    if (new_tile_ < 0) return;
    const int64_t at = share.token * p_.q_stride +
                       (static_cast<int64_t>(p_.group) * gridDim.x + blockIdx.x) * kHeadDim;
    const auto* k = static_cast<const T*>(p_.q) + at;
    const T* v = k + static_cast<int64_t>(gridDim.x) * kHeadDim;
    const int d = min(lane_ * 2, kHalf - 2);
    low_ = *reinterpret_cast<const uint32_t*>(k + d);
    high_ = *reinterpret_cast<const uint32_t*>(k + d + kHalf);
    value_ = reinterpret_cast<const uint4*>(v)[min(lane_, Tile::kPieces - 1)];
  }

  // q: as RowSums has it.
  template <int kRows>
  __device__ void rotate_query(typename Tile::template Query<kRows>& q) const {
    const float* weight = p_.rope.q_norm;
#pragma unroll
    for (int h = 0; h < kRows / 8; ++h) {
      float scale = 1.f;
      if (weight != nullptr) {
        float sum = 0.f;
#pragma unroll
        for (int i = 0; i < Tile::kSteps; ++i) sum += pair<kRows>(q, h, i).squares();
        sum += __shfl_xor_sync(kFullWarp, sum, 1);
        sum += __shfl_xor_sync(kFullWarp, sum, 2);
        scale = rsqrtf(sum / kHeadDim + p_.rope.norm_eps);
      }
#pragma unroll
      for (int i = 0; i < Tile::kSteps; ++i) {
        const int step = i / 2, part = h * 2 + i % 2, d = Tile::q_dim(step, i % 2, lane_ % 4);
        Pair x = pair<kRows>(q, h, i);
        if (weight != nullptr) x.norm(weight, scale, d);
        x.rotate(turns(d), q[step][part], q[step + Tile::kSteps / 2][part]);
      }
    }
  }

  // If `tile`, whose keys are at `keys` and values behind them, is that of the new key: writes what
  // load_key() fetched over its rows there, and to the cache.
  __device__ void put_key(const DecodeShare& share, int32_t tile, uint8_t* keys) const {
    if (tile != new_tile_) return;
    const bool has_pair = lane_ < kHalf / 2;
    float scale = 1.f;
    if (p_.rope.k_norm != nullptr) {
      const float sum = warp_sum(has_pair ? Pair(low_, high_).squares() : 0.f);
      scale = rsqrtf(sum / kHeadDim + p_.rope.norm_eps);
    }
    const KvRange range = range_of(p_, share);
    const int32_t position = share.end_key - 1, row = position % kTileTokens;
    const int64_t at = range.block_at(block_) + range.row(position) * Tile::kRowBytes;
    uint8_t* k = static_cast<uint8_t*>(p_.rope.k_cache) + at;
    uint8_t* v = static_cast<uint8_t*>(p_.rope.v_cache) + at;
    uint8_t* of_row = keys + row * Tile::kRowBytes;
    const auto swizzled = [&](int byte) {
      return Tile::template swizzle<false>(row, byte / 16) * 16 + byte % 16;
    };
    if (has_pair) {
      const int d = lane_ * 2, low_at = d * 2, high_at = (d + kHalf) * 2;
      Pair x(low_, high_);
      if (p_.rope.k_norm != nullptr) x.norm(p_.rope.k_norm, scale, d);
      uint32_t low, high;
      x.rotate(turns(d), low, high);
      *reinterpret_cast<uint32_t*>(of_row + swizzled(low_at)) = low;
      *reinterpret_cast<uint32_t*>(of_row + swizzled(high_at)) = high;
      *reinterpret_cast<uint32_t*>(k + low_at) = low;
      *reinterpret_cast<uint32_t*>(k + high_at) = high;
    }
    if (lane_ < Tile::kPieces) {
      *reinterpret_cast<uint4*>(of_row + Tile::kBytes + swizzled(lane_ * 16)) = value_;
      reinterpret_cast<uint4*>(v)[lane_] = value_;
    }
    __syncwarp();
  }

 private:
  __device__ float4 turns(int d) const { return *reinterpret_cast<const float4*>(turn_ + d); }
  template <int kRows>
  __device__ static Pair pair(const typename Tile::template Query<kRows>& q, int h, int i) {
    const int step = i / 2, part = h * 2 + i % 2;
    return Pair(q[step][part], q[step + Tile::kSteps / 2][part]);
  }

  const DecodeArgs& p_;
  float2* turn_;  // [kHalf] cos, sin of the row's position, the warp's own
  const int lane_;
  int32_t new_tile_ = -1;  // that of the row's new key, where this warp has it
  int32_t block_ = 0;      // of the cache, of that key
  uint32_t low_, high_;    // of the key, lane by lane
  uint4 value_;
};

// Where there is no rope: rope_kv went ahead, and the new keys are in the cache.
struct NoRope {
  static constexpr bool kActive = false;
  static constexpr int kBytes = 16;  // an array needs some
  __device__ NoRope(const DecodeArgs&, uint8_t*, int) {}
  template <typename Tiles>
  __device__ static void aim(const DecodeShare&, const Tiles&) {}
  __device__ static void load_key(const DecodeShare&) {}
  template <int kRows, typename Query>
  __device__ static void rotate_query(const Query&) {}
  __device__ static void put_key(const DecodeShare&, int32_t, const uint8_t*) {}
};

}  // namespace inferd::cuda
