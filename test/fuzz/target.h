// What every fuzz target does with its input: errors of the native code are answers, anything else
// that is thrown, and every finding of the sanitizers, ends the process.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "core/error.h"

namespace inferd {

// A property that a target promises; checked in every build.
inline void promise(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

// Runs `parse`; true when it accepted its input. The message of an error is for people.
template <typename Parse>
bool accepted(ErrorCode wanted, Parse parse) {
  try {
    parse();
    return true;
  } catch (const Error& e) {
    const std::string text = e.what();
    promise(e.code == wanted || e.code == ErrorCode::kUnsupported,
            "the error has the code of its parser");
    promise(!e.fatal && !text.empty() && text.size() < 2000, "the message is one short sentence");
    for (const char c : text) {
      promise(static_cast<unsigned char>(c) >= 0x20 && static_cast<unsigned char>(c) < 0x7f,
              "the message is printable");
    }
    return false;
  }
}

}  // namespace inferd
