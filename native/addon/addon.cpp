// Entry point of the addon: its exports (Addon in native/index.ts) and what it keeps per
// environment.
//
// The library is loaded by several threads of one process, which share the compiled grammars
// (grammar/store.h) and the groups of ranks (cpu/runtime/comm.h), and nothing else.
#include <napi.h>

#include "addon/convert.h"
#include "addon/engine_wrap.h"
#include "addon/environment.h"
#include "addon/grammar_calls.h"
#include "addon/grammar_matcher.h"
#include "addon/layout.h"
#include "addon/op_table/op_table.h"
#include "addon/process_end.h"
#include "core/memory/host_memory.h"
#include "cpu/isa/features.h"
#include "cpu/runtime/comm.h"
#include "engine/backends.h"
#include "engine/cuda_library.h"

namespace inferd {
namespace {

Napi::Value create_engine(const Napi::CallbackInfo& info) {
  return environment_data(info.Env()).engine_class.New({info[0]});
}

Napi::Value create_grammar_matcher(const Napi::CallbackInfo& info) {
  return environment_data(info.Env()).matcher_class.New({info[0]});
}

Napi::Array strings(Napi::Env env, const std::vector<std::string>& list) {
  Napi::Array out = Napi::Array::New(env, list.size());
  for (size_t i = 0; i < list.size(); ++i) out.Set(static_cast<uint32_t>(i), list[i]);
  return out;
}

// CudaInfo of native/index.ts.
Napi::Object cuda_info(Napi::Env env) {
  const CudaProbe& probe = probe_cuda();
  Napi::Object out = Napi::Object::New(env);
  out.Set("problem", std::string(probe.problem));
  out.Set("driverVersion", probe.driver_version / 1000.0);
  out.Set("runtimeVersion", probe.runtime_version / 1000.0);
  out.Set("cublas", std::string(probe.cublas));
  Napi::Array devices = Napi::Array::New(env);
  for (int32_t i = 0; i < probe.num_devices; ++i) {
    const CudaDevice& d = probe.devices[i];
    Napi::Object device = Napi::Object::New(env);
    device.Set("name", std::string(d.name));
    device.Set("computeCapability", std::to_string(d.major) + "." + std::to_string(d.minor));
    device.Set("totalBytes", static_cast<double>(d.total_bytes));
    Napi::Array links = Napi::Array::New(env);
    for (int32_t to = 0; to < probe.num_devices; ++to) {
      constexpr const char* kNames[] = {"none", "peer", "nvlink"};
      links.Set(static_cast<uint32_t>(to), kNames[static_cast<size_t>(probe.links[i][to])]);
    }
    device.Set("links", links);
    devices.Set(static_cast<uint32_t>(i), device);
  }
  out.Set("devices", devices);
  return out;
}

// WeightFormatInfo of native/index.ts, of the CPU backend.
Napi::Array weight_formats(Napi::Env env) {
  Napi::Array out = Napi::Array::New(env);
  for (const auto& [name, native] : cpu_formats()) {
    Napi::Object format = Napi::Object::New(env);
    format.Set("name", name);
    format.Set("native", native);
    out.Set(out.Length(), format);
  }
  return out;
}

// NcclInfo of native/index.ts.
Napi::Value nccl_info(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  return guarded(env, [&] {
    const CudaNccl found = find_nccl();
    Napi::Object out = Napi::Object::New(env);
    out.Set("problem", std::string(found.problem));
    out.Set("version", std::string(found.version));
    return out;
  });
}

Napi::Value system_info(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  return guarded(env, [&] {
    const CpuFeatures& features = cpu_features();
    const HostMemory memory = host_memory();
    Napi::Object out = Napi::Object::New(env);
    out.Set("cpu", features.cpu);
    out.Set("physicalCores", physical_cores());
    out.Set("features", strings(env, features.names));
    out.Set("isa", best_isa());
    out.Set("usableIsas", strings(env, usable_isas()));
    out.Set("totalMemoryBytes", static_cast<double>(memory.total_bytes));
    out.Set("freeMemoryBytes", static_cast<double>(memory.free_bytes));
    out.Set("weightFormats", weight_formats(env));
    out.Set("cuda", cuda_info(env));
    return out;
  });
}

Napi::Value new_rank_group(const Napi::CallbackInfo& info) {
  return Napi::Number::New(info.Env(), static_cast<double>(cpu::new_group()));
}

Napi::Value end_rank_group(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&] {
    if (!info[0].IsNumber() || !info[1].IsString())
      throw Error(ErrorCode::kUsage, "endRankGroup takes a group and a reason");
    cpu::abort_group(static_cast<uint64_t>(info[0].As<Napi::Number>().Int64Value()),
                     info[1].As<Napi::String>().Utf8Value());
    return info.Env().Undefined();
  });
}

Napi::Value guarded_run_op(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&] { return run_op(info); });
}

}  // namespace

static Napi::Object initialize(Napi::Env env, Napi::Object exports) {
  auto* data = new EnvironmentData{
      Napi::Persistent(EngineWrap::define(env)), Napi::Persistent(GrammarMatcher::define(env)), {}};
  env.SetInstanceData(data);  // owns it: deleted with the environment
  exports.Set("createEngine", Napi::Function::New<create_engine>(env, "createEngine"));
  exports.Set("systemInfo", Napi::Function::New<system_info>(env, "systemInfo"));
  exports.Set("ncclInfo", Napi::Function::New<nccl_info>(env, "ncclInfo"));
  exports.Set("newRankGroup", Napi::Function::New<new_rank_group>(env, "newRankGroup"));
  exports.Set("endRankGroup", Napi::Function::New<end_rank_group>(env, "endRankGroup"));
  exports.Set("exitWithin", Napi::Function::New<exit_within>(env, "exitWithin"));
  exports.Set("layout", Napi::Function::New<layout>(env, "layout"));
  exports.Set("opNames", Napi::Function::New<op_names>(env, "opNames"));
  exports.Set("runOp", Napi::Function::New<guarded_run_op>(env, "runOp"));
  exports.Set("grammarVocabulary",
              Napi::Function::New<grammar_vocabulary>(env, "grammarVocabulary"));
  exports.Set("compileGrammar", Napi::Function::New<compile_grammar_text>(env, "compileGrammar"));
  exports.Set("releaseGrammar", Napi::Function::New<release_grammar>(env, "releaseGrammar"));
  exports.Set("grammarCounts", Napi::Function::New<grammar_counts>(env, "grammarCounts"));
  exports.Set("createGrammarMatcher",
              Napi::Function::New<create_grammar_matcher>(env, "createGrammarMatcher"));
  return exports;
}

NODE_API_MODULE(inferd, initialize)

}  // namespace inferd
