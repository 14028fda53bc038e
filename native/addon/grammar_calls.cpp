// See grammar_calls.h. A grammar is compiled on a thread of libuv's pool; only its number comes
// back.
#include "addon/grammar_calls.h"

#include <optional>
#include <utility>

#include "addon/convert.h"
#include "addon/environment.h"
#include "grammar/store.h"

namespace inferd {
namespace {

GrammarLimits read_limits(const Napi::Value& value) {
  const OptionReader r(value);
  GrammarLimits limits;
  limits.max_text_bytes = r.integer("maxTextBytes");
  limits.max_states = r.integer("maxStates");
  limits.max_memory_bytes = r.large_integer("maxMemoryBytes");
  limits.max_depth = r.integer("maxDepth");
  limits.deadline = std::chrono::milliseconds(r.integer("deadlineMs"));
  limits.extensions = r.boolean("extensions");
  return limits;
}

int32_t read_number(const Napi::Value& value, const char* what) {
  if (!value.IsNumber()) throw Error(ErrorCode::kUsage, format("%s must be a number", what));
  return value.As<Napi::Number>().Int32Value();
}

class CompileWorker final : public Napi::AsyncWorker {
 public:
  CompileWorker(Napi::Env env, int32_t vocabulary, std::string text, const GrammarLimits& limits)
      : Napi::AsyncWorker(env, "compileGrammar"),
        deferred_(Napi::Promise::Deferred::New(env)),
        vocabulary_(vocabulary),
        text_(std::move(text)),
        limits_(limits) {}

  // Nobody took the grammar over: the environment is at its end.
  ~CompileWorker() override { GrammarStore::shared().release(number_); }

  Napi::Promise promise() const { return deferred_.Promise(); }

  void Execute() override {
    try {
      number_ = GrammarStore::shared().hold(vocabulary_, text_, limits_);
    } catch (const Error& e) {
      error_ = e;
    } catch (const std::bad_alloc&) {
      error_ = Error(ErrorCode::kOutOfMemory, "The host is out of memory.");
    } catch (const std::exception& e) {
      error_ = Error(ErrorCode::kDevice, e.what());
    }
  }
  void OnOK() override {
    if (error_.has_value()) {
      deferred_.Reject(
          make_js_error(Env(), error_code_name(error_->code), error_->what(), false).Value());
    } else {
      const int32_t number = std::exchange(number_, 0);
      environment_data(Env()).grammars.add(number);
      deferred_.Resolve(Napi::Number::New(Env(), number));
    }
  }

 private:
  const Napi::Promise::Deferred deferred_;
  const int32_t vocabulary_;
  const std::string text_;
  const GrammarLimits limits_;
  int32_t number_ = 0;  // held
  std::optional<Error> error_;
};

std::vector<std::string> read_tokens(const Napi::Value& bytes, const Napi::Value& offsets) {
  if (!bytes.IsBuffer() || !offsets.IsTypedArray() ||
      offsets.As<Napi::TypedArray>().TypedArrayType() != napi_int32_array) {
    throw Error(ErrorCode::kUsage, "a vocabulary is a Buffer and an Int32Array of offsets");
  }
  const auto text = bytes.As<Napi::Buffer<char>>();
  const auto at = offsets.As<Napi::Int32Array>();
  if (at.ElementLength() == 0) throw Error(ErrorCode::kUsage, "a vocabulary has offsets");
  std::vector<std::string> tokens(at.ElementLength() - 1);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const int64_t from = at[i], to = at[i + 1];
    if (from < 0 || to < from || to > static_cast<int64_t>(text.Length()))
      throw Error(ErrorCode::kUsage, format("the offsets of token %zu are wrong", i));
    tokens[i].assign(text.Data() + from, static_cast<size_t>(to - from));
  }
  return tokens;
}

}  // namespace

Napi::Value grammar_vocabulary(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&] {
    std::vector<std::string> tokens = read_tokens(info[0], info[1]);
    if (!info[2].IsTypedArray() ||
        info[2].As<Napi::TypedArray>().TypedArrayType() != napi_int32_array) {
      throw Error(ErrorCode::kUsage, "endIds must be an Int32Array");
    }
    const auto ends = info[2].As<Napi::Int32Array>();
    const int32_t number = GrammarStore::shared().vocabulary(
        std::move(tokens), {ends.Data(), ends.Data() + ends.ElementLength()});
    environment_data(info.Env()).grammars.add_vocabulary(number);
    return Napi::Number::New(info.Env(), number);
  });
}

Napi::Value compile_grammar_text(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&]() -> Napi::Value {
    const int32_t vocabulary = read_number(info[0], "the vocabulary");
    if (!info[1].IsString()) throw Error(ErrorCode::kUsage, "the grammar must be a string");
    const GrammarLimits limits = read_limits(info[2]);
    auto* worker =
        new CompileWorker(info.Env(), vocabulary, info[1].As<Napi::String>().Utf8Value(), limits);
    const Napi::Promise promise = worker->promise();
    worker->Queue();  // owns itself from here on
    return promise;
  });
}

Napi::Value release_grammar(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&] {
    environment_data(info.Env()).grammars.release(read_number(info[0], "the grammar"));
    return info.Env().Undefined();
  });
}

Napi::Value grammar_counts(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&] {
    const GrammarStore::Counts counts = GrammarStore::shared().counts();
    Napi::Object out = Napi::Object::New(info.Env());
    out.Set("vocabularies", static_cast<double>(counts.vocabularies));
    out.Set("grammars", static_cast<double>(counts.grammars));
    return out;
  });
}

}  // namespace inferd
