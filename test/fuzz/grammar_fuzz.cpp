// Grammars: whatever compiles has masks that hold exactly the tokens that are accepted, and a way
// on as long as the text is not complete. The first bytes of the input choose the tokens that are
// taken, the rest is the grammar.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/matcher.h"
#include "target.h"

namespace inferd {
namespace {

constexpr size_t kChoices = 8;

std::shared_ptr<const TokenTrie> make_vocabulary() {
  std::vector<std::string> tokens;
  for (int b = 0; b < 256; ++b) tokens.emplace_back(1, static_cast<char>(b));
  // Enough strings of the usual characters that token tables are made.
  const std::string_view letters = "ab\"0,:";
  for (const char x : letters) {
    for (const char y : letters) {
      tokens.push_back({x, y});
      for (const char z : letters) {
        tokens.push_back({x, y, z});
        for (const char w : letters) tokens.push_back({x, y, z, w});
      }
    }
  }
  tokens.emplace_back("\xC3\xA9\"");
  tokens.emplace_back();
  const auto end = static_cast<int32_t>(tokens.size()) - 1;
  return std::make_shared<const TokenTrie>(std::move(tokens), std::vector<int32_t>{end});
}

void check(std::string_view choices, std::string_view text) {
  static const std::shared_ptr<const TokenTrie> vocabulary = make_vocabulary();
  GrammarLimits limits;
  limits.max_text_bytes = 4096;
  limits.max_states = 20'000;
  limits.max_depth = 64;
  limits.deadline = std::chrono::milliseconds(500);
  limits.extensions = true;
  Matcher matcher(compile_grammar(text, vocabulary, limits));
  std::vector<uint32_t> words(vocabulary->mask_words());
  const bool distinct = text.find("%distinct") != std::string_view::npos;
  for (const char choice : choices) {
    matcher.fill_mask(words);
    std::vector<int32_t> allowed;
    for (int32_t id = 0; id < vocabulary->size(); ++id) {
      const bool set = (words[static_cast<size_t>(id) / 32] >> (id % 32) & 1u) != 0;
      Matcher copy = matcher;
      promise(copy.accept(id) == set, "the mask holds what is accepted");
      if (set) allowed.push_back(id);
    }
    promise(!allowed.empty() || distinct, "there is a way on");
    const int32_t only = matcher.only_token();
    promise(only == (allowed.size() == 1 ? allowed[0] : -1), "the only token is the only one");
    if (allowed.empty()) return;
    const auto pick = static_cast<size_t>(static_cast<uint8_t>(choice)) * 7919 % allowed.size();
    promise(matcher.accept(allowed[pick]), "an allowed token is accepted");
    if (vocabulary->is_end(allowed[pick])) return;
  }
}

}  // namespace
}  // namespace inferd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < inferd::kChoices) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  try {
    inferd::check(input.substr(0, inferd::kChoices), input.substr(inferd::kChoices));
  } catch (const inferd::Error& e) {
    inferd::promise(std::string_view(e.what()).ends_with('.'), "an error is a sentence");
  }
  return 0;
}
