// See registry.h.
#include "models/registry.h"

#include "core/checkpoint/mapped_file.h"
#include "core/error.h"

namespace inferd {

// Architecture, model type, and the function that reads the config: one line a model.
#define INFERD_MODELS(MODEL)                                \
  MODEL(LlamaForCausalLM, "llama", configure_llama)         \
  MODEL(MistralForCausalLM, "mistral", configure_mistral)   \
  MODEL(Qwen2ForCausalLM, "qwen2", configure_qwen2)         \
  MODEL(Qwen3ForCausalLM, "qwen3", configure_qwen3)         \
  MODEL(Gemma2ForCausalLM, "gemma2", configure_gemma2)      \
  MODEL(Gemma3ForCausalLM, "gemma3_text", configure_gemma3) \
  MODEL(Olmo2ForCausalLM, "olmo2", configure_olmo2)         \
  MODEL(GraniteForCausalLM, "granite", configure_granite)   \
  MODEL(SmolLM3ForCausalLM, "smollm3", configure_smollm3)   \
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

ModelConfig read_model_config(const std::string& folder) {
  const std::string path = folder + "/config.json";
  const MappedFile file(path);
  const Json root = Json::parse(file.text(), path);
  if (!root.is(Json::Kind::kObject))
    throw Error(ErrorCode::kBadModel, path + " is not a JSON object.");
  const ConfigReader reader(root, path);
  const Entry& model = find_model(reader);
  ModelConfig config = model.configure(reader);
  config.architecture = model.architecture;
  return config;
}

}  // namespace inferd
