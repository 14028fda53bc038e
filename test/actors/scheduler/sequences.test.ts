/** The life of sequences: preemption, forks, prefix reuse, aborts, pauses, restarts, notices. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { FINISH } from '../../../actors/messages/requests.js';
import { type Ask, expected, Rig } from './rig.js';

const tokens = (count: number, first = 0): number[] => Array.from({ length: count }, (_, i) => (first + i) % 40);
const long = (prompt: number[], maxTokens = 20): Ask => ({ prompt, maxTokens, ignoreEos: true });

test('when blocks run out the youngest gives way, keeps its tokens and resumes first', () => {
  const rig = new Rig({ numBlocks: 8, enablePrefixCaching: false });
  rig.admit(long(tokens(8), 16));
  rig.admit(long(tokens(7, 5), 12));
  rig.admit(long(tokens(4, 9), 2));
  rig.run();
  for (let id = 1; id <= 3; id++) rig.assertAnswered(id);
  assert.ok(rig.scheduler.stats().requests.preempted_total > 0);
  const order = rig.plans.flatMap((p) => p.newSlots).map((s) => s.tokens[0]);
  assert.equal(order[0], 0, 'the oldest is admitted once');
  assert.equal(order.filter((t) => t === 0).length, 1);
  const resumed = rig.plans.flatMap((p) => p.newSlots).filter((s) => s.tokens[0] === 5);
  assert.ok((resumed.at(-1)?.tokens.length ?? 0) > 7, 'generated tokens come along');
  rig.assertIdle();
});

test('under the priority policy the victim is the least important, even if it is older', () => {
  const rig = new Rig({ numBlocks: 8, policy: 'priority', enablePrefixCaching: false });
  rig.admit({ ...long(tokens(7, 5), 12), priority: 9 });
  rig.schedule();
  rig.admit({ ...long(tokens(8), 16), priority: 0 });
  rig.run();
  const first = rig.plans.flatMap((p) => p.newSlots).filter((s) => s.tokens[0] === 0);
  assert.equal(first.length, 1, 'the important one is never preempted');
  rig.assertAnswered(1);
  rig.assertAnswered(2);
});

test('a sequence that is itself the youngest gives way to itself', () => {
  const rig = new Rig({ numBlocks: 6, enablePrefixCaching: false, maxStepsInFlight: 1 });
  const old = rig.admit(long(tokens(12), 5));
  rig.admit(long(tokens(7, 5), 16));
  rig.schedule();
  rig.update();
  rig.scheduler.setPaused(old, true);
  for (let i = 0; i < 20; i++) {
    rig.schedule();
    rig.update();
    rig.scheduler.checkIntegrity();
  }
  assert.equal(rig.scheduler.stats().requests.preempted_total, 1);
  assert.equal(rig.scheduler.stats().requests.running, 1, 'the paused older one keeps its blocks');
  rig.scheduler.setPaused(old, false);
  rig.run();
  rig.assertAnswered(1);
  rig.assertAnswered(2);
});

test('a preempted sequence finds its own blocks in the prefix cache', () => {
  const rig = new Rig({ numBlocks: 10 });
  rig.admit(long(tokens(8), 20));
  rig.admit(long(tokens(16, 5), 12));
  rig.run();
  rig.assertAnswered(1);
  rig.assertAnswered(2);
  const resumed = rig.plans.filter((p) => p.newSlots.some((s) => s.tokens[0] === 5)).slice(1);
  assert.ok(resumed.length > 0);
  for (const plan of resumed) {
    const slot = plan.newSlots.find((s) => s.tokens[0] === 5)?.slot;
    assert.ok((plan.rows.find((r) => r.slot === slot)?.start ?? 0) > 0);
  }
});

test('a second request with the same beginning reuses its full blocks, generated ones too', () => {
  const rig = new Rig();
  rig.admit(long(tokens(10), 7));
  rig.run();
  const turn = [...tokens(10), ...rig.told(1).tokens];
  const second = rig.admit(long([...turn, 1, 2]));
  const third = rig.admit(long(tokens(8)));
  const plan = rig.schedule();
  assert.deepEqual(
    plan?.rows.map((r) => r.start),
    [16, 4],
    '16 of 17 computed tokens are in full blocks; of a whole prompt the last block is computed again',
  );
  rig.run();
  rig.assertAnswered(second);
  rig.assertAnswered(third);
  assert.equal(rig.entry(second).started[0]?.cachedTokens, 16);
  assert.equal(rig.scheduler.stats().tokens.prefix_hit_total, 20);
});

test('blocks are published only once their step has retired', () => {
  const rig = new Rig();
  rig.admit(long(tokens(12)));
  rig.schedule();
  rig.admit(long(tokens(12)));
  assert.equal(rig.schedule()?.rows.at(-1)?.start, 0, 'still in flight');
  rig.update();
  rig.admit(long(tokens(12)));
  assert.equal(rig.schedule()?.rows.at(-1)?.start, 8);
  rig.run();
  for (let id = 1; id <= 3; id++) rig.assertAnswered(id);
});

test('prompt logprobs are told once for every position and take no prefix hits', () => {
  const rig = new Rig({ maxBatchTokens: 5 });
  rig.admit(long(tokens(12), 2));
  rig.run();
  const id = rig.admit({ prompt: tokens(12), maxTokens: 3, promptLogprobs: 1 });
  rig.run();
  rig.assertAnswered(id);
  assert.deepEqual(
    rig.entry(id).promptPositions,
    Array.from({ length: 11 }, (_, i) => i + 1),
  );
  assert.equal(rig.entry(id).started[0]?.cachedTokens, 0);
});

test('best_of sequences share the prompt, fork at its last chunk and copy the last block when they write', () => {
  const rig = new Rig({ maxBatchTokens: 8, enablePrefixCaching: false });
  rig.admit({ prompt: tokens(14), maxTokens: 6, bestOf: 3, ignoreEos: true });
  assert.equal(rig.schedule()?.newSlots.length, 1);
  const last = rig.schedule();
  assert.deepEqual(
    last?.newSlots.map((s) => s.forkOf),
    [0, 0],
  );
  assert.equal(last?.rows.length, 1);
  assert.equal(last?.samples.length, 3);
  assert.equal(rig.scheduler.stats().kv.used_blocks, 4);
  rig.update();
  assert.equal(rig.schedule()?.copies.length, 2, 'the last holder writes in place');
  assert.equal(rig.scheduler.stats().kv.used_blocks, 6);
  rig.run();
  rig.assertAnswered(1);
  assert.equal(new Set([0, 1, 2].map((i) => rig.told(1, i).tokens.join())).size, 3, 'each has random numbers of its own');
  rig.assertIdle();
});

test('a fork at a block boundary copies nothing', () => {
  const rig = new Rig({ enablePrefixCaching: false });
  rig.admit({ prompt: tokens(8), maxTokens: 6, bestOf: 3, ignoreEos: true });
  rig.run();
  rig.assertAnswered(1);
  assert.ok(rig.plans.every((p) => p.copies.length === 0));
});

test('the siblings of a leader have their slots reserved while its prompt is in chunks', () => {
  const rig = new Rig({ maxSlots: 3, maxBatchTokens: 8 });
  rig.admit({ prompt: tokens(20), maxTokens: 3, bestOf: 3 });
  rig.schedule();
  rig.admit({ prompt: [9] });
  assert.equal(rig.schedule()?.newSlots.length, 0);
  rig.run();
  rig.assertAnswered(1);
  rig.assertAnswered(2);
});

test('sums of logprobs come with best_of, logprob columns only when asked for', () => {
  const rig = new Rig();
  rig.admit({ prompt: tokens(5), bestOf: 2 });
  rig.admit({ prompt: tokens(5), topLogprobs: 2 });
  rig.admit({ prompt: tokens(5) });
  rig.run();
  for (let id = 1; id <= 3; id++) rig.assertAnswered(id);
  assert.ok(rig.told(1).logprobs.every((l) => l === null));
  assert.ok(rig.told(2).logprobs.every((l) => l?.top.length === 2));
  assert.deepEqual(
    rig.told(2).logprobs.map((l) => l?.token),
    rig.told(2).tokens,
  );
  assert.ok(rig.told(3).logprobs.every((l) => l === null));
});

test('an abort frees everything within the call, in every state', () => {
  const states: readonly ((rig: Rig) => void)[] = [
    () => {},
    (rig) => void rig.schedule(),
    (rig) => {
      rig.schedule();
      rig.schedule();
    },
    (rig) => {
      rig.schedule();
      rig.schedule();
      rig.update();
    },
    (rig) => rig.run(),
  ];
  for (const reach of states) {
    const rig = new Rig({ maxBatchTokens: 8 });
    const id = rig.admit({ ...long(tokens(14)), bestOf: 2 });
    reach(rig);
    rig.abort(id);
    const { kv, requests } = rig.scheduler.stats();
    assert.deepEqual([kv.used_blocks, requests.running, requests.waiting], [0, 0, 0]);
    rig.scheduler.checkIntegrity();
    rig.abort(id); // again: ignored
    const next = rig.admit(long(tokens(14, 20)));
    rig.run();
    rig.assertAnswered(next);
    rig.assertIdle();
  }
});

test('a matched stop string ends one sequence and leaves its siblings', () => {
  const rig = new Rig();
  const id = rig.admit({ prompt: tokens(6), bestOf: 2, maxTokens: 12, ignoreEos: true });
  for (let i = 0; i < 3; i++) {
    rig.schedule();
    rig.update();
  }
  rig.scheduler.stopped(id, 1, rig.now);
  const before = rig.told(id, 1).tokens.length;
  rig.run();
  assert.equal(rig.told(id, 1).tokens.length, before);
  assert.deepEqual(rig.told(id, 0).tokens, expected(rig.entry(id).ask, 0).tokens);
  assert.equal(rig.scheduler.stats().requests.finished_total, 1);
  rig.scheduler.stopped(id, 0, rig.now); // over: ignored
  rig.assertIdle();
});

test('a paused request keeps slot and blocks, runs no row, and goes on where it was', () => {
  const rig = new Rig();
  const id = rig.admit(long(tokens(6)));
  rig.schedule();
  rig.update();
  assert.equal(rig.scheduler.setPaused(id, true), true);
  assert.equal(rig.schedule(), null);
  assert.equal(rig.scheduler.stats().kv.used_blocks, 2);
  rig.scheduler.setPaused(id, false);
  rig.run();
  rig.assertAnswered(id);
  assert.equal(rig.scheduler.setPaused(id, true), false, 'unknown by now');
});

test('a paused request at the head of the queue lets the others pass', () => {
  const rig = new Rig();
  const paused = rig.admit(long(tokens(6)));
  rig.scheduler.setPaused(paused, true);
  const other = rig.admit(long(tokens(5)));
  rig.run();
  rig.assertAnswered(other);
  rig.scheduler.setPaused(paused, false);
  rig.run();
  rig.assertAnswered(paused);
});

test('the requests of a dead tokenizer end silently, those of the others go on', () => {
  const rig = new Rig();
  const dead = rig.admit({ ...long(tokens(6)), owner: 1 });
  const alive = rig.admit({ ...long(tokens(6, 3)), owner: 0 });
  rig.schedule();
  rig.schedule();
  rig.scheduler.dropOwner(1);
  rig.run();
  assert.equal(rig.told(dead).tokens.length, 0);
  rig.assertAnswered(alive);
  assert.equal(rig.scheduler.stats().requests.aborted_total, 1);
  rig.assertIdle();
});

test('after a restart every sequence goes on from its generated tokens, finished ones are left alone', () => {
  const asks = fc.record({
    length: fc.integer({ min: 1, max: 20 }),
    bestOf: fc.integer({ min: 1, max: 3 }),
    seed: fc.nat(9),
    steps: fc.integer({ min: 0, max: 12 }),
    promptLogprobs: fc.constantFrom(-1, 0),
    enablePrefixCaching: fc.boolean(),
  });
  fc.assert(
    fc.property(fc.array(asks, { minLength: 1, maxLength: 4 }), (batch) => {
      const options = { numBlocks: 40, maxSlots: 4, maxBatchTokens: 7, enablePrefixCaching: batch[0]?.enablePrefixCaching ?? true };
      const before = new Rig(options);
      for (const { length, bestOf, seed, promptLogprobs } of batch) {
        before.admit({ prompt: tokens(length), bestOf, seed, maxTokens: 10, promptLogprobs });
      }
      for (let i = 0; i < (batch[0]?.steps ?? 0); i++) {
        before.schedule();
        if (i % 3 !== 0) before.update();
      }
      const after = new Rig({ ...options, epoch: 4 });
      for (const [id, { ask, sequences }] of before.entries) {
        const told = [...sequences.values()];
        if (told.every((t) => t.finish !== FINISH.none)) continue;
        const again = after.admit({
          ...ask,
          generated: told.map((t) => t.tokens),
          finished: told.map((t) => t.finish !== FINISH.none),
          cumulative: told.map((t) => t.cumulative ?? 0),
        });
        assert.ok(again <= id);
      }
      after.run();
      for (const id of after.entries.keys()) after.assertAnswered(id);
      after.assertIdle();
    }),
    { numRuns: 150 },
  );
});

test('waiting requests hear their place once, and then on change but not more often than every 250 ms', () => {
  const rig = new Rig({ maxSlots: 1, maxStepsInFlight: 1 });
  for (let i = 0; i < 3; i++) rig.admit(long([i, i + 1], 3));
  const queued = (): (readonly [number, number])[] =>
    rig.notices.splice(0).flatMap((n) => (n.kind === 'queued' ? [[n.id, n.position] as const] : []));
  rig.schedule();
  assert.deepEqual(queued(), [
    [2, 0],
    [3, 1],
  ]);
  for (let i = 0; i < 4; i++) {
    rig.update();
    rig.now += 1;
    rig.schedule();
  }
  assert.deepEqual(queued(), [], 'the second runs by now, but the news are too fresh');
  rig.now += 250;
  rig.update();
  rig.schedule();
  assert.deepEqual(queued(), [[3, 0]]);
});

test('a prompt of several chunks tells its progress, one of a single chunk does not', () => {
  const rig = new Rig({ maxBatchTokens: 8 });
  rig.admit(long(tokens(20), 2));
  rig.run();
  rig.admit(long(tokens(8, 30), 2));
  rig.run();
  assert.deepEqual(
    rig.notices.map((n) => (n.kind === 'prefill' ? [n.id, n.done, n.total] : [])),
    [
      [1, 8, 20],
      [1, 16, 20],
      [1, 20, 20],
    ],
  );
});

test('the first tokens of a request tell how long it waited', () => {
  const rig = new Rig();
  rig.admit({ prompt: tokens(4), arrivalMs: rig.now - 12 });
  rig.now += 30;
  rig.run();
  assert.deepEqual(rig.entry(1).started, [{ id: 1, queueMs: 43, cachedTokens: 0 }]);
});
