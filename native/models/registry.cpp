// See registry.h.
#include "models/registry.h"

#include <optional>

#include "core/checkpoint/mapped_file.h"
#include "core/error.h"
#include "models/config/stored.h"

namespace inferd {

// Architecture, model type, and the function that reads the config: one line a model.
#define INFERD_MODELS(MODEL)                                         \
  MODEL(LlamaForCausalLM, "llama", configure_llama)                  \
  MODEL(MistralForCausalLM, "mistral", configure_mistral)            \
  MODEL(MixtralForCausalLM, "mixtral", configure_mixtral)            \
  MODEL(Qwen2ForCausalLM, "qwen2", configure_qwen2)                  \
  MODEL(Qwen2MoeForCausalLM, "qwen2_moe", configure_qwen2_moe)       \
  MODEL(Qwen3ForCausalLM, "qwen3", configure_qwen3)                  \
  MODEL(Qwen3MoeForCausalLM, "qwen3_moe", configure_qwen3_moe)       \
  MODEL(DeepseekV2ForCausalLM, "deepseek_v2", configure_deepseek_v2) \
  MODEL(DeepseekV3ForCausalLM, "deepseek_v3", configure_deepseek_v3) \
  MODEL(Gemma2ForCausalLM, "gemma2", configure_gemma2)               \
  MODEL(Gemma3ForCausalLM, "gemma3_text", configure_gemma3)          \
  MODEL(GptOssForCausalLM, "gpt_oss", configure_gpt_oss)             \
  MODEL(Olmo2ForCausalLM, "olmo2", configure_olmo2)                  \
  MODEL(GraniteForCausalLM, "granite", configure_granite)            \
  MODEL(SmolLM3ForCausalLM, "smollm3", configure_smollm3)            \
  MODEL(Phi3ForCausalLM, "phi3", configure_phi3)

#define INFERD_DECLARE(architecture, type, configure) ModelConfig configure(const ConfigReader&);
INFERD_MODELS(INFERD_DECLARE)

namespace {

struct Entry {
  const char* architecture;
  const char* model_type;
  ConfigureModel configure;
};
#define INFERD_ENTRY(architecture, type, configure) {#architecture, type, configure},
constexpr Entry kModels[] = {INFERD_MODELS(INFERD_ENTRY)};

const Entry& find_model(const ConfigReader& reader) {
  const Json* list = reader.find("architectures");
  std::string name;
  if (list != nullptr && list->is(Json::Kind::kArray) && !list->array.empty())
    name = list->array[0].string;
  const std::string type = reader.string("model_type", "");
  std::string known;
  for (const Entry& e : kModels) {
    if (name.empty() ? type == e.model_type : name == e.architecture) return e;
    known += (known.empty() ? "" : ", ") + std::string(e.architecture);
  }
  reader.unsupported("the architecture " + in_quotes(name.empty() ? type : name) +
                     " is not supported; inferd knows " + known);
}

}  // namespace

namespace {

// Files beside older config.json that say how weights were quantized, and by which method.
struct SeparateFile {
  const char *name, *method;
};
constexpr SeparateFile kSeparate[] = {{"/quantize_config.json", "gptq"},
                                      {"/quant_config.json", "awq"}};

// `said` with a method, if it names none.
Json with_method(Json said, const char* name) {
  Json method;
  method.kind = Json::Kind::kString;
  method.string = name;
  if (said.find("quant_method") == nullptr) said.object.push_back({"quant_method", method});
  return said;
}

StoredQuantization read_stored(const ConfigReader& reader, const std::string& folder) {
  if (const Json* inside = reader.find("quantization_config"); inside != nullptr)
    return read_stored_quantization(reader.nested("quantization_config", *inside));
  // The first files of compressed-tensors have the key under this name.
  if (const Json* inside = reader.find("compression_config"); inside != nullptr) {
    const Json said = with_method(*inside, "compressed-tensors");
    return read_stored_quantization(reader.nested("compression_config", said));
  }
  for (const SeparateFile& separate : kSeparate) {
    const std::string path = folder + separate.name;
    if (!file_exists(path)) continue;
    const MappedFile file(path);
    const Json said = with_method(Json::parse(file.text(), path), separate.method);
    return read_stored_quantization({said, path});
  }
  return {};
}

}  // namespace

ModelConfig read_model_config(const std::string& path, const std::string& given) {
  const std::string at = path + (given.empty() ? "/config.json" : ": its configuration");
  const std::optional<MappedFile> file =
      given.empty() ? std::optional<MappedFile>(std::in_place, at) : std::nullopt;
  const Json root = Json::parse(file ? file->text() : given, at);
  if (!root.is(Json::Kind::kObject))
    throw Error(ErrorCode::kBadModel, at + " is not a JSON object.");
  const ConfigReader reader(root, at);
  const Entry& model = find_model(reader);
  ModelConfig config = model.configure(reader);
  config.architecture = model.architecture;
  config.stored = read_stored(reader, path);
  return config;
}

}  // namespace inferd
