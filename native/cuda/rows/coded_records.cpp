// See coded_weights.h. Not in coded_weights.cu: what nvcc hands to the host's compiler is no longer
// turned into vectors.
#include <cstring>

#include "cuda/rows/coded_weights.h"

namespace inferd::cuda {
namespace {

// Codes of blocks are twice the numbers, their scales half.
void float4_record(const CodedBlock& block, CodedRecord& out) {
  out.scale[0] = out.scale[1] = 2 * block.scale[0];
  out.min[0] = out.min[1] = 0;
  for (int64_t i = 0; i < kCodedBlock; ++i)
    out.codes[i] = float4_code(0.5f * static_cast<float>(block.codes[i]));
}

// Four at a time: of a loop over codes GCC makes moves of single numbers between vectors.
bool any_negative(const int16_t (&codes)[kCodedBlock], int64_t first) {
  uint64_t words[4];
  std::memcpy(words, codes + first, sizeof(words));
  return ((words[0] | words[1] | words[2] | words[3]) & 0x8000800080008000u) != 0;
}

void integer_record(const CodedBlock& block, const CodedLayout& layout, CodedRecord& out) {
  const bool minima = layout.minima;
  for (int64_t half = 0; half < 2; ++half) {
    const int16_t* from = block.codes + 16 * half;
    // Codes of a sign are moved up, and the minimum down by as much.
    const bool moved = !minima || (layout.bits == 8 && any_negative(block.codes, 16 * half));
    const int offset = moved ? 1 << (layout.bits - 1) : 0;
    out.scale[half] = block.scale[half];
    out.min[half] = block.min[half] - static_cast<float>(offset) * block.scale[half];
    for (int64_t i = 0; i < 16; ++i)
      out.codes[16 * half + i] = static_cast<uint8_t>(from[i] + offset);
  }
}

}  // namespace

void coded_records(const CodedBlock* __restrict blocks, int64_t count, const CodedLayout& layout,
                   CodedRecord* __restrict out) {
  for (int64_t b = 0; b < count; ++b)
    layout.float4 ? float4_record(blocks[b], out[b]) : integer_record(blocks[b], layout, out[b]);
}

}  // namespace inferd::cuda
