// The one error type of the native code. Thrown inside, converted once in addon/. `fatal` = the
// process cannot go on.
#pragma once
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>

namespace inferd {

enum class ErrorCode {
  kBadModel,
  kBadPlan,
  kUnsupported,
  kOutOfMemory,
  kIo,
  kDevice,
  kClosed,
  kUsage
};

// The name of a code as TypeScript sees it (NativeError.code in native/index.ts).
inline const char* error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kBadModel:
      return "bad_model";
    case ErrorCode::kBadPlan:
      return "bad_plan";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kOutOfMemory:
      return "out_of_memory";
    case ErrorCode::kIo:
      return "io";
    case ErrorCode::kDevice:
      return "device";
    case ErrorCode::kClosed:
      return "closed";
    case ErrorCode::kUsage:
      return "usage";
  }
  return "device";
}

struct Error : std::runtime_error {
  ErrorCode code;
  bool fatal;
  Error(ErrorCode code, const std::string& message, bool fatal = false)
      : std::runtime_error(message), code(code), fatal(fatal) {}
};

// printf-style message; returns std::string.
[[gnu::format(printf, 1, 2)]] inline std::string format(const char* fmt, ...) {
  va_list args, copy;
  va_start(args, fmt);
  va_copy(copy, args);
  const int n = std::vsnprintf(nullptr, 0, fmt, args);
  va_end(args);
  std::string s(static_cast<size_t>(n > 0 ? n : 0), '\0');
  std::vsnprintf(s.data(), s.size() + 1, fmt, copy);
  va_end(copy);
  return s;
}

}  // namespace inferd
