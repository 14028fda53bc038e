// 1. As small_gemm_codes.cu, for m <= 4 rows and k <= 4096: y = x (s q)^T, with all that a product
//    may have before and behind it, also a norm without a weight.
// 2. As there.
// 3. As few_rows.cuh has it: 16 warps each multiply two tiles of 128 columns of every band of 16
//    rows, m warps add up. A tile is 16 rows of 128 bytes:
//
//      copied     by cp.async, 16 bytes a lane: of rows lane / 8 and 4, 8 and 12 more its 16 bytes
//                 lane % 8. Odd rows lie with their halves exchanged, so that eight lanes that read
//                 16 bytes each of two rows meet all banks
//      read       of each half, 64 columns, a lane 4 g + t has 16 bytes 16 t .. of rows g and g + 8
//      multiplied word i of them is step i: its bytes 0 and 2 are columns 2t and 2t + 1 of A, bytes
//                 1 and 3 columns 2t + 8 and 2t + 9; x comes in the same order
//
//    Codes go to mma.m16n8k16 without a product. e4m3: moved into the wider type, a code is its
//    number times 2^-120 (bf16) or 2^-8 (f16), subnormal ones too. int8: with 128 added, the lowest
//    bits of a 16-bit number, times 2^-133 or 2^-24; a warp's sums begin at -128 times its sum of
//    x. x in bf16 is multiplied by 2^64 before, the rest in the end. Scales of 128 columns multiply
//    a tile's sums, and are read a band ahead; those of rows multiply what was added up.
// 4. Shared memory: 4 tiles of 2 KB a warp, and the sums of two bands, where x was put in order
//    before, 160 KB together. Up to 96 registers of 20 warps.
// 5. Codes are exact in 16 bits and x is not rounded, but for a weight of the norm, once; f32
//    accumulation over k within a warp, then over warps in a fixed order; one rounding at the end.
//    The e4m3 of NaN is 480, as there.
// 6. From sm_80 where a block may have 161 KB; e4m3 and int8; k a multiple of 16, x_stride of 8.
//    Else cudaErrorInvalidValue.
// 7. Bytes n k: bound by memory. Making pairs takes 7 instructions for 4 codes of e4m3, 3 of int8.
//    Steps of Llama-3-8B as e4m3 on an H100 (with small_gemm_codes.cu in its place): 1x128 3.14 to
//    3.18 ms (3.24), 2x128 3.25 (3.30), 4x128 3.29 (3.37), where down, of more columns, is still
//    the latter's. As int8 in tiles, a piece of 2 KB each, 1x128 takes 3.04.
// 8. One stream of weights into a warp's own queue: Marlin (Frantar et al. 2024). Codes in the bits
//    of 16-bit numbers as they are: as coded_sums.cuh, ours.
// 9. Two chains of sums, of the halves of a tile, wait for half as many products in turn as one
//    would: reasoned; one chain was not measured.
#include <algorithm>

#include "cuda/device/device_limits.h"
#include "cuda/device/launch.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/gemm/few/few_rows.cuh"
#include "cuda/rows/codes.cuh"

namespace inferd::cuda {
namespace {

constexpr int kTileBytes = 16 * kTileColumns;
// A row of x in shared memory; 16 bytes more, so that rows begin at other banks.
constexpr int kTokenBytes = kMostColumns * 2 + 16;
static_assert(kSumBytes <= kFewRows * kTokenBytes);
constexpr int kSharedBytes = kWarps * kDeep * kTileBytes + kFewRows * kTokenBytes + kSquareBytes;

// Codes as tensor cores take them.
template <typename T, CodeType kCodes>
struct CodeBits {
  static constexpr bool kF16 = std::is_same_v<T, __half>;
  static constexpr bool kFloat8 = kCodes == CodeType::kFloat8;
  static_assert(kFloat8 || kCodes == CodeType::kInt8);
  // What sums are multiplied by in the end: 2^8, 2^(120 - 64); 2^24, 2^(133 - 64).
  static constexpr float kUnit = kFloat8 ? (kF16 ? 0x1p8f : 0x1p56f) : (kF16 ? 0x1p24f : 0x1p69f);
  static constexpr uint32_t kXUnits = 0x5f805f80u;  // 2^64 twice

  // A pair of x.
  __device__ static uint32_t prepared(uint32_t pair) {
    return kF16 ? pair : multiply_pair<T>(pair, kXUnits);
  }

  // Codes 0 and 2 of a word, and 1 and 3.
  __device__ static void pairs(uint32_t word, uint32_t& even, uint32_t& odd) {
    if constexpr (kFloat8) {
      constexpr uint32_t kSigns = 0x80008000u, kRest = kF16 ? 0x3f803f80u : 0x07f007f0u;
      constexpr int kDown = kF16 ? 1 : 4;
      even = (word << 8 & kSigns) | (word << (8 - kDown) & kRest);
      odd = (word & kSigns) | (word >> kDown & kRest);
    } else {
      const uint32_t from_zero = word ^ 0x80808080u;
      even = __byte_perm(from_zero, 0, 0x4240);
      odd = __byte_perm(from_zero, 0, 0x4341);
    }
  }
};

// x of one of the warps that multiply.
template <typename T, CodeType kCodes>
struct HeldTokens {
  using B = CodeBits<T, kCodes>;
  static constexpr int kRowBytes = kTokenBytes;
  // Of a tile's halves what a lane has of B in steps 0 and 1, and in 2 and 3: b0, b1, b0, b1.
  uint4 tokens[kTiles][2][2];

  __device__ void put(const uint32_t (&w)[4], uint8_t* to) const {
    *reinterpret_cast<uint4*>(to + threadIdx.x * 16) = {
        B::prepared(even_pair(w[0], w[1])), B::prepared(odd_pair(w[0], w[1])),
        B::prepared(even_pair(w[2], w[3])), B::prepared(odd_pair(w[2], w[3]))};
  }

  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        tokens[i][half][0] = tokens[i][half][1] = uint4{0, 0, 0, 0};
    }
  }

  __device__ void take(const uint8_t* from) {
    const int warp = threadIdx.x / kWarp, t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int v = 0; v < 2; ++v) {
          tokens[i][half][v] = *reinterpret_cast<const uint4*>(
              from + (i * kWarps + warp) * kTileColumns * 2 + half * 128 + t * 32 + v * 16);
        }
      }
    }
  }

  // -128 times the sum of x that this warp has, of tokens 2 t and the next.
  __device__ float2 less_middle() const {
    constexpr uint32_t kA = 0x80808080u;  // -128 in the unit of codes, twice
    float sums[4] = {};
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int v = 0; v < 2; ++v) {
          const uint4& x = tokens[i][half][v];
          mma16816<T>(sums, kA, kA, kA, kA, x.x, x.y);
          mma16816<T>(sums, kA, kA, kA, kA, x.z, x.w);
        }
      }
    }
    return {sums[0], sums[1]};
  }
};

// sums += the products of a tile in shared memory, of each half. `at`: of a lane in the first half.
template <typename T, CodeType kCodes>
__device__ void multiply_tile(const uint8_t* tile, int at, const uint4 (&x)[2][2],
                              float (&sums)[2][4]) {
  using B = CodeBits<T, kCodes>;
  uint4 low[2], high[2];  // rows g and g + 8
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint8_t* from = tile + (at ^ (half * 64));
    low[half] = *reinterpret_cast<const uint4*>(from);
    high[half] = *reinterpret_cast<const uint4*>(from + 8 * kTileColumns);
  }
  const auto word = [](const uint4& of, int i) {
    return i == 0 ? of.x : i == 1 ? of.y : i == 2 ? of.z : of.w;
  };
#pragma unroll
  for (int step = 0; step < 4; ++step) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t even, odd, even8, odd8;
      B::pairs(word(low[half], step), even, odd);
      B::pairs(word(high[half], step), even8, odd8);
      const uint4& v = x[half][step / 2];
      mma16816<T>(sums[half], even, even8, odd, odd8, step % 2 == 0 ? v.x : v.z,
                  step % 2 == 0 ? v.y : v.w);
    }
  }
}

// Scales of rows g and g + 8 of a band, in tables of blocks.
struct BlockScales {
  const float* table;
  int across, rows_log2;  // of the table; of a block

  __device__ float2 of(const GemmArgs& p, int band, int g, int column) const {
    // Rows outside have any.
    const int row = min(p.gated ? band * 8 + g : band * 16 + g, p.n - 1);
    const int row8 = p.gated ? p.n + row : min(row + 8, p.n - 1);
    const auto at = [&](int r) { return table[int64_t{r >> rows_log2} * across + column]; };
    return {at(row), at(row8)};
  }
};

template <typename T, CodeType kCodes, bool kBlocks>
__global__ void __launch_bounds__((kWarps + kFewRows) * kWarp, 1)
    codes_few_kernel(const __grid_constant__ GemmArgs p) {
  using B = CodeBits<T, kCodes>;
  extern __shared__ uint8_t shared[];
  let_next_start();
  const int bands = bands_of(p), grid = static_cast<int>(gridDim.x);
  const int first_band = static_cast<int>(blockIdx.x), band_rows = p.gated ? 8 : 16;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  uint8_t* const common = shared + kWarps * kDeep * kTileBytes;  // x, then the sums
  float* const sums = reinterpret_cast<float*>(common);
  float* const squares = reinterpret_cast<float*>(common + kFewRows * kTokenBytes);
  const float* const scales = static_cast<const float*>(p.w.scales);
  if (warp >= kWarps) {
    wait_for_previous();
    add_up<T>(p, sums, squares, warp - kWarps,
              [&](int row) { return kBlocks ? B::kUnit : B::kUnit * scales[row]; });
    return;
  }

  // Of a band the tiles warp and kWarps + warp, one behind the other in this warp's queue.
  uint8_t* const queue = shared + warp * kDeep * kTileBytes;
  // This lane's part of what is fetched next: 16 bytes of rows `row` and 4 more, and of the same
  // `apart` rows on. Beyond the end of w and of its rows nothing is read, and what lies in the
  // queue is a number as any: rows outside are not stored, and columns outside meet zeros of x.
  const int column = warp * kTileColumns + lane % 8 * 16;
  const int apart = p.gated ? p.n : 8, beyond = p.gated ? 0 : 8;
  int row = first_band * band_rows + lane / 8;
  const uint8_t* from = static_cast<const uint8_t*>(p.w.codes) + int64_t{row} * p.k + column;
  const int64_t apart_step = int64_t{apart} * p.k, turn_step = int64_t{grid} * band_rows * p.k;
  const auto fetch = [&](int i, uint32_t to) {
    constexpr int kNext = kWarps * kTileColumns;
    if (column + i * kNext < p.k) {
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        const int lower = part % 2 * 4, upper = part / 2;
        if (row + lower + upper * beyond < p.n)
          stream16(to + part * 4 * kTileColumns,
                   from + i * kNext + lower * p.k + upper * apart_step);
      }
    }
    copy_commit();  // empty groups keep the count of groups in step
    if (i == kTiles - 1) {
      row += grid * band_rows;
      from += turn_step;
    }
  };
  const uint32_t queue_at = shared_address(queue) + lane / 8 * kTileColumns +
                            static_cast<uint32_t>((lane % 8 ^ lane / 8 % 2 * 4) * 16);
#pragma unroll 1
  for (int turn = 0; turn < kBandsAhead; ++turn) {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) fetch(i, queue_at + (turn * kTiles + i) * kTileBytes);
  }
  bool inside[kTiles];
#pragma unroll
  for (int i = 0; i < kTiles; ++i) inside[i] = (i * kWarps + warp) * kTileColumns < p.k;
  // Of the band that is multiplied next. As the norm's weight before the wait: they come from far.
  const BlockScales blocks = {scales, (p.k + kTileColumns - 1) / kTileColumns,
                              p.w.format.block_rows == 1 ? 0 : 7};
  float2 scale[kTiles];
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
    if (kBlocks && inside[i]) scale[i] = blocks.of(p, first_band, g, i * kWarps + warp);
  }
  float weight[8];
  load_norm_weight(p, weight);
  wait_for_previous();
  HeldTokens<T, kCodes> x;
  load_tokens<T>(p, weight, common, squares, x);
  float2 start = {0.f, 0.f};
  if constexpr (kCodes == CodeType::kInt8) start = x.less_middle();

  const int at = g * kTileColumns + g % 2 * 64 + t * 16;
  int turn = 0, slot = 0;  // of kBandsAhead
  for (int band = first_band; band < bands; band += grid, ++turn) {
    float part[2][4] = {{start.x, start.y, start.x, start.y}}, acc[4] = {};
    const int place = slot * kTiles * kTileBytes;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      copy_wait<kDeep - 1>();
      __syncwarp();
      if (inside[i]) {
        multiply_tile<T, kCodes>(queue + place + i * kTileBytes, at, x.tokens[i], part);
        if constexpr (kBlocks) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            acc[e] = fmaf(part[0][e] + part[1][e], e < 2 ? scale[i].x : scale[i].y, acc[e]);
            part[0][e] = part[1][e] = 0.f;
          }
          scale[i] = blocks.of(p, band + grid, g, i * kWarps + warp);
        }
      }
      __syncwarp();
      fetch(i, queue_at + place + i * kTileBytes);  // where this one was
    }
    slot = slot + 1 == kBandsAhead ? 0 : slot + 1;
    if constexpr (!kBlocks) {
#pragma unroll
      for (int e = 0; e < 4; ++e) acc[e] = part[0][e] + part[1][e];
    }
    hand_over(p, sums, turn, acc);
  }
}

template <typename T, CodeType kCodes, bool kBlocks>
cudaError_t launch_codes(const GemmArgs& p, int multiprocessors, const Launch& launch) {
  return launch_kernel(codes_few_kernel<T, kCodes, kBlocks>,
                       {.grid = dim3(static_cast<unsigned>(std::min(bands_of(p), multiprocessors))),
                        .threads = (kWarps + p.m) * kWarp,
                        .shared_bytes = kSharedBytes},
                       launch, p);
}

template <typename T>
cudaError_t launch_type(const GemmArgs& p, int multiprocessors, const Launch& launch) {
  if (p.w.format.codes == CodeType::kInt8)
    return launch_codes<T, CodeType::kInt8, false>(p, multiprocessors, launch);
  return p.w.format.block_cols > 0
             ? launch_codes<T, CodeType::kFloat8, true>(p, multiprocessors, launch)
             : launch_codes<T, CodeType::kFloat8, false>(p, multiprocessors, launch);
}

}  // namespace

bool codes_few_takes(const GemmArgs& p) {
  const WeightFormat& f = p.w.format;
  const bool of_rows = f.block_cols == 0 && f.block_rows == 1;
  const bool of_blocks = f.codes == CodeType::kFloat8 && f.block_cols == kTileColumns &&
                         (f.block_rows == 1 || f.block_rows == 128);
  DeviceLimits device;
  return is_scaled_rows(f) && (of_rows || of_blocks) && p.x_scales == nullptr && are_few_rows(p) &&
         p.k % 16 == 0 && ask_limits(device) == cudaSuccess && device.most_shared >= kSharedBytes;
}

cudaError_t codes_few_gemm(const GemmArgs& p, const Launch& launch) {
  DeviceLimits device;
  if (!codes_few_takes(p) || ask_limits(device) != cudaSuccess) return cudaErrorInvalidValue;
  return p.type == Half::kF16 ? launch_type<__half>(p, device.multiprocessors, launch)
                              : launch_type<__nv_bfloat16>(p, device.multiprocessors, launch);
}

}  // namespace inferd::cuda
