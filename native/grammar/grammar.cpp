// See grammar.h.
#include "grammar/grammar.h"

#include <utility>

#include "grammar/compile/link.h"
#include "grammar/compile/lower.h"
#include "grammar/compile/plan.h"
#include "grammar/match/readings.h"
#include "grammar/syntax/parser.h"
#include "grammar/table_builder.h"

namespace inferd {

Grammar::Grammar(Automaton automaton, std::shared_ptr<const TokenTrie> vocabulary,
                 std::vector<std::shared_ptr<const TokenTable>> tables)
    : automaton_(std::move(automaton)),
      vocabulary_(std::move(vocabulary)),
      tables_(std::move(tables)),
      bytes_(automaton_.bytes() +
             static_cast<int64_t>(tables_.capacity() * sizeof(tables_.front()))) {
  for (const auto& table : tables_) bytes_ += table == nullptr ? 0 : table->bytes;
}

std::shared_ptr<const Grammar> compile_grammar(std::string_view gbnf,
                                               std::shared_ptr<const TokenTrie> vocabulary,
                                               const GrammarLimits& limits) {
  if (static_cast<int64_t>(gbnf.size()) > limits.max_text_bytes) {
    throw Error(
        ErrorCode::kUnsupported,
        format("The grammar has %lld bytes, more than the limit of %lld.",
               static_cast<long long>(gbnf.size()), static_cast<long long>(limits.max_text_bytes)));
  }
  Budget budget(limits);
  const Syntax syntax = parse_grammar(gbnf, {limits.max_depth, limits.extensions});
  const RulePlan plan = plan_rules(syntax, budget);
  Automaton automaton = link(syntax, lower(syntax, plan, budget), budget);
  budget.memory(automaton.bytes());
  Readings{automaton};  // throws when already its start has too many readings
  std::vector<std::shared_ptr<const TokenTable>> tables =
      build_tables(automaton, *vocabulary, budget);
  return std::make_shared<const Grammar>(std::move(automaton), std::move(vocabulary),
                                         std::move(tables));
}

}  // namespace inferd
