// The table of inner kernels of one instruction set, and the plain structs they take.
//
// Every kernel runs on the calling thread, allocates nothing and never throws. kernels_<isa>.cpp
// each build one table; features.cpp picks one at start-up. This header is included by files that
// are compiled with -mavx512f and the like, so it holds no inline function: a function shared
// between differently compiled files could smuggle their instructions into code for older machines.
//
// Invariant of all kernels: an output row is a fixed sequence of operations on its own inputs, so
// its bits do not depend on the number of rows, on how work is cut over threads, or on which rows
// share a tile.
#pragma once
#include <cstdint>

namespace inferd::cpu {

// k is summed in blocks of this many inputs: each block from zero, then block sums in order. Part
// of every linear's bits.
constexpr int kGemmBlock = 256;
// Inputs of an output feature that share a scale (kQuantBlock of core/quant.h).
constexpr int kScaleBlock = 32;
// Inputs of an 8-bit float weight that share a scale, where not all of a row do.
constexpr int kFloat8Block = 128;
// Keys are visited in tiles of this many positions, counted from position 0. Part of the bits of
// attention.
constexpr int kKeyTile = 32;
// Queries (tokens x heads of one kv head) of one attention task.
constexpr int kMaxQueries = 32;
constexpr int kMaxHeadDim = 256;
// Floats between rows of the attention scratch: one cache line more than kMaxHeadDim, so that rows
// fall in different cache sets.
constexpr int kHeadStride = kMaxHeadDim + 16;
// The same of keys whose first values are the values, as of latent attention.
constexpr int kMaxLatentDim = 640;
constexpr int kLatentStride = kMaxLatentDim + 16;
// Sums of exponentials are taken over blocks of this many logits.
constexpr int kExpBlock = 512;

// A group of weight panels times up to `rows` activations.
//
// weights: panel p holds output features [p * panel_cols, (p + 1) * panel_cols), padded with zeros
//   f32, f16   [cols][panel_cols]
//   bf16       [cols / 2][panel_cols][2]: two k in one 32-bit word (odd cols: padded with zeros),
//              so that one shift and one mask widen two vectors
//   int8, int4 blocks of kScaleBlock inputs (the last one filled up with zeros), each
//              int8: codes [kScaleBlock / g][panel_cols][g], bf16 scales [panel_cols]
//              int4: [kScaleBlock / 2 / g][panel_cols][g] bytes, the lower half of input k and the
//                    upper half of input k + 16; bf16 scales, bf16 minima [panel_cols]
//              with g = quant_group; formats: core/quant.h
//   coded      blocks of weights that were quantized in the checkpoint, in the same order, with f16
//              scales: codes of int8 plus 128, of int6 plus 32 and of int4 plus 8 where there are
//              no minima
//              int6: [kScaleBlock / 2 / g][panel_cols][g] bytes with the lower 4 bits, as int4 has
//                    them, then [8 / g][panel_cols][g] with the upper 2 of the inputs k, k + 8,
//                    k + 16 and k + 24, from the lowest bits up
//              int6 by 16: scales [2][panel_cols] of half a block each
//              fp4: numbers e2m1 as int4 has its codes, with scales of half the weights, so that
//              products are those of whole numbers: e8m0, a byte each, of blocks, which are 0 where
//              that is; by 16: f16 [2][panel_cols] of half a block each
//              by 64, by 128: the codes of two or four blocks, and then their scales and minima
//              int8 by 16: scales [2][panel_cols] and minima [2][panel_cols] of half a block each
//   fp8        codes e4m3 [cols][panel_cols], odd cols padded with zeros, none of them NaN, and
//   then
//              f32 scales: of rows [panel_cols]; of groups, runs of kFloat8Block inputs of a row,
//              [runs][panel_cols]; of blocks, which all outputs of a panel share, [runs]
// rows: tile t holds rows [t * tile_rows, ...) as [cols][rows of the tile]; that leaves a row that
//   is alone in its tile as it was.
//   Where the set has quantize_tile, quantized weights meet quantized rows: each run of code_rows
//   rows is cut into tiles as the set likes, each R of them, as blocks of f32 scales [R], i16 sums
//   of codes [R][2], of each half of the block, f32 products [R] of a scale and the sum of both
//   halves, and codes [kScaleBlock / g][R][g]; block size R * kCodeBlockBytes.
constexpr int kCodeBlockBytes = 4 + 4 + 4 + kScaleBlock;
struct GemmTask {
  const char* panels;  // first panel of the weight
  int64_t panel_bytes;
  int64_t first_panel, num_panels;
  const float* packed;  // rows in tiles as above; of quantized rows the first byte
  int64_t rows;
  int64_t cols;  // input features
  float* out;    // [rows, outs], row stride out_stride
  int64_t out_stride;
  int64_t outs;       // output features of the whole weight
  const float* bias;  // [outs] or null
};

// The inputs of a scale of one row, as steps of `scale`.
struct QuantizedBlock {
  float scale;
  int16_t sums[2];  // of codes, of each half
  alignas(32) int8_t codes[kScaleBlock];
};

// What keys and values may be stored as.
enum CacheKind : int32_t {
  kF32Cache,
  kF16Cache,
  kBF16Cache,
  kInt8Cache,    // codes, and a scale a row
  kFloat8Cache,  // e4m3
  kCacheKinds    // their number
};

// Causal attention of `tokens` consecutive positions and `heads` query heads that share a kv head.
struct AttentionTask {
  const float* q;  // first token, first head; heads are head_dim apart
  int64_t q_stride;
  float* out;
  int64_t out_stride;
  int32_t tokens, heads;  // tokens * heads <= kMaxQueries
  int32_t first_position;
  const void* k;          // first element of this kv head in block 0
  const void* v;          // null: the values are the first value_dim of the keys
  int64_t block_stride;   // elements between blocks
  const int32_t* blocks;  // block table of the row
  int32_t block_size, head_dim;
  int32_t value_dim;  // head_dim, or with v = null at most that; heads of `out` are so far apart
  float scale;
  float softcap;       // 0 = none, else a score s becomes softcap tanh(s / softcap)
  int32_t window;      // 0 = none
  const float* sinks;  // [heads], or null: AttentionArgs::sinks
  int64_t row_scales;  // kInt8Cache: bytes from the first element of a block to its first f32 scale
  float value_scale;   // what values are multiplied by
};

// Scratch of one thread, whose rows are kStride floats apart. kShared: values are part of the keys.
template <int kStride, bool kShared>
struct alignas(64) AttentionScratchOf {
  static constexpr int kRow = kStride;
  static constexpr bool kOneTile = kShared;
  float q[kMaxQueries * kStride];
  float acc[kMaxQueries * kStride];
  float k[kKeyTile * kStride];
  float v[kShared ? 16 : kKeyTile * kStride];
  float p[kMaxQueries * kKeyTile];
  float max[kMaxQueries];
  float sum[kMaxQueries];
  float alpha[kMaxQueries];
  int32_t low[kMaxQueries];  // valid keys of the tile: [low, high)
  int32_t high[kMaxQueries];
};

using AttentionScratch = AttentionScratchOf<kHeadStride, false>;  // about 150 KB
using LatentScratch = AttentionScratchOf<kLatentStride, true>;    // about 260 KB

// What there are products for: formats of weights, as kWeightFormats of weights.h describes them.
enum WeightKind : int32_t {
  kF32Weights,
  kF16Weights,
  kBF16Weights,
  kInt8Weights,
  kInt4Weights,
  kCodedInt8Weights,  // of checkpoints
  kCodedInt4Weights,
  kCodedInt4MinimaWeights,
  kCodedInt8HalvesWeights,
  kCodedInt6MinimaWeights,
  kCodedInt6HalvesWeights,
  kFloat8RowsWeights,  // of checkpoints too, in rows
  kFloat8BlocksWeights,
  kFloat8GroupsWeights,
  kCodedFloat4Weights,
  kCodedFloat4HalvesWeights,
  kCodedInt8By64Weights,  // with a scale for so many inputs
  kCodedInt8By128Weights,
  kCodedInt4By64Weights,
  kCodedInt4By128Weights,
  kCodedInt4MinimaBy64Weights,
  kCodedInt4MinimaBy128Weights,
  kWeightKinds  // their number
};

struct Kernels {
  const char* name;
  int32_t panel_cols;   // output features of a weight panel
  int32_t tile_rows;    // rows of a full activation tile
  bool bf16_pairs;      // bf16 panels hold pairs of k
  int32_t quant_group;  // inputs of one output feature side by side in quantized panels
  int32_t code_rows;    // rows that quantize_tile takes at most

  void (*gemm[kWeightKinds])(const GemmTask&);
  // Quantizes `rows` <= code_rows rows into their tiles; null: the products of quantized weights
  // take plain rows.
  void (*quantize_tile)(void* tile, const float* x, int64_t x_stride, int64_t rows, int64_t cols);
  void (*attention[kCacheKinds])(const AttentionTask&, AttentionScratch&);
  void (*latent_attention[kCacheKinds])(const AttentionTask&, LatentScratch&);  // with v = null
  // Indexed by DType: f32, f16, bf16.
  void (*to_f32[3])(float* dst, const void* src, int64_t n);
  void (*from_f32[3])(void* dst, const float* src, int64_t n);  // to nearest even

  void (*rms_norm)(float* out, const float* x, const float* weight, int64_t n, float eps);
  // inout += scale * x
  void (*add)(float* inout, const float* x, int64_t n, float scale);
  // Indexed by Gate.
  void (*gated_mul[3])(float* out, const float* gate, const float* up, int64_t n);
  // x *= scale, then, for cap > 0, cap tanh(x / cap).
  void (*scale_cap)(float* x, int64_t n, float scale, float cap);
  // (a, b) -> (a cos - b sin, b cos + a sin) for a = x[i], b = x[i + half].
  void (*rotate)(float* x, const float* cos, const float* sin, int32_t half);

  // Largest value; NaN is passed over. -inf for n = 0.
  float (*max_value)(const float* x, int64_t n);
  // First index of the largest value; NaN is passed over; 0 when there is none above -inf.
  int64_t (*argmax)(const float* x, int64_t n);
  // dst = src with NaN as -inf and +inf as the largest float. Returns the largest value.
  float (*clean_copy)(float* dst, const float* src, int64_t n);
  // e[i] = exp((z[i] - max) / temperature); sums[b] = sum of block b of kExpBlock. Returns the sum
  // of sums.
  double (*exp_sum)(float* e, double* sums, const float* z, int64_t n, float max,
                    float temperature);
  // Entries before `id` that are >= value and entries after it that are > value.
  int64_t (*count_better)(const float* x, int64_t n, int64_t id, float value);

  // Limits of the machine (limits_kernel.h); what they return keeps the work from being dropped.
  float (*read_all)(const float* data, int64_t n);
  float (*fma_chains)(int64_t steps);
  int64_t fma_step_flops;                // additions and multiplications of a step
  int64_t (*dot_chains)(int64_t steps);  // byte dot products; null where the set has none
  int64_t dot_step_ops;
};

// Whether a table has a product for each kind of weights. With UBSan GCC does not know of a
// function that its address is not null; of an entry that is missing it does.
constexpr bool multiplies_all(const Kernels& t) {
  for (const auto product : t.gemm)
    if (__builtin_constant_p(product == nullptr) && product == nullptr) return false;
  return true;
}

const Kernels* reference_kernels();
const Kernels* avx2_kernels();
const Kernels* avxvnni_kernels();
const Kernels* avx512_kernels();
const Kernels* avx512vnni_kernels();
const Kernels* neon_kernels();
const Kernels* neondot_kernels();
const Kernels* neoni8mm_kernels();

}  // namespace inferd::cpu
