// What adapters add to products: see core/adapters.h. Inside run_step, on its thread, but for the
// making of banks and images.
#include <algorithm>

#include "core/error.h"
#include "cuda/adapters/adapter_bank.h"
#include "cuda/cuda_backend.h"

namespace inferd::cuda {

AdapterBankPtr CudaBackend::make_adapter_bank(const AdapterBankSpec& spec) {
  use_device();
  auto bank = std::make_unique<CudaAdapterBank>(spec, stream_.get());
  const AdapterFactorsView view = bank->view();
  adapter_places_ = std::max(adapter_places_, spec.places);
  adapter_shapes_.push_back(view);
  refresh_free_bytes();
  return bank;
}

AdapterImagePtr CudaBackend::pack_adapter(const AdapterBank& bank,
                                          std::span<const AdapterFactors> factors) {
  use_device();
  return make_adapter_image(half_, static_cast<const CudaAdapterBank&>(bank), factors);
}

void CudaBackend::place_adapter(AdapterBank& bank, int32_t place, const AdapterImage* image) {
  copy_adapter(static_cast<const CudaAdapterBank&>(bank), place,
               static_cast<const CudaAdapterImage*>(image), stream_.get());
}

void CudaBackend::reserve_adapters(int32_t most_rows) {
  if (adapter_shapes_.empty()) return;
  adapter_tiles_.get(adapter_tile_bytes(most_rows, adapter_places_), stream_.get());
  size_t most = 0;
  // Fewer tiles go in more pieces.
  for (const AdapterFactorsView& shape : adapter_shapes_)
    for (int32_t rows = 0; rows < most_rows;) {
      rows = std::min(rows + kAdapterTileRows, most_rows);
      most = std::max(most, adapter_low_bytes(shape, rows));
    }
  adapter_lows_.get(most, stream_.get());
}

// The tiles of a batch are made by the first product that wants them.
AdapterTiles CudaBackend::tiles_of(const AdapterRows& adapters, int32_t rows, bool& settled) {
  void* memory = adapter_tiles_.get(adapter_tile_bytes(rows, adapter_places_), stream_.get());
  const AdapterTiles tiles = adapter_tiles_at(memory, rows, adapter_places_);
  settled = tiled_places_ == adapters.places && tiled_rows_ == rows;
  if (settled) return tiles;
  check(sort_adapter_rows(tiles, adapters.places, adapter_places_, own_launch()), "adapters, rows");
  tiled_places_ = adapters.places;
  tiled_rows_ = rows;
  return tiles;
}

void CudaBackend::multiply_adapted(const LinearArgs& given) {
  LinearArgs args = given;
  args.adapters = nullptr;
  const NormArgs* norm = args.norm;
  if (norm != nullptr && norm->weight != nullptr) {
    rms_norm(norm->scratch, args.x, norm->weight, norm->eps);
    args.x = norm->scratch;
    args.norm = norm = nullptr;
  }
  const auto rows = static_cast<int32_t>(args.x.rows());
  AdapterProduct product{.tiles = {},
                         .factors = static_cast<const CudaAdapterBank&>(*given.bank).view(),
                         .lows = {},
                         .normed = norm != nullptr,
                         .eps = norm != nullptr ? norm->eps : 0,
                         .tiles_settled = false};
  product.tiles = tiles_of(*given.adapters, rows, product.tiles_settled);
  product.lows =
      adapter_lows_at(adapter_lows_.get(adapter_low_bytes(product.factors, rows), stream_.get()),
                      product.factors, rows);
  check(adapter_shrink(half_, product, args.x.data, args.x.stride[0], own_launch()),
        "adapters, shrink");
  const bool gated = given.epilogue == Epilogue::kGated;
  if (gated) {
    args.out = given.scratch;
    args.epilogue = Epilogue::kStore;
  }
  multiply(args);
  if (gated) {
    check(adapter_expand_gated(half_, product, given.gate, given.out.data, given.out.stride[0],
                               args.out.data, args.out.stride[0], own_launch()),
          "adapters, expand");
  } else {
    check(adapter_expand(half_, product, args.out.data, args.out.stride[0],
                         args.out.dtype == DType::kF32, own_launch()),
          "adapters, expand");
  }
}

}  // namespace inferd::cuda
