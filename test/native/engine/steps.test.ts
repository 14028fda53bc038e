/** Steps of an engine: plans, batches, forks, and the answers that come back. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { ROW_FLAG } from '../../../actors/messages/step.js';
import type { NativeEngine } from '../../../native/index.js';
import { answer, blockSets, nativeError, openEngine, runStep } from '../../helpers/native/native-engine.js';
import { buildPlan, type PlanSpec } from '../../helpers/native/plan.js';
import { tinyConfig, withModelFolder } from '../../helpers/native/tiny-model.js';
import { open, prefill, prompt } from './rig.js';

function logSoftmax(logits: Float32Array): Float64Array {
  const max = logits.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY);
  const sum = logits.reduce((a, b) => a + Math.exp(b - max), 0);
  return Float64Array.from(logits, (v) => v - max - Math.log(sum));
}

describe('steps', () => {
  let engine: NativeEngine;
  before(() => {
    engine = open();
  });
  after(() => engine.close());
  const free = (...slots: number[]): void => void runStep(engine, { freed: slots });

  test('answer with the numbers of their plan, empty ones too', () => {
    const a = runStep(engine, { step: 2 ** 31 - 1, epoch: -5 });
    assert.deepEqual([a.step, a.epoch, a.errorCode, a.samples.length, a.logits.length], [2 ** 31 - 1, -5, 0, 0, 0]);
  });

  test('a third step in flight is a usage error and harms nothing', () => {
    engine.submit(buildPlan({ step: 1 }));
    engine.submit(buildPlan({ step: 2 }));
    assert.throws(() => engine.submit(buildPlan({ step: 3 })), nativeError('usage', /Two steps are in flight/));
    assert.equal(engine.pending(), 2);
    assert.deepEqual([answer(engine).step, answer(engine).step], [1, 2]);
    assert.equal(engine.pending(), 0);
  });

  test('a plan that counts on a step in flight is a usage error and harms nothing', () => {
    engine.submit(buildPlan({ ...prefill(0, 0), step: 1, unread: 0 }));
    const next = buildPlan({ freed: [0], step: 2, unread: 0 });
    assert.throws(() => engine.submit(next), nativeError('usage', /counts on a step in flight/));
    assert.equal(answer(engine).step, 1);
    engine.submit(next);
    engine.submit(buildPlan({ step: 3, unread: 0 })); // the one before it samples nothing
    assert.deepEqual([answer(engine).step, answer(engine).step], [2, 3]);
  });

  test('a result buffer that is too small can be tried again', () => {
    engine.submit(buildPlan({ step: 9 }));
    assert.throws(() => engine.wait(new Uint8Array(60), 60_000), nativeError('usage', /needs 64 bytes and the buffer has 60/));
    assert.equal(engine.pending(), 1);
    assert.equal(answer(engine).step, 9);
  });

  test('wait gives up after its time', () => {
    engine.submit(buildPlan(prefill(0, 0)));
    const result = new Uint8Array(1 << 16);
    let waits = 0;
    while (engine.wait(result, 0) === 0) waits++;
    assert.ok(waits >= 0 && engine.pending() === 0);
    free(0);
  });

  test('unaligned plan and result buffers work', () => {
    const plan = buildPlan({ step: 4 });
    const shifted = new Uint8Array(plan.length + 1);
    shifted.set(plan, 1);
    engine.submit(shifted.subarray(1));
    const bytes = engine.wait(new Uint8Array(101).subarray(1), 60_000);
    assert.equal(bytes, 64);
  });

  test('a batch of slots gives each the answer it gets alone', () => {
    const prompts = [prompt, prompt.slice(3, 20), prompt.slice(10), [5]];
    const alone = prompts.map((tokens) => {
      const { samples } = runStep(engine, { ...prefill(0, 0, tokens), newSlots: [{ slot: 0, tokens, sampling: { topLogprobs: 4 } }] });
      free(0);
      return samples[0];
    });
    const together = runStep(engine, {
      newSlots: prompts.map((tokens, slot) => ({ slot, tokens, sampling: { topLogprobs: 4 } })),
      blockSets: prompts.flatMap((_, slot) => blockSets(slot, slot * 4, 4)),
      rows: prompts.map((tokens, slot) => ({ slot, start: 0, count: tokens.length })),
      samples: prompts.map((_, slot) => ({ row: 3 - slot, slot: 3 - slot })),
    });
    assert.deepEqual(together.samples, alone.map((s, slot) => ({ ...s, slot })).reverse());
    free(0, 1, 2, 3);
  });

  test('a row from the device starts at the last token of its history, however late its plan lets it start', () => {
    const both = [0, 1].map((slot) => prefill(slot, slot * 4));
    runStep(engine, { newSlots: both.flatMap((p) => p.newSlots ?? []), blockSets: both.flatMap((p) => p.blockSets ?? []) });
    const rows = [0, 1].map((slot) => ({ slot, start: 0, count: prompt.length }));
    const samples = rows.map(({ slot }, row) => ({ row, slot }));
    runStep(engine, { rows, samples });
    const plan = (i: number): Uint8Array => {
      const start = prompt.length + i;
      const late = { slot: 1, start: start + (i % 3), count: 1, flags: ROW_FLAG.fromDevice };
      return buildPlan({ rows: [{ slot: 0, start, count: 1 }, late], samples });
    };
    engine.submit(plan(0));
    for (let i = 1; i <= 8; i++) {
      engine.submit(plan(i)); // before the token that it continues is known
      const [host, device] = answer(engine).samples;
      assert.equal(device?.token, host?.token);
    }
    answer(engine);
    // Beside rows of a prompt, too.
    const start = prompt.length + 9;
    const [, device, host] = runStep(engine, {
      ...prefill(2, 8),
      rows: [
        { slot: 2, start: 0, count: prompt.length },
        { slot: 1, start: start + 1, count: 1, flags: ROW_FLAG.fromDevice },
        { slot: 0, start, count: 1 },
      ],
      samples: [2, 1, 0].map((slot, row) => ({ row, slot })),
    }).samples;
    assert.equal(device?.token, host?.token);
    free(0, 1, 2);
  });

  test('logprobs, ranks, top entries and prompt logprobs are the log-softmax of the raw logits', () => {
    const flags = ROW_FLAG.rawLogits | ROW_FLAG.promptLogprobs;
    const a = runStep(engine, {
      ...prefill(0, 0),
      newSlots: [{ slot: 0, tokens: prompt, promptLen: 38, sampling: { topLogprobs: 5, promptLogprobs: 2 } }],
      rows: [{ slot: 0, start: 0, count: prompt.length, flags }],
    });
    const logprobs = a.logits.map((row) => logSoftmax(row.values));
    const check = (entry: (typeof a.samples)[number], position: number, tops: number): void => {
      const row = logprobs[position] ?? new Float64Array();
      const order = [...row.keys()].sort((x, y) => (row[y] ?? 0) - (row[x] ?? 0));
      assert.ok(Math.abs(entry.logprob - (row[entry.token] ?? Number.NaN)) < 1e-4);
      assert.equal(entry.rank, order.indexOf(entry.token) + 1);
      assert.deepEqual(
        entry.tops.map((t) => t.id),
        order.slice(0, tops),
      );
      for (const t of entry.tops) assert.ok(Math.abs(t.logprob - (row[t.id] ?? Number.NaN)) < 1e-4);
    };
    assert.deepEqual(
      a.logits.map((row) => row.position),
      [...prompt.keys()],
    );
    const sample = a.samples[0];
    assert.ok(sample);
    check(sample, prompt.length - 1, 5);
    assert.equal(sample.rank, 1);
    assert.deepEqual(
      a.prompts.map((p) => [p.position, p.token]),
      prompt
        .slice(0, 38)
        .map((token, i) => [i, token])
        .slice(1),
      'only tokens of the prompt are scored',
    );
    for (const p of a.prompts) check(p, p.position - 1, 2);
    free(0);
  });

  test('a token is the same to the last bit whichever other rows of its step are asked for', () => {
    const half = prompt.length >> 1;
    const asked = (flags: number) => {
      const newSlots = [0, 1].map((slot) => ({ slot, tokens: prompt, sampling: { topLogprobs: 5 } }));
      const { samples } = runStep(engine, {
        newSlots,
        blockSets: [...blockSets(0, 0, 4), ...blockSets(1, 4, 4)],
        rows: [
          { slot: 0, start: 0, count: half, flags },
          { slot: 1, start: 0, count: prompt.length, flags },
        ],
        samples: [{ row: 1, slot: 1 }],
      });
      const rest = runStep(engine, {
        rows: [{ slot: 0, start: half, count: prompt.length - half, flags }],
        samples: [{ row: 0, slot: 0 }],
      });
      free(0, 1);
      return [...samples, ...rest.samples].map(({ slot: _, ...sample }) => sample);
    };
    const few = asked(0);
    assert.deepEqual(few, asked(ROW_FLAG.rawLogits));
    assert.deepEqual(few[0], few[1], 'a prompt in two pieces, of which the first asks for no row');
  });

  test('a fork shares blocks, samples from the same row and goes its own way after a copy', () => {
    runStep(engine, {
      newSlots: [{ slot: 0, tokens: prompt.slice(0, 20), sampling: { temperature: 1, seedLo: 11 } }],
      blockSets: blockSets(0, 0, 2),
      rows: [{ slot: 0, start: 0, count: 19 }],
    });
    const both = runStep(engine, {
      newSlots: [{ slot: 1, forkOf: 0, promptLen: 20, sampling: { temperature: 1, seedLo: 11, sequenceIndex: 1 } }],
      blockSets: [...blockSets(1, 0, 1), { slot: 1, index: 1, block: 5 }],
      rows: [{ slot: 0, start: 19, count: 1 }],
      samples: [
        { row: 0, slot: 0 },
        { row: 0, slot: 1 },
      ],
    });
    assert.equal(both.samples.length, 2);
    // Position 19 was written to block 1 only; the copy brings all of it to the fork's own block.
    const next = (slot: number, copies: PlanSpec['copies'] = []): number[] => {
      const a = runStep(engine, { copies, rows: [{ slot, start: 20, count: 1 }], samples: [{ row: 0, slot }] });
      return a.samples.map((s) => s.token);
    };
    const forked = next(1, [{ src: 1, dst: 5 }]);
    free(1);
    const history = [...prompt.slice(0, 20), both.samples[1]?.token ?? -1];
    const fresh = runStep(engine, {
      ...prefill(2, 8, history),
      newSlots: [{ slot: 2, tokens: history, promptLen: 20, sampling: { temperature: 1, seedLo: 11, sequenceIndex: 1 } }],
    });
    assert.deepEqual(forked, [fresh.samples[0]?.token]);
    free(0, 2);
  });

  test('logit bias, masked ids and min_tokens reach the sampler', () => {
    const tokens = prompt.slice(0, 5);
    const biased = runStep(engine, { ...prefill(0, 0, tokens), newSlots: [{ slot: 0, tokens, bias: [[123, 100]] }] });
    assert.equal(biased.samples[0]?.token, 123);
    const masked = runStep(engine, {
      ...prefill(1, 4, tokens),
      newSlots: [{ slot: 1, tokens, bias: [[123, 100]], masked: [123], sampling: { minTokens: 1 } }],
    });
    assert.notEqual(masked.samples[0]?.token, 123);
    const after = runStep(engine, { rows: [{ slot: 1, start: 5, count: 1 }], samples: [{ row: 0, slot: 1 }] });
    assert.equal(after.samples[0]?.token, 123);
    free(0, 1);
  });

  test('blocks and slots freed by a plan can be used again by the next while the first still runs', () => {
    const first = runStep(engine, prefill(0, 0)).samples;
    engine.submit(buildPlan({ rows: [{ slot: 0, start: 40, count: 1 }], samples: [{ row: 0, slot: 0 }] }));
    engine.submit(buildPlan({ freed: [0], ...prefill(0, 0) }));
    answer(engine);
    assert.deepEqual(answer(engine).samples, first);
    free(0);
  });
});

test('scoring and sampling more rows than the logits buffer holds gives what few rows give', () => {
  // 64 MiB of logits are 16 rows of this vocabulary.
  const config = { ...tinyConfig, vocab_size: 2 ** 20, tie_word_embeddings: true };
  withModelFolder(config, (folder) => {
    const engine = openEngine(folder, { loadDummy: true, maxSlots: 41, maxModelLen: 64 }, 64);
    const slots = Array.from({ length: 40 }, (_, i) => i);
    const rows = slots.map((slot) => ({ slot, start: 0, count: 3 }));
    const sampling = { topLogprobs: 1, temperature: 1 };
    const newSlots = slots.map((slot) => ({ slot, tokens: [slot, 2, 3], sampling: { ...sampling, seedLo: slot } }));
    const sets = slots.flatMap((slot) => blockSets(slot, slot, 1));
    const together = runStep(engine, { newSlots, blockSets: sets, rows, samples: slots.map((slot) => ({ row: slot, slot })) });
    const alone = slots.flatMap((slot) => {
      const spec = { freed: [slot], newSlots: newSlots.slice(slot, slot + 1), blockSets: blockSets(slot, slot, 1) };
      return runStep(engine, { ...spec, rows: rows.slice(slot, slot + 1), samples: [{ row: 0, slot }] }).samples;
    });
    assert.deepEqual(together.samples, alone);

    runStep(engine, { newSlots: [{ slot: 40, tokens: slots, sampling: { promptLogprobs: 1 } }], blockSets: blockSets(40, 40, 3) });
    const score = (start: number, count: number): unknown[] => [
      ...runStep(engine, { rows: [{ slot: 40, start, count, flags: ROW_FLAG.promptLogprobs }] }).prompts,
    ];
    const scored = score(0, 40);
    assert.equal(scored.length, 39);
    assert.deepEqual(
      scored,
      [0, 10, 20, 30].flatMap((start) => score(start, 10)),
    );
    engine.close();
  });
});

test('a sliding window given as an option changes what late positions see', () => {
  const last = (slidingWindow: number, tokens: readonly number[]): Float32Array | undefined => {
    const engine = open({ slidingWindow });
    const a = runStep(engine, { ...prefill(0, 0, tokens), rows: [{ slot: 0, start: 0, count: 40, flags: ROW_FLAG.rawLogits }] });
    engine.close();
    return a.logits[39]?.values;
  };
  const changed = [...prompt];
  changed[0] = 300;
  assert.notDeepEqual(last(0, changed), last(0, prompt), 'full attention sees token 0');
  assert.deepEqual(last(4, changed), last(4, prompt), 'three layers of window 4 do not');
  assert.deepEqual(last(64, prompt), last(0, prompt), 'a window longer than the sequence is full attention');
});
