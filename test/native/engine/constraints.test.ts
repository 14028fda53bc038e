/** Sequences with a grammar: their tokens keep to it with two steps in flight, in forks, and from where they were after a preemption. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { NO_TOKEN } from '../../../actors/messages/step.js';
import { type GrammarLimits, loadAddon, type NativeEngine } from '../../../native/index.js';
import { answer, runStep } from '../../helpers/native/native-engine.js';
import { buildPlan, type NewSlotSpec, type SampledToken } from '../../helpers/native/plan.js';
import { open, prefill, prompt, vocab } from './rig.js';

const limits: GrammarLimits = {
  maxTextBytes: 2 ** 20,
  maxStates: 2 ** 16,
  maxMemoryBytes: 2 ** 26,
  maxDepth: 100,
  deadlineMs: 10_000,
  extensions: false,
};
/** Ids 0 .. 255 are bytes, then come some pairs of digits; the last id ends an answer. */
const end = vocab - 1;
const texts = Array.from({ length: vocab }, (_, id) =>
  id < 256 ? Buffer.of(id) : id === end ? Buffer.alloc(0) : Buffer.from(String(id % 100).padStart(2, '0')),
);
const textOf = (tokens: readonly number[]): string => Buffer.concat(tokens.map((id) => texts[id] ?? Buffer.alloc(0))).toString('latin1');

const addon = loadAddon();
const vocabularyOf = (words: readonly Buffer[]): number => {
  const offsets = [0, ...words].map((_, i) => words.slice(0, i).reduce((sum, word) => sum + word.length, 0));
  return addon.grammarVocabulary(Buffer.concat(words), Int32Array.from(offsets), Int32Array.of(end));
};
const vocabulary = vocabularyOf(texts);

describe('sequences with a grammar', () => {
  let engine: NativeEngine;
  const held: number[] = [];
  before(() => {
    engine = open();
  });
  after(() => {
    for (const grammar of held) addon.releaseGrammar(grammar);
    engine.close();
  });

  const compiled = async (text: string): Promise<number> => {
    const grammar = await addon.compileGrammar(vocabulary, text, limits);
    held.push(grammar);
    return grammar;
  };
  const begin = (grammar: number, seed: number): Pick<NewSlotSpec, 'sampling'> => ({
    sampling: { grammar, temperature: 1.5, seedLo: seed },
  });

  /** Decodes `slots` further, their next row at `starts`, two steps in flight; the tokens of each until its end token or `most`. */
  const decode = (slots: readonly number[], starts: readonly number[], most: number): number[][] => {
    const tokens: number[][] = slots.map(() => []);
    const submit = (step: number): void =>
      engine.submit(
        buildPlan({
          rows: slots.map((slot, i) => ({ slot, start: (starts[i] ?? 0) + step, count: 1 })),
          samples: slots.map((slot, row) => ({ row, slot })),
        }),
      );
    submit(0);
    for (let step = 1; step <= most; step++) {
      if (step < most) submit(step);
      for (const [i, { token }] of answer(engine).samples.entries()) tokens[i]?.push(token);
    }
    return tokens.map((own) => (own.includes(end) ? own.slice(0, own.indexOf(end) + 1) : own));
  };
  const first = (samples: readonly SampledToken[]): number[] => samples.map(({ token }) => token);
  const free = (...slots: number[]): void => void runStep(engine, { freed: slots });

  test('take only tokens that lead to a whole match, and end when it is one', async () => {
    const grammar = await compiled('root ::= "<" [0-9]{5} ("-" [a-f]+)? ">"');
    for (let seed = 0; seed < 20; seed++) {
      const begun = runStep(engine, { ...prefill(0, 0), newSlots: [{ slot: 0, tokens: prompt, ...begin(grammar, seed) }] });
      const tokens = [...first(begun.samples), ...(decode([0], [prompt.length], 23)[0] ?? [])];
      const whole = tokens.includes(end);
      const text = textOf(tokens.slice(0, whole ? tokens.indexOf(end) : tokens.length));
      assert.match(text, whole ? /^<[0-9]{5}(-[a-f]+)?>$/ : /^<[0-9]{5}-[a-f]+>?$/);
      free(0);
    }
  });

  test('leave the others of their batch alone', async () => {
    const grammar = await compiled('root ::= "yes" | "no"');
    const plain = { slot: 1, tokens: prompt.slice(5), sampling: { temperature: 1, seedLo: 7 } };
    const alone = runStep(engine, { ...prefill(1, 4, plain.tokens), newSlots: [plain] });
    const rest = decode([1], [plain.tokens.length], 6);
    free(1);
    const one = prefill(0, 0);
    const other = prefill(1, 4, plain.tokens);
    const together = runStep(engine, {
      newSlots: [{ slot: 0, tokens: prompt, ...begin(grammar, 1) }, plain],
      blockSets: [...(one.blockSets ?? []), ...(other.blockSets ?? [])],
      rows: [...(one.rows ?? []), ...(other.rows ?? [])],
      samples: [
        { row: 0, slot: 0 },
        { row: 1, slot: 1 },
      ],
    });
    const both = decode([0, 1], [prompt.length, plain.tokens.length], 6);
    assert.equal(together.samples[1]?.token, alone.samples[0]?.token);
    assert.deepEqual(both[1], rest[0]);
    assert.match(textOf([together.samples[0]?.token ?? 0, ...(both[0] ?? [])]), /^(yes|no)$/);
    free(0, 1);
  });

  test('go on where they were after a preemption', async () => {
    const grammar = await compiled('root ::= "abcdefgh" [0-9]{4}');
    const begun = runStep(engine, { ...prefill(0, 0), newSlots: [{ slot: 0, tokens: prompt, ...begin(grammar, 3) }] });
    const tokens = [...first(begun.samples), ...(decode([0], [prompt.length], 4)[0] ?? [])];
    assert.equal(textOf(tokens), 'abcde');
    free(0);
    const known = [...prompt, ...tokens];
    const again = runStep(engine, {
      ...prefill(2, 8, known),
      newSlots: [{ slot: 2, tokens: known, promptLen: prompt.length, ...begin(grammar, 3) }],
    });
    const rest = [...first(again.samples), ...(decode([2], [known.length], 7)[0] ?? [])];
    assert.match(textOf([...tokens, ...rest]), /^abcdefgh[0-9]{4}$/);
    free(2);
  });

  test('keep apart when they fork', async () => {
    const grammar = await compiled('root ::= [0-9]{1,30}');
    const one = prefill(0, 0);
    const begun = runStep(engine, {
      ...one,
      newSlots: [
        { slot: 0, tokens: prompt, ...begin(grammar, 4) },
        { slot: 3, forkOf: 0, promptLen: prompt.length, sampling: { ...begin(grammar, 4).sampling, sequenceIndex: 1 } },
      ],
      blockSets: [...(one.blockSets ?? []), ...[0, 1, 2, 3].map((index) => ({ slot: 3, index, block: 20 + index }))],
      samples: [
        { row: 0, slot: 0 },
        { row: 0, slot: 3 },
      ],
    });
    const rest = decode([0, 3], [prompt.length, prompt.length], 8);
    for (const [i, { token }] of begun.samples.entries()) assert.match(textOf([token, ...(rest[i] ?? [])]), /^[0-9]+$/);
    free(0, 3);
  });

  test('report log-probabilities of what the model gives, not of what the grammar leaves', async () => {
    const grammar = await compiled('root ::= "q"');
    const { samples } = runStep(engine, {
      ...prefill(0, 0),
      newSlots: [{ slot: 0, tokens: prompt, sampling: { grammar, topLogprobs: 3 } }],
    });
    const [sample] = samples;
    assert.equal(sample?.token, 'q'.charCodeAt(0));
    assert.ok((sample?.rank ?? 0) > 1 && (sample?.logprob ?? 0) < -0.01, JSON.stringify(sample));
    assert.equal(
      sample?.tops.some(({ id }) => id === sample.token),
      (sample?.rank ?? 0) <= 3,
    );
    free(0);
  });

  test('get no token when their grammar is gone, or leads nowhere in this vocabulary', async () => {
    const lacking = texts.map((text) => (text.equals(Buffer.from('c')) ? Buffer.alloc(0) : text));
    const grammar = await addon.compileGrammar(vocabularyOf(lacking), 'root ::= "ac"', limits);
    held.push(grammar);
    const begun = (number: number) =>
      runStep(engine, { ...prefill(0, 0), newSlots: [{ slot: 0, tokens: prompt, sampling: { grammar: number } }] });
    assert.deepEqual(first(begun(2 ** 30).samples), [NO_TOKEN]);
    free(0);
    assert.equal(textOf(first(begun(grammar).samples)), 'a');
    assert.deepEqual(decode([0], [prompt.length], 1), [[NO_TOKEN]]);
    free(0);
  });
});
