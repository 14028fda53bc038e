// See gguf.h. Everything here treats the file as hostile: arithmetic is checked before it is
// believed.
#include "core/checkpoint/gguf.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/checkpoint/block_types.h"
#include "core/checkpoint/gguf_names.h"
#include "core/checkpoint/json.h"
#include "core/error.h"

namespace inferd {
namespace {

constexpr uint64_t kMaxTensors = 200'000;
constexpr uint64_t kMaxPairs = 100'000;
constexpr uint64_t kMaxKeyBytes = 65'535;
constexpr uint64_t kMaxTensorName = 63;
constexpr int64_t kMaxSplits = 4096;
constexpr int64_t kMaxAlignment = 1 << 20;
// Least bytes of a pair and of a tensor's entry.
constexpr uint64_t kPairBytes = 8 + 4 + 1, kTensorBytes = 8 + 4 + 8 + 4 + 8;
constexpr int kMaxNesting = 4;
// Longest list that is looked at: of layers.
constexpr uint64_t kMaxLayers = 1024;

[[noreturn]] void bad(const std::string& path, const std::string& what) {
  throw Error(ErrorCode::kBadModel,
              format("%s is not a valid GGUF file: %s.", path.c_str(), what.c_str()));
}

// Types of metadata values.
enum ValueType : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray };
constexpr uint32_t kU64 = 10, kI64 = 11;

// Bytes of a value of fixed size; 0 for others, and for what is no type.
uint64_t fixed_bytes(uint32_t type) {
  constexpr uint64_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return type < std::size(kBytes) ? kBytes[type] : 0;
}

bool is_integer(uint32_t type) { return type <= kI32 || type == kU64 || type == kI64; }

}  // namespace

// A place in the file, which nothing is read beyond.
class GgufCursor {
 public:
  GgufCursor(const MappedFile& file, const std::string& path) : file_(file), path_(path) {}

  uint64_t left() const { return static_cast<uint64_t>(file_.size()) - at_; }
  uint64_t at() const { return at_; }
  const std::byte* take(uint64_t bytes, const char* what) {
    if (bytes > left()) {
      bad(path_,
          format("%s at byte %llu needs %llu bytes, and %llu are left", what,
                 static_cast<unsigned long long>(at_), static_cast<unsigned long long>(bytes),
                 static_cast<unsigned long long>(left())));
    }
    const std::byte* from = file_.data() + at_;
    at_ += bytes;
    return from;
  }
  template <typename T>
  T number(const char* what) {
    T value;
    std::memcpy(&value, take(sizeof value, what), sizeof value);
    return value;
  }
  std::string text(uint64_t most, const char* what) {
    const auto length = number<uint64_t>(what);
    if (length > most) {
      bad(path_,
          format("%s claims %llu bytes, and %llu are the most", what,
                 static_cast<unsigned long long>(length), static_cast<unsigned long long>(most)));
    }
    const std::byte* from = take(length, what);
    return {reinterpret_cast<const char*>(from), static_cast<size_t>(length)};
  }
  // A value of a fixed size, as a whole number.
  int64_t integer(uint32_t type) {
    switch (type) {
      case kU8:
      case kBool:
        return number<uint8_t>("a value");
      case kI8:
        return number<int8_t>("a value");
      case kU16:
        return number<uint16_t>("a value");
      case kI16:
        return number<int16_t>("a value");
      case kU32:
        return number<uint32_t>("a value");
      case kI32:
        return number<int32_t>("a value");
      default:
        return number<int64_t>("a value");
    }
  }
  // Passes a list; the whole number that all of its entries are, if they are one.
  std::optional<int64_t> common_integer() {
    const uint64_t start = at_;
    const auto of = number<uint32_t>("a list");
    const auto count = number<uint64_t>("a list");
    if (!is_integer(of) || count < 1 || count > kMaxLayers) {
      at_ = start;
      skip_value(kArray);
      return {};
    }
    const int64_t first = integer(of);
    bool same = true;
    for (uint64_t i = 1; i < count; ++i) same = integer(of) == first && same;
    return same ? std::optional(first) : std::nullopt;
  }
  void skip_value(uint32_t type, int depth = 0) {
    if (const uint64_t bytes = fixed_bytes(type); bytes > 0) {
      take(bytes, "a value");
    } else if (type == kString) {
      take(number<uint64_t>("a string"), "a string");
    } else if (type == kArray && depth < kMaxNesting) {
      const auto of = number<uint32_t>("a list");
      const auto count = number<uint64_t>("a list");
      const uint64_t each = fixed_bytes(of);
      if (count > left() / (each > 0 ? each : 8)) {
        bad(path_, format("a list claims %llu entries, more than the file has room for",
                          static_cast<unsigned long long>(count)));
      }
      if (each > 0) {
        take(count * each, "a list");
      } else {
        for (uint64_t i = 0; i < count; ++i) skip_value(of, depth + 1);
      }
    } else {
      bad(path_, format("a value has the unknown type %u", type));
    }
  }

 private:
  const MappedFile& file_;
  const std::string& path_;
  uint64_t at_ = 0;
};

GgufFile::GgufFile(const std::string& path) : file_(path), path_(path) {
  GgufCursor at(file_, path_);
  if (std::memcmp(at.take(4, "its first word"), "GGUF", 4) != 0)
    bad(path_, "it does not begin with GGUF");
  const auto version = at.number<uint32_t>("its version");
  if ((version & 0xffff) == 0) bad(path_, "its numbers are big-endian");
  if (version != 2 && version != 3)
    bad(path_, format("it has version %u, and 2 and 3 are known", version));
  const auto tensors = at.number<uint64_t>("its counts"), pairs = at.number<uint64_t>("its counts");
  if (pairs > kMaxPairs || pairs > at.left() / kPairBytes || tensors > kMaxTensors ||
      tensors > at.left() / kTensorBytes) {
    bad(path_,
        format("it claims %llu tensors and %llu keys, more than it has room for",
               static_cast<unsigned long long>(tensors), static_cast<unsigned long long>(pairs)));
  }
  read_pairs(at, pairs);
  read_tensors(at, tensors);
  const int64_t alignment = integer("general.alignment", 32);
  if (alignment < 1 || alignment > kMaxAlignment || (alignment & (alignment - 1)) != 0)
    bad(path_, format("its alignment is %lld", static_cast<long long>(alignment)));
  place((static_cast<int64_t>(at.at()) + alignment - 1) / alignment * alignment);
}

int64_t GgufFile::integer(const std::string& key, int64_t fallback) const {
  const auto found = integers_.find(key);
  return found == integers_.end() ? fallback : found->second;
}

void GgufFile::read_pairs(GgufCursor& at, uint64_t count) {
  std::map<std::string, bool> seen;
  for (uint64_t i = 0; i < count; ++i) {
    std::string key = at.text(kMaxKeyBytes, "a key");
    if (!seen.emplace(key, true).second)
      bad(path_, "the key " + in_quotes(key) + " is there twice");
    const auto type = at.number<uint32_t>("a type");
    if (key == "general.architecture" && type == kString) {
      architecture_ = at.text(kMaxKeyBytes, "the architecture");
    } else if (is_integer(type)) {
      integers_[std::move(key)] = at.integer(type);
    } else if (type == kArray) {
      if (const auto value = at.common_integer()) integers_[std::move(key)] = *value;
    } else {
      at.skip_value(type);
    }
  }
}

// `data` of the tensors is their offset until place() has checked it.
void GgufFile::read_tensors(GgufCursor& at, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    const std::string name = at.text(kMaxTensorName, "the name of a tensor");
    const std::string who = "the tensor " + in_quotes(name);
    const auto dims = at.number<uint32_t>("the shape of a tensor");
    if (dims < 1 || dims > 4) bad(path_, who + format(" has %u dimensions", dims));
    StoredTensor t;
    int64_t values = 1;
    for (uint32_t d = 0; d < dims; ++d) {
      const auto size = at.number<uint64_t>("the shape of a tensor");
      if (size < 1 || size > (uint64_t{1} << 40) ||
          __builtin_mul_overflow(values, static_cast<int64_t>(size), &values))
        bad(path_, who + " has a shape that is not possible");
      t.shape.insert(t.shape.begin(), static_cast<int64_t>(size));
    }
    const auto id = at.number<uint32_t>("the type of a tensor");
    const BlockType* type = find_block_type(id);
    if (type == nullptr) {
      throw Error(ErrorCode::kUnsupported,
                  format("%s: %s is of type %s (%u), which inferd does not read; take a file of "
                         "another quantization, such as Q4_K_M or Q8_0.",
                         path_.c_str(), who.c_str(), unread_type_name(id), id));
    }
    if (t.shape.back() % type->values != 0) {
      bad(path_, who + format(" has rows of %lld, which are not whole blocks of %lld",
                              static_cast<long long>(t.shape.back()),
                              static_cast<long long>(type->values)));
    }
    t.dtype_name = type->name;
    t.floating = type->decode == nullptr;
    t.dtype = type->plain;
    t.blocks = t.floating ? nullptr : type;
    if (__builtin_mul_overflow(values / type->values, type->bytes, &t.bytes))
      bad(path_, who + " has more bytes than can be counted");
    const auto offset = at.number<uint64_t>("the offset of a tensor");
    if (offset > static_cast<uint64_t>(file_.size())) bad(path_, who + " lies outside of the file");
    t.data = reinterpret_cast<const std::byte*>(offset);
    if (!tensors_.emplace(name, std::move(t)).second) bad(path_, who + " is there twice");
  }
}

void GgufFile::place(int64_t data_start) {
  const int64_t alignment = integer("general.alignment", 32);
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (auto& [name, t] : tensors_) {
    const auto offset = reinterpret_cast<intptr_t>(t.data);
    const std::string who = "the tensor " + in_quotes(name);
    if (offset % alignment != 0) bad(path_, who + " is not aligned");
    if (data_start > file_.size() || offset > file_.size() - data_start ||
        t.bytes > file_.size() - data_start - offset)
      bad(path_, who + " ends behind the file");
    ranges.emplace_back(offset, offset + t.bytes);
    t.data = file_.data() + data_start + offset;
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i)
    if (ranges[i].first < ranges[i - 1].second) bad(path_, "two of its tensors overlap");
}

namespace {

class Gguf final : public Checkpoint {
 public:
  const StoredTensor* find(const std::string& name) const override {
    const auto at = tensors_.find(name);
    return at == tensors_.end() ? nullptr : at->second;
  }
  Dialect dialect() const override { return gguf_dialect(*files_[0]); }
  void drop_pages() const override {
    for (const auto& file : files_) file->drop_pages();
  }

  void open(const std::string& path);
  void part_experts();

 private:
  void add(const std::string& path);

  std::vector<std::unique_ptr<GgufFile>> files_;
  std::map<std::string, const StoredTensor*> tensors_;
  std::deque<StoredTensor> experts_;  // views of tensors that hold several
};

void Gguf::add(const std::string& path) {
  files_.push_back(std::make_unique<GgufFile>(path));
  for (const auto& [name, tensor] : files_.back()->tensors()) {
    if (!tensors_.emplace(name, &tensor).second)
      bad(path, "the tensor " + in_quotes(name) + " is in another part too");
  }
}

// The experts of a layer lie in one tensor, "ffn_up_exps.weight", one after the other. They are
// found as matrices, and biases, of their own too: "ffn_up_exps.7.weight".
void Gguf::part_experts() {
  constexpr std::string_view kStack = "_exps.";
  // What no model has, and memory of a file that claims it.
  constexpr int64_t kMostExperts = 1 << 14, kMostViews = 1 << 18;
  std::map<std::string, const StoredTensor*> views;
  for (const auto& [name, stack] : tensors_) {
    const size_t at = name.find(kStack);
    if (at == std::string::npos || stack->shape.size() < 2 || stack->shape[0] > kMostExperts)
      continue;
    const int64_t count = stack->shape[0];
    if (static_cast<int64_t>(experts_.size()) + count > kMostViews)
      throw Error(ErrorCode::kBadModel, "The GGUF file has more experts than any model.");
    for (int64_t e = 0; e < count; ++e) {
      StoredTensor& one = experts_.emplace_back(*stack);
      one.shape.erase(one.shape.begin());
      one.bytes = stack->bytes / count;
      one.data = stack->data + e * one.bytes;
      views.emplace(std::string(name).insert(at + kStack.size(), std::to_string(e) + "."), &one);
    }
  }
  tensors_.merge(views);
}

// The number in `text` at `at`, of 5 digits; -1 when there is none.
int64_t five_digits(const std::string& text, size_t at) {
  int64_t value = 0;
  for (size_t i = at; i < at + 5; ++i) {
    if (text[i] < '0' || text[i] > '9') return -1;
    value = 10 * value + (text[i] - '0');
  }
  return value;
}

void Gguf::open(const std::string& path) {
  constexpr size_t kEnding = 20;  // "-00001-of-00003.gguf"
  const size_t at = path.size() >= kEnding ? path.size() - kEnding : std::string::npos;
  const bool split = at != std::string::npos && path[at] == '-' &&
                     path.substr(at + 6, 4) == "-of-" && five_digits(path, at + 1) > 0 &&
                     five_digits(path, at + 10) > 0;
  if (!split) {
    add(path);
    if (const int64_t count = files_[0]->integer("split.count", 1); count > 1)
      bad(path,
          format("it is one of %lld parts, and is not named so", static_cast<long long>(count)));
    return;
  }
  const int64_t count = five_digits(path, at + 10);
  if (count > kMaxSplits) bad(path, "it is one of too many parts");
  for (int64_t i = 0; i < count; ++i) {
    add(path.substr(0, at) + format("-%05lld-of-%05lld.gguf", static_cast<long long>(i + 1),
                                    static_cast<long long>(count)));
    const GgufFile& part = *files_.back();
    if (part.integer("split.count", count) != count || part.integer("split.no", i) != i)
      bad(path, "its parts are not of one model");
  }
  const int64_t all = files_[0]->integer("split.tensors.count", -1);
  if (all >= 0 && all != static_cast<int64_t>(tensors_.size()))
    bad(path, "its parts do not hold all of its tensors");
}

}  // namespace

std::unique_ptr<Checkpoint> open_gguf(const std::string& path) {
  if (!path.ends_with(".gguf")) return nullptr;
  auto checkpoint = std::make_unique<Gguf>();
  checkpoint->open(path);
  checkpoint->part_experts();
  return checkpoint;
}

}  // namespace inferd
