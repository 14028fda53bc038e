// What the ranks of a group, which compute one model together, do with each other. A rank is a
// thread of this process with a backend of its own.
//
// All ranks call the same collectives in the same order with the same sizes. A group ends once and
// for all of them: when a rank waits for longer than its limit, or when anybody calls abort(),
// every wait of every rank, present or future, throws Error(kDevice) with the reason. So no rank
// waits for one that is gone, and none is left behind.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>

#include "core/tensor.h"

namespace inferd {

class Comm {
 public:
  virtual ~Comm() = default;
  virtual int32_t rank() const = 0;
  virtual int32_t size() const = 0;

  // inout [rows, cols] = its sum over the ranks, added in the order of ranks and rounded once, so
  // that all ranks hold the same bits. Throws Error(kDevice) when the group has ended.
  virtual void all_reduce(Tensor inout) = 0;
  // out [rows, size * cols]: columns [r * cols, (r + 1) * cols) are the `part` [rows, cols] of rank
  // r. Throws Error(kDevice) when the group has ended.
  virtual void all_gather(Tensor out, const Tensor& part) = 0;
  // Returns when all ranks are here. Throws Error(kDevice) when the group has ended.
  virtual void barrier() = 0;

  // How long a rank waits for the others in one collective, from now on.
  virtual void set_limit(std::chrono::milliseconds limit) = 0;
  // Ends the group; the first reason stays. Any thread may call it; it waits for nobody.
  virtual void abort(const std::string& reason) = 0;
};

}  // namespace inferd
