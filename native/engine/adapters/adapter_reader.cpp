// See adapter_reader.h.
#include "engine/adapters/adapter_reader.h"

#include <chrono>
#include <new>
#include <system_error>

namespace inferd {
namespace {

// As many as lora.max_adapters can allow.
constexpr size_t kMostReadings = 4096;

}  // namespace

AdapterReader::~AdapterReader() {
  finish(0);
  if (thread_.joinable()) thread_.join();
}

void AdapterReader::begin(int32_t id, const std::string& folder) {
  if (readings_.size() >= kMostReadings)
    throw Error(ErrorCode::kUsage,
                format("%zu adapters are being read; wait for some of them.", readings_.size()));
  auto reading = std::make_shared<AdapterReading>();
  reading->folder = folder;
  const std::lock_guard lock(mutex_);
  if (stopped_) throw Error(ErrorCode::kClosed, "The engine is closed.");
  if (!thread_.joinable()) {
    try {
      thread_ = std::thread([this] { run(); });
    } catch (const std::system_error& e) {
      throw Error(ErrorCode::kOutOfMemory,
                  format("The system gives no thread to read an adapter (%s).", e.what()));
    }
  }
  queue_.push_back(reading);
  readings_.emplace(id, std::move(reading));
  changed_.notify_all();
}

std::shared_ptr<AdapterReading> AdapterReader::take(int32_t id) {
  const auto found = readings_.find(id);
  if (found == readings_.end())
    throw Error(ErrorCode::kUsage, format("The adapter %d is not being read.", id));
  {
    const std::lock_guard lock(mutex_);
    if (!found->second->done) return nullptr;
  }
  return std::move(readings_.extract(found).mapped());
}

void AdapterReader::wait(int32_t id) {
  const std::shared_ptr<AdapterReading> reading = readings_.at(id);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return reading->done; });
}

bool AdapterReader::cancel(int32_t id) {
  const auto found = readings_.find(id);
  if (found == readings_.end()) return false;
  found->second->cancelled = true;
  {
    const std::lock_guard lock(mutex_);
    std::erase(queue_, found->second);
  }
  readings_.erase(found);
  return true;
}

bool AdapterReader::finish(int64_t limit_ms) {
  std::unique_lock lock(mutex_);
  stopped_ = true;
  for (const auto& [id, reading] : readings_) reading->cancelled = true;
  queue_.clear();
  changed_.notify_all();
  return changed_.wait_for(lock, std::chrono::milliseconds(limit_ms), [this] { return !busy_; });
}

void AdapterReader::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopped_ || !queue_.empty(); });
    if (stopped_) return;
    std::shared_ptr<AdapterReading> reading = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    try {
      read_(*reading);
    } catch (const Error& e) {
      reading->error = e;
    } catch (const std::bad_alloc&) {
      reading->error = Error(ErrorCode::kOutOfMemory, "The host is out of memory.");
    } catch (const std::exception& e) {
      reading->error = Error(ErrorCode::kDevice, e.what());
    }
    lock.lock();
    reading->done = true;
    reading.reset();  // what was cancelled goes here, and what is wanted has another owner
    busy_ = false;
    changed_.notify_all();
  }
}

}  // namespace inferd
