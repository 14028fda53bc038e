// See gemm_lt.h. cuBLASLt is column-major: y[m, n] = x w^T is computed as y^T = w x^T, with w as
// the transposed A [k, n] and x as B [k, m].
#include "cuda/gemm/gemm_lt.h"

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "cuda/gemm/gemm_codes.h"
#include "cuda/gemm/small_gemm.h"
#include "cuda/rows/activation.h"
#include "cuda/rows/norm.h"
#include "cuda/rows/scaled_rows.h"

namespace inferd::cuda {
namespace {

constexpr size_t kRounds = 5;  // medians of
constexpr size_t kFinalists = 4;

// What makes two calls the same problem for cuBLASLt.
using Key = std::tuple<int32_t, int32_t, int32_t, Half, WeightFormat, GemmOut, bool, bool, bool>;

Key key_of(const GemmArgs& p) {
  return {gemm_row_step(p.m), p.n,        p.k,    p.type, p.w.format, p.out,
          p.bias != nullptr,  p.add_to_y, p.gated};
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

// A fill ahead of an algorithm's kernel costs next to nothing in a stream, where steps are
// measured, but in a graph it keeps the kernels around it from meeting: a step of 16x1024 of
// Llama-3-8B on an H200 took 5.41 to 5.50 ms with 32 of them, 5.20 to 5.26 with an algorithm
// without.
constexpr float kFillUs = 5;

// Up to so many rows all products of a layer may be ours, each fetching its first weights while the
// one ahead still runs. cuBLASLt's do not, nor do they let the next one: in a step of 16x128 of
// Llama-3-8B on an H200 one of four, as fast as ours by itself, made a layer 4 us longer (4.45 to
// 4.53 ms instead of 4.32). The products of a layer, with norms, at 32 and 64 rows: all ours 125.0,
// 125.4 us, gate_up alone 127.0, 130.8, none 130.0, 130.7. Further up what they cost themselves
// counts for more: counted up to 128 rows, steps of 96 and 128 were 3 % longer.
constexpr int32_t kChainedRows = 64;
constexpr float kBrokenChainUs = 3;

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

// One way to compute a shape.
struct Way {
  const GemmKernel* kernel = nullptr;  // ours; null: cuBLASLt's `algorithm`
  GemmVariant variant{};
  cublasLtMatmulAlgo_t algorithm = {};
  float around_us = 0;  // what it costs a step beside its own time
  float us = 0;         // with around_us
};

// How many fills `call` enqueues; 0 where the stream cannot be recorded.
template <typename Call>
int fills_of(const Call& call, cudaStream_t stream) {
  if (cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  call();
  cudaGraph_t graph = nullptr;
  std::array<cudaGraphNode_t, 16> nodes{};
  size_t count = nodes.size();
  int fills = 0;
  if (cudaStreamEndCapture(stream, &graph) == cudaSuccess &&
      cudaGraphGetNodes(graph, nodes.data(), &count) == cudaSuccess) {
    for (size_t i = 0; i < std::min(count, nodes.size()); ++i) {
      cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
      if (cudaGraphNodeGetType(nodes[i], &type) == cudaSuccess && type == cudaGraphNodeTypeMemset)
        ++fills;
    }
  }
  if (graph != nullptr) cudaGraphDestroy(graph);
  cudaGetLastError();
  return fills;
}

// Of ways in the order of a first look, which is rough: the best, and the best of each kernel of
// ours, whose gain from an early start shows only when it runs again and again.
void keep_finalists(std::vector<Way>& ways) {
  size_t kept = 0;
  std::vector<const GemmKernel*> seen;
  for (size_t i = 0; i < ways.size(); ++i) {
    const GemmKernel* kernel = ways[i].kernel;
    const bool first =
        kernel != nullptr && std::find(seen.begin(), seen.end(), kernel) == seen.end();
    if (first) seen.push_back(kernel);
    if (i < kFinalists || first) ways[kept++] = ways[i];
  }
  ways.resize(kept);
}

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
        if (args.m > k.unmeasured_rows || !k.takes(args)) continue;
        kernel = &k;
        choice.kernel = k.name;
        return;
      }
    }
  };

  cublasLtHandle_t handle = nullptr;
  int32_t* tickets = nullptr;  // at the front of the caller's workspace
  void* workspace = nullptr;   // behind them
  size_t workspace_bytes = 0;
  std::map<Key, Entry> entries;

  // With what kernels of plain weights may use; others bring theirs.
  GemmArgs equipped(GemmArgs args) const {
    if (!plain_weights(args)) return args;
    args.spare = {workspace, workspace_bytes};
    args.tickets = tickets;
    return args;
  }

  ~Impl() {
    if (handle != nullptr) cublasLtDestroy(handle);
  }

  // Describes `plain` and asks for ways to compute it.
  const char* candidates(const GemmArgs& plain, Problem& problem, int32_t most,
                         std::vector<cublasLtMatmulHeuristicResult_t>& found) {
    if (!plain_weights(plain)) return "no kernel multiplies weights of this format";
    if (const char* error = problem.describe(plain)) return error;
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasStatus_t status = cublasLtMatmulPreferenceInit(&preference);
    if (status == CUBLAS_STATUS_SUCCESS) {
      status = cublasLtMatmulPreferenceSetAttribute(&preference,
                                                    CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                    &workspace_bytes, sizeof(workspace_bytes));
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
    return cublasLtMatmul(handle, &problem.matmul, &one, plain.w.codes, &problem.w, plain.x,
                          &problem.x, &beta, plain.y, &problem.y, plain.y, &problem.y, &algorithm,
                          workspace, workspace_bytes, stream);
  }
};

// The activation after plain_part(args), where there is one.
static const char* finish(const GemmArgs& args, const Launch& launch) {
  if (!args.gated) return nullptr;
  if (args.y_stride != args.n) return "a gated product needs packed rows";
  return text(gated_mul(args.type, Gate::kSilu, args.y, args.scratch, args.m, args.n, launch));
}

// The norm, by itself, of a product that no kernel of ours takes with it; leaves `p` the product.
static const char* norm_ahead(GemmArgs& p, const Launch& launch) {
  if (p.x_stride != p.k) return "a norm needs packed rows";
  const char* error = text(
      rms_norm(p.type, p.norm_scratch, p.x, nullptr, p.norm_weight, p.m, p.k, p.norm_eps, launch));
  p.x = p.norm_scratch;
  p.norm_x = false;
  p.norm_weight = nullptr;
  return error;
}

GemmLt::GemmLt(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GemmLt::~GemmLt() = default;

const char* GemmLt::create(void* workspace, size_t workspace_bytes, std::unique_ptr<GemmLt>& out) {
  constexpr size_t kTicketBytes = kGemmTickets * sizeof(int32_t);
  if (workspace_bytes < kTicketBytes) return "the workspace of products is too small";
  auto impl = std::make_unique<Impl>();
  impl->tickets = static_cast<int32_t*>(workspace);
  impl->workspace = static_cast<std::byte*>(workspace) + kTicketBytes;
  impl->workspace_bytes = workspace_bytes - kTicketBytes;
  const char* error = text(cudaMemset(workspace, 0, kTicketBytes));
  if (error == nullptr) error = text(cudaStreamSynchronize(nullptr));
  if (error == nullptr) error = text(cublasLtCreate(&impl->handle));
  if (error == nullptr) out.reset(new GemmLt(std::move(impl)));
  return error;
}

const char* GemmLt::tune(const GemmArgs& args, std::span<const WeightView> weights, int32_t most,
                         float budget_us, const Launch& launch) {
  if (weights.empty() || most < 1) return "tuning needs a weight and a candidate";
  GemmArgs plain = plain_part(args), turn = impl_->equipped(args);
  if (!plain_weights(args)) {
    turn = with_codes(args);
    if (turn.x_scales != nullptr) {
      if (const char* error = text(quantize_x(args, turn, launch))) return error;
    }
    if (first_kernel(turn) == nullptr) return nullptr;  // widened
  }
  Problem problem;
  std::vector<cublasLtMatmulHeuristicResult_t> found;
  const char* const refused = impl_->candidates(plain, problem, most, found);
  std::vector<Way> ways;
  for (const auto& f : found) {
    if (f.state == CUBLAS_STATUS_SUCCESS) ways.push_back({.algorithm = f.algo});
  }
  for (const GemmKernel& kernel : gemm_kernels()) {
    if (!kernel.takes(turn)) continue;
    std::array<GemmVariant, kGemmVariants> variants{};
    const size_t count = kernel.variants(turn, variants);
    for (size_t i = 0; i < count; ++i) ways.push_back({.kernel = &kernel, .variant = variants[i]});
  }
  if (ways.empty()) return refused != nullptr ? refused : "no algorithm computes this shape";
  Timer timer;
  if (const char* error = timer.create()) return error;

  const auto call = [&](const Way& way, const WeightView& w) {
    plain.w = turn.w = w;
    if (way.kernel != nullptr) return way.kernel->run(turn, way.variant, launch) == cudaSuccess;
    return impl_->multiply(plain, problem, way.algorithm, launch.stream) == CUBLAS_STATUS_SUCCESS &&
           finish(args, launch) == nullptr;
  };
  const bool paced = args.m <= kPacedRows && args.n >= 8;
  size_t next = 0;
  // Mean microseconds of `repeat` calls; below 0 when one is refused.
  const auto measure = [&](const Way& way, int repeat) {
    cudaEventRecord(timer.begin, launch.stream);
    for (int i = 0; i < repeat; ++i) {
      // In a step a small kernel comes ahead of most linears, and the early start of a product is
      // worth what it fetches beside that kernel.
      if (paced && add(args.type, args.y, args.y, 8, 1.0f, launch) != cudaSuccess) return -1.f;
      if (!call(way, weights[next++ % weights.size()])) return -1.f;
    }
    cudaEventRecord(timer.end, launch.stream);
    float ms = -1;
    if (cudaEventSynchronize(timer.end) != cudaSuccess) return -1.f;
    cudaEventElapsedTime(&ms, timer.begin, timer.end);
    return ms * 1000 / static_cast<float>(repeat) + way.around_us;
  };

  // A look at all, then the best in turns, since a card slows down while it is measured.
  for (Way& way : ways) {
    way.us = measure(way, 1);  // also loads the kernel
    if (way.us < 0) continue;
    if (paced && way.kernel == nullptr) {
      const auto once = [&] { return call(way, weights[0]); };
      way.around_us = kFillUs * static_cast<float>(fills_of(once, launch.stream)) +
                      (args.m <= kChainedRows ? kBrokenChainUs : 0.f);
    }
    way.us = measure(way, 2);
  }
  const float first_us = found.empty() ? 0 : std::max(ways[0].us, 0.f);
  std::erase_if(ways, [](const Way& way) { return way.us < 0; });
  if (const char* error = text(cudaGetLastError())) return error;
  if (ways.empty()) return "no algorithm computed this shape";
  const auto candidates = static_cast<int32_t>(ways.size());
  const auto faster = [](const Way& a, const Way& b) { return a.us < b.us; };
  std::sort(ways.begin(), ways.end(), faster);
  keep_finalists(ways);
  const float each = budget_us / static_cast<float>(kRounds * ways.size());
  std::vector<std::array<float, kRounds>> times(ways.size());
  for (size_t round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < ways.size(); ++i)
      times[i][round] = measure(ways[i], std::clamp(static_cast<int>(each / ways[i].us), 1, 40));
  }
  for (size_t i = 0; i < ways.size(); ++i) {
    std::sort(times[i].begin(), times[i].end());
    ways[i].us = times[i][kRounds / 2];
  }
  const Way& best = *std::min_element(ways.begin(), ways.end(), faster);
  impl_->entries[key_of(args)] = {
      .choice = {.kernel = best.kernel == nullptr ? nullptr : best.kernel->name,
                 .variant = best.variant,
                 .us = best.us - best.around_us,
                 .first_us = first_us,
                 .candidates = candidates},
      .kernel = best.kernel,
      .algorithm = best.algorithm,
      .has_algorithm = best.kernel == nullptr};
  return text(cudaGetLastError());
}

// Of weights in other formats than plain: kernels that take them, of x as it is or quantized, else
// the weights widened, some rows at a time.
const char* GemmLt::run_codes(const GemmArgs& args, const Launch& launch) {
  const GemmArgs quantized = with_codes(args);
  if (quantized.x_scales != nullptr) {
    const char* error = text(quantize_x(args, quantized, launch));
    return error == nullptr ? run_kernel(quantized, launch) : error;
  }
  if (args.norm_x) {
    if (const GemmKernel* kernel = first_kernel(args)) return text(kernel->run(args, {}, launch));
    GemmArgs rest = args;
    const char* error = norm_ahead(rest, launch);
    return error == nullptr ? run_codes(rest, launch) : error;
  }
  if (first_kernel(args) != nullptr) return run_kernel(args, launch);
  if (args.m <= kMostSliced && first_kernel(rows_of(args, 0)) != nullptr) {
    for (int32_t row = 0; row < args.m; row += kSmallGemmRows) {
      if (const char* error = run_kernel(rows_of(args, row), launch)) return error;
    }
    return nullptr;
  }
  const GemmArgs plain = plain_part(args);
  const int64_t most = static_cast<int64_t>(args.spare.bytes) / (int64_t{2} * args.k) / 8 * 8;
  if (most == 0 || args.k % 8 != 0) return "no kernel multiplies weights of this format";
  for (int32_t first = 0; first < plain.n; first += static_cast<int32_t>(most)) {
    const auto count = static_cast<int32_t>(std::min<int64_t>(most, plain.n - first));
    const char* error =
        text(widen_weight_rows(args.type, args.spare.data, args.w, first, count, args.k, launch));
    // Not early: products fetch weights, which here a kernel has just written, before they wait.
    if (error == nullptr) error = run(widened_rows(plain, first, count), Launch(launch.stream));
    if (error != nullptr) return error;
  }
  return finish(args, launch);
}

// By the way that was measured, else by the first kernel's first.
const char* GemmLt::run_kernel(const GemmArgs& args, const Launch& launch) {
  Impl::Entry& entry = impl_->entries[key_of(args)];
  if (entry.kernel == nullptr || !entry.kernel->takes(args)) {
    const GemmKernel* kernel = first_kernel(args);
    std::array<GemmVariant, kGemmVariants> variants{};
    if (kernel == nullptr || kernel->variants(args, variants) == 0)
      return "no kernel multiplies weights of this format";
    entry.kernel = kernel;
    entry.choice.kernel = kernel->name;
    entry.choice.variant = variants[0];
  }
  return text(entry.kernel->run(args, entry.choice.variant, launch));
}

const char* GemmLt::run(const GemmArgs& given, const Launch& launch) {
  if (!plain_weights(given)) return run_codes(given, launch);
  const GemmArgs args = impl_->equipped(given);
  if (args.norm_x) {
    for (const GemmKernel& kernel : gemm_kernels()) {
      if (kernel.takes(args)) return text(kernel.run(args, {}, launch));
    }
    GemmArgs rest = args;
    const char* error = norm_ahead(rest, launch);
    return error == nullptr ? run(rest, launch) : error;
  }
  Impl::Entry& entry = impl_->entries[key_of(args)];
  if (!entry.has_algorithm && entry.kernel == nullptr) entry.take_first_kernel(args);
  // What a step of rows was measured with may refuse another stride.
  if (entry.kernel != nullptr && entry.kernel->takes(args))
    return text(entry.kernel->run(args, entry.choice.variant, launch));
  const GemmArgs plain = plain_part(args);
  Problem problem;
  if (entry.has_algorithm) {
    if (const char* error = problem.describe(plain)) return error;
    const cublasStatus_t status = impl_->multiply(plain, problem, entry.algorithm, launch.stream);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED && status != CUBLAS_STATUS_INVALID_VALUE) {
      return status == CUBLAS_STATUS_SUCCESS ? finish(args, launch) : text(status);
    }
  }
  std::vector<cublasLtMatmulHeuristicResult_t> found;
  if (const char* error = impl_->candidates(plain, problem, 1, found)) return error;
  if (!entry.has_algorithm) {
    entry.algorithm = found[0].algo;
    entry.has_algorithm = true;
  }
  const char* error = text(impl_->multiply(plain, problem, found[0].algo, launch.stream));
  return error == nullptr ? finish(args, launch) : error;
}

const GemmChoice* GemmLt::choice(const GemmArgs& args) const {
  const auto at = impl_->entries.find(key_of(args));
  return at == impl_->entries.end() ? nullptr : &at->second.choice;
}

}  // namespace inferd::cuda
