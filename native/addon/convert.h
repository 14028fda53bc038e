// Between JavaScript and C++: typed reads of an options object, and the one place where a native
// exception becomes a JavaScript Error with `code` and `fatal` (NativeError in native/index.ts).
#pragma once
#include <napi.h>

#include <cmath>
#include <new>
#include <string>
#include <vector>

#include "core/error.h"

namespace inferd {

inline Napi::Error make_js_error(Napi::Env env, const char* code, const std::string& message,
                                 bool fatal) {
  Napi::Error error = Napi::Error::New(env, message);
  error.Value().Set("code", Napi::String::New(env, code));
  error.Value().Set("fatal", Napi::Boolean::New(env, fatal));
  return error;
}

// Runs `body` and turns what it throws into a JavaScript exception.
template <typename Body>
auto guarded(Napi::Env env, Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (const Napi::Error&) {
    throw;  // already one: a failed conversion or property access
  } catch (const Error& e) {
    throw make_js_error(env, error_code_name(e.code), e.what(), e.fatal);
  } catch (const std::bad_alloc&) {
    throw make_js_error(env, error_code_name(ErrorCode::kOutOfMemory), "The host is out of memory.",
                        false);
  } catch (const std::exception& e) {
    throw make_js_error(env, error_code_name(ErrorCode::kDevice), e.what(), false);
  }
}

// Members of an options object; a missing member or one of another type is Error(kUsage).
class OptionReader {
 public:
  explicit OptionReader(const Napi::Value& value) {
    if (!value.IsObject()) throw Error(ErrorCode::kUsage, "an options object is expected");
    object_ = value.As<Napi::Object>();
  }
  std::string string(const char* key) const {
    const Napi::Value v = object_.Get(key);
    if (!v.IsString())
      throw Error(ErrorCode::kUsage, format("the option %s must be a string", key));
    std::string text = v.As<Napi::String>().Utf8Value();
    // The system would take a path for the part ahead of it.
    if (text.find('\0') != std::string::npos)
      throw Error(ErrorCode::kUsage, format("the option %s holds a zero byte", key));
    return text;
  }
  // `fallback` when the member is absent.
  std::string string(const char* key, const char* fallback) const {
    return object_.Get(key).IsUndefined() ? fallback : string(key);
  }
  bool boolean(const char* key) const {
    const Napi::Value v = object_.Get(key);
    if (!v.IsBoolean())
      throw Error(ErrorCode::kUsage, format("the option %s must be true or false", key));
    return v.As<Napi::Boolean>().Value();
  }
  int32_t integer(const char* key) const { return whole(object_.Get(key), key); }
  double number(const char* key) const {
    const Napi::Value v = object_.Get(key);
    if (!v.IsNumber())
      throw Error(ErrorCode::kUsage, format("the option %s must be a number", key));
    return v.As<Napi::Number>().DoubleValue();
  }
  bool has(const char* key) const { return !object_.Get(key).IsUndefined(); }
  OptionReader nested(const char* key) const { return OptionReader(object_.Get(key)); }
  // Where 32 bits are too few: what a JavaScript number can count.
  int64_t large_integer(const char* key) const {
    constexpr double kMost = 9007199254740991;  // Number.MAX_SAFE_INTEGER
    const Napi::Value v = object_.Get(key);
    const double d = v.IsNumber() ? v.As<Napi::Number>().DoubleValue() : 0.5;
    if (!(d >= -kMost && d <= kMost) || d != std::trunc(d))
      throw Error(ErrorCode::kUsage, format("the option %s must be a whole number", key));
    return static_cast<int64_t>(d);
  }
  // A list of at most kMaxList integers; empty when the member is absent.
  std::vector<int32_t> integers(const char* key) const {
    std::vector<int32_t> out;
    const Napi::Value v = object_.Get(key);
    if (v.IsUndefined()) return out;
    if (!v.IsArray() || v.As<Napi::Array>().Length() > kMaxList) {
      throw Error(ErrorCode::kUsage,
                  format("the option %s must be a list of at most %u numbers", key, kMaxList));
    }
    const auto array = v.As<Napi::Array>();
    for (uint32_t i = 0; i < array.Length(); ++i) out.push_back(whole(array.Get(i), key));
    return out;
  }

 private:
  static constexpr uint32_t kMaxList = 4096;

  static int32_t whole(const Napi::Value& v, const char* key) {
    const double d = v.IsNumber() ? v.As<Napi::Number>().DoubleValue() : 0.5;
    if (!(d >= INT32_MIN && d <= INT32_MAX) || d != static_cast<double>(static_cast<int32_t>(d))) {
      throw Error(ErrorCode::kUsage,
                  format("the option %s must be a whole number of 32 bits", key));
    }
    return static_cast<int32_t>(d);
  }

  Napi::Object object_;
};

}  // namespace inferd
