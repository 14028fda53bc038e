/** The records of real requests, read from the memory in which the threads of an engine hand them to each other. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { messageShapes } from '../../../actors/messages/shapes.js';
import { createEngine } from '../../../daemon/library/index.js';
import { privateEnv } from '../../helpers/daemon/daemon.js';

/** All memory that is shared while `work` runs. */
async function sharedDuring(work: () => Promise<void>): Promise<readonly string[]> {
  const made: SharedArrayBuffer[] = [];
  const real = globalThis.SharedArrayBuffer;
  globalThis.SharedArrayBuffer = new Proxy(real, {
    construct(target, args: [number]) {
      const memory = new target(...args);
      made.push(memory);
      return memory;
    },
  });
  try {
    await work();
  } finally {
    globalThis.SharedArrayBuffer = real;
  }
  return made.map((memory) => Buffer.from(memory).toString('latin1'));
}

test('what crosses threads for a request names none of its members', async () => {
  const lanes = await sharedDuring(async () => {
    const engine = await createEngine({ env: privateEnv(), inference: { threads: 1 } });
    const limits = { max_tokens: 6, stop: ['in heaven and earth'] };
    await engine.generate({ messages: [{ role: 'user', content: 'Tell me a story about a whale.' }] }, limits);
    await engine.generate('A whale swam in the', limits);
    await engine.generate([1, 2, 3], { ...limits, temperature: 0 });
    await engine.close();
  });
  const memory = lanes.join('');
  assert.ok(memory.includes('about a whale') && memory.includes('A whale swam'), 'the requests crossed by this memory');
  const names = new Set(messageShapes.flat().filter((name) => name.length >= 6));
  assert.ok(names.has('samplingRow') && names.has('promptIds') && names.has('queueMs'), 'the records of every request are among them');
  // Values that are the names of members elsewhere; calls of the front have `params` too.
  for (const word of ['tokens', 'deltas', 'prompt', 'params']) names.delete(word);
  assert.deepEqual(
    [...names].filter((name) => memory.includes(name)),
    [],
  );
});

test('shapes fit in one byte each, and no two are the same', () => {
  assert.ok(messageShapes.length <= 32);
  assert.equal(new Set(messageShapes.map((names) => names.join())).size, messageShapes.length);
});
