// The rows of a step sorted to the attention kernels on the device; see row_lists.cu.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "core/plan/step_plan.h"
#include "cuda/attention/attention_prefill.h"
#include "cuda/device/launch.h"

namespace inferd::cuda {

// Most rows and most tiles of a step whose rows are sorted there.
constexpr int32_t kMostListedRows = 1024;

struct RowListsParams {
  const PlanRow* rows;         // [num_rows] device; of none but one token where they start from it
  const int32_t* row_offsets;  // [num_rows + 1] device: first token of each row
  int32_t num_rows;            // a bound: rows that are not there have no tokens
  int32_t tile_tokens;         // prefill_tile_tokens(...)
  // Out, device:
  int32_t* decode_tokens;  // [num_rows] the rows of one token: the token of each, then -1
  int32_t* decode_slots;   // [num_rows] and its slot, then 0
  PrefillTile* tiles;      // the others in tiles, in the order of build_prefill_tiles
  int32_t* num_tiles;      // [1]
};

// Tiles that rows of so many tokens together can make.
constexpr int32_t most_prefill_tiles(int32_t rows, int32_t tokens, int32_t tile_tokens) {
  return rows + tokens / tile_tokens;
}

// cudaErrorInvalidValue above kMostListedRows rows. The caller sees to it that the rows make at
// most as many tiles, which rows of at most that many tokens together do.
cudaError_t list_rows(const RowListsParams& params, const Launch& launch);

}  // namespace inferd::cuda
