/** Which group a request goes to, one choice at a time. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { BoardReader, BoardWriter, createBoard, type Work } from '../../../actors/routing/board.js';
import { createTaken, OnTheWay, Taken } from '../../../actors/routing/on-the-way.js';
import { nextKey, ROOT_KEY } from '../../../actors/routing/prefix-key.js';
import { type Candidate, Router } from '../../../actors/routing/router.js';

const SIZE = 16;
const tokens = (count: number, first = 0): Int32Array => Int32Array.from({ length: count }, (_, i) => first + i);
const nothing: Work = { promptTokens: 0, running: 0, waiting: 0 };

/** A group that holds the first `held` blocks of `prompt` and has `work` to do. */
function group(prompt: Int32Array, held: number, work: Partial<Work> = {}): Candidate {
  const memory = createBoard(1024);
  const writer = new BoardWriter(memory);
  let key = ROOT_KEY;
  for (let i = 0; i < held; i++) {
    key = nextKey(key, prompt, i * SIZE, SIZE);
    writer.add(key);
  }
  writer.tell({ ...nothing, ...work });
  return { board: new BoardReader(memory), onTheWay: { promptTokens: 0, waiting: 0 } };
}

test('among groups with as much to do the longest match wins, wherever it is', () => {
  const held = fc.array(fc.nat({ max: 12 }), { minLength: 1, maxLength: 5 });
  fc.assert(
    fc.property(held, fc.nat({ max: 50 }), (blocks, running) => {
      const prompt = tokens(12 * SIZE + 5);
      const router = new Router(SIZE);
      const { index, newTokens } = router.choose(
        blocks.map((count) => group(prompt, count, { running })),
        prompt,
      );
      assert.equal(blocks[index], Math.max(...blocks));
      assert.equal(newTokens, prompt.length - SIZE * Math.max(...blocks));
    }),
  );
});

test('a match counts from the beginning only, and never the last token', () => {
  const prompt = tokens(4 * SIZE);
  assert.equal(new Router(SIZE).choose([group(prompt, 4)], prompt).newTokens, SIZE);
  assert.equal(new Router(SIZE).choose([group(prompt, 4)], tokens(SIZE)).newTokens, SIZE);
  assert.equal(new Router(SIZE).choose([group(prompt, 4)], tokens(4 * SIZE, 1)).newTokens, 4 * SIZE);
  assert.equal(new Router(SIZE).choose([group(prompt, 4)], new Int32Array(0)).newTokens, 0);
});

test('a popular beginning does not keep a request from a group that is through sooner', () => {
  const prompt = tokens(100 * SIZE + 1);
  const router = new Router(SIZE);
  const busy = (promptTokens: number) => [group(prompt, 100, { promptTokens }), group(prompt, 0)];
  assert.equal(router.choose(busy(100 * SIZE - 1), prompt).index, 0);
  assert.equal(router.choose(busy(100 * SIZE + 1), prompt).index, 1);
});

test('groups that are equal take turns, and requests on the way count', () => {
  const prompt = tokens(40);
  const groups = [group(prompt, 0), group(prompt, 0), group(prompt, 0)];
  const router = new Router(SIZE);
  assert.deepEqual([...new Set([0, 1, 2].map(() => router.choose(groups, prompt).index))].sort(), [0, 1, 2]);
  const taken = createTaken();
  const onTheWay = new OnTheWay(taken);
  onTheWay.send(40);
  for (let i = 0; i < 3; i++) assert.notEqual(router.choose([{ ...groups[0]!, onTheWay: onTheWay.now() }, groups[1]!], prompt).index, 0);
  const reader = new Taken(taken);
  reader.take(40);
  assert.equal(onTheWay.now().promptTokens, 40, 'until it is on the board');
  reader.tell();
  assert.deepEqual(onTheWay.now(), { promptTokens: 0, waiting: 0 });
});

test('who waits for a slot counts for more than who runs', () => {
  const prompt = tokens(40);
  const router = new Router(SIZE);
  for (let i = 0; i < 2; i++)
    assert.equal(router.choose([group(prompt, 0, { waiting: 1 }), group(prompt, 0, { running: 4 })], prompt).index, 1);
});
