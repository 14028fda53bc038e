// One call of the op table: reads attributes and inputs of the JavaScript object, moves them to the
// device, runs the op as a step, brings outputs back. Lives for one runOp call on the calling
// thread.
//
// Inputs are float32 or int32 arrays; they are converted to what the op takes (activation type, KV
// type ...) and back. All sizes are checked against the attributes, and whatever an op takes as an
// index or a count against what it indexes, so that a wrong test gets a sentence and not a crash.
#pragma once
#include <napi.h>

#include <functional>
#include <string>
#include <vector>

#include "core/backend.h"
#include "engine/options.h"

namespace inferd {

class OpTestCall {
 public:
  // @throws Error(kUsage) when fields are missing.
  explicit OpTestCall(const Napi::Object& call);
  ~OpTestCall();
  OpTestCall(const OpTestCall&) = delete;
  OpTestCall& operator=(const OpTestCall&) = delete;

  const std::string& op() const { return op_; }
  Backend& backend() { return *backend_; }
  const EngineOptions& options() const { return options_; }  // backend, kernel set, threads

  // Attributes. Integers are >= 0.
  int32_t size(const char* name) const;
  int32_t size_or(const char* name, int32_t fallback) const;
  float number(const char* name) const;
  float number_or(const char* name, float fallback) const;
  std::string text(const char* name) const;
  DType dtype(const char* name) const;  // "f32", "f16" or "bf16"
  // One of these, "fp8" or "int8".
  DType cache_dtype(const char* name) const;
  // One of these, "int8", "int4", or one of rows of codes with f32 scales: "fp8", in blocks of 128
  // x 128, "fp8_rows", "fp8_groups".
  WeightFormat weight_format(const char* name) const;
  // "gate": "silu", as when absent, "gelu_tanh" or "clamped_swiglu".
  Gate gate() const;

  bool has_attr(const char* name) const { return attrs_.Has(name); }
  bool has(const char* name) const;  // an input
  bool timed() const { return repeat_ > 0; }
  // Attribute `noise`: float inputs that are not given are random numbers made on the device, and
  // only timings come back. For sizes that are too large to hand over.
  bool noise() const { return noise_; }
  void fill_noise(const Tensor& t);
  bool fill_noise(PackedWeight& weight);  // false: the device cannot
  // Input arrays on the device. The count must be exact.
  Tensor activations(const char* name, int64_t rows, int64_t cols);
  // `dtype` is f32, f16, bf16, or kU8, whose elements are given as they are.
  Tensor matrix(const char* name, DType dtype, int64_t rows, int64_t cols);
  float* floats(const char* name, int64_t count);
  // The same on the host.
  std::vector<float> host_floats(const char* name, int64_t count) const;
  int32_t* ints(const char* name, int64_t count);
  // Each at least 0 and below `limit`.
  int32_t* indices(const char* name, int64_t count, int64_t limit);
  // The same on the host; valid until the end of the call.
  const int32_t* host_ints(const char* name, int64_t count);
  const int32_t* host_indices(const char* name, int64_t count, int64_t limit);

  // Zeroed device memory.
  Tensor new_activations(int64_t rows, int64_t cols);
  template <typename T>
  T* new_array(int64_t count) {
    return static_cast<T*>(take(static_cast<size_t>(count) * sizeof(T)));
  }

  // Names what the call returns; read back after the first run.
  void output(const char* name, const Tensor& t);
  void output_floats(const char* name, const float* data, int64_t count);
  void output_ints(const char* name, const int32_t* data, int64_t count);

  // Runs `step` once and reads the outputs; then `repeat` times more, timed one by one with nothing
  // of the op in the caches: a device by its own clock. Attribute `warm`: with what the run before
  // left there.
  Napi::Object run(const std::function<void()>& step);

 private:
  struct Output {
    std::string name;
    Tensor tensor;  // flat
  };
  void* take(size_t bytes);
  int32_t* on_device(const int32_t* host, int64_t count);
  Napi::Float32Array float_input(const char* name, int64_t count) const;
  Napi::Int32Array int_input(const char* name, int64_t count) const;
  void step(const std::function<void()>& work);
  float timed_step(const std::function<void()>& work);
  Napi::Value read_back(const Tensor& t);

  Napi::Env env_;
  Napi::Object attrs_, inputs_;
  std::string op_;
  EngineOptions options_;
  int32_t repeat_ = 0;
  bool noise_ = false, warm_ = false;
  uint64_t noise_counter_ = 0;
  void* evictor_ = nullptr;  // more memory than caches hold
  std::unique_ptr<Backend> backend_;
  std::vector<void*> memory_;
  std::vector<Output> outputs_;
};

}  // namespace inferd
