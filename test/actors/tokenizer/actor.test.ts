/**
 * A request in the tokenizer actor, between the front and the scheduler: taken, refused, aborted, admitted again; and what is told beside
 * its answer.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FINISH } from '../../../actors/messages/requests.js';
import { SAMPLING_ROW } from '../../../actors/messages/sampling.js';
import { EOT, idsOf, start, tokenizer } from './demo.js';
import { demoModel, Harness, id, int32, sampling } from './harness.js';

test('an accepted request is first told to the scheduler, which has to act, then to the front, with all that it asked for', async () => {
  const harness = await start();
  const admit = await harness.admit(1, {
    sampling: sampling({ temperature: 0.5, top_k: -1, min_tokens: 3 }),
    seedLo: 0xffffffff,
    seedHi: 7,
    topLogprobs: 5,
    promptLogprobs: 2,
    logitBias: [
      [10, 1.5],
      [20, -100],
    ],
    stopTokenIds: [30, 30, EOT],
    bestOf: 2,
    n: 2,
    priority: -3,
    maxTokens: 8,
  });
  assert.deepEqual(harness.order, ['scheduler admit', 'front encoded']);
  const ids = await idsOf('Hello');
  assert.deepEqual(harness.front[0], { k: 'encoded', id: 1, promptIds: admit.promptIds, maxTokens: 8 });
  assert.deepEqual(int32(admit.promptIds), ids);
  const row = int32(admit.samplingRow);
  assert.equal(row.length, SAMPLING_ROW.words);
  assert.deepEqual(
    [row[SAMPLING_ROW.seedLo], row[SAMPLING_ROW.seedHi], row[SAMPLING_ROW.topK], row[SAMPLING_ROW.minTokens]],
    [-1, 7, 0, 3],
  );
  assert.deepEqual([row[SAMPLING_ROW.topLogprobs], row[SAMPLING_ROW.promptLogprobs]], [5, 2]);
  const bias = int32(admit.bias);
  assert.deepEqual([bias[0], bias[2]], [10, 20]);
  assert.deepEqual([...new Float32Array(Int32Array.from([bias[1] ?? 0, bias[3] ?? 0]).buffer)], [1.5, -100]);
  assert.deepEqual(admit.stopTokenIds, [30], "ends of sequence are the scheduler's own");
  assert.deepEqual(admit.generated, [new Uint8Array(0), new Uint8Array(0)]);
  assert.deepEqual(admit.finished, [false, false]);
  assert.deepEqual([admit.bestOf, admit.priority, admit.maxTokens, admit.arrivalMs], [2, -3, 8, 1001]);
  assert.equal(harness.handlers.size(), 1);
});

test('requests that do not fit, or name unknown tokens, are refused with the numbers', async () => {
  const harness = await Harness.start(demoModel, { maxInputLength: 6, maxTotalTokens: 10, maxModelLen: 12 });
  const cases = [
    [
      { kind: 'ids', ids: [] },
      {},
      { kind: 'invalid_params', message: 'The prompt is empty', data: [{ path: 'prompt', message: 'The prompt has no tokens' }] },
    ],
    [{ kind: 'ids', ids: [1, 2, 3, 4, 5, 6, 7] }, { maxTokens: 1 }, { prompt_tokens: 7, max_tokens: 1, limit: 6 }],
    [{ kind: 'ids', ids: [1, 2, 3, 4] }, { maxTokens: 7 }, { prompt_tokens: 4, max_tokens: 7, limit: 10 }],
    [
      { kind: 'ids', ids: [1] },
      { logitBias: [[4096, 1]], stopTokenIds: [1, -1] },
      [
        { path: 'logit_bias', message: '4096 is not a token id of this model (0 .. 4095)' },
        { path: 'stop_token_ids', message: '-1 is not a token id of this model (0 .. 4095)' },
      ],
    ],
  ] as const;
  for (const [i, [prompt, values, expected]] of cases.entries()) {
    harness.submit(i, prompt, values);
    await harness.until(() => harness.failure(i) !== undefined);
    const failure = harness.failure(i);
    if ('kind' in expected) assert.deepEqual(failure, expected);
    else {
      assert.deepEqual(failure?.data, expected);
      assert.equal(failure?.kind, Array.isArray(expected) ? 'invalid_params' : 'context_length_exceeded');
    }
  }
  assert.deepEqual(harness.scheduler, []);
  assert.equal(harness.handlers.size(), 0);
});

test('without max_tokens the answer may fill the context; a prompt that leaves no room is refused', async () => {
  const harness = await Harness.start(demoModel, { maxInputLength: 20, maxTotalTokens: 20, maxModelLen: 12 });
  harness.submit(1, { kind: 'ids', ids: Array<number>(11).fill(5) }, { maxTokens: null });
  harness.submit(2, { kind: 'ids', ids: Array<number>(12).fill(5) }, { maxTokens: null });
  harness.submit(3, { kind: 'ids', ids: Array.from({ length: 50 }, (_, i) => i) }, { maxTokens: null, truncatePromptTokens: 3 });
  await harness.until(() => harness.failure(2) !== undefined && harness.scheduler.length === 2);
  assert.deepEqual(
    harness.scheduler.map((m) => (m.k === 'admit' ? [m.id, m.maxTokens, int32(m.promptIds).length] : m)),
    [
      [1, 1, 11],
      [3, 9, 3],
    ],
  );
  assert.deepEqual(int32(harness.scheduler[1]?.k === 'admit' ? harness.scheduler[1].promptIds : undefined), [47, 48, 49]);
  assert.deepEqual(harness.failure(2)?.data, { prompt_tokens: 12, max_tokens: 1, limit: 12 });
});

test('an abort while the prompt is being encoded leaves no trace; later it is passed on; unknown requests are ignored', async () => {
  const harness = await start();
  harness.submit(1, { kind: 'text', text: 'word '.repeat(2000), addSpecialTokens: false });
  harness.handlers.fromFront({ k: 'abort', ids: [id(1), id(99)] });
  assert.equal(harness.handlers.size(), 0);
  await harness.admit(2);
  await harness.encode({ kind: 'text', text: 'word '.repeat(3000), addSpecialTokens: false });
  assert.deepEqual(harness.order, ['scheduler admit', 'front encoded', 'front reply']);
  harness.handlers.fromFront({ k: 'abort', ids: [id(2), id(99)] });
  assert.deepEqual(harness.scheduler.at(-1), { k: 'abort', ids: [2] });
  const sent = harness.order.length;
  harness.step([
    [2, 10],
    [99, 10],
  ]);
  harness.handlers.fromScheduler({ k: 'refused', id: id(2), failure: { kind: 'overloaded' } }, harness.group);
  harness.handlers.fromFront({ k: 'abort', ids: [id(2)] });
  assert.equal(harness.order.length, sent, 'nothing is sent for a request that is over');
});

test('a prompt that is certain to be too long is refused with the tokens known so far, and is not encoded to its end', async () => {
  const harness = await start();
  const text = 'The story of the day. '.repeat(180_000);
  harness.submit(1, { kind: 'text', text, addSpecialTokens: true }, { maxTokens: 7 });
  await harness.until(() => harness.failure(1) !== undefined);
  const failure = harness.failure(1);
  assert.equal(failure?.kind, 'context_length_exceeded');
  const { prompt_tokens, ...rest } = failure.data as Record<string, number>; // what this failure tells
  assert.ok(prompt_tokens !== undefined && prompt_tokens > 4095);
  assert.deepEqual(rest, { max_tokens: 7, limit: 4095 });
  assert.match(failure.message ?? '', /^The prompt has more than \d+ tokens; at most 4095 are allowed$/);
});

test('a lone surrogate is one U+FFFD in a prompt, in its echo, in a message and in a stop string', async () => {
  const harness = await start();
  const encoded = await harness.encode({ kind: 'text', text: 'a\ud83d', addSpecialTokens: false });
  assert.deepEqual(encoded, await idsOf('a\ufffd'));
  const chat = (content: string) => harness.chat([{ role: 'user', content }]);
  assert.deepEqual(await chat('a\ude00'), await chat('a\ufffd'));
  await harness.admit(1, { echo: true, stop: ['b\ud83d'] }, 'a\ud83d');
  const told = harness.front.find((m) => m.k === 'encoded');
  assert.equal(told?.k === 'encoded' && told.promptText, 'a\ufffd');
  for (const token of await idsOf('ab\ufffdc')) harness.step([[1, token]]);
  assert.equal(harness.text(1), 'a');
});

test('a refusal of the scheduler ends the request with its reason', async () => {
  const harness = await start();
  await harness.admit(1);
  harness.handlers.fromScheduler({ k: 'refused', id: id(1), failure: { kind: 'overloaded', data: { position: 3 } } }, harness.group);
  assert.deepEqual(harness.failure(1), { kind: 'overloaded', data: { position: 3 } });
  assert.equal(harness.handlers.size(), 0);
});

test('after a restart of the engine a request goes on where it was, once', async () => {
  const harness = await start();
  const first = await harness.admit(1, { bestOf: 2, n: 2 });
  const tokens = await idsOf('alpha beta gamma');
  const [t0 = 0, t1 = 0, t2 = 0] = tokens;
  harness.step(
    [
      [1, t0],
      [1, t1, FINISH.length, 1],
    ],
    { started: [{ id: id(1), queueMs: 1, cachedTokens: 0 }] },
  );
  harness.step([[1, t1]]);
  harness.submit(2, { kind: 'text', text: 'word '.repeat(2000), addSpecialTokens: false });
  harness.restartEngine();
  const again = harness.scheduler.at(-1);
  assert.ok(again?.k === 'admit' && again.id === 1);
  assert.deepEqual(again.generated.map(int32), [[t0, t1], [t1]]);
  assert.deepEqual(again.finished, [false, true]);
  assert.deepEqual({ ...again, generated: 0, finished: 0 }, { ...first, generated: 0, finished: 0, again: true });
  harness.step([[1, t2, FINISH.length]], { started: [{ id: id(1), queueMs: 5, cachedTokens: 2 }] });
  assert.equal(harness.text(1), await tokenizer.decode([t0, t1, t2], true));
  assert.equal(harness.front.flatMap((m) => (m.k === 'deltas' ? (m.started ?? []) : [])).length, 1, 'the start is told once');

  // Request 2 was being encoded: it was not admitted before the restart, so it is admitted once, after it.
  await harness.until(() => harness.scheduler.some((m) => m.k === 'admit' && m.id === 2));
  assert.equal(harness.scheduler.filter((m) => m.k === 'admit' && m.id === 2).length, 1);
  harness.restartEngine();
  assert.equal(harness.failure(2), undefined);
  harness.restartEngine();
  assert.deepEqual(harness.failure(2), {
    kind: 'engine_failure',
    message: 'The engine failed twice during this request',
    data: { retriable: true },
  });
  assert.equal(harness.handlers.size(), 0);
});

test('echo returns the text of the prompt that was used', async () => {
  const harness = await start();
  const prompts = [
    [{ kind: 'text', text: 'Hello <|eot_id|> there', addSpecialTokens: true }, {}],
    [{ kind: 'text', text: 'Hello there', addSpecialTokens: false }, { truncatePromptTokens: 1 }],
    [{ kind: 'ids', ids: await idsOf('日本 x') }, {}],
  ] as const;
  for (const [i, [prompt, values]] of prompts.entries()) {
    harness.submit(i, prompt, { echo: true, ...values });
    await harness.until(() => harness.front.length > i);
  }
  const texts = harness.front.map((m) => (m.k === 'encoded' ? m.promptText : m));
  const [lastToken = 0] = (await idsOf('Hello there')).slice(-1);
  assert.deepEqual(texts, ['Hello <|eot_id|> there', await tokenizer.decode([lastToken], true), '日本 x']);
});

test('decode answers with the text, or with the id that names nothing', async () => {
  const harness = await start();
  assert.equal(await harness.decode([...(await idsOf('日本')), EOT]), '日本<|eot_id|>');
  assert.equal(await harness.decode([...(await idsOf('日本')), EOT], true), '日本');
  const reply = await harness.call({ k: 'decode', ids: [5000], skipSpecialTokens: true });
  assert.ok(!reply.ok && reply.failure.kind === 'invalid_params');
});

test('requests of one step share one message, and hidden steps send none', async () => {
  const harness = await start();
  await harness.admit(1);
  await harness.admit(2);
  const [x = 0] = await idsOf('x');
  const before = harness.front.length;
  harness.step([
    [1, x],
    [2, x],
  ]);
  harness.step([[1, EOT]]);
  assert.equal(harness.front.length, before + 1);
});
