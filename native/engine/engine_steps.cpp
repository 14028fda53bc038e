// The steps of an engine: their queue, what the last one left to look at, and recordings of them.
#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "engine/engine.h"

namespace inferd {
namespace {

// Room for a plan; larger ones, which admit many long prompts at once, make it grow.
constexpr int64_t kPlanBytes = 1 << 20;

// The most steps with samples, which lengths depend on, that may be in flight when this plan is
// submitted (see PLAN.unread in actors/messages/step.ts); of what is no plan any number, as the
// checker refuses it.
int32_t unread_steps(std::span<const std::byte> plan) {
  PlanHeader header;
  if (plan.size() < sizeof header) return INT32_MAX;
  std::memcpy(&header, plan.data(), sizeof header);
  const bool known = header.layout_version == kLayoutVersion && header.unread >= 0;
  return known ? header.unread : INT32_MAX;
}

}  // namespace

void Engine::submit(std::span<const std::byte> plan) {
  if (checker_ == nullptr) throw Error(ErrorCode::kUsage, "submit comes after allocateKv.");
  if (pending_ == kMaxInFlight)
    throw Error(ErrorCode::kUsage, "Two steps are in flight; wait for one before the next submit.");
  if (plan.size() % 4 != 0 || plan.size() / 4 > INT32_MAX)
    throw Error(ErrorCode::kBadPlan, "Bad step plan: its size is not a number of words.");
  if (unread_steps(plan) < sampling_steps())
    throw Error(ErrorCode::kUsage, "The plan counts on a step in flight; wait for that first.");
  StagedStep& step = steps_[static_cast<size_t>(next_step_)];
  const auto bytes = static_cast<int64_t>(plan.size());
  if (step.words.bytes() < bytes)
    step.words = HostBuffer(*backend_, std::max<int64_t>(kPlanBytes, 2 * bytes));
  if (!plan.empty()) std::memcpy(step.words.as<void>(), plan.data(), plan.size());
  checker_->accept({step.words.as<const int32_t>(), plan.size() / 4}, step.plan);
  runner_->stage(step);
  step.submitted = step.started = step.finished = std::chrono::steady_clock::now();
  backend_->run_step(next_step_, [runner = runner_.get(), &step] { runner->run(step); });
  next_step_ = (next_step_ + 1) % kMaxInFlight;
  ++pending_;
}

int32_t Engine::sampling_steps() const {
  int32_t count = 0;
  for (int32_t i = 0; i < pending_; ++i) {
    const auto slot = static_cast<size_t>((oldest_step() + i) % kMaxInFlight);
    count += steps_[slot].plan.samples.empty() ? 0 : 1;
  }
  return count;
}

int64_t Engine::wait(std::span<std::byte> result, int64_t timeout_ms) {
  if (pending_ == 0) throw Error(ErrorCode::kUsage, "wait was called with no step in flight.");
  const int32_t oldest = oldest_step();
  if (!prepared_) {
    StepFault fault = StepFault::kNone;
    try {
      if (!backend_->wait_step(oldest, std::clamp<int64_t>(timeout_ms, 0, 86'400'000) * 1000))
        return 0;
    } catch (const Error& e) {
      fault = e.fatal                             ? StepFault::kFatal
              : e.code == ErrorCode::kOutOfMemory ? StepFault::kOutOfMemory
                                                  : StepFault::kStep;
      last_error_ = e.what();
    } catch (const std::bad_alloc&) {
      fault = StepFault::kOutOfMemory;
      last_error_ = "out of host memory inside a step";
    } catch (const std::exception& e) {
      fault = StepFault::kStep;
      last_error_ = e.what();
    }
    prepared_ = true;
    if (trace_ != nullptr && fault == StepFault::kNone) trace_step(oldest);
    StagedStep& step = steps_[static_cast<size_t>(oldest)];
    if (fault == StepFault::kNone) {
      step.mark_stuck();
      for (size_t i = 0; i < step.plan.samples.size(); ++i)
        checker_->settle(step.plan, i, step.tokens_given(i));
    }
    result_.prepare(step, fault, limits_.vocab_size,
                    static_cast<int64_t>(backend_->step_device_us(oldest)));
  }
  const int64_t bytes = result_.bytes();
  if (static_cast<int64_t>(result.size()) < bytes) {
    throw Error(ErrorCode::kUsage, format("The result needs %lld bytes and the buffer has %zu.",
                                          static_cast<long long>(bytes), result.size()));
  }
  result_.write(result);
  prepared_ = false;
  --pending_;
  return bytes;
}

std::vector<ExpertWork> Engine::expert_work() {
  if (runner_ == nullptr || pending_ > 0)
    throw Error(ErrorCode::kUsage, "expertWork comes after allocateKv, and while no step runs.");
  std::vector<ExpertWork> work;
  for (const ExpertLoad& load : model_->expert_loads()) {
    std::vector<int32_t> ends(static_cast<size_t>(load.held) + 1);
    backend_->download(ends.data(), load.offsets, ends.size() * sizeof(int32_t));
    std::adjacent_difference(ends.begin(), ends.end(), ends.begin());
    ends.erase(ends.begin());
    work.push_back({std::move(ends), load.chosen, load.bytes, load.parameters});
  }
  return work;
}

std::vector<MadeDrafts> Engine::made_drafts() {
  if (runner_ == nullptr || pending_ > 0 || drafter_ == nullptr)
    throw Error(ErrorCode::kUsage,
                "madeDrafts needs a network that drafts, and that no step runs.");
  const int32_t width = options_.drafts.max_tokens;
  // The step that ran last; its plan is there until the one after the next is submitted.
  const auto last = static_cast<size_t>((next_step_ + kMaxInFlight - 1) % kMaxInFlight);
  std::vector<MadeDrafts> made;
  for (const DraftRow& row : steps_[last].plan.drafts) {
    const auto i = static_cast<int32_t>(made.size());
    MadeDrafts& m = made.emplace_back();
    m.slot = row.slot;
    m.ids.resize(static_cast<size_t>(row.count));
    backend_->download(m.ids.data(), buffers_.drafts + int64_t{i} * width,
                       m.ids.size() * sizeof(int32_t));
    // Those of fewer drafts came to their end before.
    if (row.count < steps_[last].plan.drafts.front().count) continue;
    const Tensor logits = drafter_->logits(i, 1);
    m.logits.resize(static_cast<size_t>(logits.cols()));
    backend_->download(m.logits.data(), logits.data, m.logits.size() * sizeof(float));
  }
  return made;
}

void Engine::start_trace(int64_t max_events) {
  if (trace_ != nullptr) throw Error(ErrorCode::kUsage, "A recording is running already.");
  check_option(max_events, 1, 1 << 28, "maxEvents");
  auto trace = std::make_unique<Trace>(max_events);
  backend_->start_trace(*trace);
  trace_ = std::move(trace);
}

std::unique_ptr<Trace> Engine::stop_trace() {
  if (trace_ == nullptr) throw Error(ErrorCode::kUsage, "No recording is running.");
  backend_->stop_trace();
  trace_->sort();
  return std::move(trace_);
}

void Engine::trace_step(int32_t slot) {
  const StagedStep& step = steps_[static_cast<size_t>(slot)];
  TraceEvent event{.start_ns = trace_ns(step.started),
                   .end_ns = trace_ns(step.finished),
                   .value = step.plan.header.step,
                   .name = trace_->name("step"),
                   .lane = 0,
                   .kind = TraceKind::kStep};
  if (!backend_->step_window(slot, event.start_ns, event.end_ns)) return;
  if (event.start_ns >= trace_->started_ns()) trace_->add(event);  // else it ran before
}

}  // namespace inferd
