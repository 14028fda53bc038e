// The adapters of an engine: those that were read into host memory, and which of them lie in the
// places of the device.
//
//   load    engine's thread    a folder -> host memory, checked whole
//   stage   engine's thread    what a plan places is held until its step is done
//   place   backend's stream   host memory -> the banks of the linears, ahead of the step's ops
//
// Plans choose the places. An adapter that is unloaded stays where it is placed until the next one
// takes its place; sequences that use it may go on.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/plan/step_plan.h"
#include "engine/adapters/adapter_file.h"
#include "models/model.h"

namespace inferd {

// An adapter in host memory, as the backend takes it: of each linear, null where it adds nothing.
using AdapterImages = std::vector<AdapterImagePtr>;

// An adapter on its way to a place.
struct PlacedAdapter {
  int32_t place;
  std::shared_ptr<const AdapterImages> adapter;
};

class Adapters {
 public:
  // Makes room in every linear of a loaded model. Throws Error(kUnsupported) where the backend runs
  // no adapters, Error(kOutOfMemory).
  Adapters(Backend& backend, Model& model, int32_t places, int32_t max_rank);

  // Reads one into host memory under a number that is not in use. Throws as read_adapter. The
  // result says what it is, without its factors.
  Adapter load(int32_t id, const std::string& folder);
  // No plan places it any more. Throws Error(kUsage) for a number that is not in use.
  void unload(int32_t id);
  bool loaded(int32_t id) const { return host_.contains(id); }

  // What a checked plan places.
  void stage(std::span<const AdapterPlacement> plan, std::vector<PlacedAdapter>& placed) const;
  // Inside a step.
  void place(const std::vector<PlacedAdapter>& placed) const;

 private:
  Backend& backend_;
  Model& model_;
  int32_t max_rank_;
  std::map<int32_t, std::shared_ptr<const AdapterImages>> host_;
};

}  // namespace inferd
