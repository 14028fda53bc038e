// The JSON reader: whatever is accepted can be written down and read again as the same value.
#include <cmath>
#include <string>
#include <string_view>

#include "core/checkpoint/json.h"
#include "target.h"

namespace inferd {
namespace {

void write_string(std::string_view text, std::string& out) {
  out += '"';
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20)
      out += format("\\u%04x", c);
    else if (c == '"' || c == '\\')
      out += {'\\', c};
    else
      out += c;
  }
  out += '"';
}

void write(const Json& v, std::string& out) {
  switch (v.kind) {
    case Json::Kind::kNull:
      out += "null";
      break;
    case Json::Kind::kBool:
      out += v.boolean ? "true" : "false";
      break;
    case Json::Kind::kInteger:
      out += std::to_string(v.integer);
      break;
    case Json::Kind::kNumber:
      promise(std::isfinite(v.number), "numbers are finite");
      out += format("%.17e", v.number);
      break;
    case Json::Kind::kString:
      write_string(v.string, out);
      break;
    case Json::Kind::kArray:
      out += '[';
      for (size_t i = 0; i < v.array.size(); ++i) {
        if (i > 0) out += ',';
        write(v.array[i], out);
      }
      out += ']';
      break;
    case Json::Kind::kObject:
      out += '{';
      for (size_t i = 0; i < v.object.size(); ++i) {
        if (i > 0) out += ',';
        write_string(v.object[i].name, out);
        out += ':';
        write(v.object[i].value, out);
      }
      out += '}';
  }
}

bool same(const Json& a, const Json& b) {
  if (a.kind != b.kind || a.boolean != b.boolean || a.integer != b.integer ||
      a.number != b.number || a.string != b.string || a.array.size() != b.array.size() ||
      a.object.size() != b.object.size())
    return false;
  for (size_t i = 0; i < a.array.size(); ++i)
    if (!same(a.array[i], b.array[i])) return false;
  for (size_t i = 0; i < a.object.size(); ++i) {
    if (a.object[i].name != b.object[i].name || !same(a.object[i].value, b.object[i].value))
      return false;
  }
  return true;
}

}  // namespace
}  // namespace inferd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace inferd;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  Json value;
  if (accepted(ErrorCode::kBadModel, [&] {
        value = Json::parse(text, "the input",
                            {.max_bytes = 1 << 16, .max_depth = 16, .max_values = 4096});
      })) {
    std::string written;
    write(value, written);
    Json again;
    promise(
        accepted(ErrorCode::kBadModel, [&] { again = Json::parse(written, "what was written"); }),
        "what was written can be read");
    promise(same(value, again), "it is the same value");
  }
  return 0;
}
