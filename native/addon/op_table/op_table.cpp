// See op_table.h. For the rows of the table see op_rows.h.
#include "addon/op_table/op_table.h"

#include <array>

#include "addon/op_table/op_call.h"
#include "addon/op_table/op_rows.h"
#include "core/error.h"

namespace inferd {
namespace {

std::array<std::span<const OpTest>, 7> tables() {
  return {dense_op_tests(), expert_op_tests(), step_op_tests(), limit_tests(),
          thread_tests(),   comm_tests(),      weight_tests()};
}

Napi::Object run(const Napi::Value& argument) {
  if (!argument.IsObject()) throw Error(ErrorCode::kUsage, "runOp takes one object");
  OpTestCall call(argument.As<Napi::Object>());
  for (const std::span<const OpTest> table : tables()) {
    for (const OpTest& test : table) {
      if (call.op() == test.name) return test.run(call);
    }
  }
  throw Error(ErrorCode::kUsage, "runOp: there is no op \"" + call.op() + "\"");
}

}  // namespace

Napi::Value op_names(const Napi::CallbackInfo& info) {
  Napi::Array names = Napi::Array::New(info.Env());
  for (const std::span<const OpTest> table : tables()) {
    for (const OpTest& test : table) names.Set(names.Length(), test.name);
  }
  return names;
}

Napi::Value run_op(const Napi::CallbackInfo& info) { return run(info[0]); }

}  // namespace inferd
