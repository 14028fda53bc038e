// Reads the text of a grammar: GBNF as llama.cpp documents it, and where `extensions` says so the
// two forms that only generated grammars use,
//   %scope( expr )                      a scope of distinct texts
//   %distinct{ "lit" … }( expr )        what expr matches equals neither a literal nor the text of
//                                       an earlier %distinct of the same scope
// A rule may also go on after a newline that a "|" follows.
#pragma once
#include <string_view>

#include "grammar/syntax/ast.h"

namespace inferd {

struct SyntaxLimits {
  int32_t max_depth;
  bool extensions;
};

// Throws Error(kUsage) with a sentence that names line and column.
Syntax parse_grammar(std::string_view text, const SyntaxLimits& limits);

}  // namespace inferd
