/** Random histories of the whole scheduler against the plan interpreter; the oracle is each request answered alone. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { RequestId } from '../../../actors/messages/ids.js';
import { FINISH } from '../../../actors/messages/requests.js';
import type { SchedulerOptions } from '../../../actors/scheduler/scheduler.js';
import { referencePooled } from '../../helpers/engine/plan-interpreter.js';
import { type Ask, type Drafting, EOS, expected, Rig } from './rig.js';

/** Prompts share beginnings: a stem, cut, then a few own tokens. */
const prompts = fc
  .record({
    stem: fc.integer({ min: 0, max: 2 }),
    length: fc.integer({ min: 0, max: 20 }),
    tail: fc.array(fc.integer({ min: 0, max: 3 }), { maxLength: 6 }),
  })
  .map(({ stem, length, tail }) => [...Array.from({ length }, (_, i) => (i * (stem + 3)) % 11), ...tail, stem]);

const generating: fc.Arbitrary<Ask> = fc.record({
  prompt: prompts,
  maxTokens: fc.integer({ min: 1, max: 14 }),
  bestOf: fc.constantFrom(1, 1, 1, 2, 3),
  priority: fc.integer({ min: -1, max: 1 }),
  seed: fc.integer({ min: 0, max: 5 }),
  minTokens: fc.constantFrom(0, 0, 3),
  stopTokenIds: fc.constantFrom([], [], [11, 12, 13]),
  ignoreEos: fc.boolean(),
  topLogprobs: fc.constantFrom(-1, -1, 0, 2),
  promptLogprobs: fc.constantFrom(-1, -1, -1, 1),
  bias: fc.constantFrom([], [3, 99]),
  owner: fc.integer({ min: 0, max: 1 }),
});
const pooling: fc.Arbitrary<Ask> = fc.record({
  prompt: prompts,
  pooling: fc.constantFrom('last' as const, 'mean' as const),
  priority: fc.integer({ min: -1, max: 1 }),
  owner: fc.integer({ min: 0, max: 1 }),
});
const asks = fc.oneof({ weight: 5, arbitrary: generating }, { weight: 1, arbitrary: pooling });

const settings: fc.Arbitrary<Partial<SchedulerOptions>> = fc.record({
  blockSize: fc.constantFrom(1, 2, 4),
  numBlocks: fc.integer({ min: 12, max: 60 }),
  numSwapBlocks: fc.constantFrom(0, 3, 30, 200),
  preemptionMode: fc.constantFrom('auto' as const, 'swap' as const, 'swap' as const, 'recompute' as const),
  maxSlots: fc.integer({ min: 1, max: 6 }),
  maxBatchTokens: fc.integer({ min: 3, max: 40 }),
  mixedStepTokens: fc.integer({ min: 1, max: 40 }),
  enableChunkedPrefill: fc.boolean(),
  enablePrefixCaching: fc.boolean(),
  delayFactor: fc.constantFrom(0, 0, 0.5),
  policy: fc.constantFrom('fcfs' as const, 'priority' as const),
  maxStepsInFlight: fc.constantFrom(1 as const, 2 as const),
  maxQueue: fc.constantFrom(1000, 1000, 2),
  queueTimeoutMs: fc.constantFrom(1e9, 1e9, 25),
});

type Operation =
  | { readonly op: 'admit'; readonly ask: Ask }
  | { readonly op: 'schedule' | 'update' }
  | { readonly op: 'abort' | 'stop' | 'pause' | 'resume'; readonly pick: number };

const operations: fc.Arbitrary<Operation> = fc.oneof(
  { weight: 4, arbitrary: fc.record({ op: fc.constant('admit' as const), ask: asks }) },
  { weight: 8, arbitrary: fc.record({ op: fc.constantFrom('schedule' as const, 'update' as const) }) },
  {
    weight: 1,
    arbitrary: fc.record({ op: fc.constantFrom('abort' as const, 'stop' as const, 'pause' as const, 'resume' as const), pick: fc.nat() }),
  },
);

/** Carries out one operation; returns the sequences it stopped as `id.index`. */
function perform(rig: Rig, operation: Operation, stopped: Set<string>): void {
  const ids = [...rig.entries.keys()] as RequestId[];
  switch (operation.op) {
    case 'admit':
      rig.admit(operation.ask);
      return;
    case 'schedule':
      rig.schedule();
      return;
    case 'update':
      rig.update();
      return;
    default: {
      const id = ids[operation.pick % Math.max(1, ids.length)];
      if (id === undefined) return;
      if (operation.op === 'abort') rig.abort(id);
      else if (operation.op === 'stop') stop(rig, id, operation.pick, stopped);
      else rig.scheduler.setPaused(id, operation.op === 'pause');
    }
  }
}

/** A stop string can only match in a sequence that has tokens. */
function stop(rig: Rig, id: RequestId, pick: number, stopped: Set<string>): void {
  const told = [...rig.entry(id).sequences].filter(([, t]) => t.tokens.length > 0 && t.finish === FINISH.none);
  const chosen = told[pick % Math.max(1, told.length)];
  if (chosen === undefined) return;
  rig.scheduler.stopped(id, chosen[0], rig.now);
  stopped.add(`${id}.${chosen[0]}`);
}

/** Every request has exactly one outcome a sequence, and its tokens are those it would get alone. */
function checkOutcomes(rig: Rig, stopped: ReadonlySet<string>): void {
  for (const [id, entry] of rig.entries) {
    for (const [index, told] of entry.sequences) {
      const want = expected(entry.ask, index);
      assert.deepEqual(told.tokens, want.tokens.slice(0, told.tokens.length), `tokens of request ${id}, sequence ${index}`);
      const ended = entry.aborted || entry.refused !== null || stopped.has(`${id}.${index}`);
      if (ended) continue;
      assert.equal(told.finish, want.finish, `finish of request ${id}, sequence ${index}`);
      assert.equal(told.tokens.length, want.tokens.length);
      if ((entry.ask.bestOf ?? 1) > 1 || (entry.ask.topLogprobs ?? -1) >= 0) assert.equal(told.cumulative, want.cumulative);
      const details = told.logprobs.filter((l) => l !== null).length;
      assert.equal(details, (entry.ask.topLogprobs ?? -1) >= 0 ? told.tokens.length : 0, 'logprobs come exactly when asked for');
    }
    if (entry.refused !== null)
      assert.ok(
        [...entry.sequences.values()].every((t) => t.tokens.length === 0),
        'a started request is not refused',
      );
    const { pooled } = entry;
    const tokens = [...entry.sequences.values()].reduce((sum, t) => sum + t.tokens.length, 0);
    assert.equal(entry.started.length, tokens > 0 || pooled !== null ? 1 : 0, 'a request starts once, with its first token or its state');
    if (entry.ask.pooling !== undefined && !entry.aborted && entry.refused === null)
      assert.equal(pooled, referencePooled(entry.ask.prompt, entry.ask.pooling), `state of request ${id}`);
    const positions = entry.promptPositions;
    const all = Array.from({ length: entry.ask.prompt.length - 1 }, (_, i) => i + 1);
    if ((entry.ask.promptLogprobs ?? -1) < 0) assert.equal(positions.length, 0);
    else assert.deepEqual(positions, tokens > 0 ? all : all.slice(0, positions.length), 'each prompt position is told once, in order');
  }
}

/** What a set of histories exercised. */
interface Tally {
  preemptions: number;
  hits: number;
  copies: number;
  /** Plans that swap. */
  swapsOut: number;
  swapsIn: number;
  drafted: number;
  accepted: number;
}

/** Plays a history to its end and checks everything about it. */
function play(options: Partial<SchedulerOptions>, history: readonly Operation[], tally: Tally, drafting: Drafting = {}): void {
  const rig = new Rig(options, 1, undefined, drafting);
  const stopped = new Set<string>();
  for (const operation of history) {
    rig.now += 1;
    perform(rig, operation, stopped);
    rig.scheduler.checkIntegrity();
  }
  for (const id of rig.entries.keys()) rig.scheduler.setPaused(id as RequestId, false);
  rig.run();
  checkOutcomes(rig, stopped);
  rig.assertIdle();
  const { requests, tokens, speculation } = rig.scheduler.stats();
  const outcomes = [...rig.entries.values()].filter((e) => e.refused === null).length;
  assert.equal(requests.finished_total + requests.aborted_total, outcomes);
  tally.preemptions += requests.preempted_total;
  tally.hits += tokens.prefix_hit_total;
  tally.drafted += speculation?.draft_tokens_total ?? 0;
  tally.accepted += speculation?.accepted_tokens_total ?? 0;
  for (const plan of rig.plans) {
    tally.copies += plan.copies.length;
    tally.swapsOut += plan.swapOuts.length > 0 ? 1 : 0;
    tally.swapsIn += plan.swapIns.length > 0 ? 1 : 0;
  }
}

const noTally = (): Tally => ({ preemptions: 0, hits: 0, copies: 0, swapsOut: 0, swapsIn: 0, drafted: 0, accepted: 0 });

test('in any history every request gets one outcome a sequence and the tokens it would get alone', () => {
  const tally = noTally();
  fc.assert(
    fc.property(settings, fc.array(operations, { minLength: 10, maxLength: 120 }), (options, history) => play(options, history, tally)),
    { numRuns: 400 },
  );
  const { preemptions, hits, copies } = tally;
  assert.ok(preemptions > 50 && hits > 50 && copies > 50, `the histories exercise the rules: ${JSON.stringify(tally)}`);
});

test('so in histories in which blocks are short and what gives way is swapped', () => {
  const tally = noTally();
  const short = fc
    .record({ numBlocks: fc.integer({ min: 22, max: 40 }), maxSlots: fc.integer({ min: 4, max: 8 }), blockSize: fc.constantFrom(1, 2) })
    .chain((pool) => settings.map((other) => ({ ...other, ...pool, maxBatchTokens: 10 + (other.maxBatchTokens ?? 0) })))
    .filter(({ preemptionMode }) => preemptionMode !== 'recompute');
  // Answers that grow at the same time are what a pool runs out by.
  const growing = operations.map((o): Operation => (o.op === 'admit' ? { ...o, ask: { ...o.ask, maxTokens: 14, ignoreEos: true } } : o));
  fc.assert(
    fc.property(short, fc.array(growing, { minLength: 40, maxLength: 160 }), (options, history) => play(options, history, tally)),
    { numRuns: 250 },
  );
  const { preemptions, swapsOut, swapsIn } = tally;
  assert.ok(swapsOut > 100 && swapsIn > 100 && preemptions > swapsOut, `the histories exercise the rules: ${JSON.stringify(tally)}`);
});

const wrong = (right: readonly number[], vocabSize: number): number[] => right.map((token) => (token + 1) % vocabSize);

/** By how their drafts fare. */
const drafters: Readonly<Record<string, NonNullable<Drafting['drafter']>>> = {
  'always right': (count, right) => right(count),
  'always wrong': (count, right, vocabSize) => wrong(right(count), vocabSize),
  'right until the stop, and wrong behind it': (count, right, vocabSize) => {
    const all = right(count);
    const end = all.findIndex((token) => [EOS, 11, 12, 13].includes(token)) + 1;
    return end === 0 ? all : [...all.slice(0, end), ...wrong(all.slice(end), vocabSize)];
  },
  'wrong at the second place, and short of drafts': (count, right, vocabSize) => {
    const [first, ...others] = right(Math.ceil(count / 2));
    return first === undefined ? [] : [first, ...wrong(others, vocabSize)];
  },
  silent: () => [],
};

for (const [name, drafter] of Object.entries(drafters)) {
  test(`so with a drafter that is ${name}, and draft lengths at random`, () => {
    const tally = noTally();
    const drafting = fc.record({
      drafts: fc.record({
        maxTokens: fc.integer({ min: 1, max: 6 }),
        maxBatch: fc.constant(64),
        rowCost: fc.constant(0.1),
        freeRows: fc.constant(185),
        inBlocks: fc.boolean(),
      }),
    });
    const drafted = fc.record({ seed: fc.nat(), settings: fc.tuple(settings, drafting).map(([a, b]) => ({ ...a, ...b })) });
    fc.assert(
      fc.property(drafted, fc.array(operations, { minLength: 30, maxLength: 150 }), ({ seed, settings: options }, history) => {
        let turn = seed;
        const length = (): number => {
          turn = (Math.imul(turn, 1103515245) + 12345) & 0x7fffffff;
          return (turn >> 16) % (options.drafts.maxTokens + 1);
        };
        play(options, history, tally, { length, drafter });
      }),
      { numRuns: 150 },
    );
    const { drafted: compared, accepted, preemptions, hits, copies } = tally;
    const told = JSON.stringify(tally);
    if (name === 'silent') assert.equal(compared, 0);
    else assert.ok(compared > 500, told);
    if (name === 'always right') assert.equal(accepted, compared);
    if (name === 'always wrong') assert.equal(accepted, 0);
    assert.ok(preemptions > 20 && hits > 20 && copies > 20, told);
  });
}

test('two steps in flight give the tokens of one step in flight', () => {
  fc.assert(
    fc.property(settings, fc.array(asks, { minLength: 1, maxLength: 8 }), (options, batch) => {
      const answers = ([1, 2] as const).map((maxStepsInFlight) => {
        const rig = new Rig({ ...options, maxQueue: 1000, queueTimeoutMs: 1e9, maxStepsInFlight });
        for (const ask of batch) rig.admit(ask);
        rig.run();
        rig.assertIdle();
        return [...rig.entries.values()].map((e) => [e.pooled, [...e.sequences.values()].map((t) => t.tokens)]);
      });
      assert.deepEqual(answers[0], answers[1]);
    }),
    { numRuns: 60 },
  );
});
