// The factors of the adapters of one linear: of all places on the device, of one adapter in
// page-locked memory. Their layout is that of AdapterFactorsView.
//
// Thread: the engine's.
#pragma once
#include <span>

#include "core/adapters.h"
#include "cuda/adapters/adapter_products.h"
#include "cuda/device/half_type.h"
#include "cuda/runtime/memory.h"

namespace inferd::cuda {

struct CudaAdapterBank final : AdapterBank {
  // All places are empty. Throws Error(kUnsupported) for sizes that no kernel takes,
  // Error(kOutOfMemory). Enqueues on `stream`.
  CudaAdapterBank(const AdapterBankSpec& spec, cudaStream_t stream);

  AdapterFactorsView view() const;
  int32_t rank_room() const { return padded_adapter_rank(max_rank); }

  DeviceMemory a, b, ranks;
};

// Pieces of one image, each to be copied to a place of its own.
struct CudaAdapterImage final : AdapterImage {
  struct Section {
    int32_t section;
    int32_t rank;  // padded
    const void* a;
    const void* b;
  };
  const int32_t* ranks;  // [sections]
  std::vector<Section> sections;
  PinnedMemory memory;  // of all of it
};

// f32 factors rounded to `type`. Throws Error(kOutOfMemory).
AdapterImagePtr make_adapter_image(Half type, const CudaAdapterBank& bank,
                                   std::span<const AdapterFactors> factors);

// Enqueues the copy of an image, or of none, to a place.
void copy_adapter(const CudaAdapterBank& bank, int32_t place, const CudaAdapterImage* image,
                  cudaStream_t stream);

}  // namespace inferd::cuda
