// The engine: one model on one backend, its KV pool and its step queue. The addon gives each one to
// a JavaScript thread.
//
//   new Engine -> load() until done -> allocate_kv() -> { submit() wait() }* -> close()
//
// Thread: all calls come from the thread that made it. Steps run on the backend's stream, in the
// order of submission, at most two in flight. A malformed plan throws and changes nothing; a step
// that fails on the device answers with an error code, and so do all steps after it.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/backend.h"
#include "engine/adapters/adapters.h"
#include "engine/constraints.h"
#include "engine/kv_cache.h"
#include "engine/loading/loader.h"
#include "engine/options.h"
#include "engine/plan.h"
#include "engine/result.h"
#include "engine/slots.h"
#include "engine/step_runner.h"
#include "models/draft/open_drafter.h"
#include "models/model.h"

namespace inferd {

class Engine {
 public:
  // Reads config.json and checks the checkpoint's tensors; loads nothing yet. Throws Error.
  explicit Engine(const EngineOptions& options);
  // Waits for running steps, however long they take: an owner that may not asks finish() first and
  // leaves an engine that does not finish where it is.
  ~Engine();

  // Loads about `max_bytes` more. After the last piece the step memory is allocated.
  LoadProgress load(int64_t max_bytes);
  ModelInfo info() const;
  // Of several ranks, after loading and on all of them: each value becomes the least that a rank
  // gave. Waits for the ranks, longer than steps do. The first time they also settle what takes all
  // of them (Backend::meet_ranks). Throws Error(kDevice) when they have parted.
  void agree(std::span<int32_t> values);
  // Once, after loading: blocks of the device, and of the host for swapping. Throws
  // Error(kOutOfMemory) with the arithmetic when one of them has less free memory.
  void allocate_kv(int64_t num_blocks, int64_t num_swap_blocks);
  // Reads an adapter into host memory, under a number that plans place it by. Once there is a KV
  // cache. Throws Error(kUsage) without room for adapters, else as read_adapter.
  Adapter load_adapter(int32_t id, const std::string& folder);
  // The same on a thread of its own, while steps go on: begins it, and null until it is done.
  void begin_adapter(int32_t id, const std::string& folder);
  std::optional<Adapter> adapter_read(int32_t id);
  void unload_adapter(int32_t id);
  // `plan` may be unaligned; it is copied.
  void submit(std::span<const std::byte> plan);
  // Bytes written to `result`, or 0 when the oldest step is not done after timeout_ms. A `result`
  // too small throws kUsage with the size needed and leaves the step to be waited for again.
  int64_t wait(std::span<std::byte> result, int64_t timeout_ms);
  int32_t pending() const { return pending_; }
  // Waits until no step runs and drops what they gave, and until no adapter is read; a rank leaves
  // its group, which that ends. False when a step or a file takes longer than limit_ms: then a
  // device or a thread uses the engine's memory, and nothing of it may be freed.
  bool finish(int64_t limit_ms);
  // Records what the device does, at most `max_events` events, until stop_trace. Both wait for
  // running steps; throw Error(kUsage) when a recording runs, or none.
  void start_trace(int64_t max_events);
  std::unique_ptr<Trace> stop_trace();
  // What the last step made the experts of each block do that has some, for benchmarks and tests.
  // Throws Error(kUsage) before loading is over and while a step runs.
  std::vector<ExpertWork> expert_work();
  // What the last step drafted, for tests: its sequences in no order, with the logits of the last
  // draft of each. Throws Error(kUsage) while a step runs and without a network that drafts.
  std::vector<MadeDrafts> made_drafts();
  // What the last failed step said, or "". Never holds tokens.
  const std::string& last_error() const { return last_error_; }

 private:
  static constexpr int32_t kMaxInFlight = 2;

  // The staged step that was submitted first, of those pending.
  int32_t oldest_step() const { return (next_step_ + kMaxInFlight - pending_) % kMaxInFlight; }
  // Of the steps in flight those that sample.
  int32_t sampling_steps() const;
  void fit_dtypes();
  // The network that drafts and its files, where there is to be one.
  OpenedDrafter open_network();
  // Of the target and the drafter together.
  std::vector<LayerShape> shapes() const;
  std::vector<KvSpec> kv_specs() const;
  // Throws Error(kUnsupported) with the backend's reason.
  void check_backend_runs() const;
  void count_weights();
  void join_ranks();
  // Throws Error(kOutOfMemory) with the arithmetic.
  void check_fits() const;
  void allocate_step_memory();
  void trace_step(int32_t slot);
  Adapters& adapters() const;
  void check_kv_fits(int64_t num_blocks, int64_t num_swap_blocks) const;
  void allocate_swap(int64_t num_swap_blocks);

  EngineOptions options_;
  DType weight_dtype_ = DType::kF32;
  DType kv_dtype_ = DType::kF32;
  // Everything below lives in its memory and is destroyed before it.
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<WeightLoader> loader_;
  std::unique_ptr<Drafter> drafter_;  // null: drafts come of no network
  std::unique_ptr<WeightLoader> drafter_loader_;
  int64_t parameters_ = 0;
  int64_t weight_bytes_ = 0;
  PlanLimits limits_{};
  GraphPlan graphs_;
  int64_t step_bytes_ = 0;
  std::unique_ptr<Slots> slots_;
  std::unique_ptr<Constraints> constraints_;
  DeviceBuffer step_memory_;
  StepBuffers buffers_{};
  std::unique_ptr<Adapters> adapters_;  // null: no room for any
  std::unique_ptr<KvCache> kv_;
  HostBuffer swap_memory_;
  SwapPool swap_;
  std::unique_ptr<PlanChecker> checker_;
  std::unique_ptr<StepRunner> runner_;
  std::array<StagedStep, kMaxInFlight> steps_;
  int32_t next_step_ = 0;  // index of the staged step that submit fills
  int32_t pending_ = 0;
  bool prepared_ = false;  // the oldest step is finished and result_ holds its answer
  ResultWriter result_;
  std::string last_error_;
  std::unique_ptr<Trace> trace_;  // while recording
};

}  // namespace inferd
