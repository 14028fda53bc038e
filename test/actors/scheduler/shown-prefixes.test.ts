/** What a scheduler shows of its prefix cache while blocks are taken away from it. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { BoardReader, BoardWriter, createBoard } from '../../../actors/routing/board.js';
import { nextKey, ROOT_KEY } from '../../../actors/routing/prefix-key.js';
import { Rig } from './rig.js';

const SIZE = 4;

/** Blocks at the beginning of a prompt that the board shows. */
function shown(board: BoardReader, prompt: readonly number[]): number {
  const tokens = Int32Array.from(prompt);
  let key = ROOT_KEY;
  for (let i = 0; (i + 1) * SIZE <= tokens.length; i++) {
    key = nextKey(key, tokens, i * SIZE, SIZE);
    if (!board.has(key)) return i;
  }
  return Math.floor(tokens.length / SIZE);
}

test('whatever the board shows of a prompt is found when it is admitted, and nothing else, while blocks are scarce', () => {
  const prompts = fc.array(
    fc.record({ kind: fc.nat({ max: 5 }), length: fc.integer({ min: 1, max: 40 }), bestOf: fc.integer({ min: 1, max: 2 }) }),
    {
      minLength: 1,
      maxLength: 30,
    },
  );
  fc.assert(
    fc.property(prompts, (asked) => {
      const rig = new Rig({ blockSize: SIZE, numBlocks: 24, maxSlots: 4 });
      const memory = createBoard(24);
      rig.scheduler.showOn(new BoardWriter(memory));
      const board = new BoardReader(memory);
      for (const { kind, length, bestOf } of asked) {
        const prompt = Array.from({ length }, (_, i) => 8 + ((i * 7 + (i > 9 ? kind * 11 : 0)) % 40)); // two blocks are the same in all
        const expected = Math.min(shown(board, prompt), Math.floor((length - 1) / SIZE)) * SIZE;
        const id = rig.admit({ prompt, maxTokens: 5, bestOf, ignoreEos: true });
        rig.run(); // checks all books after each step, those of the board among them
        assert.equal(rig.entry(id).started[0]?.cachedTokens, expected);
      }
      rig.assertIdle();
    }),
    { numRuns: 60 },
  );
});
