/** Stores of log-probability records give back what was put in, whatever the pieces; the first token of a prompt is what the others leave. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { type LogprobSource, RecordStore, RecordView } from '../../../rpc/generation/logprob-records.js';
import { PromptEntries } from '../../../rpc/generation/prompt-logprobs.js';
import { WordBlocks } from '../../../rpc/generation/word-blocks.js';
import { recordsOf, type TokenLogprob } from '../../helpers/engine/logprobs.js';

const textOf = (id: number) => ({ token: `<${id}>`, bytes: [id & 0xff] });
const logprob = fc.float({ noNaN: true, max: 0 });
const entry: fc.Arbitrary<TokenLogprob> = fc.record(
  { token: fc.nat(5000), logprob, rank: fc.nat(100), top: fc.array(fc.tuple(fc.nat(5000), logprob), { maxLength: 20 }) },
  { noNullPrototype: true },
);

function read(source: LogprobSource): TokenLogprob[] {
  return [...source].map(({ id, token, bytes, logprob, rank, top }) => {
    assert.deepEqual({ token, bytes }, textOf(id));
    for (const one of top) assert.deepEqual({ token: one.token, bytes: one.bytes }, textOf(one.id));
    return { token: id, logprob, rank, top: top.map((one) => [one.id, one.logprob] as const) };
  });
}

test('a store gives back every record in order, also in parts, however they came', () => {
  fc.assert(
    fc.property(
      fc.array(fc.tuple(fc.array(entry, { maxLength: 6 }), fc.constantFrom(1, 1, 200)), { maxLength: 12 }),
      fc.integer({ min: 1, max: 9 }),
      (given, size) => {
        const store = new RecordStore(textOf);
        const all: TokenLogprob[] = [];
        for (const [entries, times] of given) {
          const repeated = Array.from({ length: times }, () => entries).flat();
          store.add(recordsOf(repeated));
          all.push(...repeated);
        }
        assert.equal(store.size, all.length);
        assert.deepEqual(read(store), all);
        const parts = [...store.parts(size)];
        assert.ok(parts.every((part) => part.size > 0 && part.size <= size));
        assert.deepEqual(parts.flatMap(read), all);
        assert.equal(
          parts.reduce((sum, part) => sum + part.words, 0),
          store.words,
        );
      },
    ),
    { numRuns: 50 },
  );
});

test('a view reads records that lie in the middle of a buffer', () => {
  const entries = [1, 2, 3].map((token) => ({ token, logprob: -token, rank: token, top: [[token, -1] as const] }));
  const all = recordsOf(entries);
  assert.deepEqual(read(new RecordView(all.subarray(all.length / 3), textOf)), entries.slice(1));
});

test('words come back in order, a few at a time or many', () => {
  const blocks = new WordBlocks();
  const all: number[] = [];
  for (const size of [1, 0, 15, 3, 5000, 1, 20_000, 2, 2, 4095]) {
    const words = Array.from({ length: size }, () => all.length + Math.floor(Math.random() * 10));
    blocks.add(size % 2 === 0 ? words : Int32Array.from(words));
    all.push(...words);
  }
  assert.deepEqual(
    [...blocks].flatMap((block) => [...block]),
    all,
  );
  assert.equal(blocks.length, all.length);
});

test('the first token of a prompt is what the others leave of its text, or nothing where they do not end it', () => {
  const first = (text: string, tokens: readonly number[]) => {
    const rest = new RecordStore(textOf);
    rest.add(recordsOf(tokens.map((token) => ({ token, logprob: -1, rank: 1, top: [] }))));
    const entries = new PromptEntries(rest, text, 77);
    const [head, ...others] = entries;
    assert.equal(others.length, tokens.length);
    assert.equal(entries.size, tokens.length + 1);
    assert.deepEqual(
      [...entries.parts(2)].flatMap((part) => [...part]).map((one) => one.id),
      [77, ...tokens],
    );
    assert.ok(Number.isNaN(head?.logprob));
    return head?.token;
  };
  assert.equal(first('Once<1><2>', [1, 2]), 'Once');
  assert.equal(first('<1><2>', [1, 2]), '');
  assert.equal(first('<2>', [1, 2]), '', 'the text is shorter than its tokens');
  assert.equal(first('Once<1><3>', [1, 2]), '', 'a token shows otherwise in the text');
  assert.equal(first('Once', []), 'Once');
  assert.equal(first('', [1]), '', 'the text was not asked for');
});
