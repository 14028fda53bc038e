// Reads adapters on a thread of its own, one after the other, so that the engine's thread, which
// feeds the steps, never waits for a disk.
//
//   begin   engine's thread    into the queue
//   read    reader's thread    files -> images in host memory, checked whole
//   take    engine's thread    what was read, or why it could not be
//
// A file system that does not answer cannot be interrupted: then finish says that the thread still
// runs.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/adapters.h"
#include "core/error.h"
#include "engine/adapters/adapter_file.h"

namespace inferd {

// An adapter in host memory, as the backend takes it: of each linear, null where it adds nothing.
using AdapterImages = std::vector<AdapterImagePtr>;

// One adapter on its way into host memory. But for `cancelled`, the reader's thread has it alone
// from begin until take gives it back.
struct AdapterReading {
  std::string folder;
  std::atomic<bool> cancelled = false;  // nobody wants it any more
  Adapter adapter;
  std::shared_ptr<AdapterImages> images;
  std::optional<Error> error;
  bool done = false;  // guarded by the reader's mutex
};

class AdapterReader {
 public:
  // `read` fills a reading, on the reader's thread; what it throws becomes the error.
  explicit AdapterReader(std::function<void(AdapterReading&)> read) : read_(std::move(read)) {}
  // Waits for what is being read, however long that takes.
  ~AdapterReader();

  // Throws Error(kUsage) when too many are on their way, Error(kOutOfMemory) without a thread.
  void begin(int32_t id, const std::string& folder);
  bool has(int32_t id) const { return readings_.contains(id); }
  // Null while it is read. What is done is given away. Throws Error(kUsage) for a number without a
  // reading.
  std::shared_ptr<AdapterReading> take(int32_t id);
  void wait(int32_t id);
  // False when there is none. What it has read by then is thrown away.
  bool cancel(int32_t id);
  // Cancels all, and begins no other. False when the thread still reads after limit_ms.
  bool finish(int64_t limit_ms);

 private:
  void run();

  const std::function<void(AdapterReading&)> read_;
  std::map<int32_t, std::shared_ptr<AdapterReading>> readings_;  // engine's thread only
  std::mutex mutex_;                                             // guards all below
  std::condition_variable changed_;
  std::deque<std::shared_ptr<AdapterReading>> queue_;
  bool busy_ = false;
  bool stopped_ = false;
  std::thread thread_;  // started by the first adapter
};

}  // namespace inferd
