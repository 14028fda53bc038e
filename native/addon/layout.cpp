// See layout.h.
#include "addon/layout.h"

#include <cctype>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <utility>

#include "core/plan/step_plan.h"

namespace inferd {
namespace {

using Field = std::pair<const char*, size_t>;

Napi::Object table(Napi::Env env, std::initializer_list<Field> fields) {
  Napi::Object out = Napi::Object::New(env);
  for (const auto& [name, value] : fields) out.Set(name, static_cast<double>(value));
  return out;
}

// The word offset of a member.
#define WORD(type, member) (offsetof(type, member) / 4)

// "top_k" -> "topK".
std::string camel_case(const std::string& name) {
  std::string out;
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '_') {
      out += static_cast<char>(std::toupper(static_cast<unsigned char>(name[++i])));
    } else {
      out += name[i];
    }
  }
  return out;
}

// The offsets of the sampling record, and what core/plan/sampling_row.h says about its fields under
// the names that requests have.
void set_sampling(Napi::Env env, const Napi::Object& out) {
  Napi::Object row = table(env, {{"words", sizeof(SamplingRow) / 4}});
  Napi::Object min = table(env, {}), max = table(env, {}), off = table(env, {});
  Napi::Object edits = table(env, {});
#define FIELD(type, name, least, most, nothing, role)          \
  row.Set(camel_case(#name), double{WORD(SamplingRow, name)}); \
  min.Set(#name, static_cast<double>(type{least}));            \
  max.Set(#name, static_cast<double>(type{most}));             \
  off.Set(#name, static_cast<double>(type{nothing}));          \
  edits.Set(#name, SamplingRole::role == SamplingRole::kEdits ? 1.0 : 0.0);
  INFERD_SAMPLING_FIELDS(FIELD)
#undef FIELD
  out.Set("SAMPLING_ROW", row);
  out.Set("SAMPLING_MIN", min);
  out.Set("SAMPLING_MAX", max);
  out.Set("SAMPLING_OFF", off);
  out.Set("SAMPLING_EDITS", edits);
}

// The header of a plan and its sections: in their order, the words of an entry.
void set_plan(Napi::Env env, const Napi::Object& out) {
  Napi::Object plan = table(env, {{"layoutVersion", WORD(PlanHeader, layout_version)},
                                  {"step", WORD(PlanHeader, step)},
                                  {"epoch", WORD(PlanHeader, epoch)},
                                  {"words", WORD(PlanHeader, words)},
                                  {"numTokens", WORD(PlanHeader, num_tokens)},
                                  {"unread", WORD(PlanHeader, unread)},
                                  {"headerWords", sizeof(PlanHeader) / 4}});
  Napi::Object sections = table(env, {});
#define SECTION(type, name, label)                                          \
  plan.Set(camel_case("num_" #name), double{WORD(PlanHeader, num_##name)}); \
  sections.Set(#label, double{sizeof(type) / 4});
  INFERD_PLAN_SECTIONS(SECTION)
#undef SECTION
  out.Set("PLAN", plan);
  out.Set("PLAN_SECTIONS", sections);
}

}  // namespace

Napi::Value layout(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  Napi::Object out = Napi::Object::New(env);
  out.Set("LAYOUT", table(env, {{"version", kLayoutVersion}}));
  set_plan(env, out);
  out.Set("NEW_SLOT", table(env, {{"slot", WORD(NewSlotFixed, slot)},
                                  {"forkOf", WORD(NewSlotFixed, fork_of)},
                                  {"numTokens", WORD(NewSlotFixed, num_tokens)},
                                  {"promptLen", WORD(NewSlotFixed, prompt_len)},
                                  {"adapter", WORD(NewSlotFixed, adapter)},
                                  {"listCounts", WORD(NewSlotFixed, list_counts)},
                                  {"samplingRow", WORD(NewSlotFixed, sampling)},
                                  {"fixedWords", sizeof(NewSlotFixed) / 4}}));
  Napi::Object lists = table(env, {});
  for (const SlotListKind& kind : kSlotListKinds) lists.Set(kind.name, double(kind.words));
  out.Set("SLOT_LISTS", lists);
  set_sampling(env, out);
  out.Set("ADAPTER", table(env, {{"place", WORD(AdapterPlacement, place)},
                                 {"adapter", WORD(AdapterPlacement, adapter)},
                                 {"words", sizeof(AdapterPlacement) / 4}}));
  out.Set("BLOCK_SET", table(env, {{"slot", WORD(BlockSet, slot)},
                                   {"index", WORD(BlockSet, index)},
                                   {"block", WORD(BlockSet, block)},
                                   {"words", sizeof(BlockSet) / 4}}));
  out.Set("COPY", table(env, {{"src", WORD(BlockCopy, src)},
                              {"dst", WORD(BlockCopy, dst)},
                              {"words", sizeof(BlockCopy) / 4}}));
  out.Set("ROW", table(env, {{"slot", WORD(PlanRow, slot)},
                             {"start", WORD(PlanRow, start)},
                             {"count", WORD(PlanRow, count)},
                             {"flags", WORD(PlanRow, flags)},
                             {"words", sizeof(PlanRow) / 4}}));
  out.Set("ROW_FLAG", table(env, {{"rawLogits", kRowRawLogits},
                                  {"promptLogprobs", kRowPromptLogprobs},
                                  {"fromDevice", kRowFromDevice},
                                  {"poolSum", kRowPoolSum},
                                  {"pool", kRowPool}}));
  out.Set("SAMPLE", table(env, {{"row", WORD(PlanSample, row)},
                                {"slot", WORD(PlanSample, slot)},
                                {"count", WORD(PlanSample, count)},
                                {"drafts", WORD(PlanSample, drafts)},
                                {"words", sizeof(PlanSample) / 4}}));
  out.Set("RESULT", table(env, {{"layoutVersion", WORD(ResultHeader, layout_version)},
                                {"step", WORD(ResultHeader, step)},
                                {"epoch", WORD(ResultHeader, epoch)},
                                {"errorCode", WORD(ResultHeader, error_code)},
                                {"numSamples", WORD(ResultHeader, num_samples)},
                                {"numPromptLogprobs", WORD(ResultHeader, num_prompt_logprobs)},
                                {"numTops", WORD(ResultHeader, num_tops)},
                                {"numLogitRows", WORD(ResultHeader, num_logit_rows)},
                                {"queueUs", WORD(ResultHeader, queue_us)},
                                {"execUs", WORD(ResultHeader, exec_us)},
                                {"words", WORD(ResultHeader, words)},
                                {"numPooled", WORD(ResultHeader, num_pooled)},
                                {"headerWords", sizeof(ResultHeader) / 4}}));
  out.Set("RESULT_SAMPLE", table(env, {{"slot", WORD(ResultSample, slot)},
                                       {"token", WORD(ResultSample, token)},
                                       {"logprob", WORD(ResultSample, logprob)},
                                       {"rank", WORD(ResultSample, rank)},
                                       {"topOffset", WORD(ResultSample, top_offset)},
                                       {"topCount", WORD(ResultSample, top_count)},
                                       {"drafted", WORD(ResultSample, drafted)},
                                       {"words", sizeof(ResultSample) / 4}}));
  out.Set("RESULT_PROMPT", table(env, {{"slot", WORD(ResultPrompt, slot)},
                                       {"position", WORD(ResultPrompt, position)},
                                       {"token", WORD(ResultPrompt, token)},
                                       {"logprob", WORD(ResultPrompt, logprob)},
                                       {"rank", WORD(ResultPrompt, rank)},
                                       {"topOffset", WORD(ResultPrompt, top_offset)},
                                       {"topCount", WORD(ResultPrompt, top_count)},
                                       {"words", sizeof(ResultPrompt) / 4}}));
  out.Set("RESULT_TOP", table(env, {{"id", WORD(ResultTop, id)},
                                    {"logprob", WORD(ResultTop, logprob)},
                                    {"words", sizeof(ResultTop) / 4}}));
  out.Set("RESULT_POOLED", table(env, {{"slot", WORD(ResultPooled, slot)},
                                       {"width", WORD(ResultPooled, width)},
                                       {"values", sizeof(ResultPooled) / 4}}));
  // Followed by vocabSize floats, so that it is no struct.
  out.Set("RESULT_LOGITS", table(env, {{"slot", 0}, {"position", 1}, {"logits", 2}}));
  return out;
}

#undef WORD

}  // namespace inferd
