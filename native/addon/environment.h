// What the addon keeps for one environment, which is one JavaScript thread.
#pragma once
#include <napi.h>

#include "addon/grammar_holds.h"

namespace inferd {

struct EnvironmentData {
  Napi::FunctionReference engine_class;
  Napi::FunctionReference matcher_class;
  GrammarHolds grammars;
};

// Lives as long as the environment.
inline EnvironmentData& environment_data(Napi::Env env) {
  return *env.GetInstanceData<EnvironmentData>();
}

}  // namespace inferd
