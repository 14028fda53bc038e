/** What the tokenizer actor tells of an answer: its text and tokens, what ends it, and what is held back until then. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { type Delta, FINISH } from '../../../actors/messages/requests.js';
import { EOT, idsOf, start, tokenizer } from './demo.js';
import { type Harness, sampling } from './harness.js';

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
