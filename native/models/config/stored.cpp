// See stored.h. A method is a line in kMethods; core/formats reads its tensors.
#include "models/config/stored.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <vector>

#include "models/config/usual_format.h"

namespace inferd {
namespace {

using Method = StoredQuantization::Method;
using Read = void (*)(const ConfigReader& r, StoredQuantization& q);

constexpr int64_t kMaxBlock = 1 << 16;

// The numbers of "[128, 128]", or of "128x128" as text; none of what is neither.
std::vector<int64_t> block_sizes(const Json& block) {
  std::vector<int64_t> sizes;
  if (block.is(Json::Kind::kArray)) {
    for (const Json& n : block.array) sizes.push_back(n.is(Json::Kind::kInteger) ? n.integer : 0);
  } else if (block.is(Json::Kind::kString)) {
    const char* at = block.string.data();
    const char* const end = at + block.string.size();
    while (at < end) {
      const auto [next, error] = std::from_chars(at, end, sizes.emplace_back(0));
      if (error != std::errc() || (next < end && *next != 'x')) return {};
      at = next == end ? end : next + 1;
    }
  }
  return sizes;
}

// May be absent.
void read_blocks(const ConfigReader& r, const char* key, StoredQuantization& q) {
  const Json* block = r.find(key);
  if (block == nullptr) return;
  const std::vector<int64_t> sizes = block_sizes(*block);
  const auto possible = [](int64_t n) { return n >= 1 && n <= kMaxBlock; };
  if (sizes.size() != 2 || !std::all_of(sizes.begin(), sizes.end(), possible))
    r.fail(std::string(key) + " must be two whole numbers");
  q.block_rows = sizes[0];
  q.block_cols = sizes[1];
}

// The layout has two names, of which files have either or both.
void read_gptq(const ConfigReader& r, StoredQuantization& q) {
  const std::string format = r.string("checkpoint_format", r.string("format", "gptq"));
  if ((format != "gptq" && format != "gptq_v2") || r.boolean("is_marlin_format", false)) {
    r.unsupported("the GPTQ layout " + in_quotes(format == "gptq" ? "marlin" : format) +
                  " is not supported; take a version of the model in the layout gptq or gptq_v2");
  }
  q.zeros_less_one = format == "gptq";
  const Json* size = r.find("group_size");
  if (size != nullptr && size->is(Json::Kind::kInteger))
    q.group_size = std::max<int64_t>(0, size->integer);
}

void read_awq(const ConfigReader& r, StoredQuantization&) {
  const std::string version = r.string("version", "gemm");
  if (version != "gemm" && version != "GEMM") {
    r.unsupported("the AWQ layout " + in_quotes(version) +
                  " is not supported; take a version of the model in the layout gemm");
  }
  if (r.integer("bits", 1, 16, 4) != 4) r.unsupported("AWQ weights have 4 bits");
}

void read_float8(const ConfigReader& r, StoredQuantization& q) {
  read_blocks(r, "weight_block_size", q);
}

constexpr const char* kPackedFormats[] = {
    "float-quantized",      "int-quantized",        "naive-quantized", "pack-quantized",
    "mxfp4-pack-quantized", "nvfp4-pack-quantized", "mixed-precision", "dense"};

// Rotations that were multiplied into weights are in them; those of activations are not computed
// here, and without them the weights are no model.
void check_transforms(const ConfigReader& r) {
  const Json* config = r.find("transform_config");
  const Json* schemes = config == nullptr ? nullptr : config->find("config_groups");
  if (schemes == nullptr) return;
  for (const auto& [name, scheme] : schemes->object) {
    const Json* uses = scheme.find("apply");
    if (uses == nullptr) continue;
    for (const Json& use : uses->array) {
      const Json* place = use.find("location");
      if (place != nullptr && !place->string.starts_with("weight_"))
        r.unsupported("rotations of activations (" + in_quotes(name) + ") are not supported");
    }
  }
}

void read_compressed(const ConfigReader& r, StoredQuantization& q) {
  const auto check = [](const ConfigReader& of, const std::string& format) {
    if (std::find(std::begin(kPackedFormats), std::end(kPackedFormats), format) ==
        std::end(kPackedFormats)) {
      of.unsupported("the compressed-tensors format " + in_quotes(format) + " is not supported");
    }
  };
  check(r, r.string("format", "dense"));
  if (const Json* sparse = r.find("sparsity_config"); sparse != nullptr) {
    const std::string format = r.nested("sparsity_config", *sparse).string("format", "dense");
    if (format != "dense")
      r.unsupported("sparse weights (" + in_quotes(format) + ") are not supported");
  }
  check_transforms(r);
  const Json* groups = r.find("config_groups");
  if (groups == nullptr || !groups->is(Json::Kind::kObject)) return;
  for (const auto& [name, group] : groups->object) {
    const ConfigReader one = r.nested(name.c_str(), group);
    check(one, one.string("format", "dense"));
    const Json* weights = group.find("weights");
    if (weights != nullptr) read_blocks(one.nested("weights", *weights), "block_structure", q);
  }
}

// All is in the tensors.
void read_mxfp4(const ConfigReader&, StoredQuantization&) {}

struct KnownMethod {
  const char* name;
  Method method;
  Read read;
};
constexpr KnownMethod kMethods[] = {
    {"gptq", Method::kGptq, read_gptq},
    {"awq", Method::kAwq, read_awq},
    {"fp8", Method::kFloat8, read_float8},
    {"fbgemm_fp8", Method::kFloat8, read_float8},
    {"compressed-tensors", Method::kCompressedTensors, read_compressed},
    {"mxfp4", Method::kMxfp4, read_mxfp4},
};

}  // namespace

StoredQuantization read_stored_quantization(const ConfigReader& r) {
  const std::string name = r.string("quant_method", "");
  for (const KnownMethod& known : kMethods) {
    if (name != known.name) continue;
    StoredQuantization q;
    q.method = known.method;
    known.read(r, q);
    q.usual = usual_format(r.root(), q);
    q.plain_modules = plain_modules(r.root());
    return q;
  }
  std::string all;
  for (const KnownMethod& known : kMethods)
    all += (all.empty() ? "" : ", ") + std::string(known.name);
  r.unsupported("weights quantized by " + in_quotes(name) + " are not supported; inferd reads " +
                all + " and GGUF files");
}

}  // namespace inferd
