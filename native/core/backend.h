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
//  - Tensor parallelism: a backend instance is one rank; all_reduce and all_gather meet the other
//    ranks. Ranks = 1: they do nothing.
//  - Required ops are pure virtual; optional fused ops have a default body that composes required
//    ones.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "core/error.h"
#include "core/picks.h"
#include "core/sampling_row.h"
#include "core/step_plan.h"
#include "core/swap_pool.h"
#include "core/tensor.h"
#include "core/trace.h"

namespace inferd {

struct BackendInfo {
  std::string name;  // "cpu avx512 x2"
  DType activation;
  int64_t total_bytes;
  int64_t free_bytes;
  bool host_memory;        // device pointers can be read by the host
  bool graphs = false;     // run_graph records and replays
  int32_t ranks = 1;       // that all_reduce and all_gather meet
  bool narrow_kv = false;  // keys and values may be kF8 and kI8
};

// The sizes of a model that kernels may not take.
struct ModelShape {
  int64_t hidden_size = 0, intermediate_size = 0;
  int32_t heads = 0, kv_heads = 0, head_dim = 0, rotary_dim = 0;
};

// Which op multiplies by a weight: what a backend tunes for.
enum class LinearUse { kPlain, kAdd, kGated };

// A linear weight in the backend's own layout (repacked for the instruction set or tensor cores).
// Its owner lets go of it before the backend.
struct PackedWeight {
  int64_t rows = 0;  // output features
  int64_t cols = 0;  // input features
  DType dtype = DType::kF32;
  LinearUse use = LinearUse::kPlain;  // set by its owner
  void* plain = nullptr;  // device memory of the whole weight where it is kept row-major
  virtual ~PackedWeight() = default;
};
using PackedWeightPtr = std::unique_ptr<PackedWeight>;

// Device tables of all slots; one row a slot. Pointers are device memory, owned by the engine.
struct SlotTables {
  int32_t* tokens;        // [max_slots, max_len] history: prompt then output
  int32_t* lengths;       // [max_slots] tokens in the history
  int32_t* prompt_lens;   // [max_slots]
  int32_t* blocks;        // [max_slots, max_blocks] block table
  SamplingRow* sampling;  // [max_slots]
  int32_t* bias_ids;      // [max_slots, max_bias] logit bias of a slot, its first num_bias entries
  float* bias_values;     // [max_slots, max_bias]
  int32_t* num_bias;      // [max_slots]
  int32_t* masked_ids;    // [max_slots, max_masked] what min_tokens masks
  int32_t* num_masked;    // [max_slots]
  int32_t max_slots, max_len, max_blocks, max_bias, max_masked;
};

// The rows of one step. A graph may have more rows than the step: those have no tokens, tokens
// behind the last row have id and position -1, and samples slot -1. `host_*` are host copies that
// the plan already knew; the others are device arrays of the step arena.
struct StepBatch {
  int32_t num_rows, num_tokens, num_samples;
  const PlanRow* host_rows;        // [num_rows]
  const PlanSample* host_samples;  // [num_samples]
  const PlanRow* rows;             // [num_rows] device
  const PlanSample* samples;       // [num_samples] device
  const int32_t* row_offsets;      // [num_rows + 1] first token of each row
  int32_t* ids;                    // [num_tokens] gathered from the slot tables
  int32_t* positions;              // [num_tokens]
  int32_t* token_rows;             // [num_tokens] row of each token
  int32_t max_row_count;           // longest row
  int32_t max_context;             // largest start + count, or a bound of it
  bool plain_greedy;               // no sample draws, edits its logits or wants log-probabilities
};

// The largest steps an engine will run: a backend sizes its own step memory by it.
struct StepShape {
  int32_t max_rows, max_tokens, max_context, max_logit_rows;
  int32_t heads, kv_heads, head_dim, block_size;
  int64_t vocab_size;
};

// Paged KV of one layer: k and v are [num_blocks] blocks, and a block is [kv_heads, block_size,
// head_dim] of `dtype`: f32, f16, bf16, kF8 (e4m3, as it is) or kI8, whose blocks end with an f32
// scale a row, [kv_heads, block_size]. Whoever copies blocks copies block_bytes() of each.
struct KvLayer {
  void* k;
  void* v;
  DType dtype;
  int32_t num_blocks, block_size, kv_heads, head_dim;

  int64_t block_bytes() const {
    const int64_t rows = int64_t{kv_heads} * block_size;
    const int64_t bytes = rows * head_dim * dtype_bytes(dtype);
    return dtype == DType::kI8 ? (bytes + rows * 4 + 15) / 16 * 16 : bytes;
  }
};

struct RopeTable {
  const float* inv_freq;   // [head_dim / 2] device, scaling already applied
  float attention_factor;  // multiplies cos and sin
  int32_t rotary_dim;      // <= head_dim; half-split pairing (i, i + rotary_dim / 2)
};

// The norm ahead of a linear op: x / sqrt(mean(x^2) + eps) * weight, a row at a time.
struct NormArgs {
  Tensor x;             // [tokens, hidden]
  Tensor scratch;       // the same shape: may hold the result
  const float* weight;  // [hidden] device; null: folded into the linear's weight by scale_columns
  float eps;
};

// q/k/v of one layer before rope, written by the fused qkv projection: [tokens, (heads + 2
// kv_heads) * head_dim].
struct QkvArgs {
  Tensor qkv;                     // in/out: q part is rotated in place
  const float* q_norm = nullptr;  // [head_dim] or null
  const float* k_norm = nullptr;
  float norm_eps = 0;
  int32_t heads = 0;
  KvLayer kv;
  RopeTable rope;
};

struct AttentionArgs {
  Tensor out;  // [tokens, heads * head_dim]
  Tensor qkv;  // as above, q rotated
  int32_t heads = 0;
  KvLayer kv;
  float scale = 0;
  int32_t window = 0;  // 0 = full causal, else keys with position > query position - window
  const Picks* picks = nullptr;  // of `out` only these rows are wanted; null: all
};

struct SampleOutputs {  // device memory, [num_samples] and [num_samples, 20]
  int32_t* tokens;
  float* logprobs;  // NaN when not asked for
  int32_t* ranks;
  int32_t* top_ids;
  float* top_logprobs;
  int32_t* top_counts;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const BackendInfo& info() const = 0;
  // Why ops cannot compute a model of these sizes, such as "head_dim is 7, not a multiple of 8"; ""
  // when they can.
  virtual std::string refuses(const ModelShape& model) const = 0;

  // --- memory (start-up only) ---
  // Zeroed, 64-byte aligned at least; throws Error(kOutOfMemory).
  virtual void* allocate(size_t bytes) = 0;
  virtual void release(void* p) = 0;
  // Both block. Of 0 bytes the pointers may be null.
  virtual void upload(void* device, const void* host, size_t bytes) = 0;
  virtual void download(void* host, const void* device, size_t bytes) = 0;
  // Repacks rows [row, row + rows of `source`) of a weight. `source` is host memory in checkpoint
  // layout [rows, cols]; f32, f16, bf16.
  virtual PackedWeightPtr make_weight(int64_t rows, int64_t cols, DType dtype) = 0;
  virtual void fill_weight(PackedWeight& weight, int64_t first_row, const Tensor& source) = 0;
  // Fills a row-major f32, f16 or bf16 tensor with dummy_weight(counter + i) of
  // core/dummy_weight.h. False when the backend cannot: the loader then makes the numbers itself.
  virtual bool fill_dummy(const Tensor& rows, uint64_t counter) {
    (void)rows, (void)counter;
    return false;
  }
  // Host memory, zeroed, from and to which copy_in and copy_out move without blocking. Throws
  // Error(kOutOfMemory).
  virtual void* allocate_host(size_t bytes);
  virtual void release_host(void* p);
  // Once, before the first step that swaps.
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
  // Forgotten when `bias` is released.
  virtual void take_bias(const PackedWeight& weight, const float* bias) {
    (void)weight, (void)bias;
  }

  // --- steps ---
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
  // Inside a step: enqueues `body`, or replays what an earlier call of the same key recorded. The
  // caller guarantees that equal keys enqueue the same ops with the same arguments.
  virtual void run_graph(uint64_t key, const std::function<void()>& body) {
    (void)key;
    body();
  }

  // --- recordings ---
  // From here until stop_trace adds what the device does to `trace`. Both wait for running steps.
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
  // In the order of `pairs`, in the caches of all `layers`.
  virtual void copy_blocks(std::span<const KvLayer> layers, const BlockCopy* pairs, int32_t n) = 0;
  // Device blocks `src` to host blocks `dst`, and host blocks `src` to device blocks `dst`. They
  // run after the steps before this one and before those after it; of this step, the ops that
  // follow may run beside them, so they keep off these device blocks. Only the first `urgent` pairs
  // of swap_out have been read before any op that follows. `pairs` come from allocate_host and live
  // until the step is done. The bodies here are for host memory.
  virtual void swap_out(const SwapPool& pool, const BlockCopy* pairs, int32_t n, int32_t urgent);
  virtual void swap_in(const SwapPool& pool, const BlockCopy* pairs, int32_t n);
  // Fills ids, positions, token_rows of the batch from the slot tables.
  virtual void gather_tokens(const SlotTables& t, const StepBatch& batch) = 0;

  // --- required ops ---
  // `table` is [vocab, hidden] in the dtype of the checkpoint.
  virtual void embed(Tensor out, const Tensor& table, const int32_t* ids) = 0;
  virtual void rms_norm(Tensor out, const Tensor& x, const float* weight, float eps) = 0;
  virtual void add(Tensor inout, const Tensor& x) = 0;
  virtual void linear(Tensor out, const Tensor& x, const PackedWeight& w, const float* bias) = 0;
  // Keys and values of one-token rows are the only ones that this step writes to their sequence:
  // all before them are in the cache since earlier steps, and attention may fetch them ahead of
  // this.
  virtual void rope_and_cache(const QkvArgs& args, const SlotTables& t, const StepBatch& batch) = 0;
  virtual void attention(const AttentionArgs& args, const SlotTables& t,
                         const StepBatch& batch) = 0;
  // [n, 2d] -> [n, d], the gate is the first half.
  virtual void silu_mul(Tensor out, const Tensor& gate_up) = 0;
  virtual void gather_rows(Tensor out, const Tensor& x, const int32_t* rows, int32_t n) = 0;
  // Raw logprobs, then the processing order of vLLM V1, then one draw per sample; appends the token
  // to the slot's history.
  virtual void sample(const Tensor& logits, const SlotTables& t, const StepBatch& batch,
                      const SampleOutputs& out) = 0;
  // Log-softmax of chosen targets: for row i of `logits`, logprob and rank of targets[i] and the
  // best `top` entries.
  virtual void score(const Tensor& logits, const int32_t* targets, int32_t top,
                     const SampleOutputs& out) = 0;

  // --- collectives over ranks ---
  virtual void all_reduce(Tensor inout) { (void)inout; }
  virtual void all_gather(Tensor out, const Tensor& part) { (void)out, (void)part; }

  // --- optional fused ops ---
  // inout += x w^T (+ bias); `scratch` has the shape of inout.
  virtual void linear_add(Tensor inout, Tensor scratch, const Tensor& x, const PackedWeight& w,
                          const float* bias) {
    linear(scratch, x, w, bias);
    add(inout, scratch);
  }
  // out = silu(gate) * up, where x w^T (+ bias) = [gate | up]; `scratch` [n, 2d] may hold that.
  virtual void linear_gated(Tensor out, Tensor scratch, const Tensor& x, const PackedWeight& w,
                            const float* bias) {
    linear(scratch, x, w, bias);
    silu_mul(out, scratch);
  }
  // rms_norm, then linear or linear_gated of its result.
  virtual void norm_linear(const NormArgs& norm, Tensor out, const PackedWeight& w,
                           const float* bias) {
    rms_norm(norm.scratch, norm.x, norm.weight, norm.eps);
    linear(out, norm.scratch, w, bias);
  }
  virtual void norm_linear_gated(const NormArgs& norm, Tensor out, Tensor scratch,
                                 const PackedWeight& w, const float* bias) {
    rms_norm(norm.scratch, norm.x, norm.weight, norm.eps);
    linear_gated(out, scratch, norm.scratch, w, bias);
  }
  // inout += x; out = rms_norm(inout)
  virtual void add_rms_norm(Tensor out, Tensor inout, const Tensor& x, const float* weight,
                            float eps) {
    add(inout, x);
    rms_norm(out, inout, weight, eps);
  }

  // --- measuring (benchmarks only) ---
  // Enqueues a kernel that only reads memory of the device: its speed is the limit of what is bound
  // by memory, and what it reads takes the place of everything else in the caches. False: none.
  virtual bool read_all(const void* p, size_t bytes) {
    (void)p, (void)bytes;
    return false;
  }
  // Between steps: chooses how the linear op of w.use does these shapes, as engines have it done at
  // start; waits, and overwrites `out` and `scratch`.
  virtual void tune_linear(Tensor out, Tensor scratch, const Tensor& x, const PackedWeight& w) {
    (void)out, (void)scratch, (void)x, (void)w;
  }
};

inline void* Backend::allocate_host(size_t bytes) {
  constexpr size_t kAlign = 64;
  const size_t rounded = (bytes + kAlign) / kAlign * kAlign;
  void* p = std::aligned_alloc(kAlign, rounded);
  if (p == nullptr) throw Error(ErrorCode::kOutOfMemory, "The host is out of memory.");
  return std::memset(p, 0, rounded);
}
inline void Backend::release_host(void* p) { std::free(p); }

inline void Backend::swap_out(const SwapPool& pool, const BlockCopy* pairs, int32_t n,
                              int32_t urgent) {
  (void)urgent;
  char* host = static_cast<char*>(pool.host);
  for (const BlockArray& a : pool.arrays) {
    const char* device = static_cast<const char*>(a.base);
    const auto bytes = static_cast<size_t>(a.block_bytes);
    for (const BlockCopy& c : std::span(pairs, static_cast<size_t>(n)))
      std::memcpy(host + c.dst * a.block_bytes, device + c.src * a.block_bytes, bytes);
    host += pool.num_blocks * a.block_bytes;
  }
}
inline void Backend::swap_in(const SwapPool& pool, const BlockCopy* pairs, int32_t n) {
  const char* host = static_cast<const char*>(pool.host);
  for (const BlockArray& a : pool.arrays) {
    char* device = static_cast<char*>(a.base);
    const auto bytes = static_cast<size_t>(a.block_bytes);
    for (const BlockCopy& c : std::span(pairs, static_cast<size_t>(n)))
      std::memcpy(device + c.dst * a.block_bytes, host + c.src * a.block_bytes, bytes);
    host += pool.num_blocks * a.block_bytes;
  }
}

}  // namespace inferd
