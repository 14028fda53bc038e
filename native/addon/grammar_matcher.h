// The JavaScript object around a Matcher (GrammarMatcher in native/index.ts), for tests and
// benchmarks: the engine uses matchers itself.
//
// Thread: the JavaScript thread that made it.
#pragma once
#include <napi.h>

#include <memory>

#include "grammar/matcher.h"

namespace inferd {

class GrammarMatcher final : public Napi::ObjectWrap<GrammarMatcher> {
 public:
  // The class, to be kept per environment.
  static Napi::Function define(Napi::Env env);
  explicit GrammarMatcher(const Napi::CallbackInfo& info);

 private:
  Napi::Value accept(const Napi::CallbackInfo& info);
  Napi::Value would_accept(const Napi::CallbackInfo& info);
  Napi::Value mask(const Napi::CallbackInfo& info);
  Napi::Value complete(const Napi::CallbackInfo& info);
  Napi::Value only_token(const Napi::CallbackInfo& info);
  Napi::Value replay(const Napi::CallbackInfo& info);

  std::shared_ptr<const Grammar> grammar_;
  std::unique_ptr<Matcher> matcher_;
};

}  // namespace inferd
