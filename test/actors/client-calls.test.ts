import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Calls } from '../../actors/client-calls.js';
import { Cancellation } from '../../actors/runtime/cancellation.js';

function open() {
  const calls = new Calls();
  const sent: number[] = [];
  const left: number[] = [];
  const ask = (deadlineMs: number, cancellation?: Cancellation) =>
    calls.ask(
      'actor',
      deadlineMs,
      (call) => sent.push(call),
      (call) => ({ cancellation, onLeft: () => left.push(call) }),
    );
  return { calls, sent, left, ask };
}

test('a question whose deadline passes ends, and whoever works on it is told', async () => {
  const { calls, sent, left, ask } = open();
  await assert.rejects(ask(1), {
    failure: { kind: 'engine_failure', message: 'The actor did not answer within 0.001 s', data: { retriable: true } },
  });
  assert.deepEqual(left, sent);
  calls.answer({ k: 'reply', call: sent[0] ?? 0, ok: true, value: 'late' });
  assert.deepEqual(left, sent, 'once');
});

test('a question that is cancelled ends at once, and whoever works on it is told; one cancelled before is not sent', async () => {
  const { sent, left, ask } = open();
  const cancellation = new Cancellation();
  const asked = ask(60_000, cancellation);
  cancellation.cancel();
  assert.deepEqual([sent, left], [[1], [1]]);
  await assert.rejects(asked, { failure: { kind: 'cancelled', message: 'Request cancelled' } });
  await assert.rejects(ask(60_000, cancellation), { failure: { kind: 'cancelled', message: 'Request cancelled' } });
  assert.deepEqual([sent, left], [[1], [1]]);
});

test('a question that was answered, or whose actor died, is not left any more', async () => {
  const { calls, left, ask } = open();
  const cancellation = new Cancellation();
  const answered = ask(60_000, cancellation);
  const failed = ask(60_000, cancellation);
  calls.answer({ k: 'reply', call: 1, ok: true, value: 'answer' });
  calls.fail('actor', { kind: 'engine_failure' });
  assert.equal(await answered, 'answer');
  await assert.rejects(failed, { failure: { kind: 'engine_failure', message: 'The engine failed' } });
  cancellation.cancel();
  assert.deepEqual(left, []);
});
