/** The TypeScript and the C++ side of the wire layout are the same, constant by constant. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as step from '../../actors/messages/step.js';
import { loadAddon } from '../../native/index.js';

const compiled = loadAddon().layout();

test('both sides have the same layout version', () => {
  assert.deepEqual(compiled['LAYOUT'], { version: step.LAYOUT_VERSION });
});

test('every table of step.ts has the offsets that the native library was compiled with', () => {
  const tables: (readonly [string, Readonly<Record<string, number>>])[] = [];
  for (const [name, value] of Object.entries(step)) if (typeof value === 'object') tables.push([name, value]);
  for (const [name, table] of tables) assert.deepEqual({ ...compiled[name] }, { ...table }, name);
  assert.deepEqual(
    Object.keys(compiled).sort(),
    ['LAYOUT', ...tables.map(([name]) => name)].sort(),
    'and neither side has a table that the other lacks',
  );
});
