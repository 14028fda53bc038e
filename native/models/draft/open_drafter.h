// Makes the drafter that options name, for a target.
#pragma once
#include <memory>
#include <string>

#include "core/checkpoint/checkpoint.h"
#include "models/draft/drafter.h"

namespace inferd {

// Whether drafts of this method come from a network. Throws Error(kUsage) for an unknown one.
bool drafts_by_network(const std::string& method);

struct DrafterSource {
  std::string method;       // "draft", "eagle3", "mtp"
  std::string path;         // of the first two: a folder
  std::string target_path;  // where the target's checkpoint is
  bool dummies;             // no weights are to be read
  int64_t max_len;          // of a sequence
};

// A drafter and the files that its weights come from.
struct OpenedDrafter {
  std::unique_ptr<Drafter> drafter;
  std::unique_ptr<Checkpoint> checkpoint;  // null: its weights are dummies
};
// It is not described yet; taps that it reads are set in the target. Throws Error(kUnsupported)
// where it does not fit the target, else as files do.
OpenedDrafter open_drafter(const DrafterSource& source, Backend& backend, Model& target);

}  // namespace inferd
