// The class behind inferd_cuda_make_backend: turns Tensors into pointers and ops into launches on
// one stream. cuda_backend.cpp: creation, memory; run_step.cpp: steps, graphs, copies; ops.cpp:
// plans, ops on rows; rank_ops.cpp: what several ranks do with each other; rank_shares.cpp: sums of
// which each keeps a share; expert_ops.cpp: routing and experts; adapter_ops.cpp: adapters;
// attention_ops.cpp: cache writes and attention; latent_ops.cpp: the same of latents;
// sample_ops.cpp: sampling and scoring; tuning.cpp: the choice of products; bench_ops.cpp: what
// benchmarks ask for.
//
// Thread: the one that made it, which is the engine's; ops are called inside run_step, which calls
// the step at once. Nothing in a step allocates or waits, once reserve_steps has been called; the
// op tests do without it and let the scratch memory grow.
#pragma once
#include <array>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "core/backend.h"
#include "cuda/adapters/adapter_products.h"
#include "cuda/attention/attention_decode.h"
#include "cuda/attention/attention_prefill.h"
#include "cuda/attention/row_lists.h"
#include "cuda/device/half_type.h"
#include "cuda/device/launch.h"
#include "cuda/gemm/gemm.h"
#include "cuda/library.h"
#include "cuda/ranks/rank_group.h"
#include "cuda/ranks/rank_rows.h"
#include "cuda/ranks/sum_pipe.h"
#include "cuda/rows/weights.h"
#include "cuda/runtime/block_swapper.h"
#include "cuda/runtime/event_clock.h"
#include "cuda/runtime/graphs.h"
#include "cuda/runtime/memory.h"
#include "cuda/runtime/staging.h"
#include "cuda/sampler/slots.h"

namespace inferd::cuda {

// Of compute capability: of the devices that the kernels are compiled for.
constexpr int32_t kOldestMajor = 8;

DeviceSlots device_slots(const SlotTables& t);
TokenOutputs token_outputs(const SampleOutputs& o);

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(const CudaOptions& options);
  ~CudaBackend() override;

  const BackendInfo& info() const override { return info_; }
  std::string refuses(const LayerShape& layer) const override;
  std::string refuses(const WeightFormat& format) const override;
  bool embeds(const WeightFormat& format) const override;
  int64_t lookup_bytes(const WeightFormat& format, int64_t rows, int64_t cols) const override;
  std::string refuses_scales(const KvSpec& kv) const override;

  void* allocate(size_t bytes) override;
  void release(void* p) override;
  void upload(void* device, const void* host, size_t bytes) override;
  void download(void* host, const void* device, size_t bytes) override;
  PackedWeightPtr make_weight(const WeightSpec& spec) override;
  void fill_weight(PackedWeight& weight, WeightRole role, int64_t first_row,
                   const Tensor& source) override;
  void fill_coded(PackedWeight& weight, int64_t first_row, int64_t rows,
                  const CodedRows& source) override;
  bool fill_dummy(const Tensor& rows, const DummyRows& numbers) override;
  bool fill_dummy(PackedWeight& weight, int64_t first_row, int64_t rows,
                  const DummyRows& numbers) override;
  bool scale_columns(PackedWeight& weight, const float* factors) override;
  void take_bias(const PackedWeight& weight, const float* bias) override;
  AdapterBankPtr make_adapter_bank(const AdapterBankSpec& spec) override;
  AdapterImagePtr pack_adapter(const AdapterBank& bank,
                               std::span<const AdapterFactors> factors) override;
  void place_adapter(AdapterBank& bank, int32_t place, const AdapterImage* image) override;
  void* allocate_host(size_t bytes) override;
  void release_host(void* p) override;
  void reserve_swap(const SwapPool& pool) override;
  int64_t reserve_steps(const StepShape& shape) override;

  void copy_in(void* device, const void* host, size_t bytes) override;
  void copy_out(void* host, const void* device, size_t bytes) override;
  void run_step(int done_slot, std::function<void()> step) override;
  bool wait_step(int done_slot, int64_t timeout_us) override;
  double step_device_us(int done_slot) override;
  void start_trace(Trace& trace) override;
  void stop_trace() override;
  bool step_window(int done_slot, int64_t& start_ns, int64_t& end_ns) override;
  void run_graph(uint64_t key, const std::function<void()>& body) override;
  void record_graph(uint64_t key, const std::function<void()>& body) override;
  bool takes_bounded(int32_t tokens, std::span<const KvLayer> kv) const override;
  void after_last_step(const std::function<void()>& work) override;

  void apply_slots(const SlotTables& t, const int32_t* plan_words) override;
  void copy_blocks(std::span<const BlockArray> arrays, const BlockCopy* pairs, int32_t n) override;
  void swap_out(const SwapPool& pool, const BlockCopy* pairs, int32_t n, int32_t urgent) override;
  void swap_in(const SwapPool& pool, const BlockCopy* pairs, int32_t n) override;
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
  void rope_and_attend(const QkvArgs& qkv, const AttentionArgs& args, const SlotTables& t,
                       const StepBatch& batch) override;

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

  void join_ranks(const RankGroup& group, std::unique_ptr<Comm> host) override;
  void meet_ranks() override;
  Comm* comm() override { return member_ == nullptr ? nullptr : &member_->host(); }
  void all_reduce(Tensor inout) override;
  void all_reduce_add(Tensor inout, Tensor x, float scale) override;
  void linear_reduce_add(const LinearArgs& args, Tensor inout, float scale,
                         NextReader next) override;
  void all_gather(Tensor out, const Tensor& part) override;
  void square_sums(Tensor sums, const Tensor& x, float scale) override;
  void scale_by_sums(Tensor inout, const Tensor& sums, int64_t cols, const float* weight,
                     float eps) override;
  void sample_greedy(const Tensor& part, int32_t first_id, const SlotTables& t,
                     const StepBatch& batch, const SampleOutputs& out) override;

  bool read_all(const void* p, size_t bytes) override;
  void tune_linear(const LinearArgs& args) override;

 private:
  struct StepSlot {
    Event begin, end;
    bool pending = false;
    std::exception_ptr error;  // what the step function threw
    float device_ms = 0;
    int64_t submitted_ns = 0;  // while recording, else 0
    EventClock::Window window{};
    StepStaging staging;
  };
  // How the rows of the batch in hand go to the attention kernels. Device pointers; made once a
  // batch, by gather_tokens or by the first op that needs it.
  struct RowPlan {
    const void* batch = nullptr;  // StepBatch::rows that this was made for; null: to be made
    int32_t tile_tokens = 0;
    const Picks* picks = nullptr;  // AttentionArgs::picks
    int32_t run_tokens = 1;        // of a decode row at most
    int32_t decode_rows = 0;       // of one token, or pieces of those that start from the device
    int32_t most_tokens = 1;       // of a decode row
    const int32_t* decode_tokens = nullptr;  // null: row i is token i
    const int32_t* decode_slots = nullptr;
    const DecodeRun* decode_runs = nullptr;  // null: all are of one token
    const PrefillTile* tiles = nullptr;
    int32_t num_tiles = 0;
    const int32_t* tile_count = nullptr;  // where num_tiles is a bound
  };
  // A plan_decode_attention that was enqueued for the batch in hand.
  struct DecodePlan {
    int32_t window = -1;  // -1: to be made
    int32_t warps = 0, resident = 0;
    bool settled = false;  // attention has run since: see launch.cuh
    DecodeGrid grid{};
    Scratch shares;
  };
  static constexpr size_t kDecodePlans = 4;
  // A plan larger than this is read where it lies.
  static constexpr size_t kPlanBytes = 256 << 10;

  // inout += scale * (x summed over the ranks): x is on its way to the other rank. These are the
  // rows from `first` on of a matrix at `whole`, of which the rows before are complete. What reads
  // them comes behind finish_sum(), which launch() calls.
  struct SentRows {
    Tensor inout, x;
    float scale;
    const void* whole;
    int64_t first;
  };
  struct RowRange {
    int64_t first, count;
  };
  // A sum over ranks of which each keeps a share of the rows: see rank_shares.cpp.
  struct SharedSum {
    Tensor whole;  // inout
    Tensor x;      // this rank's part of what is added to it
    float scale;
    bool added;  // the own rows hold the sum
  };

  StepSlot& slot_of(int done_slot);
  // Of ops that may read or write any rows that the ops before them made.
  Launch launch() {
    finish_sum();
    return own_launch();
  }
  Launch own_launch() const { return {stream_.get(), starts_early()}; }
  // Ranks that share a device must not fill it with kernels that only wait.
  bool starts_early() const { return major_ >= 9 && (member_ == nullptr || !member_->crowded()); }
  // One thread may drive several backends.
  void use_device() const { cudaSetDevice(device_); }
  void reserve_bests(int64_t rows);
  void sum_ranks(void* inout, const Tensor& x, float scale, bool residual);
  // Whether copy engines may carry a sum of `x` over the ranks, beside products.
  bool carries(const Tensor& x);
  // Of such a sum over two ranks: how many rows each piece of it has.
  int64_t rows_sent_at_once(const Tensor& x);
  void add_sent(const SentRows& sent);
  void finish_sent();
  // Behind it all sums are in all rows.
  void finish_sum() {
    finish_sent();
    if (shared_.has_value()) join_shares();
  }
  bool keeps_shares(const Tensor& x);
  // The rows of shared_ that rank `rank` keeps.
  RowRange share_of_sum(int32_t rank);
  void add_by_shares(const LinearArgs& args, Tensor inout, float scale);
  void send_rows(int32_t to, const Tensor& rows);
  void add_own_share(const NormArgs* norm);
  template <typename Work>
  void exchange_shares(const Tensor& x, const Work& work);
  bool multiply_shares(const LinearArgs& args);
  void join_shares();
  void multiply(const LinearArgs& args);
  void multiply_rows(const LinearArgs& args, int64_t first, int64_t count);
  // A product whose rows have adapters.
  void multiply_adapted(const LinearArgs& args);
  AdapterTiles tiles_of(const AdapterRows& adapters, int32_t rows, bool& settled);
  void reserve_adapters(int32_t most_rows);
  // What one kernel can do of `args`; x and scratch are theirs, the norm is not.
  GemmArgs product(const LinearArgs& args);
  // Room for products of this weight with so many rows; null where they need none.
  GemmSpare spare_of(const CudaWeight& weight, int64_t rows);
  // Products of so many rows, by a weight of codes in tiles, are of that weight widened to 16 bits.
  bool widens(const CudaWeight& weight, int64_t rows) const;
  // Enqueues it; the next one takes its place.
  WeightView widen(const CudaWeight& weight);
  // Of kernels that read before their wait what this step wrote: early once it is settled.
  Launch launch_settled(bool settled) const { return {stream_.get(), settled && starts_early()}; }
  const void* bias_of(const PackedWeight& weight, const float* bias, DType result);
  const int32_t* token_slots(const StepBatch& batch);
  void list_bounded_rows(const StepBatch& batch);
  void forget_batch();
  const RowPlan& plan_rows(const StepBatch& batch, int32_t tile_tokens, int32_t run_tokens,
                           const Picks* picks);
  DecodePlan& plan_decode(const StepBatch& batch, int32_t window, const PagedKv& kv);
  // `rope`: one of a batch of decode rows alone, or none.
  void attend(const AttentionArgs& args, const PagedKv& kv, const StepBatch& batch,
              const DecodeRope& rope);
  void decode_rows(const AttentionArgs& args, const PagedKv& kv, const StepBatch& batch,
                   const DecodeRope& rope);
  void prefill_rows(const AttentionArgs& args, const PagedKv& kv, const StepBatch& batch);
  bool mix_expert_groups(const ExpertArgs& args);
  void attend_latent(const AttentionArgs& args, const SlotTables& t, const StepBatch& batch);
  PagedKv paged(const KvLayer& kv, const SlotTables& t) const;
  // Null where none is needed.
  float* sampler_scratch(int64_t vocab, int64_t rows);
  void tune_products(const StepShape& shape);
  void refresh_free_bytes();
  void forget(const CudaWeight* weight);

  int32_t device_ = 0, major_ = 0, minor_ = 0, sm_count_ = 0;
  Half half_ = Half::kBF16;
  BackendInfo info_;
  Stream stream_;
  std::unique_ptr<RankMember> member_;  // of a rank of several; leaves after the stream is idle
  MailboxMember* mailboxes_ = nullptr;  // member_, of ranks that reach each other's memory
  std::unique_ptr<SumPipe> sum_pipe_;   // with mailboxes_
  std::optional<SentRows> sent_;
  std::optional<SharedSum> shared_;
  Scratch bests_, all_bests_;  // of sample_greedy
  Stream host_stream_;         // of after_last_step
  Event host_work_done_;
  cudaEvent_t last_end_ = nullptr;  // StepSlot::end of the step before the one in hand
  std::map<void*, DeviceMemory> allocations_;
  std::map<void*, PinnedMemory> host_allocations_;
  Uploader uploader_;
  std::unique_ptr<BlockSwapper> swapper_;  // null: there is no swap space
  std::array<StepSlot, 2> slots_;
  StepSlot* current_ = nullptr;              // inside run_step
  std::unique_ptr<EventClock> event_clock_;  // while recording
  Trace* cupti_trace_ = nullptr;             // where CUPTI's records go
  GraphCache graphs_;
  std::unique_ptr<Gemm> gemm_;
  std::vector<const CudaWeight*> weights_;  // that are alive, for tuning; their owners keep them
  Scratch widened_;                         // a weight of codes in 16 bits

  RowPlan row_plan_;
  std::vector<PrefillTile> prefill_rows_;
  PickedSpans spans_;
  std::array<DecodePlan, kDecodePlans> decode_plans_;
  std::vector<int32_t> plan_index_;
  Scratch plan_words_, block_copies_, row_lists_, token_slots_, tickets_, partials_, sampler_,
      tile_counters_, read_result_, spare_;
  std::vector<AdapterFactorsView> adapter_shapes_;  // of all banks
  int32_t adapter_places_ = 0;                      // of any bank, at most
  Scratch adapter_tiles_, adapter_lows_;
  const int32_t* tiled_places_ = nullptr;  // AdapterRows::places that the tiles were made for
  int32_t tiled_rows_ = 0;
  Scratch loaded_rows_;   // that are quantized while weights are loaded
  bool settled_ = false;  // attention has run since the batch was gathered: see launch.cuh
  const void* token_slots_of_ = nullptr;                       // StepBatch::rows they were made for
  std::map<const void*, KvTensorMaps> kv_maps_;                // by KvLayer::k
  std::map<const float*, DeviceMemory> narrow_biases_;         // by the f32 bias
  std::map<const PackedWeight*, const void*> bias_of_weight_;  // of those, for tuning
};

}  // namespace inferd::cuda
