// The Hopper prefill kernel's shared memory, its work items, and the warp that feeds it: see
// attention_prefill_sm90.cu. Device code of that file alone.
#pragma once
#include "cuda/attention/attention_prefill.h"
#include "cuda/attention/score_scale.h"
#include "cuda/device/hopper.cuh"

namespace inferd::cuda {

constexpr int kRows = 128, kKeys = 128, kStages = 2, kAtomBytes = 1024;
constexpr int kPrefillThreads = 384;  // a producer warpgroup, two consumers of 64 rows each
constexpr int kPanelColumns = 64;

template <int kHeadDim>
struct alignas(1024) PrefillShared {
  static constexpr int kPanels = kHeadDim / kPanelColumns, kTileBytes = 128 * kHeadDim * 2;
  uint8_t q[2][kTileBytes];        // [panel][16 atoms]
  uint8_t k[kStages][kTileBytes];  // [16 atoms][panel]: any number of tokens is one copy
  uint8_t v[kStages][kTileBytes];
  PrefillTile tile[2];
  int32_t item[2];  // of the tile and kv head in q; -1 after the last
  uint64_t q_full[2], k_full[kStages], k_free[kStages], v_full[kStages], v_free[kStages];
};

// Ids of group barriers, each of one consumer warpgroup and the producing warp. Items go from hand
// to hand by these, and only what the copy engine writes by mbarriers: tools that look for races
// follow the one and not the other.
constexpr int kItemThreads = 128 + kWarp;
constexpr int values_barrier(int consumer) { return 1 + consumer; }  // of the consumer alone
__device__ inline int item_there(int q, int consumer) { return 3 + q * 2 + consumer; }
__device__ inline int item_done(int q, int consumer) { return 7 + q * 2 + consumer; }

struct PrefillArgs {
  const PrefillTile* tiles;
  const int32_t* tables;
  int32_t* counters;  // [2] items taken, blocks done; zero between launches
  void* out;
  int64_t out_stride;
  Divisor block_size;
  const int32_t* tile_count;  // of which each kv head makes an item; null: `items` counts them
  int32_t items, kv_heads, group, max_blocks, window, box_tokens;
  ScoreScale scale;
  const float* sinks;  // [heads], or null
};

// What a kernel is compiled for: the usual one has no instruction for what only some models or
// steps ask for, as its loops pay for each (up to 5 % of long prompts).
enum class PrefillKind {
  kPlain,    // scores and values as they are
  kSunk,     // with sinks, or values that are multiplied by something
  kCapped,   // scores are capped; maybe the same
  kBounded,  // the device knows how many tiles there are; maybe all of these
};

#ifdef INFERD_HOPPER

// Items are (tile, kv head), heaviest first; a block takes the next one when it has issued the
// copies of the one before. The result does not depend on who takes which.
__device__ inline int32_t take_item(const PrefillArgs& p) {
  return static_cast<int32_t>(gridDim.x) + atomicAdd(&p.counters[0], 1);
}
// The last block to end makes the counters ready for the next launch.
__device__ inline void end_items(const PrefillArgs& p) {
  __threadfence();
  if (atomicAdd(&p.counters[1], 1) == static_cast<int32_t>(gridDim.x) - 1) {
    p.counters[0] = 0;
    p.counters[1] = 0;
  }
}

// The key tiles an item visits, from turn_end - 1 down, and the keys that exist for it.
struct KeySpan {
  int32_t first, end, turn_begin, turn_end;

  __device__ KeySpan(const PrefillTile& tile, int32_t window)
      : first(window > 0 ? max(0, tile.first_position + 1 - window) : 0),
        end(tile.first_position + tile.count),
        turn_begin(first / kKeys),
        turn_end((end + kKeys - 1) / kKeys) {}
};

// Lane l copies the l-th box of a key tile. What a copy depends on is loaded one tile ahead.
template <int kHeadDim, bool kBounded>
__device__ void produce(const PrefillArgs& p, PrefillShared<kHeadDim>& s, const CUtensorMap* q_map,
                        const CUtensorMap* k_map, const CUtensorMap* v_map) {
  constexpr int kPanels = PrefillShared<kHeadDim>::kPanels;
  const int lane = threadIdx.x % kWarp;
  const int32_t size = static_cast<int32_t>(p.block_size.value);
  const uint32_t q_bytes = kRows / p.group * p.group * kHeadDim * 2;
  const uint32_t box_bytes = p.box_tokens * kHeadDim * 2, offset = lane * box_bytes;
  auto block_of = [&](const PrefillTile& tile, int32_t token) {
    const int32_t last = tile.first_position + tile.count - 1;
    return __ldg(p.tables + static_cast<int64_t>(tile.slot) * p.max_blocks +
                 p.block_size.divide(min(token, last)));
  };
  auto wait_for_consumers = [](int q) {
    for (int consumer = 0; consumer < 2; ++consumer) {
      group_sync<kItemThreads>(item_done(q, consumer));
    }
  };
  // Read where it is needed: the warp has few registers.
  auto count_items = [&] { return kBounded ? *p.tile_count * p.kv_heads : p.items; };
  int32_t at = 0, item = blockIdx.x;  // at: key tiles so far
  PrefillTile tile = {0, 0, 1, 0};
  if (!kBounded || item < count_items()) tile = p.tiles[item / p.kv_heads];
  int32_t next = __shfl_sync(kFullWarp, lane == 0 ? take_item(p) : 0, 0);
  const int32_t lane_token = lane * p.box_tokens;
  int32_t block = block_of(tile, (KeySpan(tile, p.window).turn_end - 1) * kKeys + lane_token);
  for (int32_t n = 0;; ++n) {
    const int q = n & 1;
    const bool ends = item >= count_items();
    if (n >= 2) wait_for_consumers(q);
    if (lane == 0) {
      s.tile[q] = tile;
      s.item[q] = ends ? -1 : item;
    }
    __syncwarp();
    for (int consumer = 0; consumer < 2; ++consumer) {
      group_arrive<kItemThreads>(item_there(q, consumer));
    }
    if (ends) {
      if (lane == 0) end_items(p);
      if (n >= 1) wait_for_consumers(q ^ 1);  // no barrier is left half complete
      return;
    }
    const int32_t kv_head = item % p.kv_heads;
    const KeySpan span(tile, p.window);
    if (lane == 0) {
      barrier_expect(&s.q_full[q], q_bytes);
#pragma unroll
      for (int i = 0; i < kPanels; ++i) {
        tensor_copy_3d(s.q[q] + i * kRows * 128, q_map, &s.q_full[q], i * kPanelColumns,
                       kv_head * p.group, tile.first_token);
      }
    }
    const int32_t items = count_items();
    const int32_t taken = lane == 0 && next < items ? take_item(p) : items;
    const PrefillTile next_tile = next < items ? p.tiles[next / p.kv_heads] : tile;
    for (int32_t turn = span.turn_end - 1; turn >= span.turn_begin; --turn, ++at) {
      const int stage = at % kStages;
      const uint32_t parity = (at / kStages & 1) ^ 1;
      const int32_t token = turn * kKeys + lane_token;
      const bool wanted =
          lane_token < kKeys && token < span.end && token + p.box_tokens > span.first;
      const int32_t row =
          (block * p.kv_heads + kv_head) * size + token - p.block_size.divide(token) * size;
      const uint32_t bytes = __popc(__ballot_sync(kFullWarp, wanted)) * box_bytes;
      barrier_wait(&s.k_free[stage], parity);
      if (lane == 0) barrier_expect(&s.k_full[stage], bytes);
      __syncwarp();
      if (wanted) {
        tensor_copy_4d(s.k[stage] + offset, k_map, &s.k_full[stage], 0, 0, 0, row / 8);
      }
      barrier_wait(&s.v_free[stage], parity);
      if (lane == 0) barrier_expect(&s.v_full[stage], bytes);
      __syncwarp();
      if (wanted) {
        tensor_copy_4d(s.v[stage] + offset, v_map, &s.v_full[stage], 0, 0, 0, row / 8);
      }
      block = turn > span.turn_begin
                  ? block_of(tile, token - kKeys)
                  : block_of(next_tile,
                             (KeySpan(next_tile, p.window).turn_end - 1) * kKeys + lane_token);
    }
    item = next;
    tile = next_tile;
    next = __shfl_sync(kFullWarp, taken, 0);
  }
}

#endif  // INFERD_HOPPER

}  // namespace inferd::cuda
