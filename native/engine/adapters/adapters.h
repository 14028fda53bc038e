// The adapters of an engine: those that were read into host memory, and which of them lie in the
// places of the device.
//
//   begin   engine's thread    asks the reader's thread for a folder, in host memory, checked whole
//   take    engine's thread    what was read may be placed from now on
//   stage   engine's thread    what a plan places is held until its step is done
//   place   backend's stream   host memory -> the banks of the linears, ahead of the step's ops
//
// Plans choose the places. An adapter that is unloaded stays where it is placed until the next one
// takes its place; sequences that use it may go on.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/plan/step_plan.h"
#include "engine/adapters/adapter_file.h"
#include "engine/adapters/adapter_reader.h"
#include "models/model.h"

namespace inferd {

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

  // Begins to read one into host memory, under a number that is not in use. Throws Error(kUsage).
  void begin(int32_t id, const std::string& folder);
  // Null while it is read. The result says what it is, without its factors. Throws as read_adapter,
  // and then the number is free again.
  std::optional<Adapter> take(int32_t id);
  // Both, with a wait between them.
  Adapter load(int32_t id, const std::string& folder);
  // No plan places it any more; one that is still being read never comes. Throws Error(kUsage) for
  // a number that is not in use.
  void unload(int32_t id);
  // As AdapterReader::finish.
  bool finish(int64_t limit_ms) { return reader_.finish(limit_ms); }
  bool loaded(int32_t id) const { return host_.contains(id); }

  // What a checked plan places.
  void stage(std::span<const AdapterPlacement> plan, std::vector<PlacedAdapter>& placed) const;
  // Inside a step.
  void place(const std::vector<PlacedAdapter>& placed) const;

 private:
  void read(AdapterReading& reading) const;
  void pack(AdapterReading& reading) const;

  Backend& backend_;
  Model& model_;
  int32_t max_rank_;
  std::map<int32_t, std::shared_ptr<const AdapterImages>> host_;
  AdapterReader reader_;
};

}  // namespace inferd
