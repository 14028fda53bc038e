// See grammar_matcher.h.
#include "addon/grammar_matcher.h"

#include <chrono>
#include <vector>

#include "addon/convert.h"
#include "grammar/store.h"

namespace inferd {

Napi::Function GrammarMatcher::define(Napi::Env env) {
  return DefineClass(env, "GrammarMatcher",
                     {
                         InstanceMethod<&GrammarMatcher::accept>("accept"),
                         InstanceMethod<&GrammarMatcher::would_accept>("wouldAccept"),
                         InstanceMethod<&GrammarMatcher::mask>("mask"),
                         InstanceMethod<&GrammarMatcher::complete>("complete"),
                         InstanceMethod<&GrammarMatcher::only_token>("onlyToken"),
                         InstanceMethod<&GrammarMatcher::replay>("replay"),
                     });
}

GrammarMatcher::GrammarMatcher(const Napi::CallbackInfo& info)
    : Napi::ObjectWrap<GrammarMatcher>(info) {
  guarded(info.Env(), [&] {
    if (!info[0].IsNumber()) throw Error(ErrorCode::kUsage, "the grammar must be a number");
    grammar_ = GrammarStore::shared().find(info[0].As<Napi::Number>().Int32Value());
    if (grammar_ == nullptr) throw Error(ErrorCode::kUsage, "there is no such grammar");
    matcher_ = std::make_unique<Matcher>(grammar_);
  });
}

Napi::Value GrammarMatcher::accept(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&] {
    if (!info[0].IsNumber()) throw Error(ErrorCode::kUsage, "a token must be a number");
    return Napi::Boolean::New(info.Env(),
                              matcher_->accept(info[0].As<Napi::Number>().Int32Value()));
  });
}

Napi::Value GrammarMatcher::would_accept(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&] {
    if (!info[0].IsNumber()) throw Error(ErrorCode::kUsage, "a token must be a number");
    Matcher copy = *matcher_;
    return Napi::Boolean::New(info.Env(), copy.accept(info[0].As<Napi::Number>().Int32Value()));
  });
}

Napi::Value GrammarMatcher::mask(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&] {
    auto words = Napi::Uint32Array::New(info.Env(), grammar_->vocabulary().mask_words());
    matcher_->fill_mask({words.Data(), words.ElementLength()});
    return words;
  });
}

Napi::Value GrammarMatcher::complete(const Napi::CallbackInfo& info) {
  return Napi::Boolean::New(info.Env(), matcher_->complete());
}

Napi::Value GrammarMatcher::only_token(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&] { return Napi::Number::New(info.Env(), matcher_->only_token()); });
}

// Takes these tokens from the start, with a mask before each; microseconds of each.
Napi::Value GrammarMatcher::replay(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&] {
    using Clock = std::chrono::steady_clock;
    if (!info[0].IsTypedArray() ||
        info[0].As<Napi::TypedArray>().TypedArrayType() != napi_int32_array) {
      throw Error(ErrorCode::kUsage, "tokens must be an Int32Array");
    }
    const auto tokens = info[0].As<Napi::Int32Array>();
    auto times = Napi::Float64Array::New(info.Env(), tokens.ElementLength());
    std::vector<uint32_t> words(grammar_->vocabulary().mask_words());
    Matcher matcher(grammar_);
    for (size_t i = 0; i < tokens.ElementLength(); ++i) {
      const int32_t token = tokens[i];
      const auto from = Clock::now();
      matcher.fill_mask(words);
      const bool allowed = (words[static_cast<size_t>(token) / 32] >> (token % 32) & 1u) != 0;
      const bool taken = matcher.accept(token);
      times[i] = std::chrono::duration<double, std::micro>(Clock::now() - from).count();
      if (!taken || !allowed)
        throw Error(ErrorCode::kUsage, format("token %d at place %zu is not allowed", token, i));
    }
    return times;
  });
}

}  // namespace inferd
