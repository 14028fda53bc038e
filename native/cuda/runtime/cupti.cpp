// See cupti.h. Compiled only where the build finds cupti.h; the library itself is opened when the
// first recording starts.
#include "cuda/runtime/cupti.h"

#include <cupti.h>
#include <cxxabi.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <vector>

#include "core/error.h"

namespace inferd::cuda {
namespace {

constexpr const char* kLibrary = "libcupti.so." INFERD_CUPTI_SONAME;
constexpr size_t kBufferBytes = 4 << 20;
constexpr size_t kAlign = 8;
constexpr int32_t kMaxDevices = 64;
constexpr std::array kKinds = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                               CUPTI_ACTIVITY_KIND_MEMSET};

// The functions in use, by name; problem is empty when all were found.
struct Library {
  std::string problem;
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
  decltype(&cuptiActivityEnable) enable = nullptr;
  decltype(&cuptiActivityDisable) disable = nullptr;
  decltype(&cuptiActivityFlushAll) flush_all = nullptr;
  decltype(&cuptiActivityGetNextRecord) next_record = nullptr;
  decltype(&cuptiActivityGetNumDroppedRecords) dropped_records = nullptr;
  decltype(&cuptiGetTimestamp) timestamp = nullptr;
  decltype(&cuptiGetResultString) result_string = nullptr;
};

// Where the system finds libraries, where the build found the header, where toolkits install.
void* open_cupti() {
  const std::string folders[] = {"", INFERD_CUPTI_FOLDER "/lib64/", INFERD_CUPTI_FOLDER "/lib/",
                                 "/usr/local/cuda/extras/CUPTI/lib64/", "/usr/local/cuda/lib64/"};
  for (const std::string& folder : folders) {
    if (void* handle = dlopen((folder + kLibrary).c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
  }
  return nullptr;
}

template <typename Function>
void find(void* handle, const char* name, Function& function, std::string& problem) {
  function = reinterpret_cast<Function>(dlsym(handle, name));
  if (function == nullptr) problem = format("%s lacks the function %s.", kLibrary, name);
}

Library load() {
  Library l;
  void* handle = open_cupti();
  if (handle == nullptr) {
    l.problem = format(
        "CUPTI was not found (%s); install it with the CUDA toolkit, or put its folder in "
        "LD_LIBRARY_PATH.",
        kLibrary);
    return l;
  }
  find(handle, "cuptiActivityRegisterCallbacks", l.register_callbacks, l.problem);
  find(handle, "cuptiActivityEnable", l.enable, l.problem);
  find(handle, "cuptiActivityDisable", l.disable, l.problem);
  find(handle, "cuptiActivityFlushAll", l.flush_all, l.problem);
  find(handle, "cuptiActivityGetNextRecord", l.next_record, l.problem);
  find(handle, "cuptiActivityGetNumDroppedRecords", l.dropped_records, l.problem);
  find(handle, "cuptiGetTimestamp", l.timestamp, l.problem);
  find(handle, "cuptiGetResultString", l.result_string, l.problem);
  return l;
}

const Library& library() {
  static const Library loaded = load();
  return loaded;
}

// CUPTI's clock (nanoseconds of the system's time) and ours, read at the same moment.
struct Moment {
  int64_t cupti_ns = 0, steady_ns = 0;
};

Moment now() {
  constexpr int kTries = 16;
  Moment best;
  int64_t least = INT64_MAX;
  for (int i = 0; i < kTries; ++i) {
    uint64_t theirs = 0;
    const int64_t before = trace_ns();
    library().timestamp(&theirs);
    const int64_t after = trace_ns();
    if (after - before >= least) continue;
    least = after - before;
    best = {static_cast<int64_t>(theirs), before + least / 2};
  }
  return best;
}

// The name of a kernel as a reader wants it: no return type, no arguments, none of our namespaces.
std::string readable(const char* symbol) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> plain(
      abi::__cxa_demangle(symbol, nullptr, nullptr, &status), &std::free);
  if (status != 0 || plain == nullptr) return symbol;
  std::string name = plain.get();
  for (const char* part : {"inferd::", "cuda::", "(anonymous namespace)::"}) {
    for (size_t at = name.find(part); at != std::string::npos; at = name.find(part, at))
      name.erase(at, std::char_traits<char>::length(part));
  }
  if (name.starts_with("void ")) name.erase(0, 5);
  // The argument list is the last pair of parentheses outside of template arguments.
  int depth = 0;
  for (size_t at = 0; at < name.size(); ++at) {
    if (name[at] == '<') ++depth;
    if (name[at] == '>') --depth;
    if (name[at] == '(' && depth == 0) return name.substr(0, at);
  }
  return name;
}

struct Recording {
  Trace* trace = nullptr;
  Moment began;
};

struct Session {
  std::mutex control;  // starting and stopping
  std::mutex records;  // the rest; never held during a call of CUPTI that may call back
  std::array<Recording, kMaxDevices> devices;
  int32_t running = 0;
  bool registered = false;
  // By the symbol that CUPTI keeps for each kernel.
  std::map<const char*, std::string> kernel_names;
  std::vector<uint8_t*> spare_buffers;  // of kBufferBytes, while a recording runs
};

Session& session() {
  // Not destroyed: CUPTI's thread may call until the process is gone.
  static auto* const it = new Session;
  return *it;
}

const char* copy_name(uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
      return "copy host to device";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
      return "copy device to host";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD:
      return "copy device to device";
    default:
      return "copy";
  }
}

// What a record says, whatever its kind.
struct Activity {
  TraceKind kind;
  uint32_t device, stream;
  uint64_t start, end, bytes;
  std::string_view name;
};

// Times stay those of CUPTI until stop_cupti.
void put(const Session& s, const Activity& a) {
  Trace* const trace = a.device < kMaxDevices ? s.devices[a.device].trace : nullptr;
  if (trace == nullptr) return;
  if (a.start == 0 || a.end < a.start) return trace->drop(1);  // CUPTI could not time it
  trace->add({.start_ns = static_cast<int64_t>(a.start),
              .end_ns = static_cast<int64_t>(a.end),
              .value = static_cast<int64_t>(a.bytes),
              .name = trace->name(a.name),
              .lane = static_cast<int32_t>(a.stream),
              .kind = a.kind});
}

const std::string& kernel_name(Session& s, const char* symbol) {
  const auto known = s.kernel_names.find(symbol);
  if (known != s.kernel_names.end()) return known->second;
  return s.kernel_names.emplace(symbol, readable(symbol)).first->second;
}

// The records are read by versions of their layouts that newer libraries only add to.
void read_record(Session& s, const CUpti_Activity* record) {
  switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
      const auto& k = *reinterpret_cast<const CUpti_ActivityKernel9*>(record);
      const std::string& name = kernel_name(s, k.name == nullptr ? "kernel" : k.name);
      return put(s, {TraceKind::kKernel, k.deviceId, k.streamId, k.start, k.end, 0, name});
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      const auto& m = *reinterpret_cast<const CUpti_ActivityMemcpy5*>(record);
      return put(s, {TraceKind::kCopy, m.deviceId, m.streamId, m.start, m.end, m.bytes,
                     copy_name(m.copyKind)});
    }
    case CUPTI_ACTIVITY_KIND_MEMSET: {
      const auto& m = *reinterpret_cast<const CUpti_ActivityMemset4*>(record);
      return put(s, {TraceKind::kCopy, m.deviceId, m.streamId, m.start, m.end, m.bytes, "fill"});
    }
    default:
      return;
  }
}

void CUPTIAPI give_buffer(uint8_t** buffer, size_t* bytes, size_t* max_records) {
  Session& s = session();
  const std::lock_guard lock(s.records);
  if (s.spare_buffers.empty()) {
    *buffer = static_cast<uint8_t*>(std::aligned_alloc(kAlign, kBufferBytes));
  } else {
    *buffer = s.spare_buffers.back();
    s.spare_buffers.pop_back();
  }
  *bytes = *buffer == nullptr ? 0 : kBufferBytes;
  *max_records = 0;  // as many as fit
}

void CUPTIAPI take_buffer(CUcontext context, uint32_t stream, uint8_t* buffer, size_t,
                          size_t valid) {
  Session& s = session();
  const std::lock_guard lock(s.records);
  CUpti_Activity* record = nullptr;
  while (library().next_record(buffer, valid, &record) == CUPTI_SUCCESS) read_record(s, record);
  s.spare_buffers.push_back(buffer);
  size_t lost = 0;
  if (library().dropped_records(context, stream, &lost) != CUPTI_SUCCESS || lost == 0) return;
  for (const Recording& r : s.devices)
    if (r.trace != nullptr) r.trace->drop(static_cast<int64_t>(lost));
}

std::string failed(const char* what, CUptiResult status) {
  const char* text = "";
  library().result_string(status, &text);
  return format("CUPTI cannot record (%s: %s); another profiler may hold the GPU.", what, text);
}

// Of the first recording. Returns "" or why not; nothing is enabled then.
std::string enable_all(Session& s) {
  CUptiResult status = CUPTI_SUCCESS;
  if (!s.registered) status = library().register_callbacks(give_buffer, take_buffer);
  if (status != CUPTI_SUCCESS) return failed("cuptiActivityRegisterCallbacks", status);
  s.registered = true;
  for (const CUpti_ActivityKind kind : kKinds) {
    status = library().enable(kind);
    if (status == CUPTI_SUCCESS) continue;
    for (const CUpti_ActivityKind enabled : kKinds) library().disable(enabled);
    return failed("cuptiActivityEnable", status);
  }
  return "";
}

}  // namespace

std::string start_cupti(int32_t device, Trace& trace) {
  if (!library().problem.empty()) return library().problem;
  if (device < 0 || device >= kMaxDevices) return "CUPTI is not used for a device of this number.";
  Session& s = session();
  const std::lock_guard control(s.control);
  if (s.running == 0) {
    const std::string problem = enable_all(s);
    if (!problem.empty()) return problem;
  }
  const Moment began = now();
  const std::lock_guard lock(s.records);
  ++s.running;
  s.devices[static_cast<size_t>(device)] = {&trace, began};
  return "";
}

void stop_cupti(int32_t device, Trace& trace) {
  Session& s = session();
  const std::lock_guard control(s.control);
  library().flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  Moment began;
  {
    const std::lock_guard lock(s.records);
    Recording& recording = s.devices[static_cast<size_t>(device)];
    began = recording.began;
    recording = {};
    --s.running;
  }
  if (s.running == 0) {
    for (const CUpti_ActivityKind kind : kKinds) library().disable(kind);
    const std::lock_guard lock(s.records);
    for (uint8_t* buffer : s.spare_buffers) std::free(buffer);
    s.spare_buffers.clear();
  }

  const Moment ended = now();
  const int64_t offset = began.steady_ns - began.cupti_ns;
  const int64_t moved = ended.steady_ns - ended.cupti_ns - offset;
  // At least 1: a clock that could not be read twice stands still.
  const auto length = static_cast<double>(std::max<int64_t>(ended.cupti_ns - began.cupti_ns, 1));
  const auto ours = [&](int64_t theirs) {
    const double share = static_cast<double>(theirs - began.cupti_ns) / length;
    return theirs + offset + static_cast<int64_t>(share * static_cast<double>(moved));
  };
  trace.edit([&](TraceEvent& event) {
    if (event.kind != TraceKind::kKernel && event.kind != TraceKind::kCopy) return;
    event.start_ns = ours(event.start_ns);
    event.end_ns = ours(event.end_ns);
  });
  constexpr int64_t kWorthSayingNs = 1'000'000;
  if (moved > kWorthSayingNs || moved < -kWorthSayingNs) {
    trace.note = format(
        "The system's time moved by %.1f ms against the monotonic clock while recording; times of "
        "kernels are corrected evenly.",
        static_cast<double>(moved) / 1e6);
  }
}

}  // namespace inferd::cuda
