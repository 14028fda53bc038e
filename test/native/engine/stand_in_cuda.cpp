// Stands in for inferd_cuda.so where there is no GPU: a backend with a device's types and memory of
// its own, whose ops compute nothing. Its name tells how many biases were handed over before it was
// asked for the memory of steps. Compiled by cuda-library.test.ts:
//   -DSTAND_IN_INTERFACE='"..."'   says that it was built from other headers
//   -DSTAND_IN_OLDER               exports what the first versions did instead
#include <cstdlib>
#include <cstring>

#include "cuda/library.h"
#include "cuda_interface.h"

namespace inferd {
namespace {

class StandIn final : public Backend {
 public:
  explicit StandIn(DType activation) {
    info_ = {.name = "stand-in",
             .activation = activation,
             .total_bytes = int64_t{8} << 30,
             .free_bytes = int64_t{8} << 30,
             .host_memory = false,
             .graphs = true,
             .narrow_kv = true};
  }

  const BackendInfo& info() const override { return info_; }
  std::string refuses(const LayerShape&) const override { return ""; }
  std::string refuses(const WeightFormat& format) const override {
    constexpr WeightFormat kKept[] = {kFormatF16, kFormatBF16};
    return refusal_of(format, kKept);
  }

  void* allocate(size_t bytes) override { return std::calloc(bytes + 1, 1); }
  void release(void* p) override { std::free(p); }
  void upload(void* device, const void* host, size_t bytes) override {
    if (bytes > 0) std::memcpy(device, host, bytes);
  }
  void download(void* host, const void* device, size_t bytes) override {
    if (bytes > 0) std::memcpy(host, device, bytes);
  }
  PackedWeightPtr make_weight(const WeightSpec& spec) override {
    return std::make_unique<PackedWeight>(spec);
  }
  void fill_weight(PackedWeight&, WeightRole, int64_t, const Tensor&) override {}
  void take_bias(const PackedWeight&, const float*) override { ++biases_; }
  int64_t reserve_steps(const StepShape&) override {
    info_.name = format("stand-in with %d biases", biases_);
    return 0;
  }

  void run_step(int, std::function<void()> step) override { step(); }
  bool wait_step(int, int64_t) override { return true; }
  void apply_slots(const SlotTables&, const int32_t*) override {}
  void copy_blocks(std::span<const BlockArray>, const BlockCopy*, int32_t) override {}
  void gather_tokens(const SlotTables&, const StepBatch&) override {}
  void embed(Tensor, const Tensor&, int32_t, const int32_t*, float) override {}
  void rms_norm(Tensor, const Tensor&, const float*, float) override {}
  void add(Tensor, const Tensor&, float) override {}
  void linear(const LinearArgs&) override {}
  void rope_and_cache(const QkvArgs&, const SlotTables&, const StepBatch&) override {}
  void attention(const AttentionArgs&, const SlotTables&, const StepBatch&) override {}
  void gated_mul(Tensor, const Tensor&, Gate) override {}
  void cap_logits(Tensor, float, float) override {}
  void gather_rows(Tensor, const Tensor&, const int32_t*, int32_t) override {}
  void sum_rows(Tensor, const Tensor&, const RowSum*, int32_t) override {}
  void sample(const Tensor&, const SlotTables&, const StepBatch&, const SampleOutputs&) override {}
  void score(const Tensor&, const int32_t*, int32_t, const SampleOutputs&) override {}

 private:
  BackendInfo info_;
  int biases_ = 0;
};

}  // namespace

extern "C" {
#if defined(STAND_IN_OLDER)
int32_t inferd_cuda_abi() { return 5; }
#elif defined(STAND_IN_INTERFACE)
const char* inferd_cuda_interface() { return STAND_IN_INTERFACE; }
#else
const char* inferd_cuda_interface() { return kCudaInterface; }
#endif
void inferd_cuda_probe(CudaProbe* out) { *out = CudaProbe{}; }
void inferd_cuda_nccl(CudaNccl* out) { *out = CudaNccl{.problem = {}, .version = "2.99.0"}; }
Backend* inferd_cuda_make_backend(const CudaOptions* options) {
  return new StandIn(options->activation);
}
}

}  // namespace inferd
