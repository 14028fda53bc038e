// Timeline of the last kernels and copies of a process, by CUPTI, without touching the process:
//   g++ -std=c++20 -O2 -shared -fPIC -I$CUDA/include test/gpu/trace.cpp -o trace.so -L$CUDA/lib64 -lcupti
//   CUDA_INJECTION64_PATH=$PWD/trace.so INFERD_TRACE=trace.csv node dist/test/gpu/bench.js decode 1x128
// Writes one line an activity when the process ends: start and duration in ns, and its name.
#include <cupti.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <string>

namespace {

constexpr size_t kBufferBytes = 8 << 20, kMost = 20000;

struct Activity {
  uint64_t start, end;
  std::string name;
};
std::mutex mutex;
std::deque<Activity> activities;

void keep(uint64_t start, uint64_t end, std::string name) {
  activities.push_back({start, end, std::move(name)});
  if (activities.size() > kMost) activities.pop_front();
}

void CUPTIAPI request(uint8_t** buffer, size_t* size, size_t* max_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, kBufferBytes));
  *size = kBufferBytes;
  *max_records = 0;
}

void CUPTIAPI complete(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  const std::lock_guard lock(mutex);
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
      const auto* k = reinterpret_cast<const CUpti_ActivityKernel9*>(record);
      keep(k->start, k->end, k->name == nullptr ? "?" : k->name);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
      const auto* m = reinterpret_cast<const CUpti_ActivityMemcpy5*>(record);
      keep(m->start, m->end, "copy of " + std::to_string(m->bytes) + " bytes");
    }
  }
  std::free(buffer);
}

void write_trace() {
  cuptiActivityFlushAll(1);
  const char* path = std::getenv("INFERD_TRACE");
  std::FILE* out = std::fopen(path == nullptr ? "trace.csv" : path, "w");
  if (out == nullptr) return;
  const std::lock_guard lock(mutex);
  std::sort(activities.begin(), activities.end(),
            [](const Activity& a, const Activity& b) { return a.start < b.start; });
  for (const Activity& a : activities) {
    std::fprintf(out, "%llu,%llu,\"%.120s\"\n", static_cast<unsigned long long>(a.start),
                 static_cast<unsigned long long>(a.end - a.start), a.name.c_str());
  }
  std::fclose(out);
}

}  // namespace

extern "C" int InitializeInjection() {
  cuptiActivityRegisterCallbacks(request, complete);
  cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY);
  std::atexit(write_trace);
  return 1;
}
