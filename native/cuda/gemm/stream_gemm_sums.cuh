// The streaming GEMM's consumers: the products, the exchange of sums within a cluster, and what is
// done to them on their way to y. See stream_gemm_sm90.cu; device code of that file alone.
#pragma once
#include "cuda/gemm/float8_sums.cuh"
#include "cuda/gemm/stream_gemm_feed.cuh"

namespace inferd::cuda {

// Of x and w: 16-bit numbers, or e4m3 codes, whose 128 bytes of k are twice as many.
enum class StreamOperands { kHalves, kFloat8Rows, kFloat8Blocks };

#ifdef INFERD_HOPPER

template <typename T, int kGroups, int kColumns, StreamOperands kOperands>
struct StreamConsumer {
  using S = StreamTile<kGroups, kColumns>;
  static constexpr bool kBlocks = kOperands == StreamOperands::kFloat8Blocks;
  static constexpr int kQuads = (kColumns + 31) / 32;
  const StreamGemmParams& p;
  const StreamPlace& at;
  StreamBarriers& s;
  uint8_t *x_queue, *w_queue;
  const int group, thread, t;  // warpgroup; thread of it; lane % 4
  uint32_t release_at;         // where this thread reports a stage that is done, or 0
  int32_t token;               // of row g; g + 8 is the other
  using Products = float[kColumns / 2];

  __device__ StreamConsumer(const StreamGemmParams& params, const StreamPlace& place,
                            StreamBarriers& shared)
      : p(params),
        at(place),
        s(shared),
        x_queue(reinterpret_cast<uint8_t*>(&shared + 1)),
        w_queue(x_queue + params.x_stages * S::kStageX),
        group(__shfl_sync(kFullWarp, static_cast<int>(threadIdx.x) / 128, 0)),
        thread(threadIdx.x % 128),
        t(threadIdx.x % 4) {
    release_at = 0;
    if (thread < p.across + p.down - 1) {
      const int32_t other = thread - p.across;  // along m, this block left out
      const int32_t rank = thread < p.across
                               ? at.rank_of(p, thread, at.mr, at.kr)
                               : at.rank_of(p, at.nr, other < at.mr ? other : other + 1, at.kr);
      release_at = cluster_address(s.empty, rank);
    }
    token = at.mr * S::kTokens + group * 64 + thread / kWarp * 16 + thread % kWarp / 4;
  }

  __device__ void release(int stage) {
    if (release_at != 0) cluster_barrier_arrive(release_at + stage * 8);
  }

  // Sums of this block's part of k for one tile.
  __device__ void multiply(Products& acc, int& stage, uint32_t& parity, int& slot) {
    int before = 0;
    for (int32_t chunk = at.chunk_begin; chunk < at.chunk_end; ++chunk) {
      const MatrixDescriptor<kAtomBytes> a(x_queue + slot * S::kStageX + group * 64 * 128);
      const MatrixDescriptor<kAtomBytes> b(w_queue + stage * S::kStageW);
      barrier_wait(&s.full[stage], parity);
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < S::kPanels * 4; ++step) {
        const uint32_t panel = step / 4, bytes = step % 4 * 32;
        wgmma_wide<T>(acc, a.at(panel * S::kPanelX + bytes), b.at(panel * S::kPanelW + bytes),
                      step != 0 || chunk != at.chunk_begin);
      }
      wgmma_commit();
      wgmma_wait<1>();
      if (chunk != at.chunk_begin) release(before);
      before = stage;
      if (++slot == p.x_stages) slot = 0;
      if (++stage == p.w_stages) {
        stage = 0;
        parity ^= 1;
      }
    }
    wgmma_wait<0>();
    hold_all(acc);
    release(before);
  }

  // The same of codes, 128 of k at a time, which the tensor cores add up in fewer bits; with
  // scales.
  __device__ void multiply_codes(Products& acc, int32_t first_column, int& stage, uint32_t& parity,
                                 int& slot) {
    const Float8Tile<kColumns> tile(p.codes, {.m = p.m, .n = p.n, .gated = p.gated}, token,
                                    first_column);
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) acc[i] = 0.f;
    for (int32_t chunk = at.chunk_begin; chunk < at.chunk_end; ++chunk) {
      const MatrixDescriptor<kAtomBytes> a(x_queue + slot * S::kStageX + group * 64 * 128);
      const MatrixDescriptor<kAtomBytes> b(w_queue + stage * S::kStageW);
      Float8Factors factors[S::kPanels];
      if constexpr (kBlocks) {
#pragma unroll
        for (int panel = 0; panel < S::kPanels; ++panel)
          factors[panel] = tile.factors(chunk * S::kPanels + panel);
      }
      barrier_wait(&s.full[stage], parity);
#pragma unroll
      for (int panel = 0; panel < S::kPanels; ++panel) {
        Products part;
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < 4; ++step) {
          wgmma_float8(part, a.at(panel * S::kPanelX + step * 32),
                       b.at(panel * S::kPanelW + step * 32), step != 0);
        }
        wgmma_commit();
        wgmma_wait<0>();
        hold_all(part);
        if constexpr (kBlocks) {
          tile.add_scaled(acc, part, factors[panel]);
        } else {
#pragma unroll
          for (int i = 0; i < kColumns / 2; ++i) acc[i] += part[i];
        }
      }
      release(stage);
      if (++slot == p.x_stages) slot = 0;
      if (++stage == p.w_stages) {
        stage = 0;
        parity ^= 1;
      }
    }
    if constexpr (!kBlocks) tile.scale_rows(acc, t);
  }

  // --- after the products ---
  // The sums are taken a quad at a time, 32 columns: rows g and g + 8, columns 2t and 2t + 1 of
  // each of 4 fragments.
  using Quad = float[16];

  // --- between blocks that split k: the block of part c % splits adds up quad c ---
  // Where the sums of part `from` lie for the turn-th quad that a block adds up: in bytes, of this
  // thread's fragment 0.
  __device__ uint32_t inbox(int32_t from, int32_t turn) const {
    const int32_t turns = (kQuads + p.splits - 1) / p.splits;
    return ((from * turns + turn) * 4 * kGroups * 128 + group * 128 + thread) * 16;
  }
  static constexpr uint32_t kInboxStep = kGroups * 128 * 16;

  // Warps of this block that have a token; the others send nothing.
  static __device__ int32_t live_warps(const StreamGemmParams& p, const StreamPlace& at) {
    return min(max(p.m - at.mr * S::kTokens + 15, 0) / 16, kGroups * 4);
  }
  // What comes to this block's inbox.
  static __device__ uint32_t mail_bytes(const StreamGemmParams& p, const StreamPlace& at) {
    int32_t fragments = (kQuads - at.kr + p.splits - 1) / p.splits * 4;
    if ((kQuads - 1) % p.splits == at.kr) fragments -= kQuads * 4 - kColumns / 8;
    return fragments * (p.splits - 1) * live_warps(p, at) * kWarp * 16;
  }

  // Each quad to the inbox of the block that adds it up. A block's own quads go to its own inbox by
  // plain stores: only the same thread reads them, and adding up needs no index into registers. The
  // columns that a last quad lacks are not sent.
  __device__ void send(const Products& acc) {
    int32_t part = 0, turn = 0;  // of quad c; counts instead of dividing
#pragma unroll
    for (int c = 0; c < kQuads; ++c) {
      const bool kept = part == at.kr;
      const int32_t rank = at.rank_of(p, at.nr, at.mr, part);
      const uint32_t place = inbox(at.kr, turn);
      const uint32_t to = cluster_address(x_queue, rank) + place;
      const uint32_t mail = cluster_address(&s.mail, rank);
#pragma unroll
      for (int i = 0; i < 4 && c * 4 + i < kColumns / 8; ++i) {
        const float* v = &acc[c * 16 + i * 4];
        if (kept) {
          *reinterpret_cast<float4*>(x_queue + place + i * kInboxStep) = {v[0], v[1], v[2], v[3]};
        } else {
          cluster_send4(to + i * kInboxStep, v, mail);
        }
      }
      if (++part == p.splits) {
        part = 0;
        ++turn;
      }
    }
  }
  // Quad c, the turn-th of this block: the sums of all parts of k, in their order.
  __device__ void receive(int32_t c, int32_t turn, Quad& v) const {
#pragma unroll
    for (int i = 0; i < 16; ++i) v[i] = 0.f;
    for (int32_t from = 0; from < p.splits; ++from) {
      const uint8_t* part = x_queue + inbox(from, turn);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (c * 4 + i >= kColumns / 8) continue;
        const float4 other = *reinterpret_cast<const float4*>(part + i * kInboxStep);
        v[i * 4] += other.x;
        v[i * 4 + 1] += other.y;
        v[i * 4 + 2] += other.z;
        v[i * 4 + 3] += other.w;
      }
    }
  }

  // --- what is added ---
  // Two neighbours; a column that does not exist is zero.
  template <typename Y>
  __device__ float2 load_pair(const Y* from, int32_t column) const {
    if (column >= p.n) return {0.f, 0.f};
    if (p.wide_access) {
      if constexpr (std::is_same_v<Y, float>) {
        return *reinterpret_cast<const float2*>(from);
      } else {
        return unpack2<T>(*reinterpret_cast<const uint32_t*>(from));
      }
    }
    return {to_float(from[0]), column + 1 < p.n ? to_float(from[1]) : 0.f};
  }
  template <typename Y>
  __device__ void add_old(Quad& v, int32_t column) const {
    const Y* y = static_cast<const Y*>(p.y) + token * p.y_stride;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (token + h * 8 >= p.m) continue;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int32_t at_column = column + i * 8 + t * 2;
        const float2 old = load_pair(y + h * 8 * p.y_stride + at_column, at_column);
        v[i * 4 + h * 2] += old.x;
        v[i * 4 + h * 2 + 1] += old.y;
      }
    }
  }
  // The old y of a quad, of 16 bits and as it lies in memory: loaded ahead of its use. `end`: of
  // the columns of this tile.
  using Pairs = uint32_t[8];
  __device__ bool loads_ahead() const { return p.add_to_y && !p.f32_out && p.wide_access; }
  __device__ void load_ahead(Pairs& old, int32_t column, int32_t end) const {
    const T* y = static_cast<const T*>(p.y) + token * p.y_stride;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int32_t at_column = column + i % 4 * 8 + t * 2;
      if (token + i / 4 * 8 < p.m && at_column < end)
        old[i] = *reinterpret_cast<const uint32_t*>(y + i / 4 * 8 * p.y_stride + at_column);
    }
  }
  static __device__ void add_pairs(Quad& v, const Pairs& old) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float2 pair = unpack2<T>(old[i]);
      v[i % 4 * 4 + i / 4 * 2] += pair.x;
      v[i % 4 * 4 + i / 4 * 2 + 1] += pair.y;
    }
  }
  // `offset`: of the bias of these sums.
  template <typename Y>
  __device__ void add_bias(Quad& v, int32_t column, int32_t offset) const {
    const Y* bias = static_cast<const Y*>(p.bias) + offset;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int32_t at_column = column + i / 2 * 8 + t * 2 + i % 2;
      const float b = at_column < p.n ? to_float(bias[at_column]) : 0.f;
      v[i / 2 * 4 + i % 2] += b;
      v[i / 2 * 4 + i % 2 + 2] += b;
    }
  }
  // In the block that stores the quad.
  __device__ void give_bias(Quad& v, int32_t column) const {
    if (p.bias == nullptr) return;
    if (p.f32_out) {
      add_bias<float>(v, column, 0);
    } else {
      add_bias<T>(v, column, 0);
    }
  }
  __device__ void give_old(Quad& v, int32_t column) const {
    if (!p.add_to_y) return;
    if (p.f32_out) {
      add_old<float>(v, column);
    } else {
      add_old<T>(v, column);
    }
  }

  // --- to y ---
  // Where y takes 16 bytes: a lane stores that many, or pairs of f32. `end`: of the columns of this
  // tile.
  template <typename Y>
  __device__ void store_wide(const Quad& v, int32_t column, int32_t end) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const bool inside = token + h * 8 < p.m;
      Y* row = static_cast<Y*>(p.y) + static_cast<int64_t>(token + h * 8) * p.y_stride;
      if constexpr (std::is_same_v<Y, float>) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int32_t to = column + i * 8 + t * 2;
          if (inside && to < end)
            *reinterpret_cast<float2*>(row + to) = {v[i * 4 + h * 2], v[i * 4 + h * 2 + 1]};
        }
      } else {
        uint32_t w[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) w[i] = pack2<T>(v[i * 4 + h * 2], v[i * 4 + h * 2 + 1]);
        transpose_quad(w, t);
        const int32_t to = column + t * 8;
        if (inside && to < end) *reinterpret_cast<uint4*>(row + to) = {w[0], w[1], w[2], w[3]};
      }
    }
  }
  template <typename Y>
  __device__ void store_narrow(const Quad& v, int32_t column, int32_t end) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (token + h * 8 >= p.m) continue;
      Y* row = static_cast<Y*>(p.y) + static_cast<int64_t>(token + h * 8) * p.y_stride;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int32_t to = column + i / 2 * 8 + t * 2 + i % 2;
        if (to < end) row[to] = from_float<Y>(v[i / 2 * 4 + h * 2 + i % 2]);
      }
    }
  }
  __device__ void store(const Quad& v, int32_t column, int32_t end) const {
    if (p.f32_out) {
      p.wide_access ? store_wide<float>(v, column, end) : store_narrow<float>(v, column, end);
    } else {
      p.wide_access ? store_wide<T>(v, column, end) : store_narrow<T>(v, column, end);
    }
  }

  // Of sums without a bias or an old y, where y takes 16 bytes a lane: straight from the registers.
  template <typename Y>
  __device__ void finish_plain(const Products& acc, int32_t first_column) const {
    const int32_t end = min(p.n, first_column + kColumns);
#pragma unroll
    for (int c = 0; c < kQuads; ++c) {
      Quad v;
#pragma unroll
      for (int i = 0; i < 16; ++i) v[i] = c * 16 + i < kColumns / 2 ? acc[c * 16 + i] : 0.f;
      store_wide<Y>(v, first_column + c * 32, end);
    }
  }
  __device__ void finish_gated(const Products& acc, int32_t first_column) const {
    constexpr int kUp = kColumns / 4;   // sums of gate rows; behind them those of up rows
    constexpr int kOut = kColumns / 2;  // columns of y
    const int32_t end = min(p.n, first_column + kOut);
#pragma unroll
    for (int c = 0; c < (kOut + 31) / 32; ++c) {
      Quad v;
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const int sum = c * 16 + i;
        v[i] = sum < kUp ? silu(acc[sum]) * acc[sum + kUp] : 0.f;
      }
      store_wide<T>(v, first_column + c * 32, end);
    }
  }

  // Quad c of the columns from 2 * kFirst on; registers have no index, hence the comparisons.
  template <int kFirst>
  static __device__ void pick(const Products& acc, int32_t c, Quad& v) {
#pragma unroll
    for (int k = 0; kFirst + k * 16 < kColumns / 2; ++k) {
      if (c != k) continue;
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        v[i] = kFirst + k * 16 + i < kColumns / 2 ? acc[kFirst + k * 16 + i] : 0.f;
      }
    }
  }

  // With a bias, an old y or a y of odd strides, of one part of k: quad after quad in a loop, which
  // takes longer, since straight code for all of these would be long.
  __device__ void finish_any(const Products& acc, int32_t first_column) const {
    const int32_t columns = p.gated ? kColumns / 2 : kColumns;
    const int32_t end = min(p.n, first_column + columns);
#pragma unroll 1
    for (int32_t c = 0; c * 32 < columns; ++c) {
      const int32_t column = first_column + c * 32;
      Quad v = {};
      pick<0>(acc, c, v);
      give_bias(v, column);
      give_old(v, column);
      if (p.gated) {
        Quad up = {};
        pick<kColumns / 4>(acc, c, up);
        if (p.bias != nullptr) add_bias<T>(up, column, p.n);
#pragma unroll
        for (int i = 0; i < 16; ++i) v[i] = silu(v[i]) * up[i];
      }
      store(v, column, end);
    }
  }

  // Of this block's part of k: its sums for others, and others' for the quads that are its own.
  __device__ void finish_part(const Products& acc, int32_t first_column) {
    const int32_t end = min(p.n, first_column + kColumns);
    const bool ahead = loads_ahead();
    Pairs old = {};
    if (ahead) load_ahead(old, first_column + at.kr * 32, end);
    cluster_arrive();  // this block has emptied its queues
    cluster_wait();    // and so has every other
    if (group * 4 + thread / kWarp >= live_warps(p, at)) return;
    send(acc);
    barrier_wait_cluster(&s.mail, 0);
    int32_t turn = 0;
#pragma unroll 1
    for (int32_t c = at.kr; c < kQuads; c += p.splits, ++turn) {
      const int32_t column = first_column + c * 32;
      Quad v;
      receive(c, turn, v);
      give_bias(v, column);
      if (ahead) {
        add_pairs(v, old);
        load_ahead(old, column + p.splits * 32, end);
      } else {
        give_old(v, column);
      }
      store(v, column, end);
    }
  }

  __device__ void finish(const Products& acc, int32_t first_column) {
    if (p.splits > 1) {
      finish_part(acc, first_column);
    } else if (!p.wide_access || p.bias != nullptr || p.add_to_y) {
      finish_any(acc, first_column);
    } else if (p.gated) {
      finish_gated(acc, first_column);
    } else if (p.f32_out) {
      finish_plain<float>(acc, first_column);
    } else {
      finish_plain<T>(acc, first_column);
    }
  }

  __device__ void run() {
    wait_for_previous();
    int stage = 0, slot = 0;
    uint32_t parity = 0;
    for (int32_t set = at.cluster; set < p.tile_sets; set += at.clusters) {
      Products acc;  // the first product of a tile sets it
      const int32_t first_column = (set * p.across + at.nr) * (p.gated ? kColumns / 2 : kColumns);
      if constexpr (kOperands == StreamOperands::kHalves) {
        multiply(acc, stage, parity, slot);
      } else {
        multiply_codes(acc, first_column, stage, parity, slot);
      }
      finish(acc, first_column);
    }
  }
};

#endif  // INFERD_HOPPER

}  // namespace inferd::cuda
