// See op_call.h.
#include "addon/op_table/op_call.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <utility>

#include "core/dummy_weight.h"
#include "core/error.h"
#include "core/half.h"
#include "engine/backends.h"

namespace inferd {
namespace {

constexpr int32_t kMaxRepeat = 100'000;
constexpr int64_t kStepTimeoutUs = 120'000'000;
// Several times the caches of any device, and enough reading to cover the launches of an op; of a
// host what a benchmark of many ops can afford to read before each run.
constexpr size_t kEvictBytes = size_t{512} << 20;
constexpr size_t kEvictHostBytes = size_t{128} << 20;

[[noreturn]] void misuse(const std::string& message) {
  throw Error(ErrorCode::kUsage, "runOp: " + message);
}

Napi::Object object_field(const Napi::Object& from, const char* name) {
  const Napi::Value value = from.Get(name);
  if (!value.IsObject()) misuse(std::string(name) + " must be an object");
  return value.As<Napi::Object>();
}

std::string string_field(const Napi::Object& from, const char* name) {
  const Napi::Value value = from.Get(name);
  if (!value.IsString()) misuse(std::string(name) + " must be a string");
  return value.As<Napi::String>().Utf8Value();
}

int32_t size_value(const Napi::Value& value, const char* name) {
  const double number = value.IsNumber() ? value.As<Napi::Number>().DoubleValue() : -1;
  if (!(number >= 0 && number <= std::numeric_limits<int32_t>::max()) ||
      number != static_cast<double>(static_cast<int32_t>(number))) {
    misuse(std::string(name) + " must be a whole number of at least 0");
  }
  return static_cast<int32_t>(number);
}

void check_count(const char* name, size_t got, int64_t wanted) {
  if (static_cast<int64_t>(got) != wanted) {
    misuse(format("%s has %zu elements and needs %lld", name, got, static_cast<long long>(wanted)));
  }
}

void put(std::byte* data, DType dtype, int64_t i, float value) {
  if (dtype != DType::kU8) return store_f32(data, dtype, i, value);
  if (!(value >= 0 && value <= 255)) misuse("bytes must be 0 to 255");
  data[i] = static_cast<std::byte>(static_cast<uint8_t>(value));
}

float get(const std::byte* data, DType dtype, int64_t i) {
  return dtype == DType::kU8 ? static_cast<float>(std::to_integer<uint8_t>(data[i]))
                             : load_f32(data, dtype, i);
}

size_t matrix_bytes(DType dtype, int64_t rows, int64_t cols) {
  int64_t bytes = 0;
  if (__builtin_mul_overflow(rows, cols, &bytes) ||
      __builtin_mul_overflow(bytes, dtype_bytes(dtype), &bytes)) {
    misuse("a tensor has more bytes than can be counted");
  }
  return static_cast<size_t>(bytes);
}

}  // namespace

OpTestCall::OpTestCall(const Napi::Object& call)
    : env_(call.Env()),
      attrs_(object_field(call, "attrs")),
      inputs_(object_field(call, "inputs")),
      op_(string_field(call, "op")) {
  EngineOptions& options = options_;
  options.backend = string_field(call, "backend");
  options.isa = string_field(call, "isa");
  options.threads = size_value(call.Get("threads"), "threads");
  const Napi::Value repeat = call.Get("repeat");
  if (!repeat.IsUndefined()) repeat_ = size_value(repeat, "repeat");
  if (repeat_ > kMaxRepeat) misuse(format("repeat is at most %d", kMaxRepeat));
  noise_ = attrs_.Has("noise");
  warm_ = attrs_.Has("warm");
  backend_ = make_backend(options, attrs_.Has("activation") ? dtype("activation") : DType::kBF16);
}

OpTestCall::~OpTestCall() {
  for (void* p : memory_) backend_->release(p);
}

int32_t OpTestCall::size(const char* name) const { return size_value(attrs_.Get(name), name); }

int32_t OpTestCall::size_or(const char* name, int32_t fallback) const {
  return attrs_.Has(name) ? size(name) : fallback;
}

float OpTestCall::number(const char* name) const {
  const Napi::Value value = attrs_.Get(name);
  if (!value.IsNumber()) misuse(std::string(name) + " must be a number");
  return value.As<Napi::Number>().FloatValue();
}

float OpTestCall::number_or(const char* name, float fallback) const {
  return has_attr(name) ? number(name) : fallback;
}

std::string OpTestCall::text(const char* name) const { return string_field(attrs_, name); }

DType OpTestCall::dtype(const char* name) const {
  const std::string text = string_field(attrs_, name);
  if (text == "f32") return DType::kF32;
  if (text == "f16") return DType::kF16;
  if (text == "bf16") return DType::kBF16;
  misuse(std::string(name) + " must be f32, f16 or bf16");
}

DType OpTestCall::cache_dtype(const char* name) const {
  const std::string text = string_field(attrs_, name);
  if (text == "int8") return DType::kI8;
  if (text == "fp8") return DType::kF8;
  return dtype(name);
}

Gate OpTestCall::gate() const {
  if (!has_attr("gate")) return Gate::kSilu;
  const std::string name = text("gate");
  if (name == "silu") return Gate::kSilu;
  if (name == "gelu_tanh") return Gate::kGeluTanh;
  if (name == "clamped_swiglu") return Gate::kClampedSwiglu;
  throw Error(ErrorCode::kUsage, "runOp: there is no gate " + name);
}

WeightFormat OpTestCall::weight_format(const char* name) const {
  const std::string text = string_field(attrs_, name);
  if (text == "int8") return kFormatInt8;
  if (text == "int4") return kFormatInt4;
  if (text == "fp4") return kCodedFloat4;
  if (text == "fp8") return kFloat8Blocks;
  if (text == "fp8_rows") return kFloat8Rows;
  if (text == "fp8_groups") return kFloat8Groups;
  if (text == "int8_rows") return kInt8Rows;
  return plain_format(dtype(name));
}

bool OpTestCall::has(const char* name) const { return inputs_.Has(name); }

Napi::Float32Array OpTestCall::float_input(const char* name, int64_t count) const {
  const Napi::Value value = inputs_.Get(name);
  if (!value.IsTypedArray() ||
      value.As<Napi::TypedArray>().TypedArrayType() != napi_float32_array) {
    misuse(std::string(name) + " must be a Float32Array");
  }
  auto array = value.As<Napi::Float32Array>();
  check_count(name, array.ElementLength(), count);
  return array;
}

Napi::Int32Array OpTestCall::int_input(const char* name, int64_t count) const {
  const Napi::Value value = inputs_.Get(name);
  if (!value.IsTypedArray() || value.As<Napi::TypedArray>().TypedArrayType() != napi_int32_array) {
    misuse(std::string(name) + " must be an Int32Array");
  }
  auto array = value.As<Napi::Int32Array>();
  check_count(name, array.ElementLength(), count);
  return array;
}

void* OpTestCall::take(size_t bytes) {
  memory_.push_back(backend_->allocate(bytes));
  return memory_.back();
}

void OpTestCall::fill_noise(const Tensor& t) {
  const uint64_t first = noise_counter_;
  noise_counter_ += static_cast<uint64_t>(t.size());
  if (backend_->fill_dummy(t, {first, t.cols()})) return;
  std::vector<std::byte> host(static_cast<size_t>(t.size() * dtype_bytes(t.dtype)));
  for (int64_t i = 0; i < t.size(); ++i)
    store_f32(host.data(), t.dtype, i, dummy_weight(first + static_cast<uint64_t>(i)));
  backend_->upload(t.data, host.data(), host.size());
}

bool OpTestCall::fill_noise(PackedWeight& weight) {
  if (!backend_->fill_dummy(weight, 0, weight.rows, {noise_counter_, weight.cols})) return false;
  noise_counter_ += static_cast<uint64_t>(weight.rows * weight.cols);
  return true;
}

Tensor OpTestCall::matrix(const char* name, DType dtype, int64_t rows, int64_t cols) {
  const size_t bytes = matrix_bytes(dtype, rows, cols);
  if (noise_ && dtype != DType::kU8 && !has(name)) {
    const Tensor t = Tensor::matrix(take(bytes), dtype, rows, cols);
    fill_noise(t);
    return t;
  }
  const Napi::Float32Array array = float_input(name, rows * cols);
  std::vector<std::byte> host(bytes);
  for (int64_t i = 0; i < rows * cols; ++i) put(host.data(), dtype, i, array.Data()[i]);
  const Tensor t = Tensor::matrix(take(host.size()), dtype, rows, cols);
  backend_->upload(t.data, host.data(), host.size());
  return t;
}

Tensor OpTestCall::activations(const char* name, int64_t rows, int64_t cols) {
  return matrix(name, backend_->info().activation, rows, cols);
}

float* OpTestCall::floats(const char* name, int64_t count) {
  return matrix(name, DType::kF32, 1, count).as<float>();
}

std::vector<float> OpTestCall::host_floats(const char* name, int64_t count) const {
  Napi::Float32Array array = float_input(name, count);
  return {array.Data(), array.Data() + count};
}

int32_t* OpTestCall::on_device(const int32_t* host, int64_t count) {
  auto* device = new_array<int32_t>(count);
  backend_->upload(device, host, static_cast<size_t>(count) * sizeof(int32_t));
  return device;
}

int32_t* OpTestCall::ints(const char* name, int64_t count) {
  return on_device(host_ints(name, count), count);
}

int32_t* OpTestCall::indices(const char* name, int64_t count, int64_t limit) {
  return on_device(host_indices(name, count, limit), count);
}

const int32_t* OpTestCall::host_ints(const char* name, int64_t count) {
  return int_input(name, count).Data();
}

const int32_t* OpTestCall::host_indices(const char* name, int64_t count, int64_t limit) {
  const int32_t* values = host_ints(name, count);
  for (int64_t i = 0; i < count; ++i) {
    if (values[i] >= 0 && values[i] < limit) continue;
    misuse(format("element %lld of %s is %d, outside 0..%lld", static_cast<long long>(i), name,
                  values[i], static_cast<long long>(limit - 1)));
  }
  return values;
}

Tensor OpTestCall::new_activations(int64_t rows, int64_t cols) {
  const DType dtype = backend_->info().activation;
  return Tensor::matrix(take(matrix_bytes(dtype, rows, cols)), dtype, rows, cols);
}

void OpTestCall::output(const char* name, const Tensor& t) { outputs_.push_back({name, t}); }

void OpTestCall::output_floats(const char* name, const float* data, int64_t count) {
  outputs_.push_back({name, Tensor::matrix(const_cast<float*>(data), DType::kF32, 1, count)});
}

void OpTestCall::output_ints(const char* name, const int32_t* data, int64_t count) {
  outputs_.push_back({name, Tensor::matrix(const_cast<int32_t*>(data), DType::kI32, 1, count)});
}

void OpTestCall::step(const std::function<void()>& work) {
  backend_->run_step(0, work);
  if (!backend_->wait_step(0, kStepTimeoutUs))
    throw Error(ErrorCode::kDevice, "runOp: the op did not finish in two minutes");
}

// The read that empties the caches keeps the device busy while the op is enqueued, so that its
// time holds no launches.
float OpTestCall::timed_step(const std::function<void()>& work) {
  const bool on_host = backend_->info().host_memory;
  const size_t bytes = on_host ? kEvictHostBytes : kEvictBytes;
  if (evictor_ == nullptr && !warm_) {
    evictor_ = take(bytes);
    // Pages that were never written may all be one page of zeros.
    if (on_host) std::memset(evictor_, 1, bytes);
  }
  if (on_host) {
    if (!warm_) step([&] { backend_->read_all(evictor_, bytes); });
    const auto start = std::chrono::steady_clock::now();
    step(work);
    return std::chrono::duration<float, std::micro>(std::chrono::steady_clock::now() - start)
        .count();
  }
  if (!warm_) backend_->run_step(1, [&] { backend_->read_all(evictor_, bytes); });
  step(work);
  backend_->wait_step(1, kStepTimeoutUs);
  return static_cast<float>(backend_->step_device_us(0));
}

Napi::Value OpTestCall::read_back(const Tensor& t) {
  const auto count = static_cast<size_t>(t.size());
  std::vector<std::byte> host(count * static_cast<size_t>(dtype_bytes(t.dtype)));
  backend_->download(host.data(), t.data, host.size());
  if (t.dtype == DType::kI32) {
    Napi::Int32Array array = Napi::Int32Array::New(env_, count);
    std::copy_n(reinterpret_cast<const int32_t*>(host.data()), count, array.Data());
    return array;
  }
  Napi::Float32Array array = Napi::Float32Array::New(env_, count);
  for (size_t i = 0; i < count; ++i)
    array.Data()[i] = get(host.data(), t.dtype, static_cast<int64_t>(i));
  return array;
}

Napi::Object OpTestCall::run(const std::function<void()>& work) {
  step(work);
  Napi::Object result = Napi::Object::New(env_);
  if (!noise_)
    for (const Output& o : outputs_) result.Set(o.name, read_back(o.tensor));
  if (repeat_ > 0) {
    Napi::Float32Array timings = Napi::Float32Array::New(env_, static_cast<size_t>(repeat_));
    for (int32_t i = 0; i < repeat_; ++i) timings.Data()[i] = timed_step(work);
    result.Set("timings_us", timings);
  }
  return result;
}

}  // namespace inferd
