// Sixteen keys (or values) of one sequence and kv head: how a warp copies them from the paged cache
// to shared memory and feeds them to mma.m16n8k16. Used by both mma attention kernels.
//
//   shared tile:  [16 tokens][head_dim] of the cache type S, 16-byte pieces of a row permuted by
//                 swizzle() so that neither the copies nor the fragment reads meet in a bank;
//                 then, of int8, the 16 scales of its rows.
//   scores():     s[16 query rows][16 keys] += q . k     rows g, g + 8; keys n * 8 + 2t, 2t + 1
//   accumulate(): o[16 query rows][head_dim] += p . v    column of o[n][e]: out_dim(n, 2t + e % 2)
//
// 16-bit types load fragments with ldmatrix. 8-bit types are widened to f16 in registers, which is
// exact for e4m3 and int8; the dims of a lane's words are then contiguous in memory, and q_dim()
// and out_dim() say which dim a fragment element stands for. Scales are left to the caller: a key's
// multiplies its score, a value's the probability.
#pragma once
#include "cuda/attention/paged_kv.h"
#include "cuda/device/mma.cuh"

namespace inferd::cuda {

constexpr int kTileTokens = 16;

struct Float8 {
  uint8_t bits;
};
struct Int8 {
  int8_t value;
};

template <typename S>
using MmaType = std::conditional_t<sizeof(S) == 1, __half, S>;

// The valid tokens [first, end) of one sequence, one kv head. Rows outside are filled with zeros,
// so that a stale infinity in a recycled block cannot meet a zero probability.
struct KvRange {
  const int32_t* table;
  Divisor block_size;
  uint32_t block_bytes;
  int32_t kv_head, kv_heads, first, end;

  // Where the table names the block of `token`.
  __device__ const int32_t* entry_of(int32_t token) const {
    return table + block_size.divide(min(max(token, first), end - 1));
  }
  __device__ int64_t block_at(int32_t block) const {
    return static_cast<int64_t>(block) * block_bytes;
  }
  // Row of `token` in its block, seen as [kv_heads * block_size, head_dim].
  __device__ int32_t row(int32_t token) const {
    const int32_t size = static_cast<int32_t>(block_size.value);
    return kv_head * size + token - block_size.divide(token) * size;
  }
  __device__ int32_t rows() const { return kv_heads * static_cast<int32_t>(block_size.value); }
};

// Two e4m3 bytes (bits 0..15 of `pair`) as two f16.
__device__ inline uint32_t widen_float8(uint32_t pair) {
#if __CUDA_ARCH__ >= 890
  uint32_t out;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(out) : "h"(static_cast<uint16_t>(pair)));
  return out;
#else
  // e4m3 bits shifted into f16 are the value times 2^-8, subnormals included.
  const uint32_t spread = (pair & 0xffu) | (pair & 0xff00u) << 8;
  const uint32_t bits = (spread & 0x00800080u) << 8 | (spread & 0x007f007fu) << 7;
  const __half2 scaled =
      __hmul2(reinterpret_cast<const __half2&>(bits), __floats2half2_rn(256.f, 256.f));
  return reinterpret_cast<const uint32_t&>(scaled);
#endif
}
// Two int8 (bits 0..15 of `pair`) as two f16: 1024 + (x + 128) is exact in f16, so is the
// difference.
__device__ inline uint32_t widen_int8(uint32_t pair) {
  const uint32_t bits = __byte_perm(pair ^ 0x80808080u, 0x64646464u, 0x4140);
  const __half2 value =
      __hsub2(reinterpret_cast<const __half2&>(bits), __floats2half2_rn(1152.f, 1152.f));
  return reinterpret_cast<const uint32_t&>(value);
}
template <typename S>
__device__ inline uint32_t widen(uint32_t pair) {
  if constexpr (std::is_same_v<S, Float8>) {
    return widen_float8(pair);
  } else {
    return widen_int8(pair);
  }
}

// Two neighbouring query values as the mma's type. A 16-bit cache has the queries' own type; before
// an 8-bit one bf16 queries become f16, clamped to its range.
template <typename S>
__device__ inline uint32_t load_query_pair(const void* q, int64_t at, bool is_bf16) {
  const uint32_t raw = *reinterpret_cast<const uint32_t*>(static_cast<const uint16_t*>(q) + at);
  if constexpr (sizeof(S) == 1) {
    if (is_bf16) {
      constexpr float kMax = 65504.f;
      const float2 f = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(raw));
      return pack2<__half>(fminf(fmaxf(f.x, -kMax), kMax), fminf(fmaxf(f.y, -kMax), kMax));
    }
  }
  return raw;
}
template <typename S>
__device__ inline uint32_t pack_output(float low, float high, bool is_bf16) {
  if constexpr (sizeof(S) == 1) {
    return is_bf16 ? pack2<__nv_bfloat16>(low, high) : pack2<__half>(low, high);
  } else {
    return pack2<S>(low, high);
  }
}

// What a warp's sums of scaled values are multiples of: the largest scale so far. Probabilities
// times scales are then at most 1, as without scales, and keep their bits in f16.
struct ValueUnit {
  float value = 0.f, inverse = 0.f;

  // Takes in a lane's largest scale of the tile at hand; the sums are to be multiplied by the
  // result. The four lanes of a quad have all columns.
  __device__ float grow(float most) {
    most = fmaxf(most, __shfl_xor_sync(kFullWarp, most, 1));
    most = fmaxf(most, __shfl_xor_sync(kFullWarp, most, 2));
    const float before = value;
    value = fmaxf(value, most);
    inverse = value > 1e-30f ? __frcp_rn(value) : 0.f;
    return before * inverse;
  }
};

template <typename S, int kHeadDim>
struct KvTile {
  using T = MmaType<S>;
  static constexpr bool kNarrow = sizeof(S) == 1;
  static constexpr int kRowBytes = kHeadDim * static_cast<int>(sizeof(S));
  static constexpr int kPieces = kRowBytes / 16;  // of a row
  static constexpr bool kScaled = std::is_same_v<S, Int8>;
  static constexpr int kDataBytes = kTileTokens * kRowBytes;
  static constexpr int kBytes = kDataBytes + (kScaled ? kTileTokens * 4 : 0);
  static constexpr int kSteps = kHeadDim / 16;   // mma steps over the dims of q . k
  static constexpr int kColumns = kHeadDim / 8;  // mma tiles over the dims of p . v
  static_assert(kHeadDim % 32 == 0 && kTileTokens * kPieces % kWarp == 0);

  template <bool kValues>
  __device__ static int swizzle(int row, int piece) {
    if constexpr (!kNarrow) {
      return kHeadDim % 64 == 0 ? piece ^ (row & 7) : piece ^ (row >> 1 & 3);
    } else if constexpr (kHeadDim % 128 == 0) {
      return piece ^ (kValues ? row & 6 : (row & 3) << 1);
    } else if constexpr (kHeadDim == 64) {
      return piece ^ (row & 2);
    } else {
      return piece;
    }
  }

  // One warp starts the copy of `tile`; `block` is that of the tile's first token. copy16(to, from)
  // starts that of 16 bytes of a whole tile.
  template <bool kValues, typename Copy16>
  __device__ static void copy(uint8_t* dst, const void* cache, const KvRange& range, int32_t tile,
                              int32_t block, int lane, const Copy16& copy16) {
    constexpr int kTurns = kTileTokens * kPieces / kWarp;
    if (range.block_size.value % kTileTokens != 0) {
      gather<kValues>(dst, cache, range, tile, lane);
      return;
    }
    const int32_t token = tile * kTileTokens;  // the tile lies in one block
    const int32_t begin = range.first - token, end = range.end - token;
    const uint8_t* base = static_cast<const uint8_t*>(cache) + range.block_at(block);
    const int32_t first_row = range.row(token);
    const uint8_t* source = base + first_row * kRowBytes + lane * 16;
    if (kScaled && lane < kTileTokens / 4) {  // those of rows out of the range mean nothing
      copy16_async(dst + kDataBytes + lane * 16,
                   base + range.rows() * kRowBytes + first_row * 4 + lane * 16);
    }
    if (begin <= 0 && end >= kTileTokens) {
#pragma unroll
      for (int i = 0; i < kTurns; ++i) {
        const int at = i * kWarp + lane, row = at / kPieces, piece = at % kPieces;
        copy16(dst + row * kRowBytes + swizzle<kValues>(row, piece) * 16, source + i * kWarp * 16);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kTurns; ++i) {
        const int at = i * kWarp + lane, row = at / kPieces, piece = at % kPieces;
        copy16_async_or_zero(dst + row * kRowBytes + swizzle<kValues>(row, piece) * 16,
                             source + i * kWarp * 16, row >= begin && row < end);
      }
    }
  }

  // The same for block sizes that are no multiple of 16: each row looks up its own block. Rolled
  // up, so that it does not crowd the instruction cache of the common case.
  template <bool kValues>
  __device__ static void gather(uint8_t* dst, const void* cache, const KvRange& range, int32_t tile,
                                int lane) {
#pragma unroll 1
    for (int at = lane; at < kTileTokens * kPieces; at += kWarp) {
      const int row = at / kPieces, piece = at % kPieces;
      const int32_t token = tile * kTileTokens + row;
      const int32_t known = min(max(token, range.first), range.end - 1);
      const uint8_t* base =
          static_cast<const uint8_t*>(cache) + range.block_at(__ldcg(range.entry_of(known)));
      copy16_async_or_zero(dst + row * kRowBytes + swizzle<kValues>(row, piece) * 16,
                           base + range.row(known) * kRowBytes + piece * 16, token == known);
      if (kScaled && piece == 0) {
        *reinterpret_cast<float*>(dst + kDataBytes + row * 4) = __ldcg(
            reinterpret_cast<const float*>(base + range.rows() * kRowBytes) + range.row(known));
      }
    }
  }

  // Scales of this lane's columns n * 8 + 2t and n * 8 + 2t + 1.
  __device__ static float2 scales(const uint8_t* tile, int n, int t) {
    return *reinterpret_cast<const float2*>(tile + kDataBytes + (n * 8 + t * 2) * 4);
  }

  // First of the two neighbouring dims in a0/a1 (upper = 0) or a2/a3 (upper = 1) of q step `step`.
  __device__ static int q_dim(int step, int upper, int t) {
    return kNarrow ? step / 2 * 32 + t * 8 + step % 2 * 4 + upper * 2
                   : step * 16 + upper * 8 + t * 2;
  }
  __device__ static int out_dim(int n, int column) {
    if constexpr (!kNarrow) return n * 8 + column;
    constexpr int kWide = kHeadDim / 64 * 64;  // dims read as 8 bytes a lane, the rest as 4
    return n * 8 < kWide ? n / 8 * 64 + column * 8 + n % 8 : kWide + column * 4 + (n - kWide / 8);
  }

  // q[step] holds a0, a2 (and a1, a3 with kRows = 16; with 8 the lower half of the rows is zero).
  template <int kRows>
  using Query = uint32_t[kSteps][kRows == 16 ? 4 : 2];

  template <int kRows>
  __device__ static void step_mma(float (&s)[4], const uint32_t (&q)[kRows == 16 ? 4 : 2],
                                  uint32_t b0, uint32_t b1) {
    if constexpr (kRows == 16) {
      mma16816<T>(s, q[0], q[2], q[1], q[3], b0, b1);
    } else {
      mma16816<T>(s, q[0], 0u, q[1], 0u, b0, b1);
    }
  }

  // kChains = 2: even and odd steps add up apart, which halves the latency of a lone warp.
  template <int kRows, int kChains = 1>
  __device__ static void scores(float (&s)[2][4], const Query<kRows>& q, const uint8_t* k,
                                int lane) {
    float apart[2][4] = {};
    float(&odd)[2][4] = kChains == 2 ? apart : s;
    if constexpr (!kNarrow) {
      const int row = (lane & 7) + (lane >> 4 << 3), half = lane >> 3 & 1;
#pragma unroll
      for (int step = 0; step < kSteps; step += 2) {
        uint32_t b[4], c[4];
        ldmatrix4(b, k + row * kRowBytes + swizzle<false>(row, step * 2 + half) * 16);
        ldmatrix4(c, k + row * kRowBytes + swizzle<false>(row, step * 2 + 2 + half) * 16);
        step_mma<kRows>(s[0], q[step], b[0], b[1]);
        step_mma<kRows>(s[1], q[step], b[2], b[3]);
        step_mma<kRows>(odd[0], q[step + 1], c[0], c[1]);
        step_mma<kRows>(odd[1], q[step + 1], c[2], c[3]);
      }
    } else {
      const int g = lane / 4, t = lane % 4;
#pragma unroll
      for (int c = 0; c < kHeadDim / 32; ++c) {
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          const int row = n * 8 + g, piece = c * 2 + t / 2;
          const uint2 words = *reinterpret_cast<const uint2*>(
              k + row * kRowBytes + swizzle<false>(row, piece) * 16 + t % 2 * 8);
          step_mma<kRows>(s[n], q[c * 2], widen<S>(words.x), widen<S>(words.x >> 16));
          step_mma<kRows>(odd[n], q[c * 2 + 1], widen<S>(words.y), widen<S>(words.y >> 16));
        }
      }
    }
    if constexpr (kChains == 2) {
#pragma unroll
      for (int i = 0; i < 8; ++i) s[i / 4][i % 4] += apart[i / 4][i % 4];
    }
  }

  // p: the A fragment of the probabilities, 16 query rows by 16 keys.
  __device__ static void accumulate(float (&o)[kColumns][4], const uint32_t (&p)[4],
                                    const uint8_t* v, int lane) {
    if constexpr (!kNarrow) {
      const int row = (lane & 7) + ((lane >> 3 & 1) << 3), half = lane >> 4;
#pragma unroll
      for (int c = 0; c < kHeadDim / 16; ++c) {
        uint32_t b[4];
        ldmatrix4_transposed(b, v + row * kRowBytes + swizzle<true>(row, c * 2 + half) * 16);
        mma16816<T>(o[c * 2], p[0], p[1], p[2], p[3], b[0], b[1]);
        mma16816<T>(o[c * 2 + 1], p[0], p[1], p[2], p[3], b[2], b[3]);
      }
    } else {
#pragma unroll
      for (int c = 0; c < kHeadDim / 64; ++c) {
        uint2 w[4];
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          w[r] = *reinterpret_cast<const uint2*>(value_bytes(v, r, c * 64, 8, lane));
        }
        narrow_columns(&o[c * 8], p, w[0].x, w[1].x, w[2].x, w[3].x);
        narrow_columns(&o[c * 8 + 4], p, w[0].y, w[1].y, w[2].y, w[3].y);
      }
      if constexpr (kHeadDim % 64 != 0) {
        uint32_t w[4];
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          w[r] = *reinterpret_cast<const uint32_t*>(value_bytes(v, r, kHeadDim / 64 * 64, 4, lane));
        }
        narrow_columns(&o[kColumns - 4], p, w[0], w[1], w[2], w[3]);
      }
    }
  }

  // Output row g (h = 0) or g + 8 (h = 1) of this lane's quad, times `factor`.
  __device__ static void store(uint16_t* out, const float (&o)[kColumns][4], int h, float factor,
                               int t, bool is_bf16) {
    if constexpr (!kNarrow) {
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        *reinterpret_cast<uint32_t*>(out + n * 8 + t * 2) =
            pack_output<S>(o[n][h * 2] * factor, o[n][h * 2 + 1] * factor, is_bf16);
      }
    } else {  // columns n and n + 1 are neighbouring dims
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        const int n = i / 2 * 2, e = i % 2;
        *reinterpret_cast<uint32_t*>(out + out_dim(n, t * 2 + e)) =
            pack_output<S>(o[n][h * 2 + e] * factor, o[n + 1][h * 2 + e] * factor, is_bf16);
      }
    }
  }

 private:
  // Row r of this lane's four B rows (2t, 2t+1, 2t+8, 2t+9), its `width` bytes from dim `first` on.
  __device__ static const uint8_t* value_bytes(const uint8_t* v, int r, int first, int width,
                                               int lane) {
    const int row = lane % 4 * 2 + (r & 1) + (r >> 1) * 8, byte = first + lane / 4 * width;
    return v + row * kRowBytes + swizzle<true>(row, byte / 16) * 16 + byte % 16;
  }
  // Four neighbouring dims of four rows: four mma columns.
  __device__ static void narrow_columns(float (*o)[4], const uint32_t (&p)[4], uint32_t w0,
                                        uint32_t w1, uint32_t w2, uint32_t w3) {
    const uint32_t upper0 = __byte_perm(w0, w1, 0x5140), upper1 = __byte_perm(w0, w1, 0x7362);
    const uint32_t lower0 = __byte_perm(w2, w3, 0x5140), lower1 = __byte_perm(w2, w3, 0x7362);
    mma16816<T>(o[0], p[0], p[1], p[2], p[3], widen<S>(upper0), widen<S>(lower0));
    mma16816<T>(o[1], p[0], p[1], p[2], p[3], widen<S>(upper0 >> 16), widen<S>(lower0 >> 16));
    mma16816<T>(o[2], p[0], p[1], p[2], p[3], widen<S>(upper1), widen<S>(lower1));
    mma16816<T>(o[3], p[0], p[1], p[2], p[3], widen<S>(upper1 >> 16), widen<S>(lower1 >> 16));
  }
};

}  // namespace inferd::cuda
