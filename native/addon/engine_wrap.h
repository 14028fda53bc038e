// The JavaScript object around an Engine (NativeEngine in native/index.ts): argument checks,
// conversion, lifetime.
//
// Thread: the JavaScript thread (main or worker) that made it. The engine is destroyed by close(),
// by garbage collection, or when the thread's environment ends, even while a step runs: that is
// waited for, and the backend's threads are joined. A step that does not end within a limit keeps
// its engine: everything that it may use stays as it is until the process ends.
#pragma once
#include <napi.h>

#include <memory>

#include "engine/engine.h"

namespace inferd {

class EngineWrap final : public Napi::ObjectWrap<EngineWrap> {
 public:
  // The class, to be kept per environment.
  static Napi::Function define(Napi::Env env);
  explicit EngineWrap(const Napi::CallbackInfo& info);
  ~EngineWrap() override;

 private:
  Napi::Value load(const Napi::CallbackInfo& info);
  Napi::Value model_info(const Napi::CallbackInfo& info);
  Napi::Value agree(const Napi::CallbackInfo& info);
  Napi::Value allocate_kv(const Napi::CallbackInfo& info);
  Napi::Value load_adapter(const Napi::CallbackInfo& info);
  Napi::Value begin_adapter(const Napi::CallbackInfo& info);
  Napi::Value adapter_read(const Napi::CallbackInfo& info);
  Napi::Value unload_adapter(const Napi::CallbackInfo& info);
  Napi::Value submit(const Napi::CallbackInfo& info);
  Napi::Value wait(const Napi::CallbackInfo& info);
  Napi::Value pending(const Napi::CallbackInfo& info);
  Napi::Value last_error(const Napi::CallbackInfo& info);
  Napi::Value profile_start(const Napi::CallbackInfo& info);
  Napi::Value profile_stop(const Napi::CallbackInfo& info);
  Napi::Value expert_work(const Napi::CallbackInfo& info);
  Napi::Value made_drafts(const Napi::CallbackInfo& info);
  Napi::Value profile_clock(const Napi::CallbackInfo& info);
  Napi::Value close(const Napi::CallbackInfo& info);

  Engine& open() const;  // throws Error(kClosed) after close()
  // Destroys the engine, or gives it up: false when a step still ran after limit_ms.
  bool release(int64_t limit_ms);

  std::unique_ptr<Engine> engine_;
};

}  // namespace inferd
