// Rows out of tables: token embeddings, and the rows of a step whose logits are wanted. Raw device
// pointers; see embedding.cu and coded_embedding.cu.
#pragma once
#include <cstdint>

#include "cuda/device/half_type.h"
#include "cuda/device/launch.h"
#include "cuda/rows/coded_layout.h"

namespace inferd::cuda {

enum class TableType { kF32, kF16, kBF16 };

// out[i] = scale * table[ids[i] - first_id] for i < count. table [vocab, hidden], out [count,
// hidden], packed, 16-byte aligned; hidden a multiple of 8, else cudaErrorInvalidValue. An id
// outside first_id..first_id+vocab-1 gives zeros: padding, and ids of other ranks' shares of the
// vocabulary. A share may be empty: vocab 0, and no table.
cudaError_t embed(Half type, void* out, TableType table_type, const void* table, int32_t vocab,
                  int32_t hidden, const int32_t* ids, int64_t count, float scale,
                  const Launch& launch, int32_t first_id = 0);

struct CodedTable {
  CodedLayout layout;
  const void* tiles;
  const void* remainders =
      nullptr;  // of scales and minima (coded_scales.cuh); null: they have none
};

// The same of a table of codes that are integers.
cudaError_t embed_codes(Half type, void* out, const CodedTable& table, const int32_t* ids,
                        int64_t count, float scale, const Launch& launch, int32_t first_id = 0);

// out[i] = x[rows[i]] for i < count, rows of `row_bytes` bytes, a multiple of 16; a negative row
// gives zeros.
cudaError_t gather_rows(void* out, const void* x, int64_t row_bytes, const int32_t* rows,
                        int64_t count, const Launch& launch);

}  // namespace inferd::cuda
