// The functions of the addon that make and keep grammars: grammarVocabulary, compileGrammar,
// releaseGrammar, grammarCounts (Addon in native/index.ts).
#pragma once
#include <napi.h>

namespace inferd {

Napi::Value grammar_vocabulary(const Napi::CallbackInfo& info);
Napi::Value compile_grammar_text(const Napi::CallbackInfo& info);
Napi::Value release_grammar(const Napi::CallbackInfo& info);
Napi::Value grammar_counts(const Napi::CallbackInfo& info);

}  // namespace inferd
