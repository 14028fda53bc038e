// What the loader finds and how ranks on GPUs choose, as JSON lines, for nccl-library.test.ts:
//
//   nccl_check library   the problem and version that the loader gives, and the settings it leaves
//   nccl_check calls     calls each function of the library once
//   nccl_check ways      the choice for each option, GPUs that reach each other or not, and NCCL
//                        there or not
//   nccl_check shots     from how many bytes on sums go in two shots, for numbers of ranks and
//   times
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "cuda/ranks/all_reduce_way.h"
#include "cuda/ranks/nccl/nccl_library.h"
#include "cuda/ranks/sum_way.h"

using namespace inferd;
using namespace inferd::cuda;

namespace {

void tell_library() {
  const NcclLibrary& found = nccl();
  std::string problem;
  for (const char c : found.problem) problem += c == '"' ? std::string("\\\"") : std::string(1, c);
  std::printf("{\"problem\":\"%s\",\"version\":\"%s\",\"settings\":{", problem.c_str(),
              found.version.c_str());
  const char* comma = "";
  for (const char* name : {"NCCL_NVLS_ENABLE", "NCCL_RUNTIME_CONNECT", "NCCL_GRAPH_REGISTER",
                           "NCCL_LAUNCH_MODE", "NCCL_SOCKET_IFNAME"}) {
    const char* value = std::getenv(name);
    std::printf("%s\"%s\":\"%s\"", comma, name, value == nullptr ? "" : value);
    comma = ",";
  }
  std::printf("}}\n");
}

int call_all() {
  const NcclLibrary& library = nccl();
  if (!library.problem.empty()) return 1;
  NcclId id{};
  NcclComm comm = nullptr;
  auto* stream = reinterpret_cast<CUstream_st*>(0x5);
  int error = 0;
  const int results[] = {
      library.get_id(&id),
      library.group_start(),
      library.join(&comm, 2, id, 1),
      library.group_end(),
      library.all_reduce(nullptr, nullptr, 12, NcclType::kBF16, NcclLibrary::kSum, comm, stream),
      library.all_gather(nullptr, nullptr, 34, NcclType::kBytes, comm, stream),
      library.async_error(comm, &error),
      library.abort(comm)};
  for (const int result : results) {
    if (result != 0) return 1;
  }
  std::printf("{\"error\":\"%s\"}\n", library.error_text(error));
  return 0;
}

void tell_ways() {
  for (const AllReduce asked : {AllReduce::kAuto, AllReduce::kOwn, AllReduce::kNccl}) {
    for (const bool peers : {true, false}) {
      for (const bool there : {true, false}) {
        bool looked = false;
        const AllReduceWay way = choose_all_reduce(
            asked, peers ? std::nullopt : std::optional<Apart>({2, 5}), [&]() -> std::string {
              looked = true;
              return there ? "" : "NCCL is away; fetch it.";
            });
        std::string refusal;
        for (const char c : way.refusal) refusal += c == '"' ? '\'' : c;
        std::printf("[%d,%s,%s,\"%s\",%s,\"%s\"]\n", static_cast<int>(asked),
                    peers ? "true" : "false", there ? "true" : "false", way.nccl ? "nccl" : "own",
                    looked ? "true" : "false", refusal.c_str());
      }
    }
  }
}

// Never is -1.
void tell_shots(int32_t ranks, std::vector<SumTimes> times) {
  const auto from = [](const SumWay& way) {
    return static_cast<long long>(way.two_shot_from == SumWay::kNever ? -1 : way.two_shot_from);
  };
  std::printf("[%d,%lld,%lld]\n", ranks, from(usual_sum_way(ranks)),
              from(measured_sum_way(ranks, times)));
}

void tell_shots() {
  for (const int32_t ranks : {2, 3, 4, 5, 8}) tell_shots(ranks, {});
  tell_shots(2, {{100, 9, 1}});
  tell_shots(4, {{100, 1, 2}, {200, 2, 2}, {400, 3, 2}, {800, 9, 3}});
  tell_shots(4, {{100, 3, 2}, {200, 2, 3}, {400, 4, 3}});  // not where it is slower in between
  tell_shots(8, {{100, 3, 2}, {200, 4, 3}});
  tell_shots(8, {{100, 1, 2}, {200, 2, 3}});
}

}  // namespace

int main(int count, char** words) {
  const char* what = count > 1 ? words[1] : "";
  if (std::strcmp(what, "library") == 0) return tell_library(), 0;
  if (std::strcmp(what, "calls") == 0) return call_all();
  if (std::strcmp(what, "ways") == 0) return tell_ways(), 0;
  if (std::strcmp(what, "shots") == 0) return tell_shots(), 0;
  return 64;
}
