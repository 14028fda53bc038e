// Steps of the CUDA backend: events, waiting, recordings, graphs and copies.
#include <sys/prctl.h>
#include <time.h>

#include <chrono>
#include <utility>

#include "core/error.h"
#include "cuda/cuda_backend.h"
#include "cuda/runtime/cupti.h"

namespace inferd::cuda {
namespace {

// A step that ends within this is seen at once; longer waits sleep in between and are seen a
// scheduling delay late, which no step in flight behind them notices.
constexpr auto kSpin = std::chrono::microseconds(100);
constexpr long kNapNs = 20'000;

// Linux ends a sleep up to 50 us late, so that it can wake for several at once, unless the thread
// asks for less: naps took 88 us, and 37 with this.
constexpr unsigned long kSlackNs = 1'000;

void nap() {
  thread_local const int asked = prctl(PR_SET_TIMERSLACK, kSlackNs, 0, 0, 0);
  (void)asked;  // refused: naps are longer
  const timespec length{0, kNapNs};
  nanosleep(&length, nullptr);
}

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

CudaBackend::StepSlot& CudaBackend::slot_of(int done_slot) {
  if (done_slot < 0 || done_slot >= static_cast<int>(slots_.size()))
    throw Error(ErrorCode::kUsage, format("step slot %d is not 0 or 1", done_slot));
  return slots_[static_cast<size_t>(done_slot)];
}

void CudaBackend::run_step(int done_slot, std::function<void()> step) {
  use_device();
  StepSlot& slot = slot_of(done_slot);
  if (slot.pending) {
    throw Error(ErrorCode::kUsage,
                format("step slot %d is still in use; wait for its step first", done_slot));
  }
  slot.pending = true;
  slot.error = nullptr;
  slot.staging.restart();
  slot.submitted_ns = event_clock_ == nullptr ? 0 : trace_ns();
  current_ = &slot;
  forget_batch();
  sent_.reset();
  shared_.reset();
  try {
    check(cudaEventRecord(slot.begin.get(), stream_.get()), "starting a step");
    step();
    finish_sum();
  } catch (...) {
    slot.error = std::current_exception();
  }
  current_ = nullptr;
  cudaError_t ended = swapper_ == nullptr ? cudaSuccess : swapper_->join(stream_.get());
  if (ended == cudaSuccess) ended = cudaEventRecord(slot.end.get(), stream_.get());
  last_end_ = slot.end.get();
  if (ended == cudaSuccess || slot.error) return;
  try {
    check(ended, "ending a step");
  } catch (...) {
    slot.error = std::current_exception();
  }
}

bool CudaBackend::wait_step(int done_slot, int64_t timeout_us) {
  StepSlot& slot = slot_of(done_slot);
  if (!slot.pending) return true;
  use_device();
  const auto start = std::chrono::steady_clock::now();
  cudaError_t status = cudaEventQuery(slot.end.get());
  while (status == cudaErrorNotReady) {
    if (member_ != nullptr) member_->check_end(false);
    const auto waited = std::chrono::steady_clock::now() - start;
    if (waited >= std::chrono::microseconds(timeout_us)) return false;
    if (waited < kSpin) {
      pause_briefly();
    } else {
      nap();
    }
    status = cudaEventQuery(slot.end.get());
  }
  slot.pending = false;
  const std::exception_ptr error = std::exchange(slot.error, nullptr);
  // A lost context comes first: the step function may have met it in a call that cannot tell it
  // from an error of its own, and the process cannot go on.
  check(status, "a step");
  if (member_ != nullptr && !error) member_->check_end(true);
  if (error) std::rethrow_exception(error);
  check(cudaEventElapsedTime(&slot.device_ms, slot.begin.get(), slot.end.get()), "timing a step");
  if (event_clock_ != nullptr && slot.submitted_ns > 0)
    slot.window = event_clock_->place(slot.begin, slot.end, slot.submitted_ns, trace_ns());
  return true;
}

double CudaBackend::step_device_us(int done_slot) {
  return static_cast<double>(slot_of(done_slot).device_ms) * 1000;
}

void CudaBackend::start_trace(Trace& trace) {
  use_device();
  event_clock_ = std::make_unique<EventClock>(stream_.get());
#if INFERD_CUPTI
  trace.note = start_cupti(device_, trace);
#else
  trace.note =
      "This build has no CUPTI, whose headers were missing; install it and run \"npm run build\".";
#endif
  if (trace.note.empty()) cupti_trace_ = &trace;
  trace.source = trace.note.empty() ? "cupti" : "events";
}

void CudaBackend::stop_trace() {
  use_device();
  cudaDeviceSynchronize();  // all streams; a failed step is told by wait_step
  event_clock_.reset();
#if INFERD_CUPTI
  if (cupti_trace_ != nullptr) stop_cupti(device_, *cupti_trace_);
#endif
  cupti_trace_ = nullptr;
}

bool CudaBackend::step_window(int done_slot, int64_t& start_ns, int64_t& end_ns) {
  const StepSlot& slot = slot_of(done_slot);
  if (event_clock_ == nullptr || slot.submitted_ns == 0) return false;
  start_ns = slot.window.start_ns;
  end_ns = slot.window.end_ns;
  return true;
}

void CudaBackend::run_graph(uint64_t key, const std::function<void()>& body) {
  const auto fresh = [&] {
    forget_batch();
    body();
  };
  // Ranks record what they have not at once, as a run beside it may wait for one that records.
  if (member_ != nullptr && !graphs_.record(key, stream_.get(), fresh)) return fresh();
  graphs_.run(key, stream_.get(), fresh);
  forget_batch();  // what was made while another step was recorded
}

void CudaBackend::record_graph(uint64_t key, const std::function<void()>& body) {
  graphs_.record(key, stream_.get(), [&] {
    forget_batch();
    body();
  });
  forget_batch();  // what was made while the step was recorded, not run
}

// A stream of its own lets the host work beside what this step has enqueued before.
void CudaBackend::after_last_step(const std::function<void()>& work) {
  const auto call = [](void* function) {
    (*static_cast<const std::function<void()>*>(function))();
  };
  auto* function = const_cast<std::function<void()>*>(&work);  // only to pass it as void*
  if (last_end_ != nullptr)
    check(cudaStreamWaitEvent(host_stream_.get(), last_end_), "waiting for a step");
  check(cudaLaunchHostFunc(host_stream_.get(), call, function), "work of the host in a step");
  check(cudaEventRecord(host_work_done_.get(), host_stream_.get()), "work of the host in a step");
  check(cudaStreamWaitEvent(stream_.get(), host_work_done_.get()), "work of the host in a step");
}

void CudaBackend::copy_in(void* device, const void* host, size_t bytes) {
  check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_.get()),
        "copying to the GPU");
}

void CudaBackend::copy_out(void* host, const void* device, size_t bytes) {
  check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream_.get()),
        "copying from the GPU");
}

}  // namespace inferd::cuda
