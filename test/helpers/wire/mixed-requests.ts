/**
 * Requests whose parameters are drawn from a number: no two kinds of parameter always come together. Used where answers are compared with
 * each other, streamed with whole ones, and those of one version with those of another.
 */

const prompts = [
  'What is 12 + 30?',
  'Tell me a story about a fox.',
  'Repeat these words: red, green, blue, 日本語, 漢字',
  'Say it with an emoji: 🙂🚀 sun',
  'Write the word hello in capitals: größe straße',
  'Count from 1 to 20.',
  'Name a person as JSON.',
  '你好，世界！ 다시 한번 👩‍👩‍👧‍👦',
  'Who are you?',
  'Reverse the word lantern.',
] as const;

export interface MixedRequest {
  readonly method: string;
  readonly params: Record<string, unknown>;
  readonly numChoices: number;
}

export function mixedRequest(index: number): MixedRequest {
  const pick = <T>(every: number, value: T): T | undefined => (index % every === every - 1 ? value : undefined);
  const prompt = prompts[index % prompts.length] ?? '';
  const n = pick(7, 2) ?? 1;
  const chat = index % 3 !== 0;
  const all = {
    ...(chat ? { messages: [{ role: 'user', content: prompt }] } : { prompt }),
    seed: index,
    max_tokens: 1 + ((index * 5) % 24),
    temperature: n > 1 ? 1 : [0, 0.6, 1, 1.6][index % 4],
    top_p: pick(3, 0.8),
    top_k: pick(5, 20),
    min_p: pick(8, 0.05),
    typical_p: pick(13, 0.9),
    repetition_penalty: pick(6, 1.2),
    frequency_penalty: pick(9, 0.5),
    presence_penalty: pick(10, -0.5),
    min_tokens: pick(4, 1),
    stop: pick(4, ['.', 'the', '日']),
    include_stop_str_in_output: pick(8, true),
    ignore_eos: pick(5, true),
    skip_special_tokens: pick(10, false),
    logit_bias: pick(11, { 220: 2, 15: -100 }),
    n: n === 1 ? undefined : n,
    logprobs: chat ? pick(9, true) : pick(9, 2),
    echo: chat ? undefined : pick(12, true),
    return_token_ids: true,
  };
  const params = Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined));
  return { method: chat ? 'chat.completions.create' : 'completions.create', params, numChoices: n };
}

/** Runs `run` for 0 .. count-1 with a bounded number at a time. */
export async function pooled(count: number, run: (index: number) => Promise<void>, inFlight = 25): Promise<void> {
  let next = 0;
  const worker = async () => {
    while (next < count) await run(next++);
  };
  await Promise.all(Array.from({ length: inFlight }, worker));
}
