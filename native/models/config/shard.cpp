// See shard.h.
#include "models/config/shard.h"

#include "core/error.h"
#include "models/config/config.h"

namespace inferd {
namespace {

[[noreturn]] void refuse(int32_t ranks, const char* what, int64_t n) {
  throw Error(ErrorCode::kUnsupported,
              format("The model cannot be split over %d ranks: its %s is %lld, which %d does not "
                     "divide; set parallel.tensor_parallel_size to a number that does.",
                     ranks, what, static_cast<long long>(n), ranks));
}

void check(const AttentionConfig& a, const Shard& shard) {
  const int32_t ranks = shard.size;
  if (a.heads % ranks != 0) refuse(ranks, "num_attention_heads", a.heads);
  if (a.kv_heads % ranks != 0 && ranks % a.kv_heads != 0)
    refuse(ranks, "num_key_value_heads", a.kv_heads);
}

void check(const LatentAttentionConfig& a, const Shard& shard) {
  if (a.heads % shard.size != 0) refuse(shard.size, "num_attention_heads", a.heads);
}

void check_features(const Shard& shard, const char* what, int64_t n) {
  if (n % shard.size != 0 && !shard.in_steps(n)) refuse(shard.size, what, n);
}

void check(const MlpConfig& m, const Shard& shard) {
  check_features(shard, "intermediate_size", m.intermediate_size);
}

void check(const ExpertsConfig& e, const Shard& shard) {
  const int32_t ranks = shard.size;
  const int32_t sharing = shard.spreads() ? shard.spread.ranks : ranks;
  if (shard.whole_experts && e.rule.experts < sharing) {
    throw Error(ErrorCode::kUnsupported,
                format("The experts of the model cannot be shared by %d ranks: it has %d; set "
                       "parallel.%s to false.",
                       sharing, e.rule.experts,
                       shard.spreads() ? "enable_dp_attention" : "expert_parallel"));
  }
  if (!shard.whole_experts)
    check_features(shard, "intermediate size of experts", e.intermediate_size);
  check_features(shard, "intermediate size of shared experts", e.shared_size);
}

}  // namespace

void check_divides(const ModelConfig& model, const Shard& shard) {
  bool experts = false;
  for (const LayerConfig& layer : model.layers) {
    for (const BlockConfig& block : layer) {
      std::visit([&](const auto& config) { check(config, shard); }, block.block);
      experts = experts || std::holds_alternative<ExpertsConfig>(block.block);
    }
  }
  if (!shard.spreads() || experts) return;
  throw Error(ErrorCode::kUnsupported,
              "The model has no experts that ranks with sequences of their own could share; set "
              "parallel.enable_dp_attention to false.");
}

}  // namespace inferd
