/** apply_slots and gather_tokens: plans of the wire layout reach the slot tables exactly. */
import assert from 'node:assert/strict';
import { it } from 'node:test';
import { NEW_SLOT, PLAN, SAMPLING_ROW } from '../../actors/messages/step.js';
import { floats, ints, isas, runOp } from '../helpers/op-table.js';

interface NewSlot {
  readonly slot: number;
  readonly forkOf: number;
  readonly tokens: readonly number[];
  readonly promptLen: number;
  readonly bias: readonly (readonly [number, number])[];
  readonly masked: readonly number[];
}

const bits = (x: number) => new Int32Array(Float32Array.of(x).buffer)[0]!;

function plan(freed: readonly number[], slots: readonly NewSlot[], sets: readonly (readonly number[])[]): Int32Array {
  const words: number[] = new Array(PLAN.headerWords).fill(0);
  words[PLAN.numFreed] = freed.length;
  words[PLAN.numNewSlots] = slots.length;
  words[PLAN.numBlockSets] = sets.length;
  words.push(...freed);
  for (const s of slots) {
    words.push(s.slot, s.forkOf, s.tokens.length, s.promptLen, s.bias.length, s.masked.length);
    const row = new Array(SAMPLING_ROW.words).fill(s.slot + 1000);
    assert.equal(NEW_SLOT.fixedWords, 6 + row.length);
    words.push(...row, ...s.tokens, ...s.bias.flatMap(([id, value]) => [id, bits(value)]), ...s.masked);
  }
  words.push(...sets.flat());
  return Int32Array.from(words);
}

it('a plan fills new slots, forks histories, sets blocks, and its rows gather the right tokens', () => {
  const [slots, maxLen, maxBlocks, maxBias, maxMasked] = [4, 10, 3, 2, 2];
  const newSlots: NewSlot[] = [
    { slot: 2, forkOf: -1, tokens: [5, 6, 7, 8], promptLen: 3, bias: [[9, -1.5]], masked: [1, 2] },
    // Forks from a slot that this very plan frees, and from one that it made.
    { slot: 0, forkOf: 3, tokens: [], promptLen: 1, bias: [], masked: [] },
    { slot: 1, forkOf: 2, tokens: [], promptLen: 3, bias: [[3, 2]], masked: [7] },
  ];
  const sets = [
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
          bias_ids: new Int32Array(slots * maxBias),
          num_bias: new Int32Array(slots),
        },
        ...{
          bias_values: new Float32Array(slots * maxBias),
          masked_ids: new Int32Array(slots * maxMasked),
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
    assert.deepEqual([ints(result, 'bias_ids')[2 * maxBias], floats(result, 'bias_values')[2 * maxBias]], [9, -1.5]);
    assert.deepEqual([ints(result, 'bias_ids')[maxBias], floats(result, 'bias_values')[maxBias]], [3, 2]);
    assert.deepEqual([...ints(result, 'num_masked')], [0, 1, 2, 0]);
    assert.deepEqual([...ints(result, 'masked_ids').subarray(2 * maxMasked)].slice(0, 2), [1, 2]);
    assert.deepEqual([...ints(result, 'blocks')], [-1, -1, -1, 11, -1, -1, 11, -1, 12, -1, -1, -1]);
    assert.deepEqual([...ints(result, 'ids')], [6, 7, 8, 42]);
    assert.deepEqual([...ints(result, 'positions')], [1, 2, 3, 2]);
    assert.deepEqual([...ints(result, 'token_rows')], [0, 0, 0, 1]);
  }
});
