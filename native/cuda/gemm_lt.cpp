// See gemm_lt.h. cuBLASLt is column-major: y[m, n] = x w^T is computed as y^T = w x^T, with w as
// the transposed A [k, n] and x as B [k, m].
#include "gemm_lt.h"

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "activation.h"
#include "gemm_kernels.h"

namespace inferd::cuda {
namespace {

constexpr int kRounds = 5;  // medians of

// What makes two calls the same problem for cuBLASLt.
using Key = std::tuple<int32_t, int32_t, int32_t, Half, GemmOut, bool, bool, bool>;

Key key_of(const GemmArgs& p) {
  return {gemm_row_step(p.m), p.n, p.k, p.type, p.out, p.bias != nullptr, p.add_to_y, p.gated};
}

// What cuBLASLt computes of `p`: all of it, or, gated, the product that the activation then reads.
GemmArgs plain_part(const GemmArgs& p) {
  GemmArgs plain = p;
  if (!p.gated) return plain;
  plain.gated = false;
  plain.n = 2 * p.n;
  plain.y = p.scratch;
  plain.y_stride = plain.n;
  return plain;
}

// Steps of up to this many rows are bound by memory and by what stands between two products.
constexpr int32_t kPacedRows = 512;

const char* text(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? nullptr : cublasLtGetStatusString(status);
}
const char* text(cudaError_t error) {
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

// The descriptors of one call, on the stack.
struct Problem {
  cublasLtMatmulDescOpaque_t matmul;
  cublasLtMatrixLayoutOpaque_t w, x, y;

  const char* describe(const GemmArgs& p) {
    const cudaDataType_t in = p.type == Half::kBF16 ? CUDA_R_16BF : CUDA_R_16F;
    const cudaDataType_t out = p.out == GemmOut::kF32 ? CUDA_R_32F : in;
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const uint64_t rows = static_cast<uint64_t>(p.m);
    cublasStatus_t status = cublasLtMatmulDescInit(&matmul, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    const auto set = [&](cublasLtMatmulDescAttributes_t what, const auto& value) {
      if (status == CUBLAS_STATUS_SUCCESS) {
        status = cublasLtMatmulDescSetAttribute(&matmul, what, &value, sizeof(value));
      }
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, transposed);
    if (p.bias != nullptr) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, out);
    }
    const auto layout = [&](cublasLtMatrixLayoutOpaque_t& to, cudaDataType_t type, uint64_t height,
                            uint64_t width, int64_t stride) {
      if (status == CUBLAS_STATUS_SUCCESS) {
        status = cublasLtMatrixLayoutInit(&to, type, height, width, stride);
      }
    };
    const uint64_t n = static_cast<uint64_t>(p.n), k = static_cast<uint64_t>(p.k);
    layout(w, in, k, n, p.k);
    layout(x, in, k, rows, p.x_stride);
    layout(y, out, n, rows, p.y_stride);
    return text(status);
  }
};

// Time of events; destroyed with the scope.
struct Timer {
  cudaEvent_t begin = nullptr, end = nullptr;

  const char* create() {
    const cudaError_t error = cudaEventCreate(&begin);
    return text(error != cudaSuccess ? error : cudaEventCreate(&end));
  }
  ~Timer() {
    if (begin != nullptr) cudaEventDestroy(begin);
    if (end != nullptr) cudaEventDestroy(end);
  }
};

}  // namespace

int32_t gemm_row_step(int32_t m) {
  int32_t step = 1;
  while (step < m) {
    if (step >= 16 && step + step / 2 >= m) return step + step / 2;
    step *= 2;
  }
  return step;
}

struct GemmLt::Impl {
  struct Entry {
    GemmChoice choice;
    const GemmKernel* kernel = nullptr;
    cublasLtMatmulAlgo_t algorithm = {};
    bool has_algorithm = false;

    void take_first_kernel(const GemmArgs& args) {
      for (const GemmKernel& k : gemm_kernels()) {
        if (k.variants(args) == 0) continue;
        kernel = &k;
        choice.kernel = k.name;
        return;
      }
    }
  };

  cublasLtHandle_t handle = nullptr;
  GemmScratch scratch{};
  std::map<Key, Entry> entries;

  ~Impl() {
    if (handle != nullptr) cublasLtDestroy(handle);
  }

  const char* candidates(Problem& problem, int32_t most,
                         std::vector<cublasLtMatmulHeuristicResult_t>& found) {
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasStatus_t status = cublasLtMatmulPreferenceInit(&preference);
    if (status == CUBLAS_STATUS_SUCCESS) {
      status = cublasLtMatmulPreferenceSetAttribute(&preference,
                                                    CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                    &scratch.bytes, sizeof(scratch.bytes));
    }
    found.resize(static_cast<size_t>(most));
    int count = 0;
    if (status == CUBLAS_STATUS_SUCCESS) {
      status = cublasLtMatmulAlgoGetHeuristic(handle, &problem.matmul, &problem.w, &problem.x,
                                              &problem.y, &problem.y, &preference, most,
                                              found.data(), &count);
    }
    found.resize(status == CUBLAS_STATUS_SUCCESS ? static_cast<size_t>(count) : 0);
    if (status == CUBLAS_STATUS_SUCCESS && found.empty()) status = CUBLAS_STATUS_NOT_SUPPORTED;
    return text(status);
  }

  // `plain` and `problem` are of plain_part(args).
  cublasStatus_t multiply(const GemmArgs& plain, Problem& problem,
                          const cublasLtMatmulAlgo_t& algorithm, cudaStream_t stream) {
    const float one = 1, beta = plain.add_to_y ? 1 : 0;
    return cublasLtMatmul(handle, &problem.matmul, &one, plain.w, &problem.w, plain.x, &problem.x,
                          &beta, plain.y, &problem.y, plain.y, &problem.y, &algorithm,
                          scratch.memory, scratch.bytes, stream);
  }
};

// The activation after plain_part(args), where there is one.
static const char* finish(const GemmArgs& args, const Launch& launch) {
  if (!args.gated) return nullptr;
  if (args.y_stride != args.n) return "a gated product needs packed rows";
  return text(gated_mul(args.type, Gate::kSilu, args.y, args.scratch, args.m, args.n, launch));
}

GemmLt::GemmLt(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GemmLt::~GemmLt() = default;

const char* GemmLt::create(void* workspace, size_t workspace_bytes, std::unique_ptr<GemmLt>& out) {
  auto impl = std::make_unique<Impl>();
  constexpr size_t kTicketBytes = kGemmTickets * sizeof(int32_t);
  if (workspace_bytes < kTicketBytes) return "the workspace of products is too small";
  impl->scratch = {static_cast<int32_t*>(workspace),
                   static_cast<std::byte*>(workspace) + kTicketBytes,
                   workspace_bytes - kTicketBytes};
  const char* error = text(cublasLtCreate(&impl->handle));
  if (error == nullptr) out.reset(new GemmLt(std::move(impl)));
  return error;
}

const char* GemmLt::tune(const GemmArgs& args, std::span<const void* const> weights, int32_t most,
                         float budget_us, const Launch& launch) {
  if (weights.empty() || most < 1) return "tuning needs a weight and a candidate";
  GemmArgs plain = plain_part(args);
  Problem problem;
  std::vector<cublasLtMatmulHeuristicResult_t> found;
  const char* error = problem.describe(plain);
  if (error == nullptr) error = impl_->candidates(problem, most, found);
  int32_t ours = 0;
  for (const GemmKernel& kernel : gemm_kernels()) ours += kernel.variants(args);
  if (error != nullptr && ours == 0) return error;
  Timer timer;
  if ((error = timer.create()) != nullptr) return error;

  const bool paced = args.m <= kPacedRows && args.n >= 8;
  // Median over kRounds of the mean of `repeat` calls; below 0 when the call is refused.
  size_t next = 0;
  const auto measure = [&](const auto& call, int repeat, int rounds) {
    std::array<float, kRounds> times = {};
    for (int r = 0; r < rounds; ++r) {
      cudaEventRecord(timer.begin, launch.stream);
      for (int i = 0; i < repeat; ++i) {
        // In a step a small kernel comes ahead of most linears, and the early start of a product
        // is worth what it fetches beside that kernel.
        if (paced && add(args.type, args.y, args.y, 8, launch) != cudaSuccess) return -1.f;
        if (!call(weights[next++ % weights.size()])) return -1.f;
      }
      cudaEventRecord(timer.end, launch.stream);
      if (cudaEventSynchronize(timer.end) != cudaSuccess) return -1.f;
      cudaEventElapsedTime(&times[static_cast<size_t>(r)], timer.begin, timer.end);
    }
    std::sort(times.begin(), times.begin() + rounds);
    return times[static_cast<size_t>(rounds / 2)] * 1000 / static_cast<float>(repeat);
  };
  const float share = budget_us / static_cast<float>(static_cast<int32_t>(found.size()) + ours);
  Impl::Entry best;
  const auto consider = [&](const auto& call, const GemmKernel* kernel, int32_t variant,
                            const cublasLtMatmulAlgo_t* algorithm) {
    if (measure(call, 1, 1) < 0) return;  // also loads the kernel
    const float once = measure(call, 2, 1);
    if (once < 0) return;
    const int repeat = std::clamp(static_cast<int>(share / (kRounds * once)), 1, 40);
    const float us = measure(call, repeat, kRounds);
    if (us < 0) return;
    ++best.choice.candidates;
    if (algorithm != nullptr && best.choice.first_us == 0) best.choice.first_us = us;
    if (best.choice.us > 0 && us >= best.choice.us) return;
    best.choice.us = us;
    best.kernel = kernel;
    best.choice.kernel = kernel == nullptr ? nullptr : kernel->name;
    best.choice.variant = variant;
    best.has_algorithm = algorithm != nullptr;
    if (algorithm != nullptr) best.algorithm = *algorithm;
  };
  for (const auto& candidate : found) {
    if (candidate.state != CUBLAS_STATUS_SUCCESS) continue;
    consider(
        [&](const void* w) {
          plain.w = w;
          return impl_->multiply(plain, problem, candidate.algo, launch.stream) ==
                     CUBLAS_STATUS_SUCCESS &&
                 finish(args, launch) == nullptr;
        },
        nullptr, 0, &candidate.algo);
  }
  GemmArgs turn = args;
  for (const GemmKernel& kernel : gemm_kernels()) {
    for (int32_t v = 0; v < kernel.variants(args); ++v) {
      consider(
          [&](const void* w) {
            turn.w = w;
            return kernel.run(turn, v, impl_->scratch, launch) == cudaSuccess;
          },
          &kernel, v, nullptr);
    }
  }
  if ((error = text(cudaGetLastError())) != nullptr) return error;
  if (best.choice.candidates == 0) return "no algorithm computed this shape";
  impl_->entries[key_of(args)] = best;
  return nullptr;
}

const char* GemmLt::run(const GemmArgs& args, const Launch& launch) {
  Impl::Entry& entry = impl_->entries[key_of(args)];
  if (!entry.has_algorithm && entry.kernel == nullptr) entry.take_first_kernel(args);
  // What a step of rows was measured with may refuse another stride.
  if (entry.kernel != nullptr && entry.choice.variant < entry.kernel->variants(args))
    return text(entry.kernel->run(args, entry.choice.variant, impl_->scratch, launch));
  const GemmArgs plain = plain_part(args);
  Problem problem;
  const char* error = problem.describe(plain);
  if (error != nullptr) return error;
  if (entry.has_algorithm) {
    const cublasStatus_t status = impl_->multiply(plain, problem, entry.algorithm, launch.stream);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED && status != CUBLAS_STATUS_INVALID_VALUE) {
      return status == CUBLAS_STATUS_SUCCESS ? finish(args, launch) : text(status);
    }
  }
  std::vector<cublasLtMatmulHeuristicResult_t> found;
  if ((error = impl_->candidates(problem, 1, found)) != nullptr) return error;
  if (!entry.has_algorithm) {
    entry.algorithm = found[0].algo;
    entry.has_algorithm = true;
  }
  error = text(impl_->multiply(plain, problem, found[0].algo, launch.stream));
  return error == nullptr ? finish(args, launch) : error;
}

const GemmChoice* GemmLt::choice(const GemmArgs& args) const {
  const auto at = impl_->entries.find(key_of(args));
  return at == impl_->entries.end() ? nullptr : &at->second.choice;
}

}  // namespace inferd::cuda
