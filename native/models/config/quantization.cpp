// See quantization.h.
#include "models/config/quantization.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "core/checkpoint/json.h"
#include "core/error.h"
#include "models/config/tensor_names.h"

namespace inferd {
namespace {

// Formats in the order in which backends are asked for them; none: as without the option.
struct OnLoad {
  const char* option;
  // Errors of the head go into the logits as they are, so it keeps at least 8 bits, or 16 where
  // those of the layers are floats, of which but 4 count.
  std::vector<WeightFormat> layers, head;
};
const OnLoad kOnLoad[] = {{"int8", {kFormatInt8}, {kFormatInt8}},
                          {"int4", {kFormatInt4}, {kFormatInt8}},
                          {"fp8", {kFloat8Rows}, {}}};

// Null for "none".
const OnLoad* find(const std::string& option) {
  for (const OnLoad& q : kOnLoad)
    if (option == q.option) return &q;
  if (option == "none") return nullptr;
  throw Error(ErrorCode::kUsage,
              "quantization is " + in_quotes(option) + "; none, int8, int4 and fp8 are known.");
}

}  // namespace

void check_quantization(const std::string& option) { find(option); }

FormatChoice choose_formats(const std::string& option,
                            const std::function<bool(const WeightFormat& format)>& keeps,
                            std::function<WeightFormat(const TensorSlice& stored)> stored) {
  const OnLoad* q = find(option);
  if (q == nullptr) {
    return [stored = std::move(stored)](const std::string&, const TensorSlice& slice) {
      return stored(slice);
    };
  }
  // A backend that keeps none says so when it is asked to run the model.
  const auto first_kept = [&](const std::vector<WeightFormat>& formats) {
    const auto kept = std::find_if(formats.begin(), formats.end(), keeps);
    if (formats.empty()) return std::optional<WeightFormat>();
    return std::optional(kept == formats.end() ? formats.front() : *kept);
  };
  return [layers = first_kept(q->layers), head = first_kept(q->head), stored = std::move(stored)](
             const std::string& linear, const TensorSlice& slice) {
    const std::optional<WeightFormat>& chosen = linear == kHeadLinear ? head : layers;
    return chosen.has_value() ? *chosen : stored(slice);
  };
}

}  // namespace inferd
