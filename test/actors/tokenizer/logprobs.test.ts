/** Log-probabilities in the tokenizer actor: of tokens, of prompts and of sequences that are ranked, and what their ids stand for. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bytesOf } from '../../../actors/messages/codec.js';
import { FINISH } from '../../../actors/messages/requests.js';
import { SAMPLING_ROW } from '../../../actors/messages/sampling.js';
import { readRecords, recordsOf } from '../../helpers/engine/logprobs.js';
import { EOT, idsOf, start } from './demo.js';
import { id, int32, logprob, withRecords } from './harness.js';

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
