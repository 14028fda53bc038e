// See safetensors.h. Everything here treats the file as hostile: arithmetic is checked before it is
// believed.
#include "core/checkpoint/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>

#include "core/error.h"

namespace inferd {
namespace {

static_assert(std::endian::native == std::endian::little,
              "safetensors data is little-endian and used in place");

constexpr int64_t kMaxHeaderBytes = 100'000'000;
constexpr int64_t kMaxIndexBytes = 64 << 20;
constexpr size_t kMaxTensors = 200'000;
constexpr size_t kMaxShards = 4096;
constexpr size_t kMaxRank = 8;

struct KnownDType {
  const char* name;
  int64_t bytes;
  // Meaningful when `floating`: other types are legal in a file, but no model uses them.
  DType dtype;
  bool floating;
};
constexpr KnownDType kDTypes[] = {
    {"F32", 4, DType::kF32, true},     {"F16", 2, DType::kF16, true},
    {"BF16", 2, DType::kBF16, true},   {"F64", 8, DType::kF64, false},
    {"I64", 8, DType::kI64, false},    {"I32", 4, DType::kI32, false},
    {"I16", 2, DType::kI32, false},    {"I8", 1, DType::kI8, false},
    {"U8", 1, DType::kU8, false},      {"BOOL", 1, DType::kU8, false},
    {"U16", 2, DType::kI32, false},    {"U32", 4, DType::kI32, false},
    {"U64", 8, DType::kI64, false},    {"F8_E4M3", 1, DType::kF8, false},
    {"F8_E5M2", 1, DType::kU8, false},
};

[[noreturn]] void bad(const std::string& path, const std::string& what) {
  throw Error(ErrorCode::kBadModel,
              format("%s is not a valid safetensors file: %s.", path.c_str(), what.c_str()));
}

Json read_header(const MappedFile& file, const std::string& path) {
  if (file.size() < 8)
    bad(path, format("it has %lld bytes and no header", static_cast<long long>(file.size())));
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  if (length > static_cast<uint64_t>(std::min(kMaxHeaderBytes, file.size() - 8))) {
    bad(path, format("its header claims %llu bytes, the file has %lld and 100 MB is the limit",
                     static_cast<unsigned long long>(length), static_cast<long long>(file.size())));
  }
  const std::string_view text = file.text().substr(8, static_cast<size_t>(length));
  if (text.empty() || text.front() != '{') bad(path, "its header does not start with a brace");
  // An entry is about ten values, so that this bounds memory before the tensor count is known.
  return Json::parse(
      text, "The header of " + path,
      {.max_bytes = kMaxHeaderBytes, .max_depth = 64, .max_values = 20 * kMaxTensors});
}

int64_t non_negative(const Json& v, const std::string& path, const std::string& what) {
  if (!v.is(Json::Kind::kInteger) || v.integer < 0)
    bad(path, what + " is not a whole number of at least 0");
  return v.integer;
}

bool safe_file_name(const std::string& name) {
  return name.size() > 12 && name.size() <= 255 && name.ends_with(".safetensors") &&
         name.find_first_of("/\\") == std::string::npos && name.find('\0') == std::string::npos &&
         name.find("..") == std::string::npos;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(path), path_(path) {
  const Json header = read_header(file_, path);
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file_.data(), sizeof header_bytes);
  const int64_t data_start = 8 + static_cast<int64_t>(header_bytes);
  const int64_t data_bytes = file_.size() - data_start;
  if (header.object.size() > kMaxTensors + 1)
    bad(path, format("it names %zu tensors", header.object.size()));

  std::vector<const StoredTensor*> order;
  for (const auto& [name, entry] : header.object) {
    if (name == "__metadata__") {
      if (!entry.is(Json::Kind::kObject)) bad(path, "its __metadata__ is not an object");
      continue;
    }
    StoredTensor t = read_entry(name, entry, data_bytes);
    t.data = file_.data() + data_start + reinterpret_cast<intptr_t>(t.data);
    order.push_back(&tensors_.emplace(name, std::move(t)).first->second);
  }
  std::sort(order.begin(), order.end(), [](const StoredTensor* a, const StoredTensor* b) {
    return a->data != b->data ? a->data < b->data : a->bytes < b->bytes;
  });
  const std::byte* expected = file_.data() + data_start;
  for (const StoredTensor* t : order) {
    if (t->data != expected) {
      bad(path,
          format("its tensors %s at byte %lld of the data",
                 t->data < expected ? "overlap" : "leave a gap",
                 static_cast<long long>(std::min(t->data, expected) - file_.data() - data_start)));
    }
    expected += t->bytes;
  }
  if (expected != file_.data() + file_.size()) {
    bad(path, format("its tensors end %lld bytes before the file does",
                     static_cast<long long>(file_.data() + file_.size() - expected)));
  }
}

// Returns the entry with `data` holding the begin offset, which the caller turns into an address.
StoredTensor SafetensorsFile::read_entry(const std::string& name, const Json& entry,
                                         int64_t data_bytes) const {
  const std::string who = "tensor " + in_quotes(name);
  if (name.empty() || name.size() > 512)
    bad(path_, who + " has a name of no or of more than 512 bytes");
  const Json* dtype = entry.find("dtype");
  const Json* shape = entry.find("shape");
  const Json* offsets = entry.find("data_offsets");
  if (dtype == nullptr || !dtype->is(Json::Kind::kString) || shape == nullptr ||
      !shape->is(Json::Kind::kArray) || offsets == nullptr || !offsets->is(Json::Kind::kArray) ||
      offsets->array.size() != 2) {
    bad(path_, who + " lacks a proper dtype, shape or data_offsets");
  }
  if (entry.object.size() != 3)
    bad(path_, who + " has keys other than dtype, shape and data_offsets");
  const auto* known = std::find_if(std::begin(kDTypes), std::end(kDTypes),
                                   [&](const KnownDType& k) { return dtype->string == k.name; });
  if (known == std::end(kDTypes))
    bad(path_, who + " has the unknown dtype " + in_quotes(dtype->string));
  if (shape->array.size() > kMaxRank)
    bad(path_, who + format(" has %zu dimensions, more than %zu", shape->array.size(), kMaxRank));

  StoredTensor t{
      .dtype_name = known->name, .dtype = known->dtype, .floating = known->floating, .shape = {}};
  int64_t bytes = known->bytes;
  for (const Json& d : shape->array) {
    t.shape.push_back(non_negative(d, path_, "a dimension of " + who));
    if (__builtin_mul_overflow(bytes, t.shape.back(), &bytes))
      bad(path_, who + " has more elements than can be counted");
  }
  const int64_t begin = non_negative(offsets->array[0], path_, "the begin offset of " + who);
  const int64_t end = non_negative(offsets->array[1], path_, "the end offset of " + who);
  if (begin > end || end > data_bytes) {
    bad(path_, who + format(" has the byte range [%lld, %lld) in %lld bytes of data",
                            static_cast<long long>(begin), static_cast<long long>(end),
                            static_cast<long long>(data_bytes)));
  }
  if (end - begin != bytes) {
    bad(path_, who + format(" of shape %s and dtype %s needs %lld bytes and has %lld",
                            shape_text(t.shape).c_str(), known->name, static_cast<long long>(bytes),
                            static_cast<long long>(end - begin)));
  }
  t.bytes = bytes;
  t.data = reinterpret_cast<const std::byte*>(begin);
  return t;
}

namespace {

// All tensors of a model folder.
class Shards final : public Checkpoint {
 public:
  const StoredTensor* find(const std::string& name) const override {
    const auto at = tensors_.find(name);
    return at == tensors_.end() ? nullptr : at->second;
  }
  void drop_pages() const override {
    for (const auto& file : files_) file->drop_pages();
  }
  void open_single(const std::string& path) {
    files_.push_back(std::make_unique<SafetensorsFile>(path));
    for (const auto& [name, tensor] : files_[0]->tensors()) tensors_[name] = &tensor;
  }
  void open_shards(const std::string& folder, const std::string& index_path);

 private:
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, const StoredTensor*> tensors_;
};

void Shards::open_shards(const std::string& folder, const std::string& index_path) {
  const MappedFile file(index_path);
  const Json index =
      Json::parse(file.text(), index_path,
                  {.max_bytes = kMaxIndexBytes, .max_depth = 16, .max_values = 4 * kMaxTensors});
  const Json* map = index.find("weight_map");
  if (map == nullptr || !map->is(Json::Kind::kObject)) {
    throw Error(ErrorCode::kBadModel, format("%s has no weight_map object.", index_path.c_str()));
  }
  std::map<std::string, const SafetensorsFile*> shards;
  for (const auto& [name, shard] : map->object) {
    if (!shard.is(Json::Kind::kString) || !safe_file_name(shard.string)) {
      throw Error(
          ErrorCode::kBadModel,
          format("%s places the tensor %s in %s, which is not a plain *.safetensors file name.",
                 index_path.c_str(), in_quotes(name).c_str(), in_quotes(shard.string).c_str()));
    }
    auto [at, fresh] = shards.try_emplace(shard.string, nullptr);
    if (fresh) {
      if (shards.size() > kMaxShards) {
        throw Error(ErrorCode::kBadModel,
                    format("%s names more than %zu shards.", index_path.c_str(), kMaxShards));
      }
      files_.push_back(std::make_unique<SafetensorsFile>(folder + "/" + shard.string));
      at->second = files_.back().get();
    }
    const auto found = at->second->tensors().find(name);
    if (found == at->second->tensors().end()) {
      throw Error(ErrorCode::kBadModel,
                  format("%s places the tensor %s in %s, which does not hold it.",
                         index_path.c_str(), in_quotes(name).c_str(), shard.string.c_str()));
    }
    tensors_[name] = &found->second;
  }
}

// The path of the only file of a folder with this ending; "" where there is none, or several.
std::string only_file(const std::string& folder, const std::string& ending) {
  std::string found;
  std::error_code error;
  std::filesystem::directory_iterator at(folder, error);
  for (const std::filesystem::directory_iterator end; !error && at != end; at.increment(error)) {
    const std::string path = at->path().string();
    if (!path.ends_with(ending)) continue;
    if (!found.empty()) return "";
    found = path;
  }
  return found;
}

}  // namespace

std::unique_ptr<Checkpoint> open_safetensors(const std::string& folder) {
  const std::string single = folder + "/model.safetensors";
  const std::string index = folder + "/model.safetensors.index.json";
  auto shards = std::make_unique<Shards>();
  if (file_exists(single))
    shards->open_single(single);
  else if (file_exists(index))
    shards->open_shards(folder, index);
  else if (const auto other_index = only_file(folder, ".safetensors.index.json");
           !other_index.empty())
    shards->open_shards(folder, other_index);
  else if (const auto other = only_file(folder, ".safetensors"); !other.empty())
    shards->open_single(other);
  else
    return nullptr;
  return shards;
}

}  // namespace inferd
