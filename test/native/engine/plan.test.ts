/** Plans from a scheduler gone mad: each is refused with one sentence and changes nothing, whatever its words are. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import fc from 'fast-check';
import { PLAN, ROW_FLAG } from '../../../actors/messages/step.js';
import type { NativeEngine, NativeError } from '../../../native/index.js';
import { blockSets, fixture, nativeError, openEngine, runStep } from '../../helpers/native/native-engine.js';
import { buildPlan, type PlanSpec, readResult } from '../../helpers/native/plan.js';

const vocab = 320;
const prompt = Array.from({ length: 40 }, (_, i) => (i * 37) % vocab);
const open = (): NativeEngine =>
  openEngine(fixture('golden', 'llama3.1-gqa'), { maxSlots: 4, maxBatchTokens: 64, maxModelLen: 100 }, 20, 6);

describe('a malformed plan', () => {
  let engine: NativeEngine;
  before(() => {
    engine = open();
    runStep(engine, { newSlots: [{ slot: 0, tokens: prompt }], blockSets: blockSets(0, 0, 3) });
  });
  after(() => engine.close());

  const fresh = { slot: 1, tokens: [1, 2, 3] };
  const sampling = (words: Record<string, number>): PlanSpec => ({ newSlots: [{ ...fresh, sampling: words }] });
  const row = (start: number, count: number, slot = 0, flags = 0): PlanSpec => ({ rows: [{ slot, start, count, flags }] });
  const header = (word: keyof typeof PLAN, value: number) => (words: number[]) => {
    words[PLAN[word]] = value;
  };
  const cases: readonly (readonly [name: string, spec: PlanSpec, message: RegExp, patch?: (words: number[]) => void])[] = [
    ['that sums up from the middle of a prompt', row(8, 4, 0, ROW_FLAG.poolSum), /adds tokens from 8 on to the sum of 0/],
    ['that pools a row from the device', row(39, 1, 0, ROW_FLAG.fromDevice | ROW_FLAG.pool), /starts from the device and has the flags 20/],
    ['of another layout version', {}, /layout version is 1/, header('layoutVersion', 1)],
    ['that waits for less than no steps', {}, /steps without a result is -1/, header('unread', -1)],
    ['that is longer than it says', {}, /says 16 words and has 17/, (w) => w.push(0)],
    ['that is shorter than it says', {}, /says 20 words/, header('words', 20)],
    [
      'with words after its sections',
      {},
      /words follow/,
      (w) => {
        w.push(0);
        w[PLAN.words] = w.length;
      },
    ],
    ['with a negative count', {}, /rows is -1/, header('numRows', -1)],
    ['with more freed slots than words', {}, /section freed with 2147483647/, header('numFreed', 2 ** 31 - 1)],
    ['with more block sets than words', {}, /section blockSets/, header('numBlockSets', 2 ** 30)],
    ['with a negative number of block sets', {}, /section blockSets/, header('numBlockSets', -3)],
    ['with more rows than slots', {}, /number of rows is 5/, header('numRows', 5)],
    ['with more copies than blocks', {}, /number of copies is 21/, header('numCopies', 21)],
    ['with a wrong sum of tokens', row(0, 5), /says 4 tokens and its rows have 5/, header('numTokens', 4)],
    ['that frees a slot out of range', { freed: [4] }, /names slot 4 of 4/],
    ['that frees a negative slot', { freed: [-1] }, /names slot -1/],
    ['that frees an empty slot', { freed: [2] }, /slot 2, which holds no sequence/],
    ['that frees a slot twice', { freed: [0, 0] }, /slot 0, which holds no/],
    ['with a new slot out of range', { newSlots: [{ ...fresh, slot: 9 }] }, /number 9 of 4/],
    ['with a new slot in use', { newSlots: [{ ...fresh, slot: 0 }] }, /slot 0 still holds/],
    ['with an empty history', { newSlots: [{ slot: 1, tokens: [] }] }, /history length of a new slot is 0/],
    [
      'with a history beyond the maximum',
      { newSlots: [{ slot: 1, tokens: new Array<number>(101).fill(1) }] },
      /history length of a new slot is 101/,
    ],
    ['with a prompt longer than the history', { newSlots: [{ ...fresh, promptLen: 4 }] }, /prompt length of a new slot is 4/],
    ['with a token outside the vocabulary', { newSlots: [{ slot: 1, tokens: [320] }] }, /token id is 320/],
    ['with a negative token', { newSlots: [{ slot: 1, tokens: [-1] }] }, /token id is -1/],
    ['with a bias outside the vocabulary', { newSlots: [{ ...fresh, bias: [[320, 1]] }] }, /bias id is 320/],
    ['with a bias that is no number', { newSlots: [{ ...fresh, bias: [[3, Number.NaN]] }] }, /logit bias is nan/],
    ['with too many biases', { newSlots: [{ ...fresh, bias: new Array<[number, number]>(4097).fill([1, 1]) }] }, /logit biases is 4097/],
    ['with too many masked ids', { newSlots: [{ ...fresh, masked: new Array<number>(321).fill(1) }] }, /masked ids is 321/],
    ['with a masked id outside the vocabulary', { newSlots: [{ ...fresh, masked: [1000] }] }, /masked id is 1000/],
    ['with a fork of an empty slot', { newSlots: [{ slot: 1, forkOf: 2 }] }, /fork names slot 2/],
    ['with a fork of itself', { newSlots: [{ slot: 1, forkOf: 1 }] }, /fork names slot 1/],
    ['with a fork that brings tokens', { newSlots: [{ slot: 1, forkOf: 0, tokens: [1] }] }, /brings tokens of its own/],
    ['with a negative fork', { newSlots: [{ ...fresh, forkOf: -2 }] }, /forkOf -2/],
    ['with a negative temperature', sampling({ temperature: -1 }), /temperature is -1/],
    ['with a temperature that is no number', sampling({ temperature: Number.NaN }), /temperature is/],
    ['with an infinite penalty', sampling({ frequencyPenalty: Number.POSITIVE_INFINITY }), /frequency_penalty is inf/],
    ['with a zero repetition penalty', sampling({ repetitionPenalty: 0 }), /repetition_penalty is 0/],
    ['with a negative top_k', sampling({ topK: -1 }), /top_k is -1/],
    ['with 21 top logprobs', sampling({ topLogprobs: 21 }), /top_logprobs is 21/],
    ['with a block out of range', { blockSets: [{ slot: 0, index: 3, block: 20 }] }, /a block is 20/],
    ['with an index beyond the table', { blockSets: [{ slot: 0, index: 7, block: 1 }] }, /index in a block table is 7/],
    ['with a hole in a block table', { blockSets: [{ slot: 0, index: 5, block: 1 }] }, /gets index 5 after 3 blocks/],
    ['with a block set of an empty slot', { blockSets: [{ slot: 1, index: 0, block: 1 }] }, /block set names slot 1/],
    ['with a copy from outside', { copies: [{ src: 20, dst: 0 }] }, /source of a copy is 20/],
    ['with more swaps out than host blocks', {}, /number of swaps out is 7/, header('numSwapOuts', 7)],
    ['with a negative number of swaps in', {}, /number of swaps in is -1/, header('numSwapIns', -1)],
    ['with more swaps in than words', {}, /section swapIns with 6/, header('numSwapIns', 6)],
    ['with a swap out from outside', { swapOuts: [{ src: 20, dst: 0 }] }, /source of a swap out is 20/],
    ['with a swap out to outside', { swapOuts: [{ src: 0, dst: 6 }] }, /destination of a swap out is 6/],
    ['with a swap in from outside', { swapIns: [{ src: -1, dst: 0 }] }, /source of a swap in is -1/],
    ['with a swap in to outside', { swapIns: [{ src: 0, dst: 20 }] }, /destination of a swap in is 20/],
    ['with a copy to outside', { copies: [{ src: 0, dst: -1 }] }, /destination of a copy is -1/],
    ['with a row of an empty slot', row(0, 1, 3), /row names slot 3/],
    ['with a row of no tokens', row(0, 0), /count of a row is 0/],
    ['with a row that starts before the history', row(-1, 2), /computes \[-1, 1\)/],
    ['with a row beyond the history', row(30, 11), /computes \[30, 41\) of a history of 40/],
    ['with a row whose end overflows', row(2 ** 31 - 1, 2), /computes \[2147483647/],
    [
      'with a row beyond its blocks',
      { newSlots: [{ slot: 1, tokens: prompt }], blockSets: blockSets(1, 4, 2), ...row(0, 40, 1) },
      /ends at 40 and its 2 blocks hold 32/,
    ],
    ['with two rows of a slot', { rows: [0, 1].map((start) => ({ slot: 0, start, count: 1 })) }, /slot 0 has two rows/],
    ['with unknown flags', row(0, 1, 0, 32), /flags 32/],
    ['with a row from the device that starts too early', row(38, 1, 0, ROW_FLAG.fromDevice), /starts at 38 at most, .* may have 40/],
    ['with a row from the device that has drafts', row(39, 2, 0, ROW_FLAG.fromDevice), /2 tokens from the device, more than 1/],
    ['with a row from the device beyond its blocks', row(48, 1, 0, ROW_FLAG.fromDevice), /ends at 49 and its 3 blocks hold 48/],
    ['with a row from the device beyond every sequence', row(100, 1, 0, ROW_FLAG.fromDevice), /has 100 tokens at most/],
    [
      'with raw logits from the device',
      row(39, 1, 0, ROW_FLAG.fromDevice | ROW_FLAG.rawLogits),
      /starts from the device and has the flags 5/,
    ],
    ['with a sample of two tokens', { ...row(0, 40), samples: [{ row: 0, slot: 0, count: 2 }] }, /count of a sample is 2/],
    ['with a sample of no tokens', { ...row(0, 40), samples: [{ row: 0, slot: 0, count: 0 }] }, /count of a sample is 0/],
    [
      "with a sample after another slot's row from the device",
      {
        newSlots: [{ slot: 1, forkOf: 0, promptLen: 1 }],
        blockSets: blockSets(1, 4, 3),
        ...row(39, 1, 0, ROW_FLAG.fromDevice),
        samples: [{ row: 0, slot: 1 }],
      },
      /slot 1 is sampled after a row of slot 0 that starts from the device/,
    ],
    ['with prompt logprobs that were not asked for', row(0, 1, 0, ROW_FLAG.promptLogprobs), /did not ask for prompt logprobs/],
    [
      'with more tokens than a step takes',
      {
        newSlots: [{ slot: 1, forkOf: 0, promptLen: 1 }],
        blockSets: blockSets(1, 4, 3),
        rows: [0, 1].map((slot) => ({ slot, start: 0, count: 40 })),
      },
      /more than 64 tokens/,
    ],
    ['with a sample of a row that is not there', { ...row(0, 40), samples: [{ row: 1, slot: 0 }] }, /row of a sample is 1/],
    ['with a sample of an empty slot', { ...row(0, 40), samples: [{ row: 0, slot: 1 }] }, /sample names slot 1/],
    ['with a slot sampled twice', { ...row(0, 40), samples: [0, 0].map((slot) => ({ row: 0, slot })) }, /sampled twice/],
    [
      'with a sample in the middle of the history',
      { ...row(0, 39), samples: [{ row: 0, slot: 0 }] },
      /has 40 tokens and is sampled after a row that ends at 39/,
    ],
  ];
  for (const [name, spec, message, patch] of cases) {
    test(`${name} is refused`, () => assert.throws(() => engine.submit(buildPlan(spec, patch)), nativeError('bad_plan', message)));
  }

  test('of odd size, or that is no byte array, is refused', () => {
    assert.throws(() => engine.submit(new Uint8Array(66)), nativeError('bad_plan', /not a number of words/));
    assert.throws(() => engine.submit(new Uint8Array()), nativeError('bad_plan', /header/));
    assert.throws(() => engine.submit('plan' as unknown as Uint8Array), nativeError('usage', /must be a Uint8Array/));
    assert.throws(() => engine.submit(new Int32Array(16) as unknown as Uint8Array), nativeError('usage', /must be a Uint8Array/));
  });

  test('changed nothing: the slot that was there answers as in an engine that saw no bad plan', () => {
    assert.equal(engine.pending(), 0);
    const spec: PlanSpec = { rows: [{ slot: 0, start: 0, count: 40, flags: ROW_FLAG.rawLogits }], samples: [{ row: 0, slot: 0 }] };
    const clean = open();
    runStep(clean, { newSlots: [{ slot: 0, tokens: prompt }], blockSets: blockSets(0, 0, 3) });
    assert.deepEqual({ ...runStep(engine, spec), execUs: 0 }, { ...runStep(clean, spec), execUs: 0 });
    clean.close();
  });

  test('that computes what was sampled after a full sequence is refused; the sample itself has a place', () => {
    const own = open();
    const full = new Array<number>(100).fill(1);
    runStep(own, { newSlots: [{ slot: 0, tokens: full }], blockSets: blockSets(0, 0, 7), ...row(0, 64) });
    const { samples } = runStep(own, { ...row(64, 36), samples: [{ row: 0, slot: 0 }] });
    assert.equal(samples.length, 1);
    for (const flags of [0, ROW_FLAG.fromDevice]) {
      const next = { ...row(100, 1, 0, flags), samples: [{ row: 0, slot: 0 }] };
      assert.throws(() => own.submit(buildPlan(next)), nativeError('bad_plan', /ends at 101, and a sequence has 100 tokens at most/));
    }
    own.close();
  });

  test('made by changing words of a good one is refused or answered, never worse', () => {
    const good = buildPlan({
      newSlots: [{ slot: 1, tokens: prompt.slice(0, 9), sampling: { promptLogprobs: 3 }, bias: [[3, 1]], masked: [4] }],
      blockSets: blockSets(1, 4, 3),
      swapOuts: [{ src: 5, dst: 2 }],
      copies: [{ src: 4, dst: 8 }],
      swapIns: [{ src: 3, dst: 9 }],
      rows: [
        { slot: 1, start: 0, count: 9, flags: ROW_FLAG.promptLogprobs },
        { slot: 0, start: 39, count: 1, flags: ROW_FLAG.fromDevice },
      ],
      samples: [
        { row: 0, slot: 1 },
        { row: 1, slot: 0 },
      ],
    });
    const words = new Int32Array(good.buffer);
    const result = new Uint8Array(1 << 20);
    const tryStep = (spec: PlanSpec): void => {
      try {
        runStep(engine, spec);
      } catch (e) {
        assert.equal((e as NativeError).code, 'bad_plan');
      }
    };
    const value = fc.oneof(fc.integer({ min: -3, max: 70 }), fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 }));
    fc.assert(
      fc.property(fc.array(fc.tuple(fc.nat(words.length - 1), value), { minLength: 1, maxLength: 3 }), (changes) => {
        const spoilt = words.slice();
        for (const [at, v] of changes) spoilt[at] = v;
        try {
          engine.submit(new Uint8Array(spoilt.buffer));
        } catch (e) {
          assert.equal((e as NativeError).code, 'bad_plan');
          return;
        }
        const bytes = engine.wait(result, 60_000);
        const a = readResult(result.subarray(0, bytes), vocab);
        assert.equal(a.errorCode, 0);
        tryStep({ freed: [0] });
        for (const slot of [1, 2, 3]) tryStep({ freed: [slot] });
        tryStep({ newSlots: [{ slot: 0, tokens: prompt }], blockSets: blockSets(0, 0, 3) });
      }),
      { numRuns: 1500, seed: 4 },
    );
  });
});
