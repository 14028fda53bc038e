/** The rules of a step, one test each: budget, order, chunks, modes, limits, delay. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FINISH } from '../../../actors/messages/requests.js';
import { planWordsLimit } from '../../../actors/scheduler/scheduler.js';
import { type Ask, EOS, expected, Rig } from './rig.js';

const tokens = (count: number, first = 0): number[] => Array.from({ length: count }, (_, i) => (first + i) % 40);
const long = (prompt: number[], maxTokens = 20): Ask => ({ prompt, maxTokens, ignoreEos: true });

test('with chunked prefill decodes and a chunk of a prompt share a step', () => {
  const rig = new Rig({ maxBatchTokens: 8 });
  rig.admit(long(tokens(3)));
  rig.schedule();
  rig.admit(long(tokens(10, 5)));
  assert.deepEqual(
    rig.schedule()?.rows.map((r) => r.count),
    [1, 7],
  );
  rig.update();
  assert.deepEqual(
    rig.schedule()?.rows.map((r) => r.count),
    [1, 3],
  );
});

test('prompts get fewer tokens of a step in which sequences decode, and all of one in which none does', () => {
  const rig = new Rig({ maxBatchTokens: 16, mixedStepTokens: 8, maxSlots: 3 });
  const counts = (): number[] | undefined => {
    const rows = rig.schedule()?.rows.map((r) => r.count);
    rig.update();
    return rows;
  };
  rig.admit(long(tokens(20)));
  assert.deepEqual(counts(), [16]);
  assert.deepEqual(counts(), [4]);
  rig.admit(long(tokens(14, 5)));
  assert.deepEqual(
    [counts(), counts(), counts()],
    [
      [1, 7],
      [1, 7],
      [1, 1],
    ],
  );
});

test('however many sequences decode, prompts get a quarter of the tokens of such a step', () => {
  const rig = new Rig({ maxBatchTokens: 16, mixedStepTokens: 5, maxSlots: 8 });
  for (let i = 0; i < 7; i++) rig.admit(long(tokens(2, i)));
  rig.schedule();
  rig.update();
  rig.admit(long(tokens(6, 30)));
  assert.deepEqual(
    rig.schedule()?.rows.map((r) => r.count),
    [1, 1, 1, 1, 1, 1, 1, 2],
  );
});

test('where much waits, prompts get up to twice as many tokens of a step in which sequences decode: a quarter of what waits', () => {
  const decodingBeside = (prompts: readonly number[]): number[] | undefined => {
    const rig = new Rig({ maxBatchTokens: 64, mixedStepTokens: 8, maxSlots: 2, numBlocks: 256 });
    rig.admit(long(tokens(2)));
    rig.schedule();
    rig.update();
    for (const [i, count] of prompts.entries()) rig.admit(long(tokens(count, 5 + i)));
    return rig.schedule()?.rows.map((r) => r.count);
  };
  assert.deepEqual(decodingBeside([32]), [1, 7]);
  assert.deepEqual(decodingBeside([40]), [1, 9]);
  assert.deepEqual(decodingBeside([30, 30]), [1, 14]);
  assert.deepEqual(decodingBeside([60, 60, 60]), [1, 15]);
});

for (const first of [2 ** 31 - 3, -3]) {
  test(`the number of steps may pass the ends of its word: from ${first} on`, () => {
    const rig = new Rig({}, first);
    rig.admit(long(tokens(3)));
    rig.admit(long(tokens(5, 9)));
    rig.run();
    rig.assertAnswered(1);
    rig.assertAnswered(2);
    assert.ok(rig.plans.length > 6);
  });
}

test('only the last chunk of a prompt samples', () => {
  const rig = new Rig({ maxBatchTokens: 4, maxStepsInFlight: 1 });
  rig.admit(long(tokens(10)));
  const sampled: number[] = [];
  for (let i = 0; i < 3; i++) {
    sampled.push(rig.schedule()?.samples.length ?? -1);
    rig.update();
  }
  assert.deepEqual(sampled, [0, 0, 1]);
});

test('decodes come before every prefill, so a long prompt never starves them', () => {
  const rig = new Rig({ maxBatchTokens: 6, maxSlots: 4 });
  const prefill = rig.admit(long(tokens(60)));
  rig.schedule();
  rig.scheduler.setPaused(prefill, true);
  rig.admit(long(tokens(3, 9)));
  rig.update();
  rig.schedule();
  rig.scheduler.setPaused(prefill, false);
  for (let i = 0; i < 5; i++) {
    rig.update();
    const rows = rig.schedule()?.rows ?? [];
    assert.equal(rows[0]?.count, 1, 'the decode goes first though it is younger');
    assert.equal(rows[1]?.count, 5);
  }
  rig.run();
  rig.assertAnswered(1);
  rig.assertAnswered(2);
});

test('with a budget below the slots every running sequence still runs in every step', () => {
  const rig = new Rig({ maxBatchTokens: 3, maxSlots: 8, maxStepsInFlight: 1 });
  for (let i = 0; i < 6; i++) rig.admit(long([i, i + 1], 6));
  rig.run();
  const decodes = rig.plans.filter((p) => p.rows.length > 0 && p.newSlots.length === 0);
  for (const plan of decodes) assert.ok(plan.rows.length <= 3);
  for (let id = 1; id <= 6; id++) rig.assertAnswered(id);
  rig.assertIdle();
});

test('without chunked prefill a step is prompts only or decodes only, and prompts go whole', () => {
  const rig = new Rig({ enableChunkedPrefill: false, maxBatchTokens: 10, enablePrefixCaching: false });
  for (const n of [6, 4, 7]) rig.admit(long(tokens(n, n)));
  const shape: number[][] = [];
  for (let i = 0; i < 4; i++) {
    shape.push(rig.schedule()?.rows.map((r) => r.count) ?? []);
    rig.update();
  }
  assert.deepEqual(shape, [[6, 4], [7], [1, 1, 1], [1, 1, 1]]);
  rig.admit(long(tokens(5)));
  assert.deepEqual(
    rig.schedule()?.rows.map((r) => r.count),
    [5],
  );
  rig.run();
  for (let id = 1; id <= 4; id++) rig.assertAnswered(id);
});

test('first come, first served: by arrival, whatever the order of admission', () => {
  const rig = new Rig({ maxSlots: 1 });
  rig.admit({ prompt: [1, 2], arrivalMs: 900 });
  rig.admit({ prompt: [1, 3], arrivalMs: 800 });
  rig.admit({ prompt: [1, 4], arrivalMs: 900, priority: -5 });
  rig.run();
  assert.deepEqual(
    rig.plans.flatMap((p) => p.newSlots).map((s) => s.tokens[1]),
    [3, 2, 4],
  );
});

test('under the priority policy the smaller number runs first, then the earlier arrival', () => {
  const rig = new Rig({ maxSlots: 1, policy: 'priority' });
  rig.admit({ prompt: [1, 2], priority: 1 });
  rig.admit({ prompt: [1, 3], priority: 0 });
  rig.admit({ prompt: [1, 4], priority: -1, arrivalMs: 2000 });
  rig.admit({ prompt: [1, 5], priority: -1, arrivalMs: 1000 });
  rig.run();
  assert.deepEqual(
    rig.plans.flatMap((p) => p.newSlots).map((s) => s.tokens[1]),
    [5, 4, 3, 2],
  );
});

test('the head of the queue is not overtaken by smaller requests while it waits for blocks', () => {
  const rig = new Rig({ numBlocks: 8, enablePrefixCaching: false });
  rig.admit(long(tokens(16), 4));
  rig.schedule();
  rig.admit(long(tokens(20, 3), 4));
  rig.admit(long(tokens(2, 7), 4));
  assert.deepEqual(rig.schedule()?.newSlots, []);
  rig.run();
  assert.deepEqual(
    rig.plans.flatMap((p) => p.newSlots).map((s) => s.tokens.length),
    [16, 20, 2],
  );
});

test('no row is planned whose sample would exceed max_tokens', () => {
  for (const maxTokens of [1, 2, 3]) {
    const rig = new Rig();
    rig.admit(long(tokens(5), maxTokens));
    rig.run();
    assert.equal(
      rig.plans.reduce((sum, p) => sum + p.samples.length, 0),
      maxTokens,
    );
    assert.equal(rig.told(1).finish, FINISH.length);
  }
});

test('a row after an unforeseen stop is run and its token dropped', () => {
  const ask: Ask = { prompt: tokens(6), maxTokens: 30 };
  let seed = 0;
  while (expected({ ...ask, seed }, 0).finish !== FINISH.eos) seed++;
  const rig = new Rig();
  rig.admit({ ...ask, seed });
  rig.run();
  rig.assertAnswered(1);
  assert.equal(
    rig.plans.reduce((sum, p) => sum + p.samples.length, 0),
    expected({ ...ask, seed }, 0).tokens.length + 1,
  );
  rig.assertIdle();
});

test('stop ids end before the end-of-sequence id, and both before the length; the token is told', () => {
  const ask: Ask = { prompt: tokens(4), maxTokens: 40, seed: 3 };
  const free = expected({ ...ask, ignoreEos: true }, 0).tokens;
  const at = free.findIndex((t, i) => t !== EOS && free.indexOf(t) === i && i > 2 && !free.slice(0, i).includes(EOS));
  const stop = free[at] ?? -1;
  const cases: readonly (readonly [Partial<Ask>, number, number])[] = [
    [{ stopTokenIds: [stop] }, FINISH.stopToken, at + 1],
    [{ stopTokenIds: [stop], maxTokens: at + 1 }, FINISH.stopToken, at + 1],
    [{ maxTokens: at + 1 }, FINISH.length, at + 1],
    [{ stopTokenIds: [stop, EOS] }, FINISH.stopToken, at + 1],
  ];
  for (const [more, finish, count] of cases) {
    const rig = new Rig();
    rig.admit({ ...ask, ...more });
    rig.run();
    rig.assertAnswered(1);
    assert.deepEqual([rig.told(1).finish, rig.told(1).tokens.length], [finish, count]);
  }
});

test('ids that could stop are masked until min_tokens, and only then sent', () => {
  const rig = new Rig();
  for (let seed = 0; seed < 20; seed++)
    rig.admit({ prompt: [seed], maxTokens: 12, minTokens: 6, stopTokenIds: [1, 2, 3, 4, 5, 6, 8, 9], seed });
  rig.run();
  for (let id = 1; id <= 20; id++) {
    rig.assertAnswered(id);
    assert.ok(rig.told(id).tokens.length > 6);
  }
});

test('the delay factor holds the queue back in proportion to the last prompt step, unless nothing runs', () => {
  const rig = new Rig({ delayFactor: 2, maxStepsInFlight: 1 });
  rig.admit(long(tokens(8)));
  rig.schedule();
  rig.now += 30; // the prompt step took 30 ms
  rig.update();
  rig.admit({ prompt: tokens(3) });
  assert.equal(rig.schedule()?.newSlots.length, 0);
  assert.equal(rig.scheduler.nextDeadlineMs(rig.now), 60);
  rig.now += 60;
  rig.update();
  assert.equal(rig.schedule()?.newSlots.length, 0);
  rig.now += 1;
  rig.update();
  assert.equal(rig.schedule()?.newSlots.length, 1);
  rig.run();
  rig.now += 1;
  rig.admit({ prompt: tokens(4) });
  assert.equal(rig.schedule()?.newSlots.length, 1, 'nothing runs: no delay');
});

test('at most two steps are in flight, and one when so configured', () => {
  for (const maxStepsInFlight of [1, 2] as const) {
    const rig = new Rig({ maxStepsInFlight });
    rig.admit(long(tokens(4)));
    for (let i = 0; i < maxStepsInFlight; i++) assert.ok(rig.schedule());
    assert.equal(rig.scheduler.stepsInFlight, maxStepsInFlight);
    assert.equal(rig.schedule(), null);
    rig.update();
    assert.ok(rig.schedule());
  }
});

test('results of another epoch are ignored, results out of order are a broken invariant', () => {
  const rig = new Rig();
  rig.admit(long(tokens(4)));
  rig.schedule();
  rig.schedule();
  const first = rig.executor.takeResult();
  const second = rig.executor.takeResult();
  assert.ok(first && second);
  const foreign = Int32Array.from(new Int32Array(first.buffer));
  foreign[2] = 99;
  rig.scheduler.update(new Uint8Array(foreign.buffer), rig.now);
  assert.equal(rig.scheduler.stepsInFlight, 2);
  assert.throws(() => rig.scheduler.update(second, rig.now), /out of order/);
});

test('a plan stops admitting once it carries very much history', () => {
  const rig = new Rig({
    maxModelLen: 70_000,
    numBlocks: 70_000,
    blockSize: 16,
    maxBatchTokens: 100_000,
    maxSlots: 64,
    enablePrefixCaching: false,
  });
  // Only plans are looked at: running these rows through the hash of the plan interpreter would take minutes.
  for (let i = 0; i < 8; i++) rig.admit(long(tokens(60_000, i), 2));
  const plan = rig.scheduler.schedule(rig.now);
  assert.ok(plan && plan.byteLength < 2 ** 21 && plan.byteLength <= planWordsLimit(rig.options, 0) * 4);
});
