// See quantization.h.
#include "models/config/quantization.h"

#include <utility>

#include "core/checkpoint/json.h"
#include "core/error.h"
#include "models/config/tensor_names.h"

namespace inferd {
namespace {

struct OnLoad {
  const char* option;
  // Errors of the head go into the logits as they are, so it keeps at least 8 bits.
  WeightFormat layers, head;
};
constexpr OnLoad kOnLoad[] = {{"int8", kFormatInt8, kFormatInt8},
                              {"int4", kFormatInt4, kFormatInt8}};

// Null for "none".
const OnLoad* find(const std::string& option) {
  for (const OnLoad& q : kOnLoad)
    if (option == q.option) return &q;
  if (option == "none") return nullptr;
  throw Error(ErrorCode::kUsage,
              "quantization is " + in_quotes(option) + "; none, int8 and int4 are known.");
}

}  // namespace

void check_quantization(const std::string& option) { find(option); }

FormatChoice choose_formats(const std::string& option, DType dtype,
                            std::function<WeightFormat(const TensorSlice& stored)> coded) {
  const OnLoad* q = find(option);
  return [q, plain = plain_format(dtype), coded = std::move(coded)](const std::string& linear,
                                                                    const TensorSlice& stored) {
    if (q == nullptr) return coded ? coded(stored) : plain;
    return linear == kHeadLinear ? q->head : q->layers;
  };
}

}  // namespace inferd
