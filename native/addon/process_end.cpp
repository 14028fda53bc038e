// See process_end.h. Node's own exit joins all workers and the threads of libuv's pool, and so
// lasts as long as the longest native call in one of them. A thread of our own needs nothing of
// those.
#include "addon/process_end.h"

#include <chrono>
#include <cstdlib>
#include <thread>

#include "addon/convert.h"

namespace inferd {
namespace {

constexpr int32_t kMaxExitMs = 60'000;

int32_t read_number(const Napi::Value& v, const char* what, int32_t max) {
  const double d = v.IsNumber() ? v.As<Napi::Number>().DoubleValue() : -1;
  if (!(d >= 0 && d <= max))
    throw Error(ErrorCode::kUsage, format("%s must be a number from 0 to %d", what, max));
  return static_cast<int32_t>(d);
}

}  // namespace

Napi::Value exit_within(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&] {
    const int32_t code = read_number(info[0], "code", 255);
    const int32_t ms = read_number(info[1], "ms", kMaxExitMs);
    std::thread([code, ms] {
      std::this_thread::sleep_for(std::chrono::milliseconds(ms));
      std::_Exit(code);
    }).detach();
    return info.Env().Undefined();
  });
}

}  // namespace inferd
