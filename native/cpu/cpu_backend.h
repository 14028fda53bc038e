// The class behind make_cpu_backend. Ops run on the stream thread (inside a step) and spread over
// the pool. cpu_backend.cpp: creation, memory, steps; plan_ops.cpp: slots, copies, tokens of a
// step; dense_ops.cpp: embedding, norms, linear, ...; attention_ops.cpp: rotation, cache writes,
// attention; latent_ops.cpp: what latent attention does beside; expert_ops.cpp: routing and
// experts; adapter_ops.cpp: what adapters add to a linear; sample_ops.cpp: sampling and scoring;
// rank_ops.cpp: what needs the other ranks.
//
// Start-up calls (allocate, weights) and steps come from the one thread that owns the engine. Ops
// allocate nothing, except that ropes_, task_offsets_, spans_, expert_groups_ and sampler_scratch_
// grow to their high-water marks in the first steps.
#pragma once
#include <array>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "core/backend.h"
#include "core/comm.h"
#include "cpu/isa/kernels.h"
#include "cpu/runtime/memory.h"
#include "cpu/runtime/stream.h"
#include "cpu/runtime/threads.h"
#include "cpu/sampler/sampler.h"
#include "cpu/weights.h"

namespace inferd::cpu {

// Rows of one pass of a linear over the weights: bounds the packed activations, and keeps a block
// of them in the second-level cache.
constexpr int64_t kMaxPackedRows = 384;

// Rows of activations that meet the same rows of a weight.
struct RowGroup {
  int64_t first, count;
  int64_t first_weight_row;  // where panels begin
  const float* bias;         // of its outputs, or null
};

inline float* row_of(const Tensor& t, int64_t row) { return t.as<float>() + row * t.stride[0]; }

// `count` rows, each `stride` floats behind the one before, as a tile: inputs outermost.
inline void pack_tile(float* to, const float* rows, int64_t stride, int64_t count, int64_t cols) {
  for (int64_t r = 0; r < count; ++r) {
    const float* from = rows + r * stride;
    for (int64_t k = 0; k < cols; ++k) to[k * count + r] = from[k];
  }
}

// Of the rows that a thread packs for one head of head_linear.
constexpr int64_t kHeadLinearFloats = 32 * 1024;

class CpuBackend final : public Backend {
 public:
  CpuBackend(const Kernels& kernels, int threads);

  const BackendInfo& info() const override { return info_; }
  std::string refuses(const LayerShape& layer) const override;
  std::string refuses(const WeightFormat& format) const override;
  bool embeds(const WeightFormat& format) const override {
    return !format.scaled || is_coded(format);
  }

  void* allocate(size_t bytes) override;
  void release(void* p) override;
  // Pages of swap space, which may be large, are taken as they are used.
  void* allocate_host(size_t bytes) override { return allocate(bytes); }
  void release_host(void* p) override { release(p); }
  void upload(void* device, const void* host, size_t bytes) override;
  void download(void* host, const void* device, size_t bytes) override;
  PackedWeightPtr make_weight(const WeightSpec& spec) override;
  void fill_weight(PackedWeight& weight, WeightRole role, int64_t first_row,
                   const Tensor& source) override;
  void fill_coded(PackedWeight& weight, int64_t first_row, int64_t rows,
                  const CodedRows& source) override;

  AdapterBankPtr make_adapter_bank(const AdapterBankSpec& spec) override;
  AdapterImagePtr pack_adapter(const AdapterBank& bank,
                               std::span<const AdapterFactors> factors) override;
  void place_adapter(AdapterBank& bank, int32_t place, const AdapterImage* image) override;

  void run_step(int done_slot, std::function<void()> step) override;
  bool wait_step(int done_slot, int64_t timeout_us) override;
  void start_trace(Trace& trace) override;
  void stop_trace() override;

  void apply_slots(const SlotTables& t, const int32_t* plan_words) override;
  void copy_blocks(std::span<const BlockArray> arrays, const BlockCopy* pairs, int32_t n) override;
  void gather_tokens(const SlotTables& t, const StepBatch& batch) override;
  void gather_next(const SlotTables& t, const StepBatch& batch, int32_t* ids) override;
  void gather_drafts(const SlotTables& t, const StepBatch& batch, int32_t ahead,
                     int32_t lag) override;
  void pick_drafting(const SlotTables& t, const DraftRow* rows, int32_t n, const int32_t* positions,
                     int32_t* picks) override;

  void embed(Tensor out, const Tensor& table, int32_t first_id, const int32_t* ids,
             float scale) override;
  void embed_weight(Tensor out, const PackedWeight& table, int32_t first_id, const int32_t* ids,
                    float scale) override;
  void rms_norm(Tensor out, const Tensor& x, const float* weight, float eps) override;
  void add(Tensor inout, const Tensor& x, float scale) override;
  void linear(const LinearArgs& args) override;
  void gated_mul(Tensor out, const Tensor& gate_up, Gate gate) override;
  void cap_logits(Tensor logits, float scale, float cap) override;
  void gather_rows(Tensor out, const Tensor& x, const int32_t* rows, int32_t n) override;
  void copy_rows(Tensor out, const Tensor& x) override;
  void sum_rows(Tensor sums, const Tensor& x, const RowSum* entries, int32_t n) override;
  void route(const RouteArgs& args) override;
  void mix_experts(const ExpertArgs& args) override;
  void gate_rows(Tensor inout, const Tensor& logits) override;
  void add_rms_norm(Tensor out, Tensor inout, const Tensor& x, const float* weight,
                    float eps) override;

  void head_linear(const HeadLinearArgs& args) override;
  void latent_rope_and_cache(const LatentCacheArgs& args, const SlotTables& t,
                             const StepBatch& batch) override;
  void rope_and_cache(const QkvArgs& args, const SlotTables& t, const StepBatch& batch) override;
  void attention(const AttentionArgs& args, const SlotTables& t, const StepBatch& batch) override;

  void sample(const Tensor& logits, const SlotTables& t, const StepBatch& batch,
              const SampleOutputs& out) override;
  void accept_drafts(const SlotTables& t, const StepBatch& batch,
                     const SampleOutputs& out) override;
  void draft_ngram(const SlotTables& t, const DraftRow* rows, int32_t n, NgramRange range,
                   int32_t* ids) override;
  void draft_best(const Tensor& logits, const SlotTables& t, const DraftRow* rows, int32_t n,
                  int32_t at, const int32_t* target_ids, int32_t* ids) override;
  void score(const Tensor& logits, const int32_t* targets, int32_t top,
             const SampleOutputs& out) override;
  bool read_all(const void* p, size_t bytes) override;

  void join_ranks(const RankGroup& group, std::unique_ptr<Comm> host) override;
  Comm* comm() override { return comm_.get(); }
  void all_reduce(Tensor inout) override;
  void all_gather(Tensor out, const Tensor& part) override;
  GatheredRows gather_rows(Tensor out, const Tensor& part) override;
  void scatter_sums(Tensor out, const Tensor& sums, int64_t first) override;
  void square_sums(Tensor sums, const Tensor& x, float scale) override;
  void scale_by_sums(Tensor inout, const Tensor& sums, int64_t cols, const float* weight,
                     float eps) override;
  void sample_greedy(const Tensor& part, int32_t first_id, const SlotTables& t,
                     const StepBatch& batch, const SampleOutputs& out) override;

 private:
  // Calls body(begin, end, worker) over rows of `row_cost` element operations each, on as many
  // threads as that is worth.
  template <typename Body>
  void over_rows(int64_t rows, int64_t row_cost, Body&& body) {
    // A hand-over costs a few microseconds: about this many simple element operations.
    constexpr int64_t kWorth = 16384;
    const int64_t at_least = (kWorth + row_cost - 1) / (row_cost > 0 ? row_cost : 1);
    const int64_t even = (rows + 4 * pool_.size() - 1) / (4 * pool_.size());
    pool_.parallel_for(rows, at_least > even ? at_least : even, std::forward<Body>(body));
  }
  // out = x w^T + bias
  void multiply(const Tensor& out, const Tensor& x, const PackedWeight& w, const float* bias);
  // The same of output features [first, first + count) of w, whose columns are in `order`; empty:
  // in place.
  void multiply_rows(const Tensor& out, const Tensor& x, const CpuWeight& w, const float* bias,
                     int64_t first, int64_t count, std::span<const int32_t> order);
  // The same of groups of rows, one after the other in x and out and kMaxPackedRows at most, which
  // each have `outs` rows of the weight to themselves.
  void multiply_groups(const Tensor& out, const Tensor& x, const CpuWeight& w, int64_t outs,
                       std::span<const RowGroup> groups);
  // y += what adapters make of x
  void add_adapters(const Tensor& y, const Tensor& x, const AdapterBank& bank,
                    const AdapterRows& adapters);
  template <typename Body>
  void each_tile(std::span<const RowGroup> groups, int64_t tile_rows, int64_t row_cost,
                 Body&& body);
  template <typename Read>
  void embed_rows(const Tensor& out, int64_t table_rows, int32_t first_id, const int32_t* ids,
                  float scale, Read&& read);
  void mix_piece(const ExpertArgs& args, int64_t first, int64_t end);
  const float* rope_table(const RopeTable& rope, const StepBatch& batch);
  const float* pack_activations(const Tensor& x, std::span<const RowGroup> groups);
  const float* pack_codes(const Tensor& x, std::span<const RowGroup> groups);
  void refresh_free_bytes();

  const Kernels& kernels_;
  BackendInfo info_;
  std::map<void*, Buffer> allocations_;
  ThreadPool pool_;

  // Activations of a linear in tiles; sized by make_weight for the widest weight.
  Buffer packed_rows_;
  Buffer ordered_rows_;  // of multiply_rows; sized by the widest weight with an order
  Buffer adapter_lows_;  // of add_adapters: A x of kMaxPackedRows rows; sized by the widest bank
  // [tokens][cos: half | sin: half] of the step, and what it was made for.
  struct RopeKey {
    uint64_t step = 0;
    const float* inv_freq = nullptr;
    const int32_t* positions = nullptr;
    int32_t tokens = 0, half = 0;
    float factor = 0;
    bool operator==(const RopeKey&) const = default;
  };
  // Layers may rotate in two ways, by turns.
  struct RopeValues {
    RopeKey key;
    std::vector<float> values;
  };
  std::array<RopeValues, 2> ropes_;
  size_t next_rope_ = 0;
  std::vector<int64_t> task_offsets_;  // attention tasks before each row
  PickedSpans spans_;
  std::vector<RowGroup> expert_groups_;          // of a piece of mix_experts
  std::vector<SamplerScratch> sampler_scratch_;  // one a thread
  std::unique_ptr<Comm> comm_;                   // of a rank of several
  std::vector<float> best_, all_best_;           // of sample_greedy
  Buffer attention_scratch_;                     // AttentionScratch, one a thread
  Buffer latent_scratch_;                        // LatentScratch, one a thread
  Buffer head_rows_;                             // of head_linear: kHeadLinearFloats a thread
  Trace* trace_ = nullptr;                       // while recording; stream thread only
  uint64_t step_ = 1;  // counts steps and token gathers; stream thread only

  Stream stream_;  // last: its thread ends before the rest dies
};

}  // namespace inferd::cpu
