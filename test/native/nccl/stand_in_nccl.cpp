// Stands in for libnccl.so.2: what the loader of the CUDA backend looks for, with the numbers of
// the documented interface. Compiled by nccl-library.test.ts:
//   -DSTAND_IN_VERSION=21803   says that it is of this version
//   -DSTAND_IN_LACKS_ABORT     has no ncclCommAbort
//   -DSTAND_IN_REFUSES         does not tell its version
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#ifndef STAND_IN_VERSION
#define STAND_IN_VERSION 22803
#endif

struct Id {
  char bytes[128];
};
struct Comm {
  int ranks, rank;
};

// Where calls are written, a line each.
static void note(const char* text) {
  const char* path = std::getenv("STAND_IN_LOG");
  if (path == nullptr) return;
  std::FILE* file = std::fopen(path, "a");
  std::fprintf(file, "%s\n", text);
  std::fclose(file);
}

extern "C" {
int ncclGetVersion(int* version) {
  *version = STAND_IN_VERSION;
#ifdef STAND_IN_REFUSES
  return 3;
#else
  return 0;
#endif
}
const char* ncclGetErrorString(int result) {
  return result == 0 ? "no error" : result == 3 ? "internal error" : "remote process exited";
}
int ncclGetUniqueId(Id* id) {
  std::memset(id->bytes, 7, sizeof id->bytes);
  return 0;
}
int ncclGroupStart() { return note("start"), 0; }
int ncclGroupEnd() { return note("end"), 0; }
int ncclCommInitRank(Comm** comm, int ranks, Id id, int rank) {
  bool whole = true;  // the id came by value, and what stands behind it in its place
  for (const char byte : id.bytes) whole = whole && byte == 7;
  *comm = new Comm{ranks, rank};
  char text[80];
  std::snprintf(text, sizeof text, "join %d of %d %s", rank, ranks, whole ? "whole" : "torn");
  return note(text), 0;
}
int ncclAllReduce(const void*, void*, size_t count, int type, int op, Comm* comm, void* stream) {
  char text[120];
  std::snprintf(text, sizeof text, "sum %zu of type %d by %d for %d on %p", count, type, op,
                comm->rank, stream);
  return note(text), 0;
}
int ncclAllGather(const void*, void*, size_t count, int type, Comm* comm, void* stream) {
  char text[120];
  std::snprintf(text, sizeof text, "gather %zu of type %d for %d on %p", count, type, comm->rank,
                stream);
  return note(text), 0;
}
#ifndef STAND_IN_LACKS_ABORT
int ncclCommAbort(Comm* comm) {
  note("abort");
  delete comm;
  return 0;
}
#endif
int ncclCommGetAsyncError(Comm*, int* error) {
  *error = 6;
  return 0;
}
}
