// How the CPU backend writes rows of keys and values into the cache, and what its kernels are told
// of the type. Rows are written once a token and read by all that follow, so that 8 bits are made
// here in plain C++, for every instruction set alike.
//
// Thread: workers of a step, each with rows of its own.
#pragma once
#include "core/kv_layer.h"
#include "cpu/isa/kernels.h"

namespace inferd::cpu {

CacheKind cache_kind(DType dtype);

// A row of a block.
struct CacheRow {
  int64_t block, head, place;
};

// Writes head_dim numbers to a row of `array`, which is kv.k or kv.v, divided by `scale` where they
// become 8-bit floats.
void store_row(const Kernels& kernels, const KvLayer& kv, void* array, const CacheRow& row,
               const float* x, float scale);

}  // namespace inferd::cpu
