// Encodes tensor maps with the driver's encoder, which is looked up through the runtime: libcuda is
// not linked, and a machine without a driver gets an error instead of a failed load.
#include <cudaTypedefs.h>

#include "cuda/device/tensor_map.h"

namespace inferd::cuda {
namespace {

PFN_cuTensorMapEncodeTiled_v12000 find_encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  const cudaError_t status = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                              12000, cudaEnableDefault, &found);
  const bool usable = status == cudaSuccess && found == cudaDriverEntryPointSuccess;
  return usable ? reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function) : nullptr;
}

}  // namespace

cudaError_t encode_tensor_map(Half type, const TensorView& view, CUtensorMap& map) {
  static const PFN_cuTensorMapEncodeTiled_v12000 encoder = find_encoder();
  if (encoder == nullptr) return cudaErrorNotSupported;
  const cuuint32_t steps[4] = {1, 1, 1, 1};
  const CUresult result = encoder(
      &map,
      type == Half::kBF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
      view.rank, const_cast<void*>(view.base), view.dims, view.stride_bytes, view.box, steps,
      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace inferd::cuda
