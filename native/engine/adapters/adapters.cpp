// See adapters.h.
#include "engine/adapters/adapters.h"

#include <utility>

#include "core/error.h"

namespace inferd {

Adapters::Adapters(Backend& backend, Model& model, int32_t places, int32_t max_rank)
    : backend_(backend), model_(model), max_rank_(max_rank) {
  for (Linear* linear : model.linears()) linear->make_adapter_bank(backend, places, max_rank);
}

Adapter Adapters::load(int32_t id, const std::string& folder) {
  if (loaded(id)) throw Error(ErrorCode::kUsage, format("The adapter %d is loaded already.", id));
  const std::vector<Linear*>& linears = model_.linears();
  Adapter adapter = read_adapter(folder, linears, max_rank_);
  auto images = std::make_shared<AdapterImages>(linears.size());
  for (AdaptedLinear& of : adapter.linears) {
    (*images)[of.linear] = backend_.pack_adapter(*linears[of.linear]->bank(), of.factors);
    of.factors = {};
  }
  adapter.linears.clear();
  host_.emplace(id, std::move(images));
  return adapter;
}

void Adapters::unload(int32_t id) {
  if (host_.erase(id) == 0)
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
