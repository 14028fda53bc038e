// Recorded pieces of steps, replayed by key.
//
// The engine records the keys it knows at start-up, without a run. The first run of another key
// launches its body as it is and records it right after, while the device is busy with it. Later
// runs are one launch.
// Thread: the engine's.
#pragma once
#include <cstdint>
#include <functional>
#include <map>

#include "cuda/runtime/memory.h"

namespace inferd::cuda {

class GraphCache {
 public:
  void run(uint64_t key, cudaStream_t stream, const std::function<void()>& body);
  // Records without a run; nothing for a key that is known. False: there is no room for more.
  bool record(uint64_t key, cudaStream_t stream, const std::function<void()>& body);
  // Before memory goes that a recorded piece may use; none of them may be running.
  void clear() { graphs_.clear(); }

 private:
  // A graph of a few hundred kernels takes some 100 KiB of device memory.
  static constexpr size_t kMaxGraphs = 256;
  std::map<uint64_t, GraphExec> graphs_;
};

}  // namespace inferd::cuda
