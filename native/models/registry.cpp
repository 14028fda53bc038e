// See registry.h.
#include "models/registry.h"

#include "core/error.h"
#include "core/mapped_file.h"

namespace inferd {

ModelConfig configure_llama(const ConfigReader&), configure_mistral(const ConfigReader&),
    configure_qwen2(const ConfigReader&), configure_qwen3(const ConfigReader&),
    configure_phi3(const ConfigReader&);

namespace {

struct Entry {
  const char* architecture;
  const char* model_type;
  ConfigureModel configure;
};
constexpr Entry kModels[] = {
    {"LlamaForCausalLM", "llama", configure_llama},        //
    {"MistralForCausalLM", "mistral", configure_mistral},  //
    {"Qwen2ForCausalLM", "qwen2", configure_qwen2},        //
    {"Qwen3ForCausalLM", "qwen3", configure_qwen3},        //
    {"Phi3ForCausalLM", "phi3", configure_phi3},           //
};

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
