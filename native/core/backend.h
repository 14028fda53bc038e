// The op interface between models and devices. A model is one C++ function over these calls; a
// backend implements them for a device.
//
// Contract
//  - Every op only enqueues on the backend's stream: CUDA launches kernels, the CPU backend runs
//    the op at once on its stream thread (see run_step). Ops of one step run in order; no op
//    allocates, frees or waits.
//  - Tensor memory comes from allocate() at start-up (weights, KV, slot tables) or from the step
//    arena (activations).
//  - Batch invariance, of the CPU backend: an output row depends only on its own inputs, bit for
//    bit, never on the other rows of the batch or on how a prompt was cut into chunks. Prefix hits,
//    preemption and batching then cannot change an answer.
//  - Activations are float32 on the CPU and the model's 16-bit type on CUDA: `info().activation`.
//  - Tensor parallelism: a backend instance is one rank, and joins the others before it meets them
//    in collectives. All ranks enqueue the same collectives in the same order, which therefore
//    follow from the plan alone. A model on one rank calls none.
//  - Data-parallel attention: ranks have plans of their own, and every step has the same
//    collectives, whatever its plan says. An output row does not depend on what other ranks bring.
//  - Required ops are pure virtual. Those that only some models or several ranks need throw where a
//    backend has none; optional fused ops have a default body that composes required ones. A
//    default body that does nothing stands where there may be nothing to do.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "core/adapters.h"
#include "core/attention.h"
#include "core/backend_info.h"
#include "core/coded_block.h"
#include "core/comm.h"
#include "core/dummy_weight.h"
#include "core/error.h"
#include "core/experts.h"
#include "core/gate.h"
#include "core/kv_layer.h"
#include "core/latent.h"
#include "core/linear.h"
#include "core/plan/step_batch.h"
#include "core/plan/step_plan.h"
#include "core/swap_pool.h"
#include "core/tensor.h"
#include "core/trace.h"
#include "core/weight_format.h"

namespace inferd {

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const BackendInfo& info() const = 0;
  // Why ops cannot compute a layer of these sizes, such as "head_dim is 7, not a multiple of 8"; ""
  // when they can.
  virtual std::string refuses(const LayerShape& layer) const = 0;
  // The same of weights in this format: "weights are fp8, and it keeps f16 and bf16".
  virtual std::string refuses(const WeightFormat& format) const = 0;
  // The same of keys and values in 8-bit floats with scales of a checkpoint.
  virtual std::string refuses_scales(const KvSpec& kv) const {
    (void)kv;
    return "";
  }
  // Whether it can look rows of embeddings up in weights of this format, so that a head and its
  // embedding need to be there once only.
  virtual bool embeds(const WeightFormat& format) const {
    (void)format;
    return false;
  }
  // Bytes that such a weight of [rows, cols] takes for it, besides those of its format.
  virtual int64_t lookup_bytes(const WeightFormat& format, int64_t rows, int64_t cols) const {
    (void)format, (void)rows, (void)cols;
    return 0;
  }

  // --- memory (start-up only) ---
  // Zeroed, 64-byte aligned at least; throws Error(kOutOfMemory).
  virtual void* allocate(size_t bytes) = 0;
  virtual void release(void* p) = 0;
  // Both block. Of 0 bytes the pointers may be null.
  virtual void upload(void* device, const void* host, size_t bytes) = 0;
  virtual void download(void* host, const void* device, size_t bytes) = 0;
  // A weight of zeros. Throws Error(kUnsupported) for a format that it refuses.
  virtual PackedWeightPtr make_weight(const WeightSpec& spec) = 0;
  // Takes rows [first_row, first_row + rows of `source`) of what a weight is made from: of its
  // codes, or of its table of scales or zeros. `source` is host memory, packed, at any address.
  // Codes given as f32, f16 or bf16 are the weights themselves, which the backend converts or
  // quantizes. Throws Error(kUnsupported) for roles that the format has not.
  virtual void fill_weight(PackedWeight& weight, WeightRole role, int64_t first_row,
                           const Tensor& source) = 0;
  // Rows [first_row, first_row + rows) of a weight of a coded format, as `source` counts them from
  // 0. Only of formats that it does not refuse.
  virtual void fill_coded(PackedWeight& weight, int64_t first_row, int64_t rows,
                          const CodedRows& source) {
    (void)first_row, (void)rows, (void)source;
    throw Error(ErrorCode::kUnsupported,
                format("The backend %s takes no codes of weights as %s.", info().name.c_str(),
                       format_name(weight.format).c_str()));
  }

  // Fills a row-major f32, f16 or bf16 tensor, or rows of a weight of such a format, with dummy
  // numbers. False when the backend cannot: the loader then makes them itself.
  virtual bool fill_dummy(const Tensor& rows, const DummyRows& numbers) {
    (void)rows, (void)numbers;
    return false;
  }
  virtual bool fill_dummy(PackedWeight& weight, int64_t first_row, int64_t rows,
                          const DummyRows& numbers) {
    (void)weight, (void)first_row, (void)rows, (void)numbers;
    return false;
  }
  // Host memory, zeroed, from and to which copy_in and copy_out move without blocking. Throws
  // Error(kOutOfMemory).
  virtual void* allocate_host(size_t bytes) {
    constexpr size_t kAlign = 64;
    const size_t rounded = (bytes + kAlign) / kAlign * kAlign;
    void* p = std::aligned_alloc(kAlign, rounded);
    if (p == nullptr) throw Error(ErrorCode::kOutOfMemory, "The host is out of memory.");
    return std::memset(p, 0, rounded);
  }
  virtual void release_host(void* p) { std::free(p); }
  // Once, before the first step that swaps. Nothing where copies of blocks need no preparation.
  virtual void reserve_swap(const SwapPool& pool) { (void)pool; }
  // Once, before the first step of an engine: allocates what steps of this shape need besides the
  // engine's own memory. Returns the bytes.
  virtual int64_t reserve_steps(const StepShape& shape) {
    (void)shape;
    return 0;
  }

  // Once a weight is filled: weight[r][c] *= factors[c], so that what is ahead of its linear op
  // need not multiply by them; `factors` [cols] is device memory. False: the weight stays as it is.
  virtual bool scale_columns(PackedWeight& weight, const float* factors) {
    (void)weight, (void)factors;
    return false;
  }

  // Once the bias of a linear weight is filled, before steps: makes what products want of it.
  // Forgotten when `bias` is released. Nothing where products take it as it is.
  virtual void take_bias(const PackedWeight& weight, const float* bias) {
    (void)weight, (void)bias;
  }

  // Room for the factors of adapters of one linear; all places are empty.
  virtual AdapterBankPtr make_adapter_bank(const AdapterBankSpec& spec) {
    (void)spec;
    throw Error(ErrorCode::kUnsupported, format("The backend %s runs no adapters; set lora.enabled "
                                                "= false.",
                                                info().name.c_str()));
  }
  // Once an adapter is read, steps may be in flight: its factors for the linear of this bank, at
  // most one entry a section. Throws Error(kOutOfMemory).
  virtual AdapterImagePtr pack_adapter(const AdapterBank& bank,
                                       std::span<const AdapterFactors> factors) {
    (void)bank, (void)factors;
    lacks("pack_adapter");
  }

  // --- steps ---
  // Inside a step, ahead of the ops that read it: `image`, which lives until the step is done,
  // takes the place of all that was in `place`. Sections without factors get nothing added; with
  // null none does.
  virtual void place_adapter(AdapterBank& bank, int32_t place, const AdapterImage* image) {
    (void)bank, (void)place, (void)image;
    lacks("place_adapter");
  }
  // Inside a step: enqueue a copy from or to host memory that lives until the step is done.
  virtual void copy_in(void* device, const void* host, size_t bytes) {
    upload(device, host, bytes);
  }
  virtual void copy_out(void* host, const void* device, size_t bytes) {
    download(host, device, bytes);
  }
  // Runs `step` on the stream after the steps before it; returns at once. `done_slot` (0 or 1)
  // names the completion to wait for.
  virtual void run_step(int done_slot, std::function<void()> step) = 0;
  // True when that step has finished; false after timeout_us. Rethrows what the step threw.
  virtual bool wait_step(int done_slot, int64_t timeout_us) = 0;
  // Microseconds the device spent on the step that was waited for last in this slot; -1: it ran
  // while `step` was called.
  virtual double step_device_us(int done_slot) {
    (void)done_slot;
    return -1;
  }
  // Inside a step, once: calls `work` when all that the steps before this one enqueued is done,
  // what they copied out among it; ops enqueued from here on run after it, those enqueued before
  // may run beside it. Calls come in the order of the steps, on a thread of the backend's choosing.
  // `work` calls no backend, throws nothing and lives until the step is done.
  virtual void after_last_step(const std::function<void()>& work) { work(); }
  // Inside a step: enqueues `body`, or replays what an earlier call of the same key recorded. The
  // caller guarantees that equal keys enqueue the same ops with the same arguments.
  virtual void run_graph(uint64_t key, const std::function<void()>& body) {
    (void)key;
    body();
  }

  // At start-up: what run_graph() will replay. A backend that can record without a run does so: it
  // takes a third of the time, and none of several ranks waits for another one.
  virtual void record_graph(uint64_t key, const std::function<void()>& body) {
    run_graph(key, body);
  }

  // Whether ops take bounded batches of so many tokens whose keys and values lie like this.
  virtual bool takes_bounded(int32_t tokens, std::span<const KvLayer> kv) const {
    (void)tokens, (void)kv;
    return false;
  }

  // --- recordings ---
  // From here until stop_trace adds what the device does to `trace`. Both wait for running steps.
  // A backend that has nothing to tell adds nothing.
  virtual void start_trace(Trace& trace) { (void)trace; }
  virtual void stop_trace() {}
  // When the device ran the step waited for last in this slot, where that is not when the host ran
  // `step`. False: not known.
  virtual bool step_window(int done_slot, int64_t& start_ns, int64_t& end_ns) {
    (void)done_slot, (void)start_ns, (void)end_ns;
    return true;
  }

  // --- plan ---
  // Applies freed slots, new slots, block sets (already validated, host memory that lives until the
  // step is done).
  virtual void apply_slots(const SlotTables& t, const int32_t* plan_words) = 0;
  // In the order of `pairs`, in each of the arrays.
  virtual void copy_blocks(std::span<const BlockArray> arrays, const BlockCopy* pairs,
                           int32_t n) = 0;
  // Device blocks `src` to host blocks `dst`, and host blocks `src` to device blocks `dst`. They
  // run after the steps before this one and before those after it; of this step, the ops that
  // follow may run beside them, so they keep off these device blocks. Only the first `urgent` pairs
  // of swap_out have been read before any op that follows. `pairs` come from allocate_host and live
  // until the step is done. The bodies here are for host memory.
  virtual void swap_out(const SwapPool& pool, const BlockCopy* pairs, int32_t n, int32_t urgent) {
    (void)urgent;
    swap_out_on_host(pool, std::span(pairs, static_cast<size_t>(n)));
  }
  virtual void swap_in(const SwapPool& pool, const BlockCopy* pairs, int32_t n) {
    swap_in_on_host(pool, std::span(pairs, static_cast<size_t>(n)));
  }
  // Fills ids, positions, token_rows of the batch from the slot tables. The id of a draft that
  // there is not is -1; its place in the sequence is computed and means nothing.
  virtual void gather_tokens(const SlotTables& t, const StepBatch& batch) = 0;
  // ids[i] = the token behind that of batch.positions[i] in the history of its sequence, or -1.
  virtual void gather_next(const SlotTables& t, const StepBatch& batch, int32_t* ids) {
    (void)t, (void)batch, (void)ids;
    no_drafters();
  }
  // Row i of the batch is one token: the one that stands `ahead` places behind the last token of
  // the history of draft row i, as if drafts were history, and its place less `lag`.
  virtual void gather_drafts(const SlotTables& t, const StepBatch& batch, int32_t ahead,
                             int32_t lag) {
    (void)t, (void)batch, (void)ahead, (void)lag;
    no_drafters();
  }
  // picks[i] = the batch row of the last token but one of the history of draft row i.
  virtual void pick_drafting(const SlotTables& t, const DraftRow* rows, int32_t n,
                             const int32_t* positions, int32_t* picks) {
    (void)t, (void)rows, (void)n, (void)positions, (void)picks;
    no_drafters();
  }

  // --- required ops ---
  // out[i] = scale * table[ids[i] - first_id], or zeros for an id outside; `table` is [ids, hidden]
  // in the dtype of the checkpoint.
  virtual void embed(Tensor out, const Tensor& table, int32_t first_id, const int32_t* ids,
                     float scale) = 0;
  // The same from the rows of a weight that is looked_up, where embeds(its format).
  virtual void embed_weight(Tensor out, const PackedWeight& table, int32_t first_id,
                            const int32_t* ids, float scale) {
    (void)out, (void)table, (void)first_id, (void)ids, (void)scale;
    lacks("embed_weight");
  }
  // Rows may lie apart, as part of wider ones; `out` may be `x`.
  virtual void rms_norm(Tensor out, const Tensor& x, const float* weight, float eps) = 0;
  // inout += scale * x
  virtual void add(Tensor inout, const Tensor& x, float scale) = 0;
  virtual void linear(const LinearArgs& args) = 0;
  // Keys and values of one-token rows are the only ones that this step writes to their sequence:
  // all before them are in the cache since earlier steps, and attention may fetch them ahead of
  // this.
  virtual void rope_and_cache(const QkvArgs& args, const SlotTables& t, const StepBatch& batch) = 0;
  virtual void attention(const AttentionArgs& args, const SlotTables& t,
                         const StepBatch& batch) = 0;
  // Both, one after the other, of one layer; args.qkv is qkv.qkv, which then holds anything.
  virtual void rope_and_attend(const QkvArgs& qkv, const AttentionArgs& args, const SlotTables& t,
                               const StepBatch& batch) {
    rope_and_cache(qkv, t, batch);
    attention(args, t, batch);
  }
  // core/latent.h. Only of layers that it does not refuse.
  virtual void head_linear(const HeadLinearArgs& args) {
    (void)args;
    lacks("head_linear");
  }
  virtual void latent_rope_and_cache(const LatentCacheArgs& args, const SlotTables& t,
                                     const StepBatch& batch) {
    (void)args, (void)t, (void)batch;
    lacks("latent_rope_and_cache");
  }
  // [n, 2d] -> [n, d], the gate is the first half.
  virtual void gated_mul(Tensor out, const Tensor& gate_up, Gate gate) = 0;
  virtual void gather_rows(Tensor out, const Tensor& x, const int32_t* rows, int32_t n) = 0;
  // Both may be parts of wider rows.
  virtual void copy_rows(Tensor out, const Tensor& x) {
    (void)out, (void)x;
    no_drafters();
  }
  // sums[e.to] = (e.fresh ? 0 : sums[e.to]) + x[e.first] + x[e.first + 1] + .. for each entry e of
  // `n`, which is device memory. One after the other and in float32, the type of `sums`, so that a
  // sum taken in pieces has the bits of one taken at once. No two entries have the same `to`.
  virtual void sum_rows(Tensor sums, const Tensor& x, const RowSum* entries, int32_t n) = 0;
  // core/experts.h. Only of layers that it does not refuse.
  virtual void route(const RouteArgs& args) {
    (void)args;
    lacks("route");
  }
  virtual void mix_experts(const ExpertArgs& args) {
    (void)args;
    lacks("mix_experts");
  }
  // inout[i][c] *= 1 / (1 + exp(-logits[i])); `logits` is float32 [rows, 1]. Only of layers that it
  // does not refuse.
  virtual void gate_rows(Tensor inout, const Tensor& logits) {
    (void)inout, (void)logits;
    lacks("gate_rows");
  }
  // logits *= scale, then, for cap > 0, cap tanh(logits / cap); float32.
  virtual void cap_logits(Tensor logits, float scale, float cap) = 0;
  // Raw logprobs, then the processing order of vLLM V1, then one draw per sample; appends the token
  // to the slot's history. Row i of `logits` belongs to sample i. Of a batch that is `drafted`, a
  // sample draws as if its `offset` drafts were history, and appends nothing; where there are fewer
  // drafts it gives kNoDraft.
  virtual void sample(const Tensor& logits, const SlotTables& t, const StepBatch& batch,
                      const SampleOutputs& out) = 0;
  // Behind all samples of a batch that is `drafted`: of each slot the tokens in their order go to
  // its history as long as the one before is the draft that was computed there; `out` says
  // kDraftRefused in place of the others. So every token is what the sampler draws behind the
  // tokens before it, as without drafts. Uses up the drafts.
  virtual void accept_drafts(const SlotTables& t, const StepBatch& batch,
                             const SampleOutputs& out) {
    (void)t, (void)batch, (void)out;
    throw Error(ErrorCode::kUnsupported,
                format("The backend %s checks no drafts.", info().name.c_str()));
  }
  // Drafts rows[i].count tokens at most for each of `n` slots (device memory, at most max_sample -
  // 1 each): what follows the first place in the history where its last m tokens stand before, for
  // the largest m of `range` that has one. `ids` [n, max_sample - 1] gets the same, and -1 behind
  // them.
  virtual void draft_ngram(const SlotTables& t, const DraftRow* rows, int32_t n, NgramRange range,
                           int32_t* ids) {
    (void)t, (void)rows, (void)n, (void)range, (void)ids;
    throw Error(ErrorCode::kUnsupported,
                format("The backend %s makes no drafts.", info().name.c_str()));
  }
  // The draft `at` places behind the history of each of `n` slots, of which there are that many so
  // far: the best of its row of `logits`, and of several the first. Rows of logits are of ids 0, 1,
  // .., or of target_ids[0], target_ids[1], .. `ids` [n, max_sample - 1] gets the same.
  virtual void draft_best(const Tensor& logits, const SlotTables& t, const DraftRow* rows,
                          int32_t n, int32_t at, const int32_t* target_ids, int32_t* ids) {
    (void)logits, (void)t, (void)rows, (void)n, (void)at, (void)target_ids, (void)ids;
    no_drafters();
  }
  // Log-softmax of chosen targets: for row i of `logits`, logprob and rank of targets[i] and the
  // best `top` entries.
  virtual void score(const Tensor& logits, const int32_t* targets, int32_t top,
                     const SampleOutputs& out) = 0;

  // --- collectives over ranks ---
  // Joins the ranks of a group without waiting for them, as the first collective does. Once. `host`
  // is what this rank does with the others in host memory. Throws Error(kUnsupported) where a
  // backend computes whole models only.
  virtual void join_ranks(const RankGroup& group, std::unique_ptr<Comm> host) {
    (void)group, (void)host;
    throw Error(ErrorCode::kUnsupported, format("The backend %s computes whole models only; set "
                                                "parallel.tensor_parallel_size = 1.",
                                                info().name.c_str()));
  }
  // What takes all ranks at once, before their first step; each waits for the others in it. May be
  // left out, as where one thread drives all ranks.
  virtual void meet_ranks() {}
  // Null before join_ranks.
  virtual Comm* comm() { return nullptr; }
  // As those of Comm, inside a step. These and those below have no body that does nothing: a model
  // on one rank calls none of them.
  virtual void all_reduce(Tensor inout) {
    (void)inout;
    lacks("all_reduce");
  }
  virtual void all_gather(Tensor out, const Tensor& part) {
    (void)out, (void)part;
    lacks("all_gather");
  }
  // Only where info().spreads_experts. The numbers of rows of the other ranks are known behind it.
  virtual GatheredRows gather_rows(Tensor out, const Tensor& part) {
    (void)out, (void)part;
    lacks("gather_rows over ranks");
  }
  virtual void scatter_sums(Tensor out, const Tensor& sums, int64_t first) {
    (void)out, (void)sums, (void)first;
    lacks("scatter_sums");
  }
  // A norm over columns of which each rank has some: sums[i] = scale * the sum of x[i][c]^2,
  // float32 [rows, 1]; then, with the sums over all ranks, inout[i][c] *= weight[c] / sqrt(sums[i]
  // / cols + eps).
  virtual void square_sums(Tensor sums, const Tensor& x, float scale) {
    (void)sums, (void)x, (void)scale;
    lacks("square_sums");
  }
  virtual void scale_by_sums(Tensor inout, const Tensor& sums, int64_t cols, const float* weight,
                             float eps) {
    (void)inout, (void)sums, (void)cols, (void)weight, (void)eps;
    lacks("scale_by_sums");
  }
  // As sample() of a batch that is plain_greedy, where this rank has the logits of the ids
  // first_id, first_id + 1, ..: the ranks tell each other their best, ties to the lower id.
  virtual void sample_greedy(const Tensor& part, int32_t first_id, const SlotTables& t,
                             const StepBatch& batch, const SampleOutputs& out) {
    (void)part, (void)first_id, (void)t, (void)batch, (void)out;
    lacks("sample_greedy");
  }

  // --- optional fused ops ---
  // inout, the same on all ranks, += scale * (the product of `args` summed over the ranks);
  // args.out may hold a part of it. `next` is a hint: any op may read inout.
  virtual void linear_reduce_add(const LinearArgs& args, Tensor inout, float scale,
                                 NextReader next) {
    (void)next;
    linear(args);
    all_reduce_add(inout, args.out, scale);
  }
  // inout, the same on all ranks, += scale * (x summed over the ranks); `x` may hold the sum
  virtual void all_reduce_add(Tensor inout, Tensor x, float scale) {
    all_reduce(x);
    add(inout, x, scale);
  }
  // inout += x; out = rms_norm(inout)
  virtual void add_rms_norm(Tensor out, Tensor inout, const Tensor& x, const float* weight,
                            float eps) {
    add(inout, x, 1);
    rms_norm(out, inout, weight, eps);
  }

  // --- measuring (benchmarks only) ---
  // Enqueues a kernel that only reads memory of the device: its speed is the limit of what is bound
  // by memory, and what it reads takes the place of everything else in the caches. False: none.
  virtual bool read_all(const void* p, size_t bytes) {
    (void)p, (void)bytes;
    return false;
  }
  // Between steps: chooses how these shapes are computed, as engines have it done at start; waits,
  // and overwrites `out` and `scratch`. Nothing where there is one way only.
  virtual void tune_linear(const LinearArgs& args) { (void)args; }

 private:
  [[noreturn]] void lacks(const char* op) const {
    throw Error(ErrorCode::kUnsupported,
                format("The backend %s has no op %s.", info().name.c_str(), op));
  }
  [[noreturn]] void no_drafters() const {
    throw Error(ErrorCode::kUnsupported,
                format("The backend %s runs no network that drafts; set speculative.method = "
                       "\"ngram\" or \"none\".",
                       info().name.c_str()));
  }
};

}  // namespace inferd
