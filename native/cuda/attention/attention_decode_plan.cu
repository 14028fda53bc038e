// 1. Cuts the rows of a decode step into shares of about equal length, one a thread block and kv
//    head, from the lengths on the device: a captured step follows them without the host.
// 2. tokens, slots [rows] and positions [tokens of the step] i32 in; shares [blocks, warps] out
// (see attention_decode.h).
// 3. One block; a thread a row. Long rows come first; when there are enough short ones, those
//    share blocks, a warp each. No more thread blocks are started than run at a time: what is left
//    follows in chains, of blocks for teams, of rows for lone warps.
//
//      shares:  | row 7, part 0 | row 7, part 1 | .. | row 2 | rows 0 1 3 4 | rows 5 6 8 9 | ..
//      thread block 0: part 0 of row 7, ...               ...then a warp each: 0 -> 5, 1 -> 6, ..
//
// 4. 64 bytes of shared memory, no more than 64 registers.
// 5. Integers; the same shares for the same lengths.
// 6. Up to 4096 rows and 65535 blocks, any architecture from sm_80; else cudaErrorInvalidValue.
// 7. 4.3 us for 256 rows on an H200, bound by five round trips to L2; once a step and window
//    size.
// 8. The work list on the device: FlashInfer's plan (Ye et al. 2025), made there by the host.
// 9. A warp a row for the writing: 8.8 us for 256 rows (14 with 256 threads). All rows of an uneven
//    batch in equally long chains of lone warps: attention 36.4 instead of 33.0 us at 140x200.
#include <algorithm>

#include "cuda/attention/attention_decode.h"
#include "cuda/device/common.cuh"
#include "cuda/device/launch.cuh"

namespace inferd::cuda {
namespace {

constexpr int kTileTokens = 16;
constexpr int kMinShareTiles = 8;  // a smaller share costs more in merging than it saves
constexpr int kThreads = 512, kMaxRows = 4096;
constexpr int kBlocksPerSm = 2;  // what the rings of sm_90 have room for
// Rows of up to kPackTiles tiles, or little more than a warp's part of all, get a warp each instead
// of a block when there are enough of them: a warp then reads one row after the other without a
// stop, and nothing is to be merged.
constexpr int kPackTiles = 32;

__device__ inline DecodeRun run_of(const DecodePlanParams& p, int32_t row) {
  return p.runs != nullptr ? p.runs[row] : DecodeRun{1, 1};
}
__device__ inline int32_t first_key(int32_t position, int32_t window) {
  return window > 0 ? max(0, position + 1 - window) : 0;
}
__device__ inline int32_t count_tiles_between(int32_t first_key, int32_t end_key) {
  return end_key <= 0 ? 0 : (end_key - 1) / kTileTokens + 1 - first_key / kTileTokens;
}
// The end of the keys of a row whose first token is at `position`.
__device__ inline int32_t end_key(int32_t position, DecodeRun run) {
  return position < 0 ? 0 : position + run.tokens;
}
__device__ inline int32_t count_tiles(int32_t position, DecodeRun run, int32_t window) {
  return count_tiles_between(first_key(position, window), end_key(position, run));
}
__device__ inline int32_t count_shares(int32_t tiles, int32_t share_tiles) {
  return tiles == 0 ? 0 : max(1, (tiles + share_tiles / 2) / share_tiles);
}

// Sum over the block of one value a thread, and with `below` also the sum of the threads before.
__device__ inline uint32_t block_total(uint32_t x, uint32_t* below) {
  __shared__ uint32_t warp_sums[kThreads / kWarp];
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  uint32_t until = x;
#pragma unroll
  for (int step = 1; step < kWarp; step *= 2) {
    const uint32_t other = __shfl_up_sync(kFullWarp, until, step);
    if (lane >= step) until += other;
  }
  if (lane == kWarp - 1) warp_sums[warp] = until;
  __syncthreads();
  const uint32_t sum = lane < kThreads / kWarp ? warp_sums[lane] : 0u;
  const uint32_t before = __reduce_add_sync(kFullWarp, lane < warp ? sum : 0u);
  const uint32_t total = __reduce_add_sync(kFullWarp, sum);
  __syncthreads();
  if (below != nullptr) *below = before + until - x;
  return total;
}

// How entries of one kind lead to others: what a warp or thread block does next.
struct Chain {
  int32_t step, end;  // entry e is followed by e + step, below end
  int32_t first;      // entries from here on follow others
};

struct Row {
  DecodeShare share;  // without its index, tiles and place in a chain
  int32_t begin;      // first entry
  int32_t copies;     // entries a share: one for each warp of a team
};

// Writes every step-th entry of a row.
__device__ inline void write_entries(const DecodePlanParams& p, const Row& row, const Chain& chain,
                                     int first, int step) {
  DecodeShare share = row.share;
  const int32_t start = share.first_key / kTileTokens;
  const uint32_t count = count_tiles_between(share.first_key, share.end_key);
  for (int32_t i = first; i < share.shares * row.copies; i += step) {
    share.index = i / row.copies;
    const uint32_t next = share.index + 1;
    share.tile_begin = start + static_cast<int32_t>(count * share.index / share.shares);
    share.tile_end = start + static_cast<int32_t>(count * next / share.shares);
    const int32_t entry = row.begin + i;
    share.next = entry + chain.step < chain.end ? entry + chain.step : 0;
    share.chained = entry >= chain.first;
    p.shares[entry] = share;
  }
}

// Each lane writes its own row, but the whole warp the rows of many shares.
__device__ inline void write_shares(const DecodePlanParams& p, const Row& mine, const Chain& chain,
                                    const Chain& team_chain) {
  constexpr int kAlone = 8;  // lone warps' rows are one share
  const int lane = threadIdx.x % kWarp;
  unsigned many = __ballot_sync(kFullWarp, mine.share.shares * mine.copies > kAlone);
  if (!(many >> lane & 1)) write_entries(p, mine, chain, 0, 1);
  for (; many != 0; many &= many - 1) {
    const int from = __ffs(many) - 1;
    auto of = [&](int32_t value) { return __shfl_sync(kFullWarp, value, from); };
    Row row = mine;
    row.share.token = of(mine.share.token);
    row.share.slot = of(mine.share.slot);
    row.share.row = of(mine.share.row);
    row.share.shares = of(mine.share.shares);
    row.share.first_key = of(mine.share.first_key);
    row.share.end_key = of(mine.share.end_key);
    row.share.team = static_cast<int16_t>(of(mine.share.team));
    row.share.run.tokens = static_cast<int16_t>(of(mine.share.run.tokens));
    row.share.run.fresh = static_cast<int16_t>(of(mine.share.run.fresh));
    row.begin = of(mine.begin);
    row.copies = of(mine.copies);
    write_entries(p, row, team_chain, lane, kWarp);
  }
}

__global__ void __launch_bounds__(kThreads)
    plan_decode_kernel(const __grid_constant__ DecodePlanParams p) {
  wait_for_previous();
  let_next_start();
  auto position_of = [&](int row) {
    const int32_t token = p.tokens != nullptr ? p.tokens[row] : row;
    return token < 0 ? -1 : p.positions[token];
  };
  auto tiles_of = [&](int row) { return count_tiles(position_of(row), run_of(p, row), p.window); };
  uint32_t mine = 0;
  for (int row = threadIdx.x; row < p.rows; row += kThreads) mine += tiles_of(row);
  const int32_t total = static_cast<int32_t>(block_total(mine, nullptr));
  const int32_t slots = p.resident * p.warps;  // warps a kv head
  const int32_t fair = max(1, (total + slots - 1) / slots);
  const int32_t pack_tiles = max(kPackTiles, fair + fair / 4);
  mine = 0;
  for (int row = threadIdx.x; row < p.rows; row += kThreads) {
    const int32_t tiles = tiles_of(row);
    mine += tiles > 0 && tiles <= pack_tiles;
  }
  const bool pack = 2 * block_total(mine, nullptr) >= 3 * static_cast<uint32_t>(p.resident);
  const int32_t spare = p.grid.blocks - p.rows;
  // Without spare blocks no row is cut: any share is long enough.
  int32_t share_tiles =
      spare > 0 ? max(kMinShareTiles, (total + spare - 1) / spare) : max(1, total);
  // When the rows alone fill the device, only those above the average are worth cutting.
  if (8 * p.rows >= 3 * p.resident) share_tiles = max(share_tiles, total / p.rows);
  // Long rows come first: what starts late should be short.
  auto is_long = [&](int32_t tiles) {
    return pack ? tiles > pack_tiles : 2 * tiles >= share_tiles;
  };
  // Shares of a row, those of long rows in the low half: there are at most 65535.
  auto shares_of = [&](int32_t tiles) {
    return is_long(tiles) ? static_cast<uint32_t>(count_shares(tiles, share_tiles))
                          : static_cast<uint32_t>(tiles > 0) << 16;
  };

  mine = 0;
  uint32_t short_tiles = 0;
  for (int row = threadIdx.x; row < p.rows; row += kThreads) {
    const int32_t tiles = tiles_of(row);
    mine += shares_of(tiles);
    if (!is_long(tiles)) short_tiles += tiles;
  }
  const uint32_t counts = block_total(mine, nullptr);
  short_tiles = block_total(short_tiles, nullptr);
  const int32_t long_blocks = counts & 0xffffu, short_rows = counts >> 16;
  // Blocks of lone warps: enough for a fair part a warp, with about as many rows each. A few rows
  // too many for that go to teams, which add less to the longest chain than a whole row would.
  int32_t packed = 0, teams = short_rows;
  if (pack) {
    const int32_t part = fair * p.warps;
    packed = min(max(1, (static_cast<int32_t>(short_tiles) + part - 1) / part), p.grid.ctas);
    const int32_t left_over = short_rows % (packed * p.warps);
    teams = left_over < short_rows && left_over <= p.resident ? left_over : 0;
    const int32_t lone_rows = short_rows - teams;
    const int32_t rounds = (lone_rows + packed * p.warps - 1) / (packed * p.warps);
    packed = (lone_rows + rounds * p.warps - 1) / (rounds * p.warps);
  }
  const int32_t blocks = long_blocks + teams + packed;
  const int32_t first_lone = (long_blocks + teams) * p.warps;
  const int32_t used = first_lone + short_rows - teams;
  const Chain team_chain = {p.grid.ctas * p.warps, blocks * p.warps, p.grid.ctas * p.warps};
  const Chain lone_chain = {packed * p.warps, used,
                            min(p.grid.ctas * p.warps, first_lone + packed * p.warps)};
  uint32_t before = 0;
  for (int base = 0; base < p.rows; base += kThreads) {
    const int row = base + threadIdx.x;
    const bool exists = row < p.rows;
    const int32_t position = exists ? position_of(row) : -1;
    const DecodeRun run = exists ? run_of(p, row) : DecodeRun{1, 1};
    const int32_t tiles = count_tiles(position, run, p.window);
    const bool is_short = !is_long(tiles);
    const uint32_t shares = shares_of(tiles);
    uint32_t below;
    const uint32_t all = block_total(shares, &below);
    below += before;
    before += all;
    const int32_t at = is_short ? below >> 16 : below & 0xffffu;
    const bool lone = is_short && at >= teams;
    const Row entries = {
        .share = {.token = exists && p.tokens != nullptr ? p.tokens[row] : row,
                  .slot = exists ? p.slots[row] : 0,
                  .row = row,
                  .index = 0,
                  .shares = static_cast<int32_t>(is_short ? shares >> 16 : shares),
                  .first_key = first_key(position, p.window),
                  .end_key = end_key(position, run),
                  .tile_begin = 0,
                  .tile_end = 0,
                  .team = !lone,
                  .chained = 0,
                  .run = run,
                  .next = 0},
        .begin = lone ? first_lone + at - teams : (is_short ? long_blocks + at : at) * p.warps,
        .copies = lone ? 1 : p.warps};
    write_shares(p, entries, lone ? lone_chain : team_chain, team_chain);
  }
  for (int i = used + threadIdx.x; i < p.grid.blocks * p.warps; i += kThreads) {
    p.shares[i].shares = 0;
  }
}

}  // namespace

int32_t decode_attention_resident(int32_t kv_heads, int32_t sm_count) {
  return std::max(1, kBlocksPerSm * sm_count / kv_heads);
}

DecodeGrid decode_attention_grid(int32_t rows, int32_t max_context, int32_t resident) {
  // A row of t tiles never becomes more than max(1, t / kMinShareTiles + 1/2) shares.
  const int64_t tiles = (static_cast<int64_t>(max_context) + kTileTokens - 1) / kTileTokens;
  const int64_t useful =
      rows * std::max<int64_t>(0, (tiles + kMinShareTiles / 2) / kMinShareTiles - 1);
  const int32_t blocks = rows + static_cast<int32_t>(std::min<int64_t>(useful, resident));
  return {.blocks = blocks, .ctas = std::min(blocks, resident)};
}

size_t decode_attention_partial_bytes(int32_t blocks, int32_t heads, int32_t head_dim,
                                      int32_t most_tokens) {
  return (static_cast<size_t>(blocks) * heads * most_tokens + 1) * (head_dim + 2) * sizeof(float);
}

cudaError_t plan_decode_attention(const DecodePlanParams& params, const Launch& launch) {
  if (params.rows < 0 || params.rows > kMaxRows || params.grid.blocks < params.rows ||
      params.grid.blocks > 65535 || params.grid.ctas <= 0 || params.resident <= 0 ||
      params.window < 0 || params.warps <= 0) {
    return cudaErrorInvalidValue;
  }
  if (params.rows == 0) return cudaSuccess;
  return launch_kernel(plan_decode_kernel, {dim3(1), kThreads}, launch, params);
}

}  // namespace inferd::cuda
