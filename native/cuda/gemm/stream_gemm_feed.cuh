// The streaming GEMM's tiles, where a block stands in its cluster, and the warp that feeds it: see
// stream_gemm_sm90.cu. Device code of that file alone.
#pragma once
#include "cuda/device/hopper_cluster.cuh"
#include "cuda/device/launch.cuh"
#include "cuda/gemm/stream_gemm_kernel.h"

namespace inferd::cuda {

constexpr int kAtomBytes = 1024;  // 8 rows of 128 bytes, the unit of the swizzle
constexpr int kMostStages = 24;
// Shared memory of a block that has a multiprocessor for itself, and of one of two.
constexpr int kWholeBytes = 227 * 1024, kHalfBytes = 113 * 1024;

template <int kGroups, int kColumns>
struct StreamTile {
  static constexpr int kTokens = 64 * kGroups;
  static constexpr int kThreads = kGroups * 128 + kWarp;
  // Blocks of a multiprocessor, as far as registers go.
  static constexpr int kBlocks = kColumns <= widest_of_two(kGroups) ? 2 : 1;
  // 64-value pieces of k in a stage: narrow tiles take two, for fewer steps of the queue.
  static constexpr int kPanels = kGroups == 1 && kColumns <= 64 ? 2 : 1;
  static constexpr uint32_t kPanelX = kTokens * 128, kPanelW = kColumns * 128;
  static constexpr uint32_t kStageX = kPanels * kPanelX, kStageW = kPanels * kPanelW;
};

// Shared memory: this, the stages of x, the stages of w. A stage is [panel][row][128 bytes] in the
// 128-byte swizzle.
struct alignas(1024) StreamBarriers {
  uint64_t full[kMostStages], empty[kMostStages];
  uint64_t mail;  // the other parts of k have arrived
};
static_assert(sizeof(StreamBarriers) == kAtomBytes);

#ifdef INFERD_HOPPER

// Where a block stands in its cluster, and the part of the work that is its own.
struct StreamPlace {
  int32_t nr, mr, kr;  // along n, m, k
  int32_t cluster, clusters;
  int32_t chunk_begin, chunk_end;  // stages of k

  __device__ StreamPlace(const StreamGemmParams& p, int stage_columns) {
    const int32_t rank = static_cast<int32_t>(cluster_rank()), size = p.across * p.down * p.splits;
    nr = rank % p.across;
    mr = rank / p.across % p.down;
    kr = rank / p.across / p.down;
    cluster = static_cast<int32_t>(blockIdx.x) / size;
    clusters = static_cast<int32_t>(gridDim.x) / size;
    const int32_t chunks = (p.k + stage_columns - 1) / stage_columns;
    chunk_begin = chunks * kr / p.splits;
    chunk_end = chunks * (kr + 1) / p.splits;
  }
  __device__ int32_t rank_of(const StreamGemmParams& p, int32_t n, int32_t m, int32_t k) const {
    return (k * p.down + m) * p.across + n;
  }
};

// Feeds the queues. Stage i of x belongs to stage i of w and counts on its barrier, but its queue
// is shorter: x comes from L2, w from memory, and w is fetched before x may be read.
template <int kGroups, int kColumns>
struct StreamProducer {
  using S = StreamTile<kGroups, kColumns>;
  const StreamGemmParams& p;
  const StreamPlace& at;
  StreamBarriers& s;
  uint8_t *x_queue, *w_queue;
  const CUtensorMap *x_map, *w_map;
  uint64_t x_policy, w_policy;
  uint16_t x_mask, w_mask;
  int32_t total;  // stages
  int32_t w_set, w_chunk, x_chunk;
  int w_stage, x_stage, x_slot;

  __device__ StreamProducer(const StreamGemmParams& params, const StreamPlace& place,
                            StreamBarriers& shared, const CUtensorMap* x, const CUtensorMap* w)
      : p(params),
        at(place),
        s(shared),
        x_queue(reinterpret_cast<uint8_t*>(&shared + 1)),
        w_queue(x_queue + params.x_stages * S::kStageX),
        x_map(x),
        w_map(w) {
    x_policy = l2_last();
    w_policy = l2_first();
    x_mask = w_mask = 0;
    if (p.across > 1) {
      x_mask = static_cast<uint16_t>(((1u << p.across) - 1) << at.rank_of(p, 0, at.mr, at.kr));
    }
    for (int32_t m = 0; p.down > 1 && m < p.down; ++m) {
      w_mask |= static_cast<uint16_t>(1u << at.rank_of(p, at.nr, m, at.kr));
    }
    const int32_t sets = (p.tile_sets - at.cluster + at.clusters - 1) / at.clusters;
    total = sets * (at.chunk_end - at.chunk_begin);
    w_set = at.cluster;
    w_chunk = x_chunk = at.chunk_begin;
    w_stage = x_stage = x_slot = 0;
  }

  __device__ void next_w() {
    if (++w_stage == p.w_stages) w_stage = 0;
    if (++w_chunk == at.chunk_end) {
      w_chunk = at.chunk_begin;
      w_set += at.clusters;
    }
  }

  __device__ void load_w() {
    uint64_t* barrier = &s.full[w_stage];
    barrier_expect(barrier, S::kStageW + S::kPanels * p.across * p.x_box * 128);
    const int32_t tile = w_set * p.across + at.nr, box = kColumns / p.w_pieces;
    const int32_t half = p.w_pieces / 2;
    for (int32_t piece = at.mr; piece < p.w_pieces; piece += p.down) {
      int32_t row = tile * kColumns + piece * box;
      if (p.gated) {
        row = tile * (kColumns / 2) + (piece < half ? piece * box : p.n + (piece - half) * box);
      }
#pragma unroll
      for (int panel = 0; panel < S::kPanels; ++panel) {
        tensor_copy_2d(w_queue + w_stage * S::kStageW + panel * S::kPanelW + piece * box * 128,
                       w_map, barrier, (w_chunk * S::kPanels + panel) * 64, row, w_mask, w_policy);
      }
    }
    next_w();
  }

  __device__ void load_x() {
    const int32_t box = p.x_box;
#pragma unroll
    for (int panel = 0; panel < S::kPanels; ++panel) {
      tensor_copy_2d(x_queue + x_slot * S::kStageX + panel * S::kPanelX + at.nr * box * 128, x_map,
                     &s.full[x_stage], (x_chunk * S::kPanels + panel) * 64,
                     at.mr * S::kTokens + at.nr * box, x_mask, x_policy);
    }
    if (++x_slot == p.x_stages) x_slot = 0;
    if (++x_stage == p.w_stages) x_stage = 0;
    if (++x_chunk == at.chunk_end) x_chunk = at.chunk_begin;
  }

  // The weights that fit, before anything that a kernel wrote is touched.
  __device__ void start() {
    const int32_t first = min(total, p.w_stages);
#pragma unroll 1
    for (int32_t i = 0; i < first; ++i) load_w();
  }

  __device__ void run() {
    wait_for_previous();
#pragma unroll 1
    for (int32_t i = 0; i < min(total, p.x_stages); ++i) load_x();
    // One step frees a stage of each queue: that of w for stage i, that of x for an earlier one.
    uint32_t parity = 0;
    int stage = 0;
#pragma unroll 1
    for (int32_t i = p.x_stages; i < total; ++i) {
      barrier_wait(&s.empty[stage], parity);  // stage i - x_stages is done
      if (++stage == p.w_stages) {
        stage = 0;
        parity ^= 1;
      }
      if (i - p.x_stages + p.w_stages < total) load_w();
      load_x();
    }
  }
};

#endif  // INFERD_HOPPER

}  // namespace inferd::cuda
