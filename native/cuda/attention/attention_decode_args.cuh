// The decode kernel's configuration and arguments: see attention_decode.cu. Device code of
// attention_decode_kernel.cuh alone.
#pragma once
#include "cuda/attention/attention_decode.h"
#include "cuda/attention/attention_tile.cuh"
#include "cuda/attention/score_scale.h"

namespace inferd::cuda {

constexpr int kOnChipBytes = 98 * 1024;  // the rings of a block, so that sm_89 holds one, sm_90 two
constexpr int kMostOnChipBytes = 99 * 1024;  // with all else

// What the rows of a launch are. Each kind has kernels of its own, so that none pays for what it
// does not do.
enum class DecodeKind {
  kTokens,    // one token each, rotated, with its key and value in the cache
  kWithRope,  // one token each, its query, key and value as the product ahead writes them
  kRuns,      // runs of tokens, otherwise as kTokens
};

template <typename S, int kHeadDim>
struct DecodeConfig {
  static constexpr int kStageBytes = 2 * KvTile<S, kHeadDim>::kBytes;
  static constexpr int kWarps = decode_attention_warps(kHeadDim, sizeof(S) == 1);
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int kFit = kOnChipBytes / (kWarps * kStageBytes);
  static constexpr int kStages = kFit < 6 ? kFit : 6;
  static constexpr int kWarpBytes = kStages * kStageBytes, kRingBytes = kWarps * kWarpBytes;
  static constexpr int kPitch = kHeadDim + 8;  // floats of a row of the merge buffer
  static_assert(kStages >= 2);
  static_assert(16 * kPitch * 4 <= kWarpBytes);
};

struct DecodeArgs {
  const void *q, *k, *v;
  void* out;
  int64_t q_stride, out_stride;
  const int32_t* tables;
  const DecodeShare* shares;  // [blocks of the plan, kWarps]
  int32_t* tickets;           // [rows, kv_heads], zero between launches
  float2* partial_sums;       // [blocks of the plan, kv_heads, most_rows]: maximum and denominator
  float* partial_out;         // [blocks of the plan, kv_heads, most_rows, head_dim]
  Divisor block_size;
  uint32_t block_bytes;
  int32_t group, max_blocks;
  int32_t most_rows;    // query rows a kv head of a plan's row: group times its tokens at most
  int32_t window;       // 0: all keys
  int32_t most_shares;  // of a row
  ScoreScale scale;
  const float* sinks;  // [heads], or null
  DecodeRope rope;     // read where the kind is kWithRope
  bool is_bf16;
};

constexpr int kMostQueryRows = 16;  // of a row and kv head

// Query row r of a kv head is that of the token-th token of its row and the head-th of its heads.
// Without runs the token is always 0.
struct QueryRow {
  int32_t token, head;

  template <bool kRuns>
  __device__ static QueryRow of(const DecodeArgs& p, int32_t r) {
    if constexpr (!kRuns) return {0, r};
    const int32_t token = r / p.group;
    return {token, r - token * p.group};
  }
};

// Where the output of a query row lies, from that of the first on.
template <int kHeadDim, bool kRuns>
__device__ inline int64_t out_offset(const DecodeArgs& p, int32_t r) {
  const QueryRow row = QueryRow::of<kRuns>(p, r);
  return row.token * p.out_stride + row.head * kHeadDim;
}

}  // namespace inferd::cuda
