/** A short soak: clients that misbehave, threads that die, and daemons that are ended under load. All rules hold. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { runSoak } from './soak/run.js';
import type { Mode } from './soak/target.js';

const run = async (mode: Mode) => {
  const figures = await runSoak({ seconds: 9, clients: 10, modes: [mode], seed: 4 });
  assert.deepEqual(figures.violations, [], figures.table());
  assert.ok(figures.of('answered') > 0, 'requests were answered');
  assert.ok(figures.of('idle checks') > 0, 'the daemon was seen idle');
  return figures;
};

test('threads die and steps fail under load, and every rule holds', async () => {
  await run('threads');
});

test('daemons get SIGTERM and SIGKILL under load and come back, and every rule holds', async () => {
  assert.ok((await run('signals')).of('daemons started (signals)') > 1);
});
