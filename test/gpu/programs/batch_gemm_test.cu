// The GEMM of full decode batches on a Hopper GPU: every cut against float64, then times of the
// cuts beside cuBLASLt's best and the machine's read bandwidth.
//   ./batch_gemm_test [check|quick|bench [m]]     sources: programs.mjs; quick: few cases, for
//   compute-sanitizer
#include <array>
#include <memory>

#include "cuda/gemm/gemm_kernels.h"
#include "cuda/gemm/gemm_lt.h"
#include "cuda/gemm/large_gemm.h"
#include "gemm_cases.cuh"
#include "gpu_test.cuh"

using namespace gpu_test;
using namespace inferd;
using namespace inferd::cuda;

namespace {

// What the tuner gives to a kernel, which has nothing to choose from here.
GemmSpare seen_spare{};
int32_t* seen_tickets = nullptr;
size_t look(const GemmArgs& args, std::span<GemmVariant, kGemmVariants>) {
  seen_spare = args.spare;
  seen_tickets = args.tickets;
  return 0;
}
constexpr GemmKernel kLook[] = {{"look", batch_gemm_takes, look, nullptr, 0}};

}  // namespace

// In place of gemm_kernels.cpp: the tuner has cuBLASLt alone to choose from, which is what is
// measured against.
std::span<const GemmKernel> inferd::cuda::gemm_kernels() { return kLook; }

namespace {

// What splits meet in.
struct Meeting {
  Device<uint8_t> partials{size_t{64} << 20};
  Device<int32_t> tickets{std::vector<int32_t>(kGemmTickets, 0)};

  GemmArgs equipped(GemmArgs args) const {
    args.spare = {partials.get(), partials.size()};
    args.tickets = tickets.get();
    return args;
  }
};

int checked = 0;

template <typename T>
void check_case(const GemmCase& c, const Meeting& meeting, cudaStream_t stream) {
  GemmTrial<T> trial(c, stream);
  const GemmArgs args = meeting.equipped(trial.args());
  expect(batch_gemm_takes(args), "a case that is not taken");
  std::array<BatchGemmCut, 16> room;
  const std::span<BatchGemmCut> cuts(room.data(), static_cast<size_t>(batch_gemm_cuts(args, room)));
  expect(!cuts.empty(), "a case without cuts");
  for (const BatchGemmCut& cut : cuts) {
    char way[80];
    std::snprintf(way, sizeof way, "%d wide, %d splits", cut.columns, cut.splits);
    trial.check(way, rounding<T>,
                [&](bool early) { CHECK_CUDA(batch_gemm(args, cut, Launch(stream, early))); });
    ++checked;
  }
}

template <typename T>
void check_type(bool quick, const Meeting& meeting, cudaStream_t stream) {
  int turn = 0;
  for (const int m : {1, 129, 200, 256}) {
    if (quick && m != 129) continue;
    for (const auto& [n, k] : {std::pair{8, 8}, {264, 72}, {1096, 520}, {1024, 4104}}) {
      for (const Form form : {Form::kPlain, Form::kAdd, Form::kGated})
        check_case<T>({m, n, k, ++turn % 2 == 0, form}, meeting, stream);
    }
  }
  if (quick) return;
  check_case<T>({256, 4096, 14336, false, Form::kAdd}, meeting, stream);
  check_case<T>({256, 14336, 4096, false, Form::kGated}, meeting, stream);
  check_case<T>({250, 6144, 4096, true, Form::kPlain}, meeting, stream);
}

// The tuner gives memory for the sums of all cuts, and tickets that are zero.
void check_tuner(GemmLt& lt, cudaStream_t stream) {
  const GemmTrial<__half> trial({256, 1024, 4096, false, Form::kPlain}, stream);
  const WeightView weight = trial.args().w;
  const char* error = lt.tune(trial.args(), {&weight, 1}, 4, 1000, Launch(stream, true));
  expect(error == nullptr, error == nullptr ? "" : error);
  expect(seen_tickets != nullptr, "a kernel without tickets");
  std::array<BatchGemmCut, 16> room;
  GemmArgs args = trial.args();
  args.spare = seen_spare;
  args.tickets = seen_tickets;
  const auto count = static_cast<size_t>(batch_gemm_cuts(args, room));
  int32_t most = 0;
  for (size_t i = 0; i < count; ++i) most = std::max(most, room[i].splits);
  expect(most > 1, "no cut has room for splits");
  std::vector<int32_t> tickets(kGemmTickets, 1);
  if (seen_tickets != nullptr) {
    CHECK_CUDA(cudaMemcpy(tickets.data(), seen_tickets, sizeof(int32_t) * kGemmTickets,
                          cudaMemcpyDefault));
  }
  expect(std::all_of(tickets.begin(), tickets.end(), [](int32_t t) { return t == 0; }),
         "tickets that are not zero");
  ++checked;
}

constexpr GemmLayer kShapes[] = {
    {6144, 4096, "qkv", Form::kPlain},           {4096, 4096, "o", Form::kAdd},
    {14336, 4096, "gate_up", Form::kGated},      {4096, 14336, "down", Form::kAdd},
    {12288, 4096, "qwen gate_up", Form::kGated}, {4096, 12288, "qwen down", Form::kAdd}};

void bench(int only, const Meeting& meeting, GemmLt& lt, cudaStream_t stream) {
  GemmBench bench(stream, kBatchGemmRows, 16384);
  std::printf("us of a linear layer, early starts\n");
  for (const GemmLayer& s : kShapes) {
    for (const int m : {192, 256}) {
      if (only > 0 && m != only) continue;
      const int copies = bench.copies(s);
      const auto args = [&](int i) { return meeting.equipped(bench.args(s, m, i * s.values())); };
      const Launch on(stream, true);
      std::vector<WeightView> weights;
      for (int i = 0; i < copies; ++i) weights.push_back(args(i).w);
      const char* error = lt.tune(args(0), weights, 10, 20000, on);
      expect(error == nullptr, error == nullptr ? "" : error);
      const double library = time_in_graph(stream, copies, 9, [&](int i) {
        const char* failed = lt.run(args(i), on);
        if (failed != nullptr) expect(false, failed);
      });
      std::printf("%-12s %4d floor %6.1f, %5.0f GFLOP, lt %6.1f |", s.name, m, bench.floor(s),
                  2e-9 * m * static_cast<double>(s.values()), library);
      std::array<BatchGemmCut, 16> room;
      const auto count = static_cast<size_t>(batch_gemm_cuts(args(0), room));
      for (size_t i = 0; i < count; ++i) {
        const double us = time_in_graph(
            stream, copies, 9, [&](int turn) { CHECK_CUDA(batch_gemm(args(turn), room[i], on)); });
        std::printf(" %ds%d %.1f", room[i].columns, room[i].splits, us);
      }
      std::printf("\n");
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "all";
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreate(&stream));
  const Meeting meeting;
  Device<uint8_t> workspace(size_t{64} << 20);
  std::unique_ptr<GemmLt> lt;
  const char* error = GemmLt::create(workspace.get(), workspace.size(), lt);
  if (error != nullptr) {
    std::printf("%s\n", error);
    return 1;
  }
  const bool quick = what == "quick";
  if (what != "bench") {
    check_type<__nv_bfloat16>(quick, meeting, stream);
    check_type<__half>(quick, meeting, stream);
    if (!quick) check_tuner(*lt, stream);
    std::printf("batch gemm: %d checks, %d failures\n", checked, failures);
  }
  if (what != "check" && !quick) bench(argc > 2 ? std::atoi(argv[2]) : 0, meeting, *lt, stream);
  return failures == 0 ? 0 : 1;
}
