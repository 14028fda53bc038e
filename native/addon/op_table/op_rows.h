// The rows of the op table: each names an op, reads its attributes and inputs, and runs it. What
// each takes is said where it is defined.
#pragma once
#include <span>

#include "addon/op_table/op_call.h"

namespace inferd {

struct OpTest {
  const char* name;
  Napi::Object (*run)(OpTestCall& call);
};

// dense_ops.cpp, expert_ops.cpp, step_ops.cpp, limits.cpp, threads.cpp, comm.cpp, weights.cpp
std::span<const OpTest> dense_op_tests();
std::span<const OpTest> expert_op_tests();
std::span<const OpTest> step_op_tests();
std::span<const OpTest> limit_tests();
std::span<const OpTest> thread_tests();
std::span<const OpTest> comm_tests();
std::span<const OpTest> weight_tests();

}  // namespace inferd
