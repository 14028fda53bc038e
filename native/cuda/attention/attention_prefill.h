// Attention of prompt chunks over their paged keys and values; see attention_prefill.cu (any shape)
// and attention_prefill_sm90.cu (Hopper). The chunk's own keys and values are in the cache already.
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <span>

#include "cuda/attention/paged_kv.h"
#include "cuda/device/half_type.h"
#include "cuda/device/launch.h"

namespace inferd::cuda {

// Queries of one sequence: tokens [first_token, first_token + count) of the step, at positions
// first_position and on. A prefill row is one such piece; a tile is one that fits a thread block.
struct PrefillTile {
  int32_t slot, first_token, count, first_position;
};

struct PrefillAttentionParams {
  // Token i is at q + i * q_stride elements and out + i * out_stride. Pointers are 16-byte aligned,
  // strides multiples of 8.
  const void* q;  // [num_tokens, >= heads * head_dim]
  int64_t q_stride;
  void* out;  // [num_tokens, heads * head_dim]
  int64_t out_stride;
  PagedKv kv;
  const PrefillTile* tiles;  // [num_tiles] device, from build_prefill_tiles
  int32_t num_tiles, num_tokens, heads;
  int32_t window;     // 0: all keys up to the query's, else only those > query position - window
  int32_t sm_count;   // for the Hopper kernel
  int32_t* counters;  // [2] device, for the Hopper kernel: zeroed once, zero again after a launch
  float scale;
  float softcap = 0;             // 0: none, else scores s become softcap tanh(s / softcap)
  const float* sinks = nullptr;  // [heads], or null: AttentionArgs::sinks
  float value_scale = 1;         // what values are multiplied by
  // Device: how many tiles there are, of which num_tiles is then a bound. Null: num_tiles.
  const int32_t* tile_count = nullptr;
};

// Keys and values of one layer as the Hopper kernel's copy engine sees them. Host memory, encoded
// once at start; valid as long as the cache stays where it is.
struct KvTensorMaps {
  CUtensorMap k, v;
  int32_t box_tokens;  // tokens a copy moves: the largest power of two in the block size, up to 128
};

// Tokens of a full tile: a tile's 128 rows are its tokens times the heads of a kv head.
int32_t prefill_tile_tokens(int32_t heads, int32_t kv_heads);

// Tiles that build_prefill_tiles makes of these rows.
int32_t count_prefill_tiles(std::span<const PrefillTile> rows, int32_t tile_tokens);

// Cuts rows into tiles, most keys first (blocks start in that order). Writes count_prefill_tiles()
// elements of `tiles` (host memory) and returns their number. Does not allocate.
int32_t build_prefill_tiles(std::span<const PrefillTile> rows, int32_t tile_tokens,
                            std::span<PrefillTile> tiles);

// Whether prefill_attention_sm90 takes this shape on a device of this compute capability.
bool prefill_attention_sm90_takes(int32_t major, int32_t minor, const PagedKv& kv);

// Encodes the maps of a layer; needs a driver, no context. cudaErrorInvalidValue when it refuses.
cudaError_t encode_kv_maps(Half type, const PagedKv& kv, KvTensorMaps& maps);

// Any architecture from sm_80: see attention_prefill.cu, point 6, for the shapes.
cudaError_t prefill_attention(Half type, const PrefillAttentionParams& params,
                              const Launch& launch);

// Compute capability 9.0, shapes of prefill_attention_sm90_takes.
cudaError_t prefill_attention_sm90(Half type, const PrefillAttentionParams& params,
                                   const KvTensorMaps& maps, const Launch& launch);

}  // namespace inferd::cuda
