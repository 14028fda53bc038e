/**
 * The tokenizer actor between the front and the scheduler, message by message. Long because it is one actor with one harness: what it
 * owes a request, from its first message to its last, is read in one place.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import fc from 'fast-check';
import { bytesOf } from '../../../actors/messages/codec.js';
import type { RequestId } from '../../../actors/messages/ids.js';
import { type Delta, FINISH } from '../../../actors/messages/requests.js';
import { SAMPLING_ROW } from '../../../actors/messages/sampling.js';
import { nowMs } from '../../../actors/runtime/clock.js';
import { TOKENIZER_COUNTER } from '../../../actors/runtime/counters.js';
import { readRecords, recordsOf } from '../../helpers/engine/logprobs.js';
import { demoModel, demoPath, Harness, id, int32, logprob, oracle, oracleIds, sampling, withRecords } from './harness.js';

const EOT = 4092;
const tokenizer = oracle(demoPath);

/** Ids of a text, the way a model would write it. */
function idsOf(text: string): Promise<number[]> {
  return oracleIds(tokenizer, text);
}

async function start(): Promise<Harness> {
  return Harness.start(demoModel);
}

/** Runs an answer through a fresh request, one token a step; stops when the sequence ended. */
async function answer(
  harness: Harness,
  n: number,
  tokens: readonly number[],
  values: Parameters<Harness['admit']>[1],
  last: number = FINISH.length,
): Promise<Delta[]> {
  await harness.admit(n, values);
  tokens.forEach((token, i) => {
    harness.step([[n, token, i === tokens.length - 1 ? last : FINISH.none]]);
  });
  return harness.deltas(n);
}

function outcome(deltas: readonly Delta[]) {
  const last = deltas.at(-1);
  return {
    text: deltas.map((d) => d.text).join(''),
    tokens: deltas.flatMap((d) => d.tokens),
    finish: last?.finish,
    stopReason: last?.stopReason,
  };
}

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

test('deltas joined equal the decoding of all tokens, in any batches, and account for every token', async () => {
  const harness = await start();
  let n = 0;
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.integer({ min: 0, max: 4087 }), { minLength: 1, maxLength: 20 }),
      fc.array(fc.integer({ min: 1, max: 3 }), { minLength: 20, maxLength: 20 }),
      async (tokens, sizes) => {
        const request = ++n;
        await harness.admit(request, {});
        for (let at = 0, s = 0; at < tokens.length; s++) {
          const batch = tokens.slice(at, at + (sizes[s] ?? 1));
          at += batch.length;
          harness.step(batch.map((t, i) => [request, t, at === tokens.length && i === batch.length - 1 ? FINISH.length : FINISH.none]));
        }
        const result = outcome(harness.deltas(request));
        assert.deepEqual(result, { text: await tokenizer.decode(tokens, true), tokens, finish: 'length', stopReason: undefined });
        const before = harness.deltas(request).slice(0, -1);
        assert.ok(before.every((d) => d.text !== '' && d.finish === undefined));
      },
    ),
    { numRuns: 200 },
  );
  assert.equal(harness.handlers.size(), 0);
});

test('the token that ends a sequence is hidden or shown as the request says', async () => {
  const harness = await start();
  const [a = 0, b = 0] = await idsOf('A!');
  const eos = [a, EOT];
  const stop = [a, b];
  const cases = [
    [eos, FINISH.eos, {}, 'A', undefined],
    [eos, FINISH.eos, { skipSpecialTokens: false }, 'A<|eot_id|>', undefined],
    [stop, FINISH.stopToken, { stopTokenIds: [b] }, 'A', b],
    [stop, FINISH.stopToken, { stopTokenIds: [b], includeStop: true }, 'A!', b],
    [eos, FINISH.stopToken, { stopTokenIds: [EOT], ignoreEos: true, includeStop: true, skipSpecialTokens: false }, 'A<|eot_id|>', EOT],
    [stop, FINISH.eos, {}, 'A', undefined],
  ] as const;
  for (const [i, [tokens, finish, values, text, stopReason]] of cases.entries()) {
    assert.deepEqual(outcome(await answer(harness, i + 1, tokens, values, finish)), {
      text,
      tokens: [...tokens],
      finish: 'stop',
      stopReason,
    });
  }
});

test('a stop string ends the sequence at the token that completes it, and later tokens are ignored', async () => {
  const harness = await start();
  const tokens = await idsOf('one two STOP three');
  const upTo = async (text: string): Promise<number> => {
    for (let i = 1; i <= tokens.length; i++) if ((await tokenizer.decode(tokens.slice(0, i), true)).includes(text)) return i;
    return -1;
  };
  for (const [i, includeStop] of [false, true].entries()) {
    const n = 10 + i;
    const result = outcome(await answer(harness, n, tokens, { stop: ['never', 'o ST'], includeStop }));
    assert.equal(result.text, includeStop ? 'one two ST' : 'one tw');
    assert.deepEqual([result.finish, result.stopReason], ['stop', 'o ST']);
    assert.deepEqual(result.tokens, tokens.slice(0, await upTo('o ST')));
    assert.deepEqual(
      harness.scheduler.filter((m) => m.k === 'stopped'),
      Array.from({ length: i + 1 }, (_, k) => ({ k: 'stopped', id: 10 + k, index: 0 })),
    );
  }
  // The scheduler ended it itself: it needs not hear of the match, which still names the reason.
  const exact = tokens.slice(0, await upTo('o ST'));
  assert.deepEqual(outcome(await answer(harness, 20, exact, { stop: ['o ST'] })).stopReason, 'o ST');
  assert.equal(harness.scheduler.filter((m) => m.k === 'stopped').length, 2);
  assert.equal(harness.handlers.size(), 0);
});

test('text that may become a stop string is held back, its tokens travel with the next text, and all is released at the end', async () => {
  const harness = await start();
  const tokens = await idsOf('ab###');
  await harness.admit(1, { stop: ['####'] });
  for (const token of tokens) harness.step([[1, token]]);
  assert.equal(harness.text(1), 'ab');
  const shown = harness.deltas(1).flatMap((d) => d.tokens).length;
  assert.ok(shown < tokens.length);
  harness.step([[1, EOT, FINISH.eos]]);
  assert.deepEqual(outcome(harness.deltas(1)), { text: 'ab###', tokens: [...tokens, EOT], finish: 'stop', stopReason: undefined });
});

test('stop strings are looked for only in text behind the first min_tokens tokens', async () => {
  const harness = await start();
  const end = await idsOf(' END');
  const tokens = [...end, ...end, ...end];
  const result = outcome(await answer(harness, 1, tokens, { stop: ['END'], sampling: sampling({ min_tokens: end.length }) }));
  assert.equal(result.text, ' END ');
  assert.deepEqual(result.tokens, tokens.slice(0, 2 * end.length));
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

test('short prompts overtake long ones, which are encoded one after the other, and not at all when they were aborted', async () => {
  const harness = await start();
  const long = { kind: 'text', text: 'one two three '.repeat(20_000), addSpecialTokens: false } as const;
  // Only a prompt that is cut may have more tokens than the model takes.
  for (const n of [1, 2, 3, 4, 5, 6]) harness.submit(n, long, { truncatePromptTokens: 10 });
  harness.handlers.fromFront({ k: 'abort', ids: [id(2), id(3), id(4), id(5)] });
  harness.submit(7, { kind: 'text', text: 'short', addSpecialTokens: false });
  const ended = () => harness.front.flatMap((m) => (m.k === 'encoded' || m.k === 'failed' ? [m.id] : []));
  await harness.until(() => ended().length === 3);
  assert.deepEqual(ended(), [7, 1, 6]);
});

const longText = { kind: 'text', text: 'one two three '.repeat(20_000), addSpecialTokens: false } as const;

test('calls that are dropped while they wait are let go at once and answered by nothing; only the text at hand goes on', async () => {
  const harness = await start();
  const calls = Array.from({ length: 20 }, () => harness.ask({ k: 'encode', prompt: longText }));
  calls.push(harness.ask({ k: 'decode', ids: new Array<number>(200_000).fill(300), skipSpecialTokens: false }));
  harness.handlers.fromFront({ k: 'abort', ids: calls });
  await nextTurn();
  await nextTurn();
  assert.equal(harness.letGo, 21, 'the first, too, had not begun');
  const at = harness.ask({ k: 'encode', prompt: longText });
  const waiting = Array.from({ length: 5 }, () => harness.ask({ k: 'encode', prompt: longText }));
  for (let i = 0; i < 20; i++) await nextTurn();
  harness.handlers.fromFront({ k: 'abort', ids: [at, ...waiting] });
  await nextTurn();
  assert.ok(harness.letGo >= 26, 'all but the one that is being encoded');
  assert.ok((await harness.encode(longText)).length > 0);
  assert.equal(harness.letGo, 28);
  assert.deepEqual(harness.order, ['front reply']);
});

test('a long decode that is dropped ends with its slice', async () => {
  const harness = await start();
  const call = harness.ask({ k: 'decode', ids: new Array<number>(500_000).fill(300), skipSpecialTokens: false });
  for (let i = 0; i < 3; i++) await nextTurn();
  harness.handlers.fromFront({ k: 'abort', ids: [call] });
  await nextTurn();
  await nextTurn();
  assert.equal(harness.letGo, 1);
  assert.deepEqual(harness.order, []);
});

test('a request is let go of when it is encoded, has failed, or was aborted, once', async () => {
  const harness = await start();
  await harness.admit(1);
  harness.submit(2, { kind: 'ids', ids: [-1] });
  harness.submit(3, longText);
  harness.submit(4, longText);
  harness.handlers.fromFront({ k: 'abort', ids: [id(4), id(1)] });
  await harness.until(() => harness.failure(3) !== undefined);
  await nextTurn();
  assert.equal(harness.letGo, 4);
});

test('clients take turns at long texts, and texts of a length wait for no much longer one', async () => {
  const harness = await start();
  const huge = { kind: 'text', text: 'one two three '.repeat(60_000), addSpecialTokens: false } as const;
  const middle = { kind: 'text', text: 'one two three '.repeat(4000), addSpecialTokens: false } as const;
  const asked: RequestId[] = [];
  for (const client of [1, 1, 1, 2]) asked.push(harness.ask({ k: 'encode', prompt: huge }, client));
  for (const client of [1, 1, 3]) asked.push(harness.ask({ k: 'encode', prompt: middle }, client));
  // Which of the askers, counted from 1; calls are numbered with the requests.
  const ended = () => harness.front.flatMap((m) => (m.k === 'reply' ? [asked.indexOf(m.call as RequestId) + 1] : []));
  await harness.until(() => ended().length === 7);
  assert.deepEqual(
    ended().filter((n) => n < 5),
    [1, 4, 2, 3],
  );
  assert.deepEqual(
    ended().filter((n) => n >= 5),
    [7, 5, 6],
  );
  assert.ok(ended().indexOf(6) < ended().indexOf(2));
});

test('while the library encodes, the watch sees since when', async () => {
  const harness = await start();
  const since = () => harness.counters[TOKENIZER_COUNTER.busySinceMs] ?? -1;
  const before = nowMs();
  const call = harness.ask({ k: 'encode', prompt: longText });
  for (let i = 0; i < 5; i++) await nextTurn();
  const began = since();
  assert.ok(began >= before && began <= nowMs());
  harness.handlers.fromFront({ k: 'abort', ids: [call] });
  assert.equal(since(), began, 'an abort does not end what has begun');
  await harness.encode({ kind: 'text', text: 'short', addSpecialTokens: false });
  await harness.encode(longText);
  await nextTurn();
  assert.equal(since(), 0);
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

test('logprobs are told with what their ids stand for, each id once, aligned with the tokens of the delta', async () => {
  const harness = await start();
  const emoji = await idsOf('😀');
  const [x = 0] = await idsOf('x');
  assert.ok(emoji.length > 1);
  await harness.admit(1, { topLogprobs: 1, promptLogprobs: 0 });
  harness.step([], { prompt: [{ id: id(1), first: 1, logprobs: bytesOf(recordsOf([logprob(x, -2)])) }] });
  for (const token of [...emoji, EOT]) {
    harness.step([[1, token, token === EOT ? FINISH.eos : FINISH.none]], withRecords([logprob(token, -0.5, [[x, -0.25]])]));
  }
  const messages = harness.front.filter((m) => m.k === 'deltas');
  assert.deepEqual(
    messages.flatMap((m) => m.prompt ?? []).map(({ logprobs, ...rest }) => ({ ...rest, logprobs: readRecords(logprobs) })),
    [{ id: 1, first: 1, logprobs: [logprob(x, -2)] }],
  );
  const deltas = harness.deltas(1);
  assert.deepEqual(
    deltas.map((d) => d.text),
    ['😀', ''],
  );
  for (const delta of deltas)
    assert.deepEqual(
      readRecords(delta.logprobs ?? new Uint8Array()),
      delta.tokens.map((token) => logprob(token, -0.5, [[x, -0.25]])),
    );
  const names = messages.flatMap((m) => m.names ?? []).flatMap(({ ids, texts }) => ids.map((token, i) => [token, texts[i]] as const));
  assert.deepEqual(names.map(([token]) => token).toSorted(), [...new Set([x, ...emoji, EOT])].toSorted(), 'each id once');
  const known = new Map(names);
  assert.deepEqual([known.get(x), known.get(EOT)], ['x', '<|eot_id|>']);
  const bytes = emoji.map((token) => known.get(token) ?? '');
  assert.deepEqual(
    Buffer.concat(bytes.map((one) => Buffer.from(one as Uint8Array))),
    Buffer.from('😀'),
    'bytes that are no text by themselves',
  );
  assert.equal(deltas.at(-1)?.cumulative, -0.5 * (emoji.length + 1));

  await harness.admit(2, { topLogprobs: 0 });
  harness.step([[2, x, FINISH.length]], withRecords([logprob(x, -1)]));
  const last = harness.front.findLast((m) => m.k === 'deltas');
  assert.equal(last?.names, undefined, 'x was told before');
});

test('of a step only the tokens of requests that asked have log-probabilities', async () => {
  const harness = await start();
  const [x = 0, y = 0] = await Promise.all([idsOf('x'), idsOf('y')]).then((both) => both.map((ids) => ids[0] ?? 0));
  await harness.admit(1);
  await harness.admit(2, { topLogprobs: 0 });
  const { logprobs } = withRecords([logprob(y, -1)]);
  assert.ok(logprobs);
  harness.step(
    [
      [1, x],
      [2, y],
      [1, x],
    ],
    { logprobs, logprobWords: [0, logprobs.length / 4, 0] },
  );
  assert.deepEqual(
    harness.deltas(1).map((d) => d.logprobs),
    [undefined],
  );
  assert.deepEqual(
    harness.deltas(2).map((d) => readRecords(d.logprobs ?? new Uint8Array())),
    [[logprob(y, -1)]],
  );
});

test('prompt logprobs that come again after a restart are not repeated', async () => {
  const harness = await start();
  await harness.admit(1, { promptLogprobs: 1 });
  const at = (position: number) => logprob(5, -position, position % 2 === 0 ? [[6, -1]] : []);
  const prompt = (first: number, last: number) => {
    const entries = Array.from({ length: last - first + 1 }, (_, i) => at(first + i));
    return { prompt: [{ id: id(1), first, logprobs: bytesOf(recordsOf(entries)) }] };
  };
  harness.step([], prompt(1, 3));
  harness.restartEngine();
  harness.step([], prompt(1, 2));
  harness.step([], prompt(3, 4));
  const sent = harness.front.flatMap((m) => (m.k === 'deltas' ? (m.prompt ?? []) : []));
  assert.deepEqual(
    sent.map(({ first, logprobs }) => [first, readRecords(logprobs)]),
    [
      [1, [1, 2, 3].map(at)],
      [4, [at(4)]],
    ],
  );
});

test('sequences that are ranked report the sum of the scheduler up to their end, also after a restart', async () => {
  const harness = await start();
  const tokens = await idsOf('one two three');
  const admit = await harness.admit(1, { bestOf: 2, n: 1, stop: ['two'] });
  assert.deepEqual([admit.cumulative, int32(admit.samplingRow)[SAMPLING_ROW.topLogprobs]], [[0, 0], -1]);
  harness.step([[1, tokens[0] ?? 0]], { cumulative: [-1] });
  harness.restartEngine();
  const again = harness.scheduler.at(-1);
  assert.deepEqual(again?.k === 'admit' && again.cumulative, [-1, 0]);
  tokens.slice(1).forEach((token, i) => {
    harness.step([[1, token]], { cumulative: [-2 - i] });
  });
  const last = harness.deltas(1).at(-1);
  assert.equal(last?.stopReason, 'two');
  assert.equal(last?.logprobs, undefined);
  assert.equal(last?.cumulative, -harness.deltas(1).flatMap((d) => d.tokens).length);
  harness.step([[1, 10, FINISH.length, 1]], { cumulative: [-9] });
  assert.equal(harness.deltas(1, 1).at(-1)?.cumulative, -9);
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

test('the tokens of others go between the slices of a long decode, whose text is that of all ids', async () => {
  const harness = await Harness.start(demoModel);
  await harness.admit(1);
  const [token = 0] = await harness.encode({ kind: 'text', text: 'x', addSpecialTokens: false });
  const ids = await harness.encode({ kind: 'text', text: '日本 x'.repeat(10_000), addSpecialTokens: false });
  harness.order.length = 0;
  const decoded = harness.decode(ids);
  setImmediate(() => harness.step([[1, token]]));
  assert.equal(await decoded, '日本 x'.repeat(10_000));
  assert.deepEqual(harness.order, ['front deltas', 'front reply']);
});

test('of short prompts that come together one is encoded a turn of the event loop: the tokens of others go between', async () => {
  const harness = await Harness.start(demoModel);
  await harness.admit(1);
  const [token = 0] = await harness.encode({ kind: 'text', text: 'x', addSpecialTokens: false });
  harness.order.length = 0;
  for (let n = 2; n <= 9; n++) harness.submit(n, { kind: 'text', text: 'Hello', addSpecialTokens: false });
  setImmediate(() => harness.step([[1, token]]));
  await harness.until(() => harness.scheduler.length === 9);
  const at = harness.order.indexOf('front deltas');
  assert.ok(at >= 0 && at < harness.order.lastIndexOf('scheduler admit'), harness.order.join(', '));
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
