/** What clients ask of a prompt itself: its ids and log-probabilities, in events too, and prompts that fill the whole context. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { startTestDaemon, type TestDaemon } from '../../helpers/daemon/daemon.js';

interface Told {
  readonly prompt_token_ids?: readonly number[];
  readonly prompt_logprobs?: readonly (Readonly<Record<string, object>> | null)[];
}
interface Answer extends Told {
  readonly choices: readonly (Told & {
    readonly index: number;
    readonly finish_reason: string | null;
    readonly text?: string;
    readonly logprobs?: { readonly token_logprobs: readonly (number | null)[] } | null;
  })[];
  readonly error?: { readonly code: string; readonly message: string };
  readonly usage?: { readonly prompt_tokens: number; readonly completion_tokens: number };
}

let at: TestDaemon;
/** Two blocks and a half, and exactly three. */
const contexts = [40, 48];
const daemons = new Map<number, TestDaemon>();
before(async () => {
  at = await startTestDaemon(['scheduler.max_num_batched_tokens=128']);
  for (const context of contexts) {
    const sets = [
      `scheduler.max_model_len=${context}`,
      'cache.num_gpu_blocks_override=4',
      'scheduler.max_num_batched_tokens=16',
      'scheduler.max_num_sequences=4',
    ];
    daemons.set(context, await startTestDaemon(sets));
  }
});
after(async () => {
  await at.close();
  for (const daemon of daemons.values()) await daemon.close();
});

const post = (http: string, path: string, body: object): Promise<Response> =>
  fetch(`${http}${path}`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) });

async function stream(path: string, body: object): Promise<Answer[]> {
  const text = await (await post(at.http, path, { ...body, stream: true })).text();
  const events = text.split('\n\n');
  assert.deepEqual(events.splice(-2), ['data: [DONE]', '']);
  return events.map((event) => JSON.parse(event.replace(/^data: /, '')) as Answer);
}

/** What chunks told, joined. */
const joined = (parts: readonly Told[]): Told => ({
  prompt_token_ids: parts.flatMap((part) => part.prompt_token_ids ?? []),
  prompt_logprobs: parts.flatMap((part) => part.prompt_logprobs ?? []),
});
const told = ({ prompt_token_ids = [], prompt_logprobs = [] }: Told): Told => ({ prompt_token_ids, prompt_logprobs });

test('events of completions tell each choice of its prompt as the whole answer does, before its first token', async () => {
  const ids = Array.from({ length: 300 }, (_, i) => 50 + (i % 90));
  const body = { prompt: [ids, ids.slice(0, 3)], n: 2, max_tokens: 2, seed: 1, return_token_ids: true, prompt_logprobs: 2 };
  const whole = (await (await post(at.http, '/v1/completions', body)).json()) as Answer;
  const chunks = await stream('/v1/completions', body);
  assert.equal(whole.choices.length, 4);
  for (const choice of whole.choices) {
    const own = chunks.flatMap(({ choices }) => choices.filter(({ index }) => index === choice.index));
    assert.deepEqual(joined(own), told(choice));
    assert.ok(own.findIndex((c) => c.prompt_token_ids !== undefined) === 0);
    assert.ok(
      own.every((c) => (c.prompt_logprobs?.length ?? 0) <= 192),
      'in parts',
    );
  }
});

test('events of a chat tell of the prompt beside the choices, once', async () => {
  const body = {
    messages: [{ role: 'user', content: 'Who are you?' }],
    n: 2,
    max_tokens: 3,
    seed: 1,
    return_token_ids: true,
    prompt_logprobs: 1,
  };
  const whole = (await (await post(at.http, '/v1/chat/completions', body)).json()) as Answer;
  const chunks = await stream('/v1/chat/completions', body);
  assert.ok((whole.prompt_token_ids?.length ?? 0) > 5);
  assert.deepEqual(joined(chunks), told(whole));
  assert.equal(chunks.filter((chunk) => chunk.prompt_token_ids !== undefined).length, 1);
  assert.ok(chunks[0]?.prompt_token_ids !== undefined);
  const plain = await stream('/v1/chat/completions', { ...body, return_token_ids: false, prompt_logprobs: null });
  assert.ok(plain.every((chunk) => !('prompt_token_ids' in chunk) && !('prompt_logprobs' in chunk)));
});

for (const context of contexts) {
  test(`a prompt of all ${context} tokens of the context is computed, where no token shall follow`, async () => {
    const daemon = daemons.get(context) as TestDaemon; // proof: before()
    const ask = async (length: number, more: object): Promise<{ status: number; answer: Answer }> => {
      const prompt = Array.from({ length }, (_, i) => 50 + (i % 90));
      const response = await post(daemon.http, '/v1/completions', { prompt, ...more });
      return { status: response.status, answer: (await response.json()) as Answer };
    };
    const only = { max_tokens: 0, echo: true, logprobs: 1 };
    const { status, answer } = await ask(context, only);
    assert.equal(status, 200, answer.error?.message);
    const logprobs = answer.choices[0]?.logprobs?.token_logprobs ?? [];
    assert.equal(logprobs.length, context);
    assert.deepEqual(
      [answer.usage?.prompt_tokens, answer.usage?.completion_tokens, answer.choices[0]?.finish_reason],
      [context, 0, 'length'],
    );
    const shorter = await ask(context - 1, only);
    assert.deepEqual(logprobs.slice(0, -1), shorter.answer.choices[0]?.logprobs?.token_logprobs);
    assert.equal((await ask(context, { max_tokens: 0, prompt_logprobs: 3, n: 2 })).answer.choices[1]?.prompt_logprobs?.length, context);
    for (const [length, max] of [
      [context + 1, 0],
      [context, 1],
    ] as const) {
      const refused = await ask(length, { max_tokens: max, echo: true });
      assert.deepEqual([refused.status, refused.answer.error?.code], [400, 'context_length_exceeded']);
    }
    assert.equal((await ask(context - 1, { max_tokens: 1 })).status, 200);
    await daemon.untilFreed();
  });
}
