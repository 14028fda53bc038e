/** Time of choosing an engine group for a request: `node dist/test/bench/routing.js`. Two groups, one of which holds all of the prompt. */
import { BoardReader, BoardWriter, createBoard } from '../../actors/routing/board.js';
import { nextKey, ROOT_KEY } from '../../actors/routing/prefix-key.js';
import { type Candidate, Router } from '../../actors/routing/router.js';
import { origin, percentiles } from './report.js';

const SIZE = 16;
const BLOCKS = 32_768;
const ROUNDS = 20_000;

function group(prompt: Int32Array | null): Candidate {
  const memory = createBoard(BLOCKS);
  const writer = new BoardWriter(memory);
  for (let i = 1; i < BLOCKS; i++) writer.add(nextKey(i, new Int32Array(1), 0, 1));
  let key = ROOT_KEY;
  for (let at = 0; prompt !== null && at + SIZE <= prompt.length; at += SIZE) {
    key = nextKey(key, prompt, at, SIZE);
    writer.add(key);
  }
  return { board: new BoardReader(memory), onTheWay: { promptTokens: 0, waiting: 0 } };
}

for (const length of [64, 500, 2000, 8000, 100_000]) {
  const prompt = Int32Array.from({ length }, (_, i) => (i * 7919) % 50_000);
  const groups = [group(null), group(prompt)];
  const router = new Router(SIZE);
  for (let i = 0; i < ROUNDS / 10; i++) router.choose(groups, prompt);
  const us = new Float64Array(ROUNDS);
  for (let i = 0; i < ROUNDS; i++) {
    const began = performance.now();
    router.choose(groups, prompt);
    us[i] = 1000 * (performance.now() - began);
  }
  console.log(JSON.stringify({ prompt_tokens: length, us: percentiles(us), ...origin() }));
}
