// 1. y = x w^T (+ bias) (+ y), or y = silu(x w_gate^T) * (x w_up^T), w small codes with scales, for
//    the rows of a decode batch and short prompts, from 17 on.
// 2. x [m, k] f16 or bf16, 16-byte aligned rows; w as rows/coded_layout.h lays it out; y [m, n] of
//    the type of x or f32; bias [n] ([2 n]) of y's type.
// 3. A block has 128 or 256 rows of w and 32, 64 or 128 tokens, and a part of k; the blocks of a
//    cluster are the parts of k of one such tile.
//
//      warpgroups 0, 1   64 or 128 rows each: codes to registers, unpacked there, and multiplied as
//                        the A of wgmma, with x from shared memory as B
//      last warp         asks for the tiles of w (bulk copies) and the boxes of x (tensor copies)
//
//    Of a stage, 64 columns are unpacked while the other 64 are multiplied. Sums go to shared
//    memory when the last product is done, where the blocks of a cluster add up those of their
//    share of the tokens, in the order of k, and store them.
// 4. Shared memory: up to 8 stages of 128 columns of w (8 or 16 tiles) and x, in 200 KB, or 100 KB
//    where two blocks share a multiprocessor (up to 64 tokens); then the sums in their place.
// 5. Weights are rounded once to the 16-bit type; f32 accumulation, also over parts of k; one
//    rounding at the end. The same bits run to run.
// 6. Compute capability 9.0; k and x_stride multiples of 8; gated only to 16-bit y. Else
//    cudaErrorInvalidValue.
// 7. 2 m n k flops, n k (bits + scales) / 8 bytes: bound by memory up to some 45 rows.
// 8. Weights as the operand in registers, x as that in shared memory: Machete (Wilkinson et al.
//    2024). Sums exchanged in shared memory of a cluster: CUTLASS 3.
// 9. Tried, as far as the compiler goes: registers of A in turn, a step each, refilled behind
//    wait_group 3. ptxas then runs wgmma one by one (C7513), as it does not where halves alternate.
//
// Longer than other files: the warps that feed, those that multiply, and the launcher share one
// arithmetic of stages and tiles.
#include <algorithm>
#include <array>

#include "cuda/device/hopper_cluster.cuh"
#include "cuda/device/launch.cuh"
#include "cuda/device/tensor_map.h"
#include "cuda/gemm/stream_gemm.h"
#include "cuda/rows/coded_tile.cuh"

namespace inferd::cuda {
namespace {

constexpr int kAtomBytes = 1024, kMostStages = 8, kGroups = 2;
constexpr int kConsumers = kGroups * 128;
constexpr int kWholeBytes = 220 << 10, kHalfBytes = 112 << 10;
constexpr int32_t kMostSplits = 8;

struct CodedStreamArgs {
  GemmArgs gemm;
  CodedLayout layout;
  int32_t stages, splits, token_tiles;
  bool wide_access;  // y in 16 bytes
};

struct alignas(1024) CodedBarriers {
  uint64_t full[kMostStages];
};

template <int kTokens, int kRowBlocks>
struct CodedTile {
  static constexpr int kRows = 128 * kRowBlocks, kRowTiles = kRows / 16;
  static constexpr int kBlocks = kTokens <= 64 ? 2 : 1;  // of a multiprocessor
  // Registers are shared out to whole warpgroups.
  static constexpr int kThreads = kConsumers + (kBlocks == 1 ? 128 : kWarp);
  static constexpr int kPanelX = kTokens * 128, kStageX = 2 * kPanelX;
  static constexpr int kPitch = kRows + 4;  // floats of a token's sums
  static constexpr int kSumBytes = kTokens * kPitch * 4;
};

#ifdef INFERD_HOPPER

// A stage has been read, by all that multiply: they arrive and the warp that fills it waits. Not an
// mbarrier, at which one thread would arrive for warps whose reads it does not see.
__device__ inline int stage_read(int stage) { return 2 + stage; }
constexpr int kReadThreads = kConsumers + kWarp;

// d[64 x n] = a[64 x 16] b[16 x n] (+ d when `add`), a from registers, b in shared memory with k
// contiguous; n is twice the sums.
#define INFERD_WGMMA_CODED(N, TYPES, COUNT, A, B, ADD)                                         \
  asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #ADD                                   \
               ", 0;\n"                                                                        \
               "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPES " {" INFERD_SUMS##COUNT \
               "}, {" A "}, %" #B ", add, 1, 1, 0;\n}"                                         \
               : INFERD_IN_OUT##COUNT(d)                                                       \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add))
#define INFERD_WGMMA_CODED_WIDTHS(TYPES)                           \
  if constexpr (kCount == 16) {                                    \
    INFERD_WGMMA_CODED(32, TYPES, 16, "%16,%17,%18,%19", 20, 21);  \
  } else if constexpr (kCount == 32) {                             \
    INFERD_WGMMA_CODED(64, TYPES, 32, "%32,%33,%34,%35", 36, 37);  \
  } else {                                                         \
    static_assert(kCount == 64, "no other width is in use");       \
    INFERD_WGMMA_CODED(128, TYPES, 64, "%64,%65,%66,%67", 68, 69); \
  }
template <typename T, int kCount>
__device__ inline void wgmma_coded(float (&d)[kCount], const uint32_t (&a)[4], uint64_t b,
                                   int add) {
  if constexpr (std::is_same_v<T, __half>) {
    INFERD_WGMMA_CODED_WIDTHS("f16.f16")
  } else {
    INFERD_WGMMA_CODED_WIDTHS("bf16.bf16")
  }
}

// Has them made before the fence ahead of their product.
__device__ inline void hold_operand(uint32_t (&a)[4]) {
  asm volatile("" : "+r"(a[0]), "+r"(a[1]), "+r"(a[2]), "+r"(a[3])::"memory");
}

__device__ inline void bulk_copy(void* to, const void* from, uint32_t bytes, uint64_t* barrier,
                                 uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1], %2, [%3], %4;" ::"r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier)), "l"(policy)
      : "memory");
}

__device__ inline float4 cluster_load4(uint32_t address) {
  float4 v;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(address)
               : "memory");
  return v;
}

// The part of the work that is a block's own.
struct CodedPlace {
  int32_t split, row_tile, token;  // part of k; first tile of 16 rows; first token
  int32_t begin, end;              // columns, in tiles of 128

  template <int kTokens, int kRowBlocks>
  __device__ static CodedPlace of(const CodedStreamArgs& args) {
    using S = CodedTile<kTokens, kRowBlocks>;
    CodedPlace at;
    const int32_t tile = static_cast<int32_t>(blockIdx.x) / args.splits;
    at.split = static_cast<int32_t>(blockIdx.x) % args.splits;
    at.token = tile % args.token_tiles * kTokens;
    at.row_tile = tile / args.token_tiles * S::kRowTiles;
    const int32_t across = args.layout.across();
    at.begin = across * at.split / args.splits;
    at.end = across * (at.split + 1) / args.splits;
    return at;
  }
};

template <int kTokens, int kRowBlocks>
struct CodedProducer {
  using S = CodedTile<kTokens, kRowBlocks>;
  const CodedStreamArgs& args;
  const CodedPlace& at;
  CodedBarriers& s;
  uint8_t* queue;
  const CUtensorMap* x_map;
  const int lane;
  uint64_t x_policy, w_policy;

  __device__ int stage_bytes() const {
    return S::kStageX +
           (S::kRowTiles * args.layout.tile_bytes() + kAtomBytes - 1) / kAtomBytes * kAtomBytes;
  }
  // All lanes.
  __device__ void load_w(int stage, int32_t column) {
    const int32_t bytes = args.layout.tile_bytes();
    const int32_t tiles = min(args.layout.down() - at.row_tile, S::kRowTiles);
    if (lane == 0) {
      barrier_expect(&s.full[stage], static_cast<uint32_t>(S::kStageX + tiles * bytes));
    }
    __syncwarp();
    if (lane < tiles) {
      const auto* from = static_cast<const uint8_t*>(args.gemm.w.codes) +
                         (int64_t{at.row_tile + lane} * args.layout.across() + column) * bytes;
      bulk_copy(queue + stage * stage_bytes() + S::kStageX + lane * bytes, from,
                static_cast<uint32_t>(bytes), &s.full[stage], w_policy);
    }
  }
  __device__ void load_x(int stage, int32_t column) {
    if (lane >= 2) return;
    tensor_copy_2d(queue + stage * stage_bytes() + lane * S::kPanelX, x_map, &s.full[stage],
                   column * kTileColumns128 + lane * 64, at.token, x_policy);
  }
  __device__ void run() {
    x_policy = l2_last();
    w_policy = l2_first();
    const int32_t first = min(at.end - at.begin, args.stages);
    for (int32_t i = 0; i < first; ++i) load_w(i, at.begin + i);
    wait_for_previous();
    for (int32_t i = 0; i < first; ++i) load_x(i, at.begin + i);
    int stage = 0;
    for (int32_t column = at.begin + first; column < at.end; ++column) {
      group_sync<kReadThreads>(stage_read(stage));
      load_w(stage, column);
      load_x(stage, column);
      if (++stage == args.stages) stage = 0;
    }
  }
};

template <typename T, int kBits, int kTokens, int kRowBlocks>
struct CodedConsumer {
  using S = CodedTile<kTokens, kRowBlocks>;
  static constexpr int kSums = kTokens / 2, kSteps = kStepsOf16Bytes<kBits>;
  const CodedStreamArgs& args;
  const CodedPlace& at;
  CodedBarriers& s;
  uint8_t* queue;
  const int stage_bytes;
  const int thread, warp, lane;  // of the two warpgroups

  using Sums = float[kRowBlocks][kSums];

  __device__ void multiply(Sums& acc) {
    const int g = lane / 4;
    const int every = args.layout.group / 16 - 1;
    const int tile_bytes = args.layout.tile_bytes(), entry = 8 * args.layout.entry_bytes();
    const int own = (warp / 4 * kRowBlocks * 4 + warp % 4) * tile_bytes;
    // Half a tile is multiplied while the other half is unpacked.
    constexpr int kHalf = 4;
    uint32_t a[2][kHalf][kRowBlocks][4];
    int stage = 0, before = 0;
    uint32_t parity = 0;
    for (int32_t column = at.begin; column < at.end; ++column) {
      barrier_wait(&s.full[stage], parity);
      const uint8_t* x = queue + stage * stage_bytes;
      const uint8_t* w = x + S::kStageX + own;
      const MatrixDescriptor<kAtomBytes> b(x);
      const uint8_t* scale_at = w + 256 * kBits + g * args.layout.entry_bytes();
      CodedScales<T, kBits> scales[kRowBlocks];
      uint4 codes[kRowBlocks];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int i = 0; i < kHalf; ++i) {
          const int step = half * kHalf + i;
          if (step % kSteps == 0) {
#pragma unroll
            for (int r = 0; r < kRowBlocks; ++r) {
              codes[r] = *reinterpret_cast<const uint4*>(w + r * 4 * tile_bytes +
                                                         step / kSteps * 512 + lane * 16);
            }
          }
          if ((step & every) == 0) {
#pragma unroll
            for (int r = 0; r < kRowBlocks; ++r)
              scales[r].load(scale_at + r * 4 * tile_bytes, args.layout.minima);
            scale_at += entry;
          }
#pragma unroll
          for (int r = 0; r < kRowBlocks; ++r) {
            unpack_step<T, kBits>(codes[r], step % kSteps, scales[r], a[half][i][r]);
            hold_operand(a[half][i][r]);
          }
        }
        wgmma_wait<0>();
        // A stage that is not filled again is not waited for.
        if (half == 0 && column != at.begin && column - 1 + args.stages < at.end)
          group_arrive<kReadThreads>(stage_read(before));
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < kHalf; ++i) {
#pragma unroll
          for (int r = 0; r < kRowBlocks; ++r) {
            wgmma_coded<T>(acc[r], a[half][i][r], b.at(half * S::kPanelX + i * 32),
                           half + i != 0 || column != at.begin);
          }
        }
        wgmma_commit();
      }
      before = stage;
      if (++stage == args.stages) {
        stage = 0;
        parity ^= 1;
      }
    }
    wgmma_wait<0>();
#pragma unroll
    for (int r = 0; r < kRowBlocks; ++r) hold_all(acc[r]);
  }

  // Into the place of the queue: [token][row].
  __device__ void keep(const Sums& acc) {
    float* sums = reinterpret_cast<float*>(queue);
    const int row = (warp / 4 * kRowBlocks * 4 + warp % 4) * 16 + lane / 4;
    group_sync<kConsumers>(1);  // all have read what was there
#pragma unroll
    for (int r = 0; r < kRowBlocks; ++r) {
#pragma unroll
      for (int i = 0; i < kSums; ++i) {
        const int token = i / 4 * 8 + lane % 4 * 2 + i % 2;
        sums[token * S::kPitch + row + r * 64 + i % 4 / 2 * 8] = acc[r][i];
      }
    }
  }

  // Sums of 8 neighbouring rows of one token over all parts of k.
  __device__ void add_up(int token, int row, float (&v)[8]) const {
    const float* from = reinterpret_cast<const float*>(queue) + token * S::kPitch + row;
    if (args.splits == 1) {
#pragma unroll
      for (int i = 0; i < 8; ++i) v[i] = from[i] * coded_unit<T>;
      return;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = 0.f;
    for (int part = 0; part < args.splits; ++part) {
      const uint32_t there = cluster_address(from, static_cast<uint32_t>(part));
      const float4 low = cluster_load4(there), high = cluster_load4(there + 16);
      v[0] += low.x, v[1] += low.y, v[2] += low.z, v[3] += low.w;
      v[4] += high.x, v[5] += high.y, v[6] += high.z, v[7] += high.w;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] *= coded_unit<T>;
  }

  template <typename Y>
  __device__ void add_bias(float (&v)[8], int32_t first, int32_t offset) const {
    const Y* bias = static_cast<const Y*>(args.gemm.bias) + offset;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (first + i < args.gemm.n) v[i] += to_float(bias[first + i]);
    }
  }

  // Outputs [first, first + 8) of a token.
  template <typename Y>
  __device__ void finish(int token, int row, int32_t first) const {
    const GemmArgs& p = args.gemm;
    float v[8];
    add_up(token, row, v);
    if (p.bias != nullptr) add_bias<Y>(v, first, 0);
    if (p.gated) {
      float up[8];
      add_up(token, row + 8, up);
      if (p.bias != nullptr) add_bias<Y>(up, first, p.n);
#pragma unroll
      for (int i = 0; i < 8; ++i) v[i] = silu(v[i]) * up[i];
    }
    Y* y = static_cast<Y*>(p.y) + (at.token + token) * p.y_stride + first;
    if (args.wide_access) {
      uint4* to = reinterpret_cast<uint4*>(y);
      if constexpr (std::is_same_v<Y, float>) {
        if (p.add_to_y) {
#pragma unroll
          for (int i = 0; i < 8; ++i) v[i] += y[i];
        }
        to[0] = {__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]),
                 __float_as_uint(v[3])};
        to[1] = {__float_as_uint(v[4]), __float_as_uint(v[5]), __float_as_uint(v[6]),
                 __float_as_uint(v[7])};
      } else {
        uint32_t w[4] = {};
        if (p.add_to_y) {
          const uint4 old = *to;
          w[0] = old.x, w[1] = old.y, w[2] = old.z, w[3] = old.w;
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float2 before = unpack2<T>(w[i]);
          w[i] = pack2<T>(v[2 * i] + before.x, v[2 * i + 1] + before.y);
        }
        *to = {w[0], w[1], w[2], w[3]};
      }
      return;
    }
    for (int i = 0; i < 8; ++i) {
      if (first + i >= p.n) break;
      y[i] = from_float<Y>(p.add_to_y ? to_float(y[i]) + v[i] : v[i]);
    }
  }

  __device__ void finish() const {
    const GemmArgs& p = args.gemm;
    const int gates = p.gated ? 2 : 1;
    constexpr int kEights = S::kRows / 8;
    const int eights = kEights / gates;  // of outputs
    for (int i = thread;; i += kConsumers) {
      const int token = i / eights * args.splits + at.split, eight = i % eights;
      if (token >= kTokens || at.token + token >= p.m) break;
      const int32_t first = at.row_tile * 16 / gates + eight * 8;
      if (first >= p.n) continue;
      const int row = eight * 8 * gates;
      if (p.out == GemmOut::kF32) {
        finish<float>(token, row, first);
      } else {
        finish<T>(token, row, first);
      }
    }
  }
};

#endif  // INFERD_HOPPER

template <typename T, int kBits, int kTokens, int kRowBlocks>
__global__ void __launch_bounds__(CodedTile<kTokens, kRowBlocks>::kThreads,
                                  CodedTile<kTokens, kRowBlocks>::kBlocks)
    coded_stream_kernel(const __grid_constant__ CodedStreamArgs args,
                        const __grid_constant__ CUtensorMap x_map) {
#ifdef INFERD_HOPPER
  using S = CodedTile<kTokens, kRowBlocks>;
  extern __shared__ uint8_t raw[];
  // The launcher adds 1 KB for the alignment, which is the same in all blocks of a cluster.
  CodedBarriers& s =
      *reinterpret_cast<CodedBarriers*>(raw + (0u - shared_address(raw)) % kAtomBytes);
  uint8_t* const queue = reinterpret_cast<uint8_t*>(&s + 1);
  let_next_start();
  if (threadIdx.x == 0) {
    for (int i = 0; i < args.stages; ++i) barrier_init(&s.full[i], 1);
    barrier_init_fence();
    async_proxy_fence();
  }
  __syncthreads();
  const CodedPlace at = CodedPlace::of<kTokens, kRowBlocks>(args);
  const int warp = __shfl_sync(kFullWarp, static_cast<int>(threadIdx.x) / kWarp, 0);
  CodedProducer<kTokens, kRowBlocks> producer{
      args, at, s, queue, &x_map, static_cast<int>(threadIdx.x) % kWarp, 0, 0};
  if (warp >= kGroups * 4) {
    if constexpr (S::kBlocks == 1) give_registers<24>();
    if (warp == kGroups * 4) producer.run();
    __syncwarp();
    if (args.splits > 1) {
      cluster_sync();
      cluster_sync();
    }
  } else {
    if constexpr (S::kBlocks == 1) take_registers<240>();
    wait_for_previous();
    CodedConsumer<T, kBits, kTokens, kRowBlocks> consumer{args,
                                                          at,
                                                          s,
                                                          queue,
                                                          producer.stage_bytes(),
                                                          static_cast<int>(threadIdx.x),
                                                          warp,
                                                          static_cast<int>(threadIdx.x) % kWarp};
    float acc[kRowBlocks][kTokens / 2];
    consumer.multiply(acc);
    consumer.keep(acc);
    if (args.splits > 1) {
      cluster_sync();
    } else {
      group_sync<kConsumers>(1);
    }
    consumer.finish();
    // No block leaves while another reads its sums.
    if (args.splits > 1) cluster_sync();
  }
#endif
}

CodedLayout layout_of(const GemmArgs& p) {
  return coded_layout(p.w.format, p.gated ? 2 * p.n : p.n, p.k, p.gated);
}

int32_t tokens_of(int32_t m) { return m <= 32 ? 32 : m <= 64 ? 64 : 128; }

bool holds(const GemmArgs& p, const CodedCut& cut) {
  const bool wide = tokens_of(p.m) == 128;
  return (cut.row_blocks == 1 || (cut.row_blocks == 2 && wide)) && cut.splits >= 1 &&
         cut.splits <= std::min(kMostSplits, layout_of(p).across());
}

template <typename T, int kBits, int kTokens, int kRowBlocks>
cudaError_t launch_tile(const GemmArgs& p, const CodedCut& cut, const Launch& launch) {
  using S = CodedTile<kTokens, kRowBlocks>;
  CodedStreamArgs args = {.gemm = p,
                          .layout = layout_of(p),
                          .stages = 0,
                          .splits = cut.splits,
                          .token_tiles = (p.m + kTokens - 1) / kTokens,
                          .wide_access = false};
  const int64_t y_bytes = p.out == GemmOut::kF32 ? 4 : 2;
  args.wide_access =
      p.n % 8 == 0 && p.y_stride * y_bytes % 16 == 0 && reinterpret_cast<uintptr_t>(p.y) % 16 == 0;
  const int stage = S::kStageX + (S::kRowTiles * args.layout.tile_bytes() + kAtomBytes - 1) /
                                     kAtomBytes * kAtomBytes;
  const int bytes = S::kBlocks == 2 ? kHalfBytes : kWholeBytes;
  const int room = bytes - static_cast<int>(sizeof(CodedBarriers)) - kAtomBytes;
  args.stages = std::min(room / stage, kMostStages);
  if (args.stages < 2 || S::kSumBytes > room) return cudaErrorInvalidValue;
  CUtensorMap x_map;
  const cudaError_t error =
      encode_tensor_map(p.type,
                        {.base = p.x,
                         .rank = 2,
                         .dims = {static_cast<cuuint64_t>(p.k), static_cast<cuuint64_t>(p.m)},
                         .stride_bytes = {static_cast<cuuint64_t>(p.x_stride) * 2},
                         .box = {64, kTokens}},
                        x_map);
  if (error != cudaSuccess) return error;
  const int32_t row_tiles = (args.layout.down() + S::kRowTiles - 1) / S::kRowTiles;
  const auto blocks = static_cast<unsigned>(row_tiles * args.token_tiles * cut.splits);
  return launch_kernel(coded_stream_kernel<T, kBits, kTokens, kRowBlocks>,
                       {.grid = dim3(blocks),
                        .threads = S::kThreads,
                        .shared_bytes = static_cast<size_t>(bytes),
                        .cluster = cut.splits},
                       launch, args, x_map);
}

template <typename T, int kBits>
cudaError_t launch_bits(const GemmArgs& p, const CodedCut& cut, const Launch& launch) {
  switch (tokens_of(p.m)) {
    case 32:
      return launch_tile<T, kBits, 32, 1>(p, cut, launch);
    case 64:
      return launch_tile<T, kBits, 64, 1>(p, cut, launch);
    default:
      return cut.row_blocks == 1 ? launch_tile<T, kBits, 128, 1>(p, cut, launch)
                                 : launch_tile<T, kBits, 128, 2>(p, cut, launch);
  }
}

template <typename T>
cudaError_t launch_type(const GemmArgs& p, const CodedCut& cut, const Launch& launch) {
  return code_bits(p.w.format.codes) == 4 ? launch_bits<T, 4>(p, cut, launch)
                                          : launch_bits<T, 8>(p, cut, launch);
}

cudaError_t attribute(int* value, cudaDeviceAttr what) {
  int device = 0;
  const cudaError_t error = cudaGetDevice(&device);
  return error == cudaSuccess ? cudaDeviceGetAttribute(value, what, device) : error;
}

// A guess at the time of a cut, in tiles of columns: turns of the device, each with its tiles and
// what starts and ends it.
float estimate(const GemmArgs& p, const CodedCut& cut, int multiprocessors) {
  const CodedLayout layout = layout_of(p);
  const int32_t tokens = tokens_of(p.m), token_tiles = (p.m + tokens - 1) / tokens;
  const int32_t tiles =
      (layout.down() + 8 * cut.row_blocks - 1) / (8 * cut.row_blocks) * token_tiles;
  // A cluster lies within a group of some 16 multiprocessors, of which there are 8 with 132 in all.
  const int32_t clusters =
      cut.splits <= 2 ? multiprocessors / cut.splits : 16 / cut.splits * multiprocessors / 16 - 1;
  const int32_t at_once = std::max(1, clusters * (tokens == 128 ? 1 : 2));
  const float turns = static_cast<float>((tiles + at_once - 1) / at_once);
  const float columns =
      static_cast<float>((layout.across() + cut.splits - 1) / cut.splits * cut.row_blocks);
  const float ends = 3.f + 1.5f * static_cast<float>(cut.row_blocks) + (cut.splits > 1 ? 2.f : 0.f);
  return turns * (columns + ends);
}

}  // namespace

bool coded_stream_takes(const GemmArgs& p) {
  int major = 0, minor = 0;
  return in_plain_tiles(p.w.format) && p.m >= 1 && p.n >= 1 && p.k >= 8 && p.k % 8 == 0 &&
         p.x_stride % 8 == 0 && !p.norm_x && !(p.gated && (p.add_to_y || p.out == GemmOut::kF32)) &&
         attribute(&major, cudaDevAttrComputeCapabilityMajor) == cudaSuccess && major == 9 &&
         attribute(&minor, cudaDevAttrComputeCapabilityMinor) == cudaSuccess && minor == 0 &&
         INFERD_MOST_MAJOR >= 9;
}

int32_t coded_stream_cuts(const GemmArgs& p, std::span<CodedCut> best) {
  int multiprocessors = 0;
  if (attribute(&multiprocessors, cudaDevAttrMultiProcessorCount) != cudaSuccess) return 0;
  struct Rated {
    CodedCut cut;
    float time;
  };
  std::array<Rated, 2 * kMostSplits> all;
  size_t count = 0;
  for (int32_t blocks = 1; blocks <= 2; ++blocks) {
    for (int32_t splits = 1; splits <= kMostSplits; ++splits) {
      const CodedCut cut = {blocks, splits};
      if (holds(p, cut)) all[count++] = {cut, estimate(p, cut, multiprocessors)};
    }
  }
  std::stable_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count),
                   [](const Rated& a, const Rated& b) { return a.time < b.time; });
  const size_t kept = std::min(count, best.size());
  for (size_t i = 0; i < kept; ++i) best[i] = all[i].cut;
  return static_cast<int32_t>(kept);
}

cudaError_t coded_stream_gemm(const GemmArgs& p, const CodedCut& cut, const Launch& launch) {
  if (!coded_stream_takes(p)) return cudaErrorInvalidValue;
  CodedCut chosen = cut;
  if (!holds(p, cut) && coded_stream_cuts(p, {&chosen, 1}) != 1) return cudaErrorInvalidValue;
  return p.type == Half::kF16 ? launch_type<__half>(p, chosen, launch)
                              : launch_type<__nv_bfloat16>(p, chosen, launch);
}

}  // namespace inferd::cuda
