// 1. out[i] = scale * table[ids[i] - first_id]; and whole rows of bytes, unscaled.
// 2. table [vocab, hidden] f32, f16 or bf16, out [count, hidden] f16 or bf16; ids [count] int32 on
//    the device. Packed rows, 16-byte aligned.
// 3. One block a row; a thread copies every blockDim-th group of 8 values (16 bytes).
// 4. No shared memory, about 24 registers.
// 5. Exact when the types agree and the scale is 1, else one rounding to 16 bits.
// 6. hidden a multiple of 8, rows of bytes multiples of 16; any architecture from sm_80.
// 7. Bytes read and written once; bound by launch in decode.
// 8. No method.
// 9. Nothing else tried: a step reads some rows of the table, far from any limit.
#include "cuda/device/common.cuh"
#include "cuda/device/launch.cuh"
#include "cuda/rows/embedding.h"

namespace inferd::cuda {
namespace {

constexpr int kThreads = 128;

template <typename T, typename S>
__global__ void embed_kernel(T* out, const S* __restrict__ table, int32_t vocab, int32_t hidden,
                             const int32_t* ids, float scale, int32_t first_id) {
  let_next_start();
  wait_for_previous();
  const int32_t id = ids[blockIdx.x] - first_id;
  const bool known = id >= 0 && id < vocab;
  const S* from = table + static_cast<int64_t>(known ? id : 0) * hidden;
  T* to = out + static_cast<int64_t>(blockIdx.x) * hidden;
  for (int at = threadIdx.x * 8; at < hidden; at += kThreads * 8) {
    Vec8<T> y;
    if (!known) {  // the table may have no row at all
#pragma unroll
      for (int j = 0; j < 8; ++j) y.v[j] = from_float<T>(0.f);
    } else if constexpr (std::is_same_v<S, float>) {
      const float4 a = *reinterpret_cast<const float4*>(from + at);
      const float4 b = *reinterpret_cast<const float4*>(from + at + 4);
      const float x[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
      for (int j = 0; j < 8; ++j) y.v[j] = from_float<T>(scale * x[j]);
    } else {
      const Vec8<S> x = load8(from + at);
#pragma unroll
      for (int j = 0; j < 8; ++j) y.v[j] = from_float<T>(scale * to_float(x.v[j]));
    }
    store8(to + at, y);
  }
}

__global__ void gather_rows_kernel(uint4* out, const uint4* x, int64_t row_words,
                                   const int32_t* rows) {
  let_next_start();
  wait_for_previous();
  const int32_t row = rows[blockIdx.x];
  for (int64_t at = threadIdx.x; at < row_words; at += kThreads) {
    out[blockIdx.x * row_words + at] = row < 0 ? uint4{0, 0, 0, 0} : x[row * row_words + at];
  }
}

template <typename T, typename S>
cudaError_t dispatch(void* out, const void* table, int32_t vocab, int32_t hidden,
                     const int32_t* ids, int64_t count, float scale, const Launch& launch,
                     int32_t first_id) {
  return launch_kernel(
      embed_kernel<T, S>, {.grid = dim3(static_cast<unsigned>(count)), .threads = kThreads}, launch,
      static_cast<T*>(out), static_cast<const S*>(table), vocab, hidden, ids, scale, first_id);
}

template <typename T>
cudaError_t dispatch(TableType type, void* out, const void* table, int32_t vocab, int32_t hidden,
                     const int32_t* ids, int64_t count, float scale, const Launch& launch,
                     int32_t first_id) {
  switch (type) {
    case TableType::kF32:
      return dispatch<T, float>(out, table, vocab, hidden, ids, count, scale, launch, first_id);
    case TableType::kF16:
      return dispatch<T, __half>(out, table, vocab, hidden, ids, count, scale, launch, first_id);
    case TableType::kBF16:
      return dispatch<T, __nv_bfloat16>(out, table, vocab, hidden, ids, count, scale, launch,
                                        first_id);
  }
  return cudaErrorInvalidValue;
}

}  // namespace

cudaError_t embed(Half type, void* out, TableType table_type, const void* table, int32_t vocab,
                  int32_t hidden, const int32_t* ids, int64_t count, float scale,
                  const Launch& launch, int32_t first_id) {
  if (hidden <= 0 || hidden % 8 != 0 || vocab < 0 || count < 0) return cudaErrorInvalidValue;
  if (count == 0) return cudaSuccess;
  return type == Half::kBF16 ? dispatch<__nv_bfloat16>(table_type, out, table, vocab, hidden, ids,
                                                       count, scale, launch, first_id)
                             : dispatch<__half>(table_type, out, table, vocab, hidden, ids, count,
                                                scale, launch, first_id);
}

cudaError_t gather_rows(void* out, const void* x, int64_t row_bytes, const int32_t* rows,
                        int64_t count, const Launch& launch) {
  if (row_bytes <= 0 || row_bytes % 16 != 0 || count < 0) return cudaErrorInvalidValue;
  if (count == 0) return cudaSuccess;
  return launch_kernel(
      gather_rows_kernel, {.grid = dim3(static_cast<unsigned>(count)), .threads = kThreads}, launch,
      static_cast<uint4*>(out), static_cast<const uint4*>(x), row_bytes / 16, rows);
}

}  // namespace inferd::cuda
