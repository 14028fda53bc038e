import assert from 'node:assert/strict';
import { once } from 'node:events';
import { getPriority } from 'node:os';
import { test } from 'node:test';
import { Worker } from 'node:worker_threads';

const module = new URL('../../../actors/runtime/cpu-time.js', import.meta.url).href;

/** Runs statements in a thread and resolves with what they post. */
async function inThread(statements: string): Promise<unknown> {
  const thread = new Worker(
    `const { parentPort } = require('node:worker_threads');
     import(${JSON.stringify(module)}).then(({ giveWay, threadCpuClock }) => { ${statements} });`,
    { eval: true },
  );
  const [answer] = await once(thread, 'message');
  await thread.terminate();
  return answer;
}

test('a thread that gives way does so alone', async () => {
  const mine = getPriority();
  const own = `{ const text = require('node:fs').readFileSync('/proc/thread-self/stat', 'utf8');
    parentPort.postMessage(Number(text.slice(text.lastIndexOf(')') + 2).split(' ')[16])); }`;
  const after = await inThread(`giveWay(); if (process.platform !== 'linux') parentPort.postMessage(null); else ${own}`);
  assert.equal(after, process.platform === 'linux' ? Math.max(mine, 5) : null);
  assert.equal(getPriority(), mine);
});

test('the processor time of a thread counts its own work only', async () => {
  const used = await inThread(`
    const now = threadCpuClock();
    const before = now?.() ?? 0;
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 200);
    const asleep = (now?.() ?? 0) - before;
    for (const until = performance.now() + 60_000; now !== null && now() - before < 20 + asleep && performance.now() < until; );
    parentPort.postMessage(now === null ? null : { asleep, worked: now() - before - asleep });`);
  if (process.platform !== 'linux') return assert.equal(used, null);
  const { asleep, worked } = used as { readonly asleep: number; readonly worked: number };
  assert.ok(asleep < 100, `${asleep} ms while it slept`);
  assert.ok(worked >= 20, `${worked} ms while it worked`);
});
