// See usual_format.h.
#include "models/config/usual_format.h"

#include <algorithm>
#include <optional>

#include "core/coded_block.h"

namespace inferd {
namespace {

using Method = StoredQuantization::Method;

int64_t integer(const Json& of, const char* key, int64_t fallback) {
  const Json* n = of.find(key);
  return n != nullptr && n->is(Json::Kind::kInteger) ? n->integer : fallback;
}
bool boolean(const Json& of, const char* key, bool fallback) {
  const Json* b = of.find(key);
  return b != nullptr && b->is(Json::Kind::kBool) ? b->boolean : fallback;
}

// Integers of `bits`, with a scale for each `group` columns; 0 or less: for all of a row, which is
// 0 columns of the format too.
WeightFormat grouped(int64_t bits, int64_t group, bool symmetric) {
  if (bits > 8 || (group > 0 && group % kCodedInt8Halves.block_cols != 0)) return kFormatF32;
  if (group > 0 && group % kCodedBlock != 0) return kCodedInt8Halves;
  const int32_t run = group > 0 ? coded_run(group) : 0;
  if (bits <= 4) return longer(symmetric ? kCodedInt4 : kCodedInt4Minima, run);
  return symmetric ? longer(kCodedInt8, run) : kCodedInt8Halves;
}

WeightFormat float8(const StoredQuantization& q) {
  if (q.block_rows == 0) return kFloat8Rows;
  if (q.block_cols != kFloat8Blocks.block_cols) return kFormatF32;
  return q.block_rows == kFloat8Blocks.block_rows ? kFloat8Blocks : kFloat8Groups;
}

// Of compressed-tensors: none of a group that is not of all linears.
std::optional<WeightFormat> of_group(const Json& group, bool only, const StoredQuantization& q) {
  const Json* targets = group.find("targets");
  const auto is_linear = [](const Json& target) { return target.string == "Linear"; };
  const bool linears =
      targets != nullptr && std::any_of(targets->array.begin(), targets->array.end(), is_linear);
  const Json* weights = group.find("weights");
  if (weights == nullptr || !(linears || only)) return {};
  const int64_t bits = integer(*weights, "num_bits", 8),
                columns = integer(*weights, "group_size", 0);
  const Json* type = weights->find("type");
  if (type == nullptr || type->string != "float")
    return grouped(bits, columns, boolean(*weights, "symmetric", true));
  if (bits == 8) return float8(q);
  if (bits != 4) return kFormatF32;
  return columns == kCodedFloat4Halves.block_cols ? kCodedFloat4Halves : kCodedFloat4;
}

WeightFormat of_compressed(const Json& quantization, const StoredQuantization& q) {
  const Json* groups = quantization.find("config_groups");
  if (groups == nullptr) return kFormatF32;
  for (const Json::Member& member : groups->object) {
    if (const auto format = of_group(member.value, groups->object.size() == 1, q)) return *format;
  }
  return kFormatF32;
}

}  // namespace

WeightFormat usual_format(const Json& quantization, const StoredQuantization& q) {
  switch (q.method) {
    case Method::kNone:
      break;
    case Method::kGptq:
      return grouped(integer(quantization, "bits", 4), q.group_size,
                     boolean(quantization, "sym", true));
    case Method::kAwq:
      return grouped(4, integer(quantization, "group_size", 128),
                     !boolean(quantization, "zero_point", true));
    case Method::kFloat8:
      return float8(q);
    case Method::kCompressedTensors:
      return of_compressed(quantization, q);
    case Method::kMxfp4:
      return kCodedFloat4;
  }
  return kFormatF32;
}

std::vector<std::string> plain_modules(const Json& quantization) {
  std::vector<std::string> names;
  for (const char* key : {"ignore", "ignored_layers", "modules_to_not_convert"}) {
    const Json* list = quantization.find(key);
    if (list == nullptr) continue;
    for (const Json& name : list->array) {
      if (name.is(Json::Kind::kString) && !name.string.starts_with("re:"))
        names.push_back(name.string);
    }
  }
  return names;
}

}  // namespace inferd
