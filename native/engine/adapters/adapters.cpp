// See adapters.h.
#include "engine/adapters/adapters.h"

#include <utility>

#include "core/error.h"

namespace inferd {

Adapters::Adapters(Backend& backend, Model& model, int32_t places, int32_t max_rank)
    : backend_(backend),
      model_(model),
      max_rank_(max_rank),
      reader_([this](AdapterReading& reading) { read(reading); }) {
  for (Linear* linear : model.linears()) linear->make_adapter_bank(backend, places, max_rank);
}

// On the reader's thread.
void Adapters::read(AdapterReading& reading) const {
  reading.adapter = read_adapter(reading.folder, model_.linears(), max_rank_, reading.cancelled);
  // A device is told things by one thread: its images are made by take.
  if (backend_.info().host_memory) pack(reading);
}

void Adapters::pack(AdapterReading& reading) const {
  const std::vector<Linear*>& linears = model_.linears();
  reading.images = std::make_shared<AdapterImages>(linears.size());
  for (AdaptedLinear& of : reading.adapter.linears) {
    (*reading.images)[of.linear] = backend_.pack_adapter(*linears[of.linear]->bank(), of.factors);
    of.factors = {};
  }
  reading.adapter.linears.clear();
}

void Adapters::begin(int32_t id, const std::string& folder) {
  if (loaded(id)) throw Error(ErrorCode::kUsage, format("The adapter %d is loaded already.", id));
  if (reader_.has(id))
    throw Error(ErrorCode::kUsage, format("The adapter %d is being read already.", id));
  reader_.begin(id, folder);
}

std::optional<Adapter> Adapters::take(int32_t id) {
  const std::shared_ptr<AdapterReading> reading = reader_.take(id);
  if (reading == nullptr) return std::nullopt;
  if (reading->error.has_value()) throw Error(*reading->error);
  if (reading->images == nullptr) pack(*reading);
  host_.emplace(id, std::move(reading->images));
  return std::move(reading->adapter);
}

Adapter Adapters::load(int32_t id, const std::string& folder) {
  begin(id, folder);
  reader_.wait(id);
  return std::move(take(id)).value();
}

void Adapters::unload(int32_t id) {
  if (!reader_.cancel(id) && host_.erase(id) == 0)
    throw Error(ErrorCode::kUsage, format("There is no adapter %d to unload.", id));
}

void Adapters::stage(std::span<const AdapterPlacement> plan,
                     std::vector<PlacedAdapter>& placed) const {
  placed.clear();
  for (const AdapterPlacement& p : plan) placed.push_back({p.place, host_.at(p.adapter)});
}

void Adapters::place(const std::vector<PlacedAdapter>& placed) const {
  const std::vector<Linear*>& linears = model_.linears();
  for (const PlacedAdapter& p : placed)
    for (size_t i = 0; i < linears.size(); ++i)
      backend_.place_adapter(*linears[i]->bank(), p.place, (*p.adapter)[i].get());
}

}  // namespace inferd
