// See engine_wrap.h.
#include "addon/engine_wrap.h"

#include <algorithm>
#include <future>

#include "addon/convert.h"

namespace inferd {
namespace {

// Longer than any step that somebody waits for.
constexpr int64_t kReleaseLimitMs = 600'000;

EngineOptions read_options(const Napi::Value& value) {
  const OptionReader r(value);
  EngineOptions o;
  o.model_path = r.string("modelPath");
  o.model_config = r.string("modelConfig", "");
  o.backend = r.string("backend");
  o.device_id = r.integer("deviceId");
  o.threads = r.integer("threads");
  o.weight_dtype = r.string("weightDtype");
  o.quantization = r.string("quantization");
  o.kv_dtype = r.string("kvDtype");
  o.block_size = r.integer("blockSize");
  o.max_slots = r.integer("maxSlots");
  o.max_batch_tokens = r.integer("maxBatchTokens");
  o.max_model_len = r.integer("maxModelLen");
  o.sliding_window = r.integer("slidingWindow");
  o.load_dummy = r.boolean("loadDummy");
  o.rank = r.integer("rank");
  o.world_size = r.integer("worldSize");
  o.dp_attention = o.world_size > 1 && r.has("dpAttention") && r.boolean("dpAttention");
  o.alone = o.world_size > 1 && r.has("alone") && r.boolean("alone");
  if (o.world_size > 1 && !o.alone) {
    o.group = static_cast<uint64_t>(r.large_integer("group"));
    o.comm_timeout_ms = r.integer("commTimeoutMs");
    o.all_reduce = r.string("allReduce", "auto");
    o.rank_devices = r.integers("rankDevices");
    o.expert_parallel = r.has("expertParallel") && r.boolean("expertParallel");
    if (r.has("commFault")) {
      const OptionReader fault = r.nested("commFault");
      o.comm_fault_at = fault.integer("at");
      o.comm_fault_sleep_ms = fault.integer("sleepMs");
    }
  }
  o.isa = r.string("isa");
  o.graph_sizes = r.integers("graphSizes");
  o.prefill_graph_sizes = r.integers("prefillGraphSizes");
  if (r.has("drafts")) {
    const OptionReader drafts = r.nested("drafts");
    o.drafts = {.max_tokens = drafts.integer("maxTokens"),
                .ngram_min = drafts.integer("ngramMin"),
                .ngram_max = drafts.integer("ngramMax")};
    if (drafts.has("method")) o.drafts.method = drafts.string("method");
    if (drafts.has("maxRows")) o.drafts.max_rows = drafts.integer("maxRows");
    if (drafts.has("forcedRate"))
      o.drafts.forced_rate = static_cast<float>(drafts.number("forcedRate"));
    if (drafts.has("modelPath")) o.drafts.model_path = drafts.string("modelPath");
  }
  if (r.has("adapters")) {
    const OptionReader adapters = r.nested("adapters");
    o.adapters = {.places = adapters.integer("places"), .max_rank = adapters.integer("maxRank")};
  }
  return o;
}

int64_t read_integer(const Napi::Value& v, const char* what) {
  const double d = v.IsNumber() ? v.As<Napi::Number>().DoubleValue() : -1;
  if (!(d >= 0 && d <= 9007199254740991.0))
    throw Error(ErrorCode::kUsage, format("%s must be a number of at least 0", what));
  return static_cast<int64_t>(d);
}

int32_t read_adapter_id(const Napi::Value& v) {
  return static_cast<int32_t>(read_integer(v, "id"));
}

std::string read_folder(const Napi::Value& v) {
  if (!v.IsString()) throw Error(ErrorCode::kUsage, "an adapter has a number and a path");
  return v.As<Napi::String>().Utf8Value();
}

// AdapterInfo of native/index.ts.
Napi::Object adapter_object(Napi::Env env, const Adapter& adapter) {
  Napi::Object out = Napi::Object::New(env);
  out.Set("rank", adapter.rank);
  out.Set("modules", adapter.modules);
  out.Set("bytes", static_cast<double>(adapter.bytes));
  out.Set("base", adapter.base);
  return out;
}

std::span<std::byte> read_bytes(const Napi::Value& v, const char* what) {
  if (!v.IsTypedArray() || v.As<Napi::TypedArray>().TypedArrayType() != napi_uint8_array) {
    throw Error(ErrorCode::kUsage, format("%s must be a Uint8Array", what));
  }
  auto array = v.As<Napi::Uint8Array>();
  return {reinterpret_cast<std::byte*>(array.Data()), array.ByteLength()};
}

// DeviceTrace of native/index.ts.
Napi::Object trace_object(Napi::Env env, const Trace& trace) {
  const std::vector<TraceEvent>& events = trace.events();
  const size_t n = events.size();
  auto start_us = Napi::Float64Array::New(env, n);
  auto duration_us = Napi::Float64Array::New(env, n);
  auto value = Napi::Float64Array::New(env, n);
  auto name = Napi::Int32Array::New(env, n);
  auto lane = Napi::Int32Array::New(env, n);
  auto kind = Napi::Uint8Array::New(env, n);
  for (size_t i = 0; i < n; ++i) {
    const TraceEvent& e = events[i];
    start_us.Data()[i] = static_cast<double>(e.start_ns) / 1e3;
    duration_us.Data()[i] = static_cast<double>(e.end_ns - e.start_ns) / 1e3;
    value.Data()[i] = static_cast<double>(e.value);
    name.Data()[i] = e.name;
    lane.Data()[i] = e.lane;
    kind.Data()[i] = static_cast<uint8_t>(e.kind);
  }
  auto names = Napi::Array::New(env, trace.names().size());
  for (uint32_t i = 0; i < names.Length(); ++i) names[i] = trace.names()[i];
  Napi::Object out = Napi::Object::New(env);
  out.Set("source", trace.source);
  out.Set("note", trace.note);
  out.Set("dropped", static_cast<double>(trace.dropped()));
  out.Set("names", names);
  out.Set("kind", kind);
  out.Set("name", name);
  out.Set("lane", lane);
  out.Set("value", value);
  out.Set("startUs", start_us);
  out.Set("durationUs", duration_us);
  return out;
}

}  // namespace

Napi::Function EngineWrap::define(Napi::Env env) {
  return DefineClass(env, "NativeEngine",
                     {
                         InstanceMethod<&EngineWrap::load>("load"),
                         InstanceMethod<&EngineWrap::model_info>("info"),
                         InstanceMethod<&EngineWrap::agree>("agree"),
                         InstanceMethod<&EngineWrap::allocate_kv>("allocateKv"),
                         InstanceMethod<&EngineWrap::load_adapter>("loadAdapter"),
                         InstanceMethod<&EngineWrap::begin_adapter>("beginAdapter"),
                         InstanceMethod<&EngineWrap::adapter_read>("adapterRead"),
                         InstanceMethod<&EngineWrap::unload_adapter>("unloadAdapter"),
                         InstanceMethod<&EngineWrap::submit>("submit"),
                         InstanceMethod<&EngineWrap::wait>("wait"),
                         InstanceMethod<&EngineWrap::pending>("pending"),
                         InstanceMethod<&EngineWrap::last_error>("lastError"),
                         InstanceMethod<&EngineWrap::expert_work>("expertWork"),
                         InstanceMethod<&EngineWrap::made_drafts>("madeDrafts"),
                         InstanceMethod<&EngineWrap::profile_start>("profileStart"),
                         InstanceMethod<&EngineWrap::profile_stop>("profileStop"),
                         InstanceMethod<&EngineWrap::profile_clock>("profileClock"),
                         InstanceMethod<&EngineWrap::close>("close"),
                     });
}

EngineWrap::EngineWrap(const Napi::CallbackInfo& info) : Napi::ObjectWrap<EngineWrap>(info) {
  guarded(info.Env(), [&] { engine_ = std::make_unique<Engine>(read_options(info[0])); });
}

EngineWrap::~EngineWrap() { release(kReleaseLimitMs); }

bool EngineWrap::release(int64_t limit_ms) {
  if (engine_ == nullptr) return true;
  if (engine_->finish(limit_ms)) {
    engine_.reset();
    return true;
  }
  static_cast<void>(engine_.release());  // for ever: a thread or the device works with its memory
  return false;
}

Engine& EngineWrap::open() const {
  if (engine_ == nullptr) throw Error(ErrorCode::kClosed, "The engine is closed.");
  return *engine_;
}

Napi::Value EngineWrap::load(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  return guarded(env, [&] {
    const LoadProgress p = open().load(read_integer(info[0], "maxBytes"));
    Napi::Object out = Napi::Object::New(env);
    out.Set("doneBytes", static_cast<double>(p.done_bytes));
    out.Set("totalBytes", static_cast<double>(p.total_bytes));
    out.Set("done", p.done);
    return out;
  });
}

Napi::Value EngineWrap::model_info(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  return guarded(env, [&] {
    const ModelInfo m = open().info();
    Napi::Object out = Napi::Object::New(env);
    const auto number = [&out](const char* key, int64_t value) {
      out.Set(key, static_cast<double>(value));
    };
    out.Set("architecture", m.architecture);
    number("vocabSize", m.vocab_size);
    number("numLayers", m.num_layers);
    number("hiddenSize", m.hidden_size);
    number("maxPositions", m.max_positions);
    number("parameters", m.parameters);
    number("weightBytes", m.weight_bytes);
    number("tableBytes", m.table_bytes);
    out.Set("dtype", m.dtype);
    out.Set("kvDtype", m.kv_dtype);
    number("kvScaledLayers", m.kv_scaled_layers);
    number("blockBytes", m.block_bytes);
    number("stepBytes", m.step_bytes);
    number("freeBytes", m.free_bytes);
    number("totalBytes", m.total_bytes);
    number("hostFreeBytes", m.host_free_bytes);
    out.Set("backend", m.backend);
    return out;
  });
}

Napi::Value EngineWrap::agree(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  return guarded(env, [&] {
    if (!info[0].IsArray()) throw Error(ErrorCode::kUsage, "agree takes a list of numbers");
    const auto given = info[0].As<Napi::Array>();
    std::vector<int32_t> values;
    for (uint32_t i = 0; i < given.Length(); ++i)
      values.push_back(static_cast<int32_t>(
          std::min<int64_t>(read_integer(given.Get(i), "a value"), INT32_MAX)));
    open().agree(values);
    Napi::Array out = Napi::Array::New(env, values.size());
    for (uint32_t i = 0; i < out.Length(); ++i) out.Set(i, values[i]);
    return out;
  });
}

Napi::Value EngineWrap::allocate_kv(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&] {
    const int64_t swap = info[1].IsUndefined() ? 0 : read_integer(info[1], "numSwapBlocks");
    open().allocate_kv(read_integer(info[0], "numBlocks"), swap);
    return info.Env().Undefined();
  });
}

Napi::Value EngineWrap::load_adapter(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&] {
    const int32_t id = read_adapter_id(info[0]);
    return adapter_object(info.Env(), open().load_adapter(id, read_folder(info[1])));
  });
}

Napi::Value EngineWrap::begin_adapter(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&] {
    const int32_t id = read_adapter_id(info[0]);
    open().begin_adapter(id, read_folder(info[1]));
    return info.Env().Undefined();
  });
}

Napi::Value EngineWrap::adapter_read(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  return guarded(env, [&]() -> Napi::Value {
    const std::optional<Adapter> adapter = open().adapter_read(read_adapter_id(info[0]));
    if (!adapter.has_value()) return env.Null();
    return adapter_object(env, *adapter);
  });
}

Napi::Value EngineWrap::unload_adapter(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&] {
    open().unload_adapter(read_adapter_id(info[0]));
    return info.Env().Undefined();
  });
}

Napi::Value EngineWrap::submit(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&] {
    const std::span<const std::byte> plan = read_bytes(info[0], "plan");
    std::vector<std::future<void>> others;  // which wait for their threads when they go
    if (info[1].IsArray()) {
      const auto given = info[1].As<Napi::Array>();
      for (uint32_t i = 0; i < given.Length(); ++i) {
        Engine& rank = Unwrap(given.Get(i).As<Napi::Object>())->open();
        others.push_back(std::async(std::launch::async, [&rank, plan] { rank.submit(plan); }));
      }
    }
    open().submit(plan);
    for (std::future<void>& other : others) other.get();
    return info.Env().Undefined();
  });
}

Napi::Value EngineWrap::wait(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&] {
    const int64_t bytes =
        open().wait(read_bytes(info[0], "result"), read_integer(info[1], "timeoutMs"));
    return Napi::Number::New(info.Env(), static_cast<double>(bytes));
  });
}

Napi::Value EngineWrap::pending(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&] { return Napi::Number::New(info.Env(), open().pending()); });
}

Napi::Value EngineWrap::last_error(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&] { return Napi::String::New(info.Env(), open().last_error()); });
}

Napi::Value EngineWrap::profile_start(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&] {
    open().start_trace(read_integer(info[0], "maxEvents"));
    return info.Env().Undefined();
  });
}

Napi::Value EngineWrap::profile_stop(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&] { return trace_object(info.Env(), *open().stop_trace()); });
}

Napi::Value EngineWrap::profile_clock(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&] {
    open();
    return Napi::Number::New(info.Env(), static_cast<double>(trace_ns()) / 1e3);
  });
}

Napi::Value EngineWrap::expert_work(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  return guarded(env, [&] {
    const std::vector<ExpertWork> work = open().expert_work();
    Napi::Array out = Napi::Array::New(env, work.size());
    for (uint32_t i = 0; i < out.Length(); ++i) {
      const ExpertWork& w = work[i];
      auto tokens = Napi::Int32Array::New(env, w.tokens.size());
      std::copy(w.tokens.begin(), w.tokens.end(), tokens.Data());
      Napi::Object o = Napi::Object::New(env);
      o.Set("tokens", tokens);
      o.Set("chosen", w.chosen);
      o.Set("bytes", static_cast<double>(w.bytes));
      o.Set("parameters", static_cast<double>(w.parameters));
      out.Set(i, o);
    }
    return out;
  });
}

Napi::Value EngineWrap::made_drafts(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  return guarded(env, [&] {
    const std::vector<MadeDrafts> made = open().made_drafts();
    Napi::Array out = Napi::Array::New(env, made.size());
    for (uint32_t i = 0; i < out.Length(); ++i) {
      const MadeDrafts& m = made[i];
      auto ids = Napi::Int32Array::New(env, m.ids.size());
      std::copy(m.ids.begin(), m.ids.end(), ids.Data());
      auto logits = Napi::Float32Array::New(env, m.logits.size());
      std::copy(m.logits.begin(), m.logits.end(), logits.Data());
      Napi::Object o = Napi::Object::New(env);
      o.Set("slot", m.slot);
      o.Set("ids", ids);
      o.Set("logits", logits);
      out.Set(i, o);
    }
    return out;
  });
}

Napi::Value EngineWrap::close(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&] {
    const int64_t limit =
        info[0].IsUndefined() ? kReleaseLimitMs : read_integer(info[0], "limitMs");
    return Napi::Boolean::New(info.Env(), release(std::min(limit, kReleaseLimitMs)));
  });
}

}  // namespace inferd
