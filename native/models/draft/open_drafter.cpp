// See open_drafter.h.
#include "models/draft/open_drafter.h"

#include <utility>

#include "core/checkpoint/mapped_file.h"
#include "core/error.h"
#include "models/draft/draft_head.h"
#include "models/draft/draft_model.h"
#include "models/registry.h"

namespace inferd {
namespace {

// Heads of the first generation often come in Python's own format, which can run code.
void check_folder(const std::string& path) {
  const bool pickled = file_exists(path + "/pytorch_model.bin");
  if (!pickled || file_exists(path + "/model.safetensors") ||
      file_exists(path + "/model.safetensors.index.json"))
    return;
  throw Error(ErrorCode::kUnsupported,
              path +
                  " holds its weights in pytorch_model.bin, which is a program as much as a "
                  "file and is not read; convert it to model.safetensors.");
}

std::unique_ptr<Drafter> make_head(DraftHeadConfig config, Backend& backend, Model& target,
                                   int64_t max_len) {
  if (config.reads == TargetStates::kTaps) target.tap(config.taps);
  return std::make_unique<DraftHead>(std::move(config), backend, target, max_len);
}

}  // namespace

bool drafts_by_network(const std::string& method) {
  if (method == "ngram") return false;
  if (method == "draft" || method == "eagle3" || method == "mtp") return true;
  throw Error(ErrorCode::kUsage, format("The method of drafts is %s; ngram, draft, eagle3 and mtp "
                                        "are known.",
                                        in_quotes(method).c_str()));
}

OpenedDrafter open_drafter(const DrafterSource& source, Backend& backend, Model& target) {
  const bool own = source.method != "mtp";
  if (own) check_folder(source.path);
  OpenedDrafter opened;
  if (!source.dummies) opened.checkpoint = open_checkpoint(own ? source.path : source.target_path);
  if (source.method == "draft") {
    opened.drafter = std::make_unique<DraftModel>(read_model_config(source.path), backend, target,
                                                  source.max_len);
    return opened;
  }
  const Checkpoint* files = opened.checkpoint.get();
  DraftHeadConfig head = own ? read_eagle_head(source.path, files, target.config())
                             : read_mtp_layer(files, target.config());
  opened.drafter = make_head(std::move(head), backend, target, source.max_len);
  return opened;
}

}  // namespace inferd
