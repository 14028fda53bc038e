// 1. out[i] = scale * row ids[i] - first_id of a weight of codes.
// 2. The weight as coded_layout.h lays it out, of 4 or 8 bits; out [count, cols] f16 or bf16,
//    packed, 16-byte aligned; ids [count] int32 on the device.
// 3. One block a row; a thread takes every blockDim-th group of 8 columns, which lie in four lanes'
//    words of one half of a step.
// 4. No shared memory.
// 5. w = s u + m in float32, where products round it to 16 bits first; then one rounding. Scales
//    and minima that 16 bits do not hold have remainders: without them the logits of a random
//    model, its table in Q4_K, were off by 8.6e-4 of their square, with them by 2.4e-4.
// 6. From sm_80; cols a multiple of 8; codes that are integers.
// 7. Bound by launch in decode, as embedding.cu. Of a tile of 16 rows one is read, in pieces of 2
//    bytes out of every 16.
// 8. No method.
// 9. A second copy of the table in 16 bits would be read faster: it is 1 of 8.5 GB of an 8B model
//    in Q8_0, for some microseconds of a step.
#include "cuda/device/common.cuh"
#include "cuda/device/launch.cuh"
#include "cuda/rows/coded_scales.cuh"
#include "cuda/rows/embedding.h"

namespace inferd::cuda {
namespace {

constexpr int kThreads = 128;

// Columns [column, column + 8) of the row that is `in_tile` of its tile; column as in the tile.
// `remainder`: of their group, or null.
template <typename T, int kBits>
__device__ void read_columns(const CodedLayout& layout, const uint8_t* tile, int32_t in_tile,
                             int32_t column, const __nv_bfloat162* remainder, float (&w)[8]) {
  const int32_t g = in_tile % 8, lower = in_tile / 8, step = column / 16, high = column % 16 / 8;
  const T* const entry = reinterpret_cast<const T*>(
      tile + layout.code_bytes() + (column / layout.group * 8 + g) * layout.entry_bytes());
  float scale = read_scale(entry + lower);
  float min = layout.minima ? read_min(entry + 2 + lower) : scale * (kBits == 4 ? -8 : -128);
  if (remainder != nullptr) {
    const float2 more = __bfloat1622float2(*remainder);
    scale += more.x;
    min += more.y;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int32_t lane = g * 4 + i / 2, odd = i % 2;
    int32_t code;
    if constexpr (kBits == 8) {
      code = tile[step / 2 * 512 + lane * 16 + step % 2 * 8 + lower * 4 + high * 2 + odd];
    } else {
      code = tile[step / 4 * 512 + lane * 16 + step % 4 * 4 + odd * 2 + lower] >> (4 * high) & 15;
    }
    w[i] = scale * static_cast<float>(code) + min;
  }
}

template <typename T, int kBits>
__global__ void embed_codes_kernel(T* out, const CodedTable table, const int32_t* ids, float scale,
                                   int32_t first_id) {
  const CodedLayout& layout = table.layout;
  let_next_start();
  wait_for_previous();
  const int32_t id = ids[blockIdx.x] - first_id;
  const bool known = id >= 0 && id < layout.rows;
  const int32_t place = layout.place_of(known ? id : 0);
  const uint8_t* const tiles_of_row =
      static_cast<const uint8_t*>(table.tiles) +
      int64_t{place / kTileRows16} * layout.across() * layout.tile_bytes();
  const auto* const remainders = table.remainders == nullptr
                                     ? nullptr
                                     : static_cast<const __nv_bfloat162*>(table.remainders) +
                                           (known ? id : 0) * remainders_of_row(layout);
  T* const to = out + static_cast<int64_t>(blockIdx.x) * layout.cols;
  for (int32_t at = threadIdx.x * 8; at < layout.cols; at += kThreads * 8) {
    float w[8] = {};
    if (known)
      read_columns<T, kBits>(layout,
                             tiles_of_row + int64_t{at / kTileColumns128} * layout.tile_bytes(),
                             place % kTileRows16, at % kTileColumns128,
                             remainders == nullptr ? nullptr : remainders + at / layout.group, w);
    Vec8<T> y;
#pragma unroll
    for (int j = 0; j < 8; ++j) y.v[j] = from_float<T>(scale * w[j]);
    store8(to + at, y);
  }
}

template <typename T, int kBits>
cudaError_t dispatch(const CodedTable& table, void* out, const int32_t* ids, int64_t count,
                     float scale, int32_t first_id, const Launch& launch) {
  return launch_kernel(embed_codes_kernel<T, kBits>,
                       {.grid = dim3(static_cast<unsigned>(count)), .threads = kThreads}, launch,
                       static_cast<T*>(out), table, ids, scale, first_id);
}

template <typename T>
cudaError_t dispatch(const CodedTable& table, void* out, const int32_t* ids, int64_t count,
                     float scale, int32_t first_id, const Launch& launch) {
  return table.layout.bits == 4 ? dispatch<T, 4>(table, out, ids, count, scale, first_id, launch)
                                : dispatch<T, 8>(table, out, ids, count, scale, first_id, launch);
}

}  // namespace

cudaError_t embed_codes(Half type, void* out, const CodedTable& table, const int32_t* ids,
                        int64_t count, float scale, const Launch& launch, int32_t first_id) {
  const CodedLayout& layout = table.layout;
  if (layout.cols % 8 != 0 || layout.float4 || layout.bits % 4 != 0 || count < 0)
    return cudaErrorInvalidValue;
  if (count == 0) return cudaSuccess;
  return type == Half::kBF16
             ? dispatch<__nv_bfloat16>(table, out, ids, count, scale, first_id, launch)
             : dispatch<__half>(table, out, ids, count, scale, first_id, launch);
}

}  // namespace inferd::cuda
