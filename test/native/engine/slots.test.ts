/** apply_slots and gather_tokens: plans of the wire layout reach the slot tables exactly. */
import assert from 'node:assert/strict';
import { it } from 'node:test';
import { PlanBuilder } from '../../../actors/messages/plan-builder.js';
import { SAMPLING_ROW } from '../../../actors/messages/sampling.js';
import { ints, isas, runOp } from '../../helpers/native/op-table.js';

interface NewSlot {
  readonly slot: number;
  readonly forkOf: number;
  readonly tokens: readonly number[];
  readonly promptLen: number;
  readonly bias: readonly (readonly [number, number])[];
  readonly masked: readonly number[];
}

const bits = (x: number) => new Int32Array(Float32Array.of(x).buffer)[0]!;

function plan(freed: readonly number[], slots: readonly NewSlot[], sets: readonly (readonly [number, number, number])[]): Int32Array {
  const builder = new PlanBuilder(0);
  for (const slot of freed) builder.free(slot);
  for (const { slot, forkOf, tokens, promptLen, bias, masked } of slots) {
    builder.newSlot({
      ...{ slot, forkOf, promptLen, tokens: Int32Array.from(tokens) },
      samplingRow: new Int32Array(SAMPLING_ROW.words).fill(slot + 1000),
      sequenceIndex: slot + 1000,
      lists: { bias: bias.flatMap(([id, value]) => [id, bits(value)]), masked },
    });
  }
  for (const set of sets) builder.blockSet(...set);
  const body = builder.finish(0, 0);
  return new Int32Array(body.slice().buffer);
}

it('a plan fills new slots, forks histories, sets blocks, and its rows gather the right tokens', () => {
  const [slots, maxLen, maxBlocks, maxBias, maxMasked] = [4, 10, 3, 2, 2];
  const newSlots: NewSlot[] = [
    { slot: 2, forkOf: -1, tokens: [5, 6, 7, 8], promptLen: 3, bias: [[9, -1.5]], masked: [1, 2] },
    // Forks from a slot that this very plan frees, and from one that it made.
    { slot: 0, forkOf: 3, tokens: [], promptLen: 1, bias: [], masked: [] },
    { slot: 1, forkOf: 2, tokens: [], promptLen: 3, bias: [[3, 2]], masked: [7] },
  ];
  const sets: [number, number, number][] = [
    [2, 0, 11],
    [2, 2, 12],
    [1, 0, 11],
  ];
  const words = plan([3], newSlots, sets);
  const tokens = new Int32Array(slots * maxLen);
  tokens.set([40, 41, 42], 3 * maxLen);
  const rows = [
    [2, 1, 3, 0],
    [0, 2, 1, 0],
  ];
  for (const isa of isas) {
    const attrs = { max_slots: slots, max_len: maxLen, max_blocks: maxBlocks, max_bias: maxBias, max_masked: maxMasked };
    const result = runOp(
      { isa },
      'apply_slots',
      { ...attrs, num_rows: 2, plan_words: words.length },
      {
        ...{
          plan: words,
          rows: Int32Array.from(rows.flat()),
          tokens,
          lengths: Int32Array.of(9, 9, 9, 3),
          prompt_lens: new Int32Array(slots),
        },
        ...{
          sampling: new Int32Array(slots * SAMPLING_ROW.words),
          bias: new Int32Array(slots * 2 * maxBias),
          num_bias: new Int32Array(slots),
        },
        ...{
          masked: new Int32Array(slots * maxMasked),
          num_masked: new Int32Array(slots),
        },
        blocks: new Int32Array(slots * maxBlocks).fill(-1),
      },
    );
    const history = (slot: number) => [...ints(result, 'tokens').subarray(slot * maxLen, slot * maxLen + ints(result, 'lengths')[slot]!)];
    assert.deepEqual([0, 1, 2].map(history), [
      [40, 41, 42],
      [5, 6, 7, 8],
      [5, 6, 7, 8],
    ]);
    assert.deepEqual([...ints(result, 'prompt_lens').subarray(0, 3)], [1, 3, 3]);
    for (const slot of [0, 1, 2]) {
      assert.ok(
        ints(result, 'sampling')
          .subarray(slot * SAMPLING_ROW.words, (slot + 1) * SAMPLING_ROW.words)
          .every((w) => w === slot + 1000),
      );
    }
    assert.deepEqual([...ints(result, 'num_bias')], [0, 1, 1, 0]);
    // The ids of a slot, then its values.
    const biasOf = (slot: number) => ints(result, 'bias').subarray(slot * 2 * maxBias, (slot + 1) * 2 * maxBias);
    assert.deepEqual([biasOf(2)[0], biasOf(2)[maxBias]], [9, bits(-1.5)]);
    assert.deepEqual([biasOf(1)[0], biasOf(1)[maxBias]], [3, bits(2)]);
    assert.deepEqual([...ints(result, 'num_masked')], [0, 1, 2, 0]);
    assert.deepEqual([...ints(result, 'masked').subarray(2 * maxMasked)].slice(0, 2), [1, 2]);
    assert.deepEqual([...ints(result, 'blocks')], [-1, -1, -1, 11, -1, -1, 11, -1, 12, -1, -1, -1]);
    assert.deepEqual([...ints(result, 'ids')], [6, 7, 8, 42]);
    assert.deepEqual([...ints(result, 'positions')], [1, 2, 3, 2]);
    assert.deepEqual([...ints(result, 'token_rows')], [0, 0, 0, 1]);
  }
});
