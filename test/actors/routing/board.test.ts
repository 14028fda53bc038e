/** Keys of prompts, and the boards that show them. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { BoardReader, BoardWriter, createBoard } from '../../../actors/routing/board.js';
import { nextKey, ROOT_KEY } from '../../../actors/routing/prefix-key.js';

const SIZE = 4;
const keysOf = (tokens: Int32Array): number[] => {
  const keys: number[] = [];
  for (let at = 0; at + SIZE <= tokens.length; at += SIZE) keys.push(nextKey(keys.at(-1) ?? ROOT_KEY, tokens, at, SIZE));
  return keys;
};

test('keys are equal as far as the tokens are, and differ from there on', () => {
  const tokens = fc.array(fc.integer({ min: 0, max: 3 }), { minLength: 16, maxLength: 40 });
  fc.assert(
    fc.property(tokens, tokens, (a, b) => {
      const [one, other] = [keysOf(Int32Array.from(a)), keysOf(Int32Array.from(b))];
      const same = a.findIndex((token, i) => token !== b[i]);
      const blocks = Math.floor((same === -1 ? Math.min(a.length, b.length) : Math.min(same, b.length)) / SIZE);
      assert.deepEqual(one.slice(0, blocks), other.slice(0, blocks));
      for (let i = blocks; i < Math.min(one.length, other.length); i++) assert.notEqual(one[i], other[i]);
      assert.ok(one.every((key) => key !== 0));
    }),
  );
});

test('the place of a block in its prompt, and the order of its tokens, matter', () => {
  const [first, , third] = keysOf(Int32Array.of(1, 2, 3, 4, 2, 1, 3, 4, 1, 2, 3, 4));
  assert.notEqual(first, third);
  assert.notEqual(first, keysOf(Int32Array.of(2, 1, 3, 4))[0]);
  assert.notEqual(first, keysOf(Int32Array.of(3, 2, 1, 4))[0]);
});

test('a hundred thousand beginnings of random tokens have hardly two equal keys', () => {
  const seen = new Set<number>();
  const tokens = new Int32Array(16);
  let state = 1;
  for (let i = 0; i < 100_000; i++) {
    for (let j = 0; j < tokens.length; j++) {
      state = (Math.imul(state, 1_103_515_245) + 12_345) | 0;
      tokens[j] = (state >>> 8) % 50_000;
    }
    seen.add(nextKey(ROOT_KEY, tokens, 0, tokens.length));
  }
  assert.ok(seen.size > 99_980, `${seen.size}`); // 1.2 pairs are expected of 32 bits
});

test('a board shows what was added and not removed', () => {
  const change = fc.record({ key: fc.integer({ min: 1, max: 400 }), adds: fc.boolean() });
  fc.assert(
    fc.property(fc.array(change, { maxLength: 300, size: 'max' }), (changes) => {
      const memory = createBoard(1024);
      const [writer, reader] = [new BoardWriter(memory), new BoardReader(memory)];
      const model = new Set<number>();
      for (const { key, adds } of changes) {
        const spread = Math.imul(key, 0x9e3779b1);
        if (adds) {
          writer.add(spread);
          model.add(key);
        } else {
          writer.remove(spread);
          model.delete(key);
        }
      }
      for (let key = 1; key <= 400; key++) assert.equal(reader.has(Math.imul(key, 0x9e3779b1)), model.has(key));
    }),
  );
});

test('a board that is as full as it can get forgets few keys, shows none that it was not given, and is empty in the end', () => {
  const blocks = 4096;
  const memory = createBoard(blocks);
  const [writer, reader] = [new BoardWriter(memory), new BoardReader(memory)];
  const key = (i: number): number => nextKey(ROOT_KEY, Int32Array.of(i), 0, 1);
  for (let i = 0; i < blocks; i++) writer.add(key(i));
  let shown = 0;
  for (let i = 0; i < blocks; i++) if (reader.has(key(i))) shown++;
  assert.ok(shown > 0.99 * blocks, `${shown} of ${blocks}`);
  for (let i = blocks; i < 2 * blocks; i++) assert.ok(!reader.has(key(i)));
  for (let i = 0; i < blocks; i++) writer.remove(key(i));
  assert.ok(memory.every((word) => word === 0));
});

test('what has to be done is told as it is', () => {
  const memory = createBoard(1);
  const work = { promptTokens: 1234, running: 5, waiting: 6 };
  new BoardWriter(memory).tell(work);
  assert.deepEqual(new BoardReader(memory).work(), work);
});
