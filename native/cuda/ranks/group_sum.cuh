// What becomes of groups of 8 or 16 bytes of a sum over ranks, whichever way they come.
#pragma once
#include <cstdint>

#include "cuda/device/common.cuh"

namespace inferd::cuda {

// `take` is called for rank 0, 1, .. and then `store`. Groups are counted from the begin of `x`.
template <typename T, typename Group, bool kResidual>
struct Sum {
  static constexpr int kValues = sizeof(Group) / sizeof(T);
  const T* x;
  T* inout;
  float scale;

  struct Part {
    float sum[kValues] = {};
  };
  __device__ Group own(int64_t at) const { return reinterpret_cast<const Group*>(x)[at]; }
  __device__ void take(Part& part, int64_t, int, const Group& group) const {
    const T* v = reinterpret_cast<const T*>(&group);
#pragma unroll
    for (int i = 0; i < kValues; ++i) part.sum[i] += to_float(v[i]);
  }
  // What is added to.
  __device__ Group old(int64_t at) const {
    return kResidual ? reinterpret_cast<const Group*>(inout)[at] : Group{};
  }
  // What becomes of it, rounded once.
  __device__ Group result(const Part& part, Group group) const {
    T* y = reinterpret_cast<T*>(&group);
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      const float value = kResidual ? fmaf(scale, part.sum[i], to_float(y[i])) : part.sum[i];
      y[i] = from_float<T>(value);
    }
    return group;
  }
  __device__ void put(int64_t at, const Group& group) const {
    reinterpret_cast<Group*>(inout)[at] = group;
  }
  __device__ void store(const Part& part, int64_t at) const { store(part, at, old(at)); }
  __device__ void store(const Part& part, int64_t at, const Group& group) const {
    put(at, result(part, group));
  }
};

}  // namespace inferd::cuda
