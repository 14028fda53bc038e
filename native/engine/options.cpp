// See options.h: how options are checked and read.
#include "engine/options.h"

#include "core/error.h"
#include "models/config/quantization.h"
#include "models/draft/open_drafter.h"

namespace inferd {
namespace {

constexpr int32_t kMaxRanks = 64;

}  // namespace

DType parse_dtype(const std::string& name, const char* option) {
  if (name == "f32") return DType::kF32;
  if (name == "f16") return DType::kF16;
  if (name == "bf16") return DType::kBF16;
  throw Error(ErrorCode::kUsage,
              format("%s is %s; f32, f16 and bf16 are known.", option, in_quotes(name).c_str()));
}

DType parse_kv_dtype(const std::string& name) {
  if (name == "fp8") return DType::kF8;
  if (name == "int8") return DType::kI8;
  if (name == "f32" || name == "f16" || name == "bf16") return parse_dtype(name, "kvDtype");
  throw Error(ErrorCode::kUsage, format("kvDtype is %s; f32, f16, bf16, fp8 and int8 are known.",
                                        in_quotes(name).c_str()));
}

bool is_narrow(DType t) { return t == DType::kF8 || t == DType::kI8; }

const char* dtype_name(DType t) {
  switch (t) {
    case DType::kF32:
      return "f32";
    case DType::kF16:
      return "f16";
    case DType::kF8:
      return "fp8";
    case DType::kI8:
      return "int8";
    default:
      return "bf16";
  }
}

AllReduce parse_all_reduce(const std::string& name) {
  if (name == "auto") return AllReduce::kAuto;
  if (name == "own") return AllReduce::kOwn;
  if (name == "nccl") return AllReduce::kNccl;
  throw Error(ErrorCode::kUsage,
              "allReduce is " + in_quotes(name) + "; auto, own and nccl are known.");
}

void check_option(int64_t value, int64_t min, int64_t max, const char* name) {
  if (value >= min && value <= max) return;
  throw Error(ErrorCode::kUsage,
              format("%s is %lld, outside %lld..%lld.", name, static_cast<long long>(value),
                     static_cast<long long>(min), static_cast<long long>(max)));
}

void check_options(const EngineOptions& o) {
  check_option(o.threads, 0, 1024, "threads");
  check_option(o.block_size, 1, 1024, "blockSize");
  check_option(o.max_slots, 1, 65536, "maxSlots");
  check_option(o.max_batch_tokens, 1, 1 << 20, "maxBatchTokens");
  check_option(o.max_model_len, 1, 1 << 24, "maxModelLen");
  check_option(o.sliding_window, 0, 1 << 24, "slidingWindow");
  for (const int32_t size : o.graph_sizes) check_option(size, 1, 65536, "graphSizes");
  for (const int32_t size : o.prefill_graph_sizes)
    check_option(size, 1, 65536, "prefillGraphSizes");
  check_quantization(o.quantization);
  check_option(o.world_size, 1, kMaxRanks, "worldSize");
  check_option(o.rank, 0, o.world_size - 1, "rank");
  check_option(o.drafts.max_tokens, 0, kMaxDrafts, "drafts");
  check_option(o.drafts.ngram_max, 1, kMaxNgram, "ngramMax");
  check_option(o.drafts.ngram_min, 1, o.drafts.ngram_max, "ngramMin");
  drafts_by_network(o.drafts.method);
  if (!(o.drafts.forced_rate <= 1)) throw Error(ErrorCode::kUsage, "forcedRate is above 1.");
  check_option(o.adapters.places, 0, kMaxAdapterPlaces, "adapter places");
  if (o.adapters.places > 0) check_option(o.adapters.max_rank, 1, kMaxAdapterRank, "maxRank");
  check_option(o.comm_timeout_ms, 1, 86'400'000, "commTimeoutMs");
  parse_all_reduce(o.all_reduce);
}

}  // namespace inferd
