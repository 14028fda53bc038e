// 1. Cuts the rows of a decode step into shares of about equal length, one a thread block and kv
//    head, from the lengths on the device: a captured step follows them without the host.
// 2. tokens, slots, positions [rows] i32 in; shares [ctas, warps] out (see attention_decode.h).
// 3. One block; a thread a row. Long rows come first; when there are enough short ones, those
//    share blocks, a warp each.
//
//      shares:  | row 7, part 0 | row 7, part 1 | .. | row 2 | rows 0 1 3 4 | rows 5 6 - - | ..
//
// 4. 64 bytes of shared memory, no more than 64 registers.
// 5. Integers; the same shares for the same lengths.
// 6. Up to 4096 rows and 65535 blocks, any architecture from sm_80; else cudaErrorInvalidValue.
// 7. 3.5 us for 256 rows on an H200, bound by four round trips to L2; once a step and window
//    size.
// 8. The work list on the device: FlashInfer's plan (Ye et al. 2025), made there by the host.
// 9. A warp a row for the writing: 8.8 us for 256 rows (14 with 256 threads).
#include <algorithm>

#include "attention_decode.h"
#include "common.cuh"
#include "launch.cuh"

namespace inferd::cuda {
namespace {

constexpr int kTileTokens = 16;
constexpr int kMinShareTiles = 8;  // a smaller share costs more in merging than it saves
constexpr int kThreads = 512, kMaxRows = 4096;
// Rows of up to kPackTiles tiles get a warp each instead of a block when there are enough of them:
// one start-up latency then covers the whole row, not a few tiles of it.
constexpr int kSharesPerSm = 2;
constexpr int kPackTiles = 32, kPackRowsPerSm = 3;

__device__ inline int32_t first_key(int32_t position, int32_t window) {
  return window > 0 ? max(0, position + 1 - window) : 0;
}
__device__ inline int32_t count_tiles_between(int32_t first_key, int32_t end_key) {
  return end_key <= 0 ? 0 : (end_key - 1) / kTileTokens + 1 - first_key / kTileTokens;
}
__device__ inline int32_t count_tiles(int32_t position, int32_t window) {
  return count_tiles_between(first_key(position, window), position + 1);
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

struct Row {
  DecodeShare share;  // without its index and tiles
  int32_t begin;      // first entry
  int32_t copies;     // entries a share: one for each warp of a team
};

// Writes every step-th entry of a row.
__device__ inline void write_entries(const DecodePlanParams& p, const Row& row, int first,
                                     int step) {
  DecodeShare share = row.share;
  const int32_t start = share.first_key / kTileTokens;
  const uint32_t count = count_tiles_between(share.first_key, share.end_key);
  for (int32_t i = first; i < share.shares * row.copies; i += step) {
    share.index = i / row.copies;
    const uint32_t next = share.index + 1;
    share.tile_begin = start + static_cast<int32_t>(count * share.index / share.shares);
    share.tile_end = start + static_cast<int32_t>(count * next / share.shares);
    p.shares[row.begin + i] = share;
  }
}

// Each lane writes its own row, but the whole warp the rows of many shares.
__device__ inline void write_shares(const DecodePlanParams& p, const Row& mine) {
  constexpr int kAlone = 8;
  const int lane = threadIdx.x % kWarp;
  unsigned many = __ballot_sync(kFullWarp, mine.share.shares * mine.copies > kAlone);
  if (!(many >> lane & 1)) write_entries(p, mine, 0, 1);
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
    row.share.team = of(mine.share.team);
    row.begin = of(mine.begin);
    row.copies = of(mine.copies);
    write_entries(p, row, lane, kWarp);
  }
}

__global__ void __launch_bounds__(kThreads)
    plan_decode_kernel(const __grid_constant__ DecodePlanParams p) {
  wait_for_previous();
  let_next_start();
  uint32_t tiles = 0, short_rows = 0;
  for (int row = threadIdx.x; row < p.rows; row += kThreads) {
    const int32_t mine = count_tiles(p.positions[row], p.window);
    tiles += mine;
    short_rows += mine > 0 && mine <= kPackTiles;
  }
  const int32_t total = static_cast<int32_t>(block_total(tiles, nullptr));
  short_rows = block_total(short_rows, nullptr);
  const bool pack = short_rows * p.kv_heads >= kPackRowsPerSm * p.sm_count;
  const int32_t spare = p.ctas - p.rows;
  // Without spare blocks no row is cut: any share is long enough.
  int32_t share_tiles =
      spare > 0 ? max(kMinShareTiles, (total + spare - 1) / spare) : max(1, total);
  // When the rows alone fill the device, only those above the average are worth cutting.
  if (4 * p.rows * p.kv_heads >= 3 * p.sm_count) share_tiles = max(share_tiles, total / p.rows);
  // Long rows come first: what starts late should be short.
  auto is_long = [&](int32_t mine) { return pack ? mine > kPackTiles : 2 * mine >= share_tiles; };

  uint32_t long_end = 0;  // blocks of long rows
  for (int row = threadIdx.x; row < p.rows; row += kThreads) {
    const int32_t mine = count_tiles(p.positions[row], p.window);
    if (is_long(mine)) long_end += count_shares(mine, share_tiles);
  }
  long_end = block_total(long_end, nullptr);
  uint32_t long_at = 0, short_at = 0;
  for (int base = 0; base < p.rows; base += kThreads) {
    const int row = base + threadIdx.x;
    const bool exists = row < p.rows;
    const int32_t position = exists ? p.positions[row] : -1;
    const int32_t count = count_tiles(position, p.window);
    const bool is_short = !is_long(count), packed = pack && is_short;
    const uint32_t shares = is_short ? count > 0 : count_shares(count, share_tiles);
    uint32_t below;  // both kinds in one scan: there are at most 65535 shares
    const uint32_t both = block_total(is_short ? shares << 16 : shares, &below);
    const int32_t at = is_short ? short_at + (below >> 16) : long_at + (below & 0xffffu);
    const Row mine = {
        .share = {.token = exists && p.tokens != nullptr ? p.tokens[row] : row,
                  .slot = exists ? p.slots[row] : 0,
                  .row = row,
                  .index = 0,
                  .shares = static_cast<int32_t>(shares),
                  .first_key = first_key(position, p.window),
                  .end_key = position + 1,
                  .tile_begin = 0,
                  .tile_end = 0,
                  .team = !packed,
                  .reserved = {}},
        .begin = packed ? static_cast<int32_t>(long_end) * p.warps + at
                        : (is_short ? static_cast<int32_t>(long_end) + at : at) * p.warps,
        .copies = packed ? 1 : p.warps};
    write_shares(p, mine);
    long_at += both & 0xffffu;
    short_at += both >> 16;
  }
  const int32_t used = long_end * p.warps + short_at * (pack ? 1 : p.warps);
  for (int i = used + threadIdx.x; i < p.ctas * p.warps; i += kThreads) p.shares[i].shares = 0;
}

int32_t spare_ctas(int32_t kv_heads, int32_t sm_count) {
  return std::max(1, kSharesPerSm * sm_count / kv_heads);
}

}  // namespace

int32_t decode_attention_ctas(int32_t rows, int32_t kv_heads, int32_t max_context,
                              int32_t sm_count) {
  // A row of t tiles never becomes more than max(1, t / kMinShareTiles + 1/2) shares.
  const int64_t tiles = (static_cast<int64_t>(max_context) + kTileTokens - 1) / kTileTokens;
  const int64_t useful =
      rows * std::max<int64_t>(0, (tiles + kMinShareTiles / 2) / kMinShareTiles - 1);
  return rows + static_cast<int32_t>(std::min<int64_t>(useful, spare_ctas(kv_heads, sm_count)));
}

size_t decode_attention_partial_bytes(int32_t max_rows, int32_t heads, int32_t kv_heads,
                                      int32_t head_dim, int32_t sm_count) {
  const size_t ctas = static_cast<size_t>(max_rows) + spare_ctas(kv_heads, sm_count);
  return ctas * heads * (head_dim + 2) * sizeof(float);
}

cudaError_t plan_decode_attention(const DecodePlanParams& params, const Launch& launch) {
  if (params.rows < 0 || params.rows > kMaxRows || params.ctas < params.rows ||
      params.ctas > 65535 || params.window < 0 || params.warps <= 0) {
    return cudaErrorInvalidValue;
  }
  if (params.rows == 0) return cudaSuccess;
  return launch_kernel(plan_decode_kernel, {dim3(1), kThreads}, launch, params);
}

}  // namespace inferd::cuda
