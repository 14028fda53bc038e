// See layout.h.
#include "addon/layout.h"

#include <cstddef>
#include <initializer_list>
#include <utility>

#include "core/step_plan.h"

namespace inferd {
namespace {

using Field = std::pair<const char*, size_t>;

Napi::Object table(Napi::Env env, std::initializer_list<Field> fields) {
  Napi::Object out = Napi::Object::New(env);
  for (const auto& [name, value] : fields) out.Set(name, static_cast<double>(value));
  return out;
}

}  // namespace

// The word offset of a member.
#define WORD(type, member) (offsetof(type, member) / 4)

Napi::Value layout(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  Napi::Object out = Napi::Object::New(env);
  out.Set("LAYOUT", table(env, {{"version", kLayoutVersion}}));
  out.Set("PLAN", table(env, {{"layoutVersion", WORD(PlanHeader, layout_version)},
                              {"step", WORD(PlanHeader, step)},
                              {"epoch", WORD(PlanHeader, epoch)},
                              {"numFreed", WORD(PlanHeader, num_freed)},
                              {"numNewSlots", WORD(PlanHeader, num_new_slots)},
                              {"numBlockSets", WORD(PlanHeader, num_block_sets)},
                              {"numCopies", WORD(PlanHeader, num_copies)},
                              {"numRows", WORD(PlanHeader, num_rows)},
                              {"numSamples", WORD(PlanHeader, num_samples)},
                              {"numTokens", WORD(PlanHeader, num_tokens)},
                              {"words", WORD(PlanHeader, words)},
                              {"numSwapOuts", WORD(PlanHeader, num_swap_outs)},
                              {"numSwapIns", WORD(PlanHeader, num_swap_ins)},
                              {"headerWords", sizeof(PlanHeader) / 4}}));
  out.Set("NEW_SLOT", table(env, {{"slot", WORD(NewSlotFixed, slot)},
                                  {"forkOf", WORD(NewSlotFixed, fork_of)},
                                  {"numTokens", WORD(NewSlotFixed, num_tokens)},
                                  {"promptLen", WORD(NewSlotFixed, prompt_len)},
                                  {"numBias", WORD(NewSlotFixed, num_bias)},
                                  {"numMasked", WORD(NewSlotFixed, num_masked)},
                                  {"samplingRow", WORD(NewSlotFixed, sampling)},
                                  {"fixedWords", sizeof(NewSlotFixed) / 4}}));
  out.Set("SAMPLING_ROW", table(env, {{"seedLo", WORD(SamplingRow, seed_lo)},
                                      {"seedHi", WORD(SamplingRow, seed_hi)},
                                      {"temperature", WORD(SamplingRow, temperature)},
                                      {"topP", WORD(SamplingRow, top_p)},
                                      {"minP", WORD(SamplingRow, min_p)},
                                      {"typicalP", WORD(SamplingRow, typical_p)},
                                      {"repetitionPenalty", WORD(SamplingRow, repetition_penalty)},
                                      {"frequencyPenalty", WORD(SamplingRow, frequency_penalty)},
                                      {"presencePenalty", WORD(SamplingRow, presence_penalty)},
                                      {"topK", WORD(SamplingRow, top_k)},
                                      {"minTokens", WORD(SamplingRow, min_tokens)},
                                      {"topLogprobs", WORD(SamplingRow, top_logprobs)},
                                      {"promptLogprobs", WORD(SamplingRow, prompt_logprobs)},
                                      {"sequenceIndex", WORD(SamplingRow, sequence_index)},
                                      {"words", sizeof(SamplingRow) / 4}}));
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
  out.Set("ROW_FLAG",
          table(env, {{"rawLogits", kRowRawLogits}, {"promptLogprobs", kRowPromptLogprobs}}));
  out.Set("SAMPLE", table(env, {{"row", WORD(PlanSample, row)},
                                {"slot", WORD(PlanSample, slot)},
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
                                {"headerWords", sizeof(ResultHeader) / 4}}));
  out.Set("RESULT_SAMPLE", table(env, {{"slot", WORD(ResultSample, slot)},
                                       {"token", WORD(ResultSample, token)},
                                       {"logprob", WORD(ResultSample, logprob)},
                                       {"rank", WORD(ResultSample, rank)},
                                       {"topOffset", WORD(ResultSample, top_offset)},
                                       {"topCount", WORD(ResultSample, top_count)},
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
  // Followed by vocabSize floats, so that it is no struct.
  out.Set("RESULT_LOGITS", table(env, {{"slot", 0}, {"position", 1}, {"logits", 2}}));
  return out;
}

#undef WORD

}  // namespace inferd
