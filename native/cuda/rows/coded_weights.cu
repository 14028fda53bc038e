// Weights of codes: taken in, quantized, and widened.
//
// 1. store: codes and scales of blocks of 32 columns to their places in tiles. quantize: the same
// of
//    plain numbers, by the quantizer of core/quant.h. widen: out = s u + m of every code.
// 2. Weights as coded_layout.h lays them out. Records [rows, ceil(cols / 32)]; plain rows [rows,
//    cols] f32, f16 or bf16; out [rows, cols] f16 or bf16, 16-byte aligned rows.
// 3. store and quantize: a thread a block of 32 columns. widen: a warp a tile at a time, a lane
// what
//    it has in products; quads of lanes exchange words for stores of 16 bytes.
// 4. No shared memory.
// 5. Scales and minima are rounded to the 16-bit type, in f16 cut to its range, those of a group
//    of up to 32 columns so that their errors cancel (coded_scales.cuh); w = s u + m is rounded
//    once. Compiled without contraction, so that the codes are those that the host would choose.
// 6. From sm_80; cols a multiple of 8.
// 7. store and quantize run at load time. widen reads 4 to 10 bits a weight and writes 16: bound by
//    memory.
// 8. Products of many rows by widened weights: the usual dequantize-then-multiply.
// 9. -
#include <algorithm>
#include <bit>

#include "core/host_device.h"
#include "core/quant.h"
#include "cuda/device/mma.cuh"
#include "cuda/rows/coded_scales.cuh"
#include "cuda/rows/coded_tile.cuh"
#include "cuda/rows/coded_weights.h"

namespace inferd::cuda {
namespace {

constexpr int kThreads = 256;

// The exponent of a power of two, as coded_layout.h keeps it.
INFERD_HOST_DEVICE uint8_t stored_exponent(float scale) {
  const uint32_t exponent = std::bit_cast<uint32_t>(scale) >> 23 & 0xff;
  return static_cast<uint8_t>(std::min<uint32_t>(exponent, kMostExponent));
}

// The smallest power of two by which all of a block are 6 at most.
INFERD_HOST_DEVICE void quantize_float4(const float* w, CodedRecord& out) {
  float top = 0;
  for (int k = 0; k < kQuantBlock; ++k) top = fmaxf(top, fabsf(w[k]));
  uint32_t exponent = std::bit_cast<uint32_t>(top / 6) >> 23;
  if ((std::bit_cast<uint32_t>(top / 6) & 0x7fffff) != 0) ++exponent;
  exponent = exponent > 253 ? 253 : exponent < 1 ? 1 : exponent;
  out.scale[0] = out.scale[1] = std::bit_cast<float>(exponent << 23);
  out.min[0] = out.min[1] = 0;
  const float inverse = std::bit_cast<float>((254 - exponent) << 23);
  for (int k = 0; k < kQuantBlock; ++k) out.codes[k] = float4_code(w[k] * inverse);
}

// Columns [32 block, 32 block + 32) of a row.
template <typename T>
__device__ void store_record(const CodedRowsOf& to, int32_t row, int32_t block,
                             const CodedRecord& record) {
  const CodedLayout& layout = to.layout;
  const int32_t place = layout.place_of(row), in_tile = place % kTileRows16;
  const int32_t g = in_tile % 8, lower = in_tile / 8, first = block * 32 % kTileColumns128;
  uint8_t* const tile =
      static_cast<uint8_t*>(to.tiles) +
      (int64_t{place / kTileRows16} * layout.across() + block * 32 / kTileColumns128) *
          layout.tile_bytes();
  for (int i = 0; i < 32; ++i) {
    const int32_t column = first + i, step = column / 16, high = column % 16 / 8;
    const int32_t lane = g * 4 + column % 8 / 2, odd = column % 2;
    if (layout.bits == 8) {
      tile[step / 2 * 512 + lane * 16 + step % 2 * 8 + lower * 4 + high * 2 + odd] =
          record.codes[i];
    } else if (high == 0) {
      tile[step / 4 * 512 + lane * 16 + step % 4 * 4 + odd * 2 + lower] =
          static_cast<uint8_t>(record.codes[i] | record.codes[i + 8] << 4);
    }
  }
  if (layout.float4) {
    tile[layout.code_bytes() + (first / 32 * 8 + g) * 2 + lower] = stored_exponent(record.scale[0]);
    return;
  }
  const int32_t part = min(layout.group, 32);
  for (int i = 0; i < 32; i += part) {
    T* const entry = reinterpret_cast<T*>(
        tile + layout.code_bytes() + ((first + i) / layout.group * 8 + g) * layout.entry_bytes());
    const float scale = record.scale[i / 16], min = record.min[i / 16];
    // Of wider groups all records must choose alike.
    const float2 kept = layout.minima && layout.group <= 32
                            ? rounded_together<T>({scale, min}, record.codes + i, part)
                            : float2{scale, min};
    entry[lower] = stored_scale<T>(kept.x);
    if (layout.minima) entry[2 + lower] = stored_min<T>(kept.y);
    if (to.remainders == nullptr) continue;
    const int64_t at = row * remainders_of_row(layout) + (block * 32 + i) / layout.group;
    static_cast<__nv_bfloat162*>(to.remainders)[at] =
        scale_remainder({scale, min}, {read_scale(entry + lower), read_min(entry + 2 + lower)});
  }
}

template <typename T>
__global__ void store_kernel(const CodedRowsOf to, const CodedRecord* records, int32_t blocks) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= int64_t{to.rows} * blocks) return;
  store_record<T>(to, to.first_row + static_cast<int32_t>(i / blocks),
                  static_cast<int32_t>(i % blocks), records[i]);
}

template <typename T, typename From>
__global__ void quantize_kernel(const CodedRowsOf to, const From* source, int32_t blocks) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= int64_t{to.rows} * blocks) return;
  const int32_t row = static_cast<int32_t>(i / blocks), block = static_cast<int32_t>(i % blocks);
  const From* from = source + int64_t{row} * to.layout.cols + block * 32;
  const int32_t count = min(32, to.layout.cols - block * 32);
  float values[kQuantBlock];
  // What fills up the last block must not widen its range.
  for (int k = 0; k < kQuantBlock; ++k) values[k] = to_float(from[k < count ? k : 0]);
  CodedRecord record;
  if (to.layout.float4) {
    quantize_float4(values, record);
    return store_record<T>(to, to.first_row + row, block, record);
  }
  QuantBlock q{};
  if (to.layout.bits == 4) {
    quantize_int4(values, q);
  } else {
    quantize_int8(values, q);
  }
  record.scale[0] = record.scale[1] = bf16_to_f32(q.scale);
  record.min[0] = record.min[1] = bf16_to_f32(q.min);
  for (int k = 0; k < kQuantBlock; ++k) record.codes[k] = q.codes[k];
  store_record<T>(to, to.first_row + row, block, record);
}

unsigned block_count(int64_t items) {
  return static_cast<unsigned>((items + kThreads - 1) / kThreads);
}

template <typename T>
cudaError_t launch_quantize(const CodedRowsOf& to, const Tensor& source, cudaStream_t stream) {
  const int32_t blocks = (to.layout.cols + 31) / 32;
  const unsigned grid = block_count(int64_t{to.rows} * blocks);
  if (grid == 0) return cudaSuccess;
  switch (source.dtype) {
    case DType::kF32:
      quantize_kernel<T><<<grid, kThreads, 0, stream>>>(to, source.as<float>(), blocks);
      break;
    case DType::kF16:
      quantize_kernel<T><<<grid, kThreads, 0, stream>>>(to, source.as<__half>(), blocks);
      break;
    case DType::kBF16:
      quantize_kernel<T><<<grid, kThreads, 0, stream>>>(to, source.as<__nv_bfloat16>(), blocks);
      break;
    default:
      return cudaErrorInvalidValue;
  }
  return cudaGetLastError();
}

// Pairs of weights as they are, of pairs in the unit of products.
template <typename T>
__device__ uint32_t plain_pair(uint32_t pair) {
  if constexpr (std::is_same_v<T, __half>) {
    return pair;
  } else {
    return fma_pair<T>(pair, 0x4f804f80u /* 2^32 */, 0x80008000u);
  }
}

template <typename T, int kBits>
__global__ void __launch_bounds__(kThreads)
    widen_kernel(const CodedLayout layout, const uint8_t* tiles, T* out) {
  constexpr int kSteps = kStepsOf16Bytes<kBits>;
  const int lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  const int64_t count = int64_t{layout.down()} * layout.across();
  const int64_t step_of_warps = static_cast<int64_t>(gridDim.x) * (kThreads / kWarp);
  const int32_t outputs = layout.paired ? layout.rows / 2 : layout.rows;
  for (int64_t at = static_cast<int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
       at < count; at += step_of_warps) {
    const uint8_t* tile = tiles + at * layout.tile_bytes();
    const int32_t down = static_cast<int32_t>(at / layout.across());
    const int32_t column0 = static_cast<int32_t>(at % layout.across()) * kTileColumns128;
    const int32_t output = layout.paired ? down * 8 + g : down * kTileRows16 + g;
    const int32_t row[2] = {output, layout.paired ? output + outputs : output + 8};
    const bool inside[2] = {output < outputs, layout.paired ? output < outputs : row[1] < outputs};
#pragma unroll
    for (int c = 0; c < 8 / kSteps; ++c) {
      const uint4 codes = *reinterpret_cast<const uint4*>(tile + c * 512 + lane * 16);
#pragma unroll
      for (int pairs = 0; pairs < kSteps / 2; ++pairs) {  // two steps, 32 columns
        uint32_t words[2][4];                             // [row][piece of 8 columns]
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int step = c * kSteps + pairs * 2 + i;
          CodedScales<T, kBits> scales;
          scales.load(tile + layout.code_bytes() +
                          (step * 16 / layout.group * 8 + g) * layout.entry_bytes(),
                      layout.minima);
          uint32_t a[4];
          unpack_step<T, kBits>(codes, pairs * 2 + i, scales, a);
#pragma unroll
          for (int j = 0; j < 4; ++j) words[j % 2][i * 2 + j / 2] = plain_pair<T>(a[j]);
        }
        const int32_t column = column0 + (c * kSteps + pairs * 2) * 16 + t * 8;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          transpose_quad(words[h], t);
          if (inside[h] && column < layout.cols) {
            *reinterpret_cast<uint4*>(out + int64_t{row[h]} * layout.cols + column) = {
                words[h][0], words[h][1], words[h][2], words[h][3]};
          }
        }
      }
    }
  }
}

template <typename T>
cudaError_t launch_widen(const CodedLayout& layout, const void* tiles, void* out,
                         cudaStream_t stream) {
  constexpr int64_t kMostBlocks = 4096;
  const int64_t count = int64_t{layout.down()} * layout.across();
  const int64_t warps = kThreads / kWarp;
  const auto grid = static_cast<unsigned>(std::min((count + warps - 1) / warps, kMostBlocks));
  const auto* from = static_cast<const uint8_t*>(tiles);
  if (layout.bits == 4) {
    widen_kernel<T, 4><<<grid, kThreads, 0, stream>>>(layout, from, static_cast<T*>(out));
  } else {
    widen_kernel<T, 8><<<grid, kThreads, 0, stream>>>(layout, from, static_cast<T*>(out));
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t store_records(Half type, const CodedRowsOf& to, const CodedRecord* records,
                          cudaStream_t stream) {
  const int32_t blocks = (to.layout.cols + 31) / 32;
  const unsigned grid = block_count(int64_t{to.rows} * blocks);
  if (grid == 0) return cudaSuccess;
  if (type == Half::kF16) {
    store_kernel<__half><<<grid, kThreads, 0, stream>>>(to, records, blocks);
  } else {
    store_kernel<__nv_bfloat16><<<grid, kThreads, 0, stream>>>(to, records, blocks);
  }
  return cudaGetLastError();
}

cudaError_t quantize_to_codes(Half type, const CodedRowsOf& to, const Tensor& source,
                              cudaStream_t stream) {
  return type == Half::kF16 ? launch_quantize<__half>(to, source, stream)
                            : launch_quantize<__nv_bfloat16>(to, source, stream);
}

cudaError_t widen_codes(Half type, const CodedLayout& layout, const void* tiles, void* out,
                        cudaStream_t stream) {
  if (layout.cols % 8 != 0 || layout.float4) return cudaErrorInvalidValue;
  return type == Half::kF16 ? launch_widen<__half>(layout, tiles, out, stream)
                            : launch_widen<__nv_bfloat16>(layout, tiles, out, stream);
}

}  // namespace inferd::cuda
