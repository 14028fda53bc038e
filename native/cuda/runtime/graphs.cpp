// See graphs.h.
#include "cuda/runtime/graphs.h"

#include <memory>

namespace inferd::cuda {
namespace {

using Graph = Owned<cudaGraph_t, cudaGraphDestroy>;

// What `body` enqueues, not run. The stream is out of capture again whatever happens.
Graph capture(cudaStream_t stream, const std::function<void()>& body) {
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  cudaGraph_t graph = nullptr;
  try {
    body();
  } catch (...) {
    cudaStreamEndCapture(stream, &graph);
    cudaGetLastError();
    if (graph != nullptr) cudaGraphDestroy(graph);
    throw;
  }
  check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  return Graph(graph);
}

}  // namespace

void GraphCache::run(uint64_t key, cudaStream_t stream, const std::function<void()>& body) {
  const auto found = graphs_.find(key);
  if (found != graphs_.end()) {
    check(cudaGraphLaunch(found->second.get(), stream), "cudaGraphLaunch");
    return;
  }
  body();
  record(key, stream, body);
}

bool GraphCache::record(uint64_t key, cudaStream_t stream, const std::function<void()>& body) {
  if (graphs_.contains(key)) return true;
  if (graphs_.size() == kMaxGraphs) return false;
  const Graph graph = capture(stream, body);
  cudaGraphExec_t exec = nullptr;
  check(cudaGraphInstantiate(&exec, graph.get(), 0), "cudaGraphInstantiate");
  GraphExec owned(exec);
  check(cudaGraphUpload(exec, stream), "cudaGraphUpload");
  graphs_.emplace(key, std::move(owned));
  return true;
}

}  // namespace inferd::cuda
