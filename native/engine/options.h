// What an engine is asked for; mirror of EngineOptions in native/index.ts. Also the limits of the
// engine's fixed tables.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/comm.h"
#include "core/tensor.h"

namespace inferd {

// How tokens are drafted.
struct DraftOptions {
  int32_t max_tokens = 0;  // of a sequence and step; 0: none
  int32_t ngram_min = 1, ngram_max = 3;
  std::string method = "ngram";  // or "draft", "eagle3", "mtp": by a network (models/draft)
  int32_t max_rows = 0;      // of a step that a network follows though nothing is drafted; 0: any
  float forced_rate = -1;    // >= 0, for benchmarks: SlotTables::forced_rate
  std::string model_path{};  // of "draft" and "eagle3": a folder
};

// Room for adapters.
struct AdapterOptions {
  int32_t places = 0;    // that one step can use; 0: none, and a step costs nothing more
  int32_t max_rank = 0;  // of a module
};

struct EngineOptions {
  std::string model_path;    // a folder, or a GGUF file
  std::string model_config;  // text in place of config.json, where there is none; else ""
  std::string backend;       // a name of engine/backends.cpp
  int32_t device_id = 0;
  int32_t threads = 0;       // 0 = physical cores
  std::string weight_dtype;  // "auto", "f32", "f16", "bf16"
  std::string quantization;  // "none", "int8", "int4", "fp8"
  std::string kv_dtype;      // "f32", "f16", "bf16", "fp8", "int8"; "auto" = as the activations
  int32_t block_size = 0;
  int32_t max_slots = 0;
  int32_t max_batch_tokens = 0;
  int32_t max_model_len = 0;
  // In place of the windows of config.json, in the layers that have one, or in all of a model
  // without any; 0 = as config.json says.
  int32_t sliding_window = 0;
  bool load_dummy = false;
  // This engine is one of the ranks that compute the model together, each an engine of its own.
  int32_t rank = 0;
  int32_t world_size = 1;
  // Ranks share experts whole, not a part of each.
  bool expert_parallel = false;
  // Ranks attend to sequences of their own, each with all of the model but the experts, which they
  // share whole: plans of their own, and every rank submits as many steps as the others.
  bool dp_attention = false;
  // Of several ranks: RankGroup of core/comm.h.
  uint64_t group = 0;
  bool alone = false;
  int32_t comm_timeout_ms = 10'000;
  std::string all_reduce = "auto";    // or "own", "nccl"
  std::vector<int32_t> rank_devices;  // device_id of each rank; empty: not said
  int64_t comm_fault_at = -1;
  int32_t comm_fault_sleep_ms = 0;
  std::string isa;  // "auto" or a kernel set of the CPU backend
  // Batch sizes at which pure decode steps are recorded and replayed as graphs, where the backend
  // has them; a step is padded to the next size. Empty: never.
  std::vector<int32_t> graph_sizes;
  // The same of the tokens of other steps, prompts among them, whose forward pass is recorded.
  std::vector<int32_t> prefill_graph_sizes;
  DraftOptions drafts;
  AdapterOptions adapters;
};

// Throws Error(kUsage) with the name and the range of the first option that is out of it.
void check_options(const EngineOptions& o);
// The same of one number.
void check_option(int64_t value, int64_t min, int64_t max, const char* name);
// These throw Error(kUsage) for a name that is not known; `option` is whose name it is.
DType parse_dtype(const std::string& name, const char* option);
DType parse_kv_dtype(const std::string& name);
AllReduce parse_all_reduce(const std::string& name);
// As options name it.
const char* dtype_name(DType t);
// Whether keys and values of this type have 8 bits.
bool is_narrow(DType t);

constexpr int32_t kMaxAdapterPlaces = 256;
constexpr int32_t kMaxAdapterRank = 512;
constexpr int32_t kMaxDrafts = 31;
constexpr int32_t kMaxNgram = 64;

constexpr int64_t kMaxRawLogitBytes = 256 << 20;  // of one step; only tests ask for raw logits

// Of one sequence, by a network.
struct MadeDrafts {
  int32_t slot;
  std::vector<int32_t> ids;
  std::vector<float> logits;
};

// Of one block with experts.
struct ExpertWork {
  std::vector<int32_t> tokens;  // of each expert held here
  int32_t chosen;               // experts of a token
  int64_t bytes;                // of the weights of one expert, as they lie here
  int64_t parameters;           // of one expert, as all ranks hold it
};

struct ModelInfo {
  std::string architecture;
  int64_t vocab_size, num_layers, hidden_size, max_positions, parameters, weight_bytes;
  int64_t table_bytes;  // of weight_bytes, an embedding that is not the head too
  std::string dtype, kv_dtype;
  int64_t kv_scaled_layers;  // whose keys and values have scales of the checkpoint
  int64_t block_bytes, step_bytes, free_bytes, total_bytes;
  int64_t host_free_bytes;  // of the machine, also where the device has memory of its own
  std::string backend;
};

}  // namespace inferd
