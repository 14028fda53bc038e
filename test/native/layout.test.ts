/** The TypeScript and the C++ side of the wire layout are the same, constant by constant. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SAMPLING_ROW, samplingParams } from '../../actors/messages/sampling.js';
import * as step from '../../actors/messages/step.js';
import { loadAddon } from '../../native/index.js';

const compiled = loadAddon().layout();
/** Tables of the native side alone: what it says about the fields of the sampling record. */
const ranges = ['SAMPLING_MIN', 'SAMPLING_MAX', 'SAMPLING_OFF', 'SAMPLING_EDITS'];

test('both sides have the same layout version', () => {
  assert.deepEqual(compiled['LAYOUT'], { version: step.LAYOUT_VERSION });
});

test('every table of step.ts, and the sampling record, has the offsets that the native library was compiled with', () => {
  const tables: (readonly [string, Readonly<Record<string, number>>])[] = [['SAMPLING_ROW', SAMPLING_ROW]];
  for (const [name, value] of Object.entries(step)) if (typeof value === 'object') tables.push([name, value]);
  for (const [name, table] of tables) assert.deepEqual({ ...compiled[name] }, { ...table }, name);
  assert.deepEqual(
    Object.keys(compiled).sort(),
    ['LAYOUT', ...ranges, ...tables.map(([name]) => name)].sort(),
    'and neither side has a table that the other lacks',
  );
});

test('the sections of a plan have the same order on both sides', () => {
  assert.deepEqual(Object.keys(compiled['PLAN_SECTIONS'] ?? {}), Object.keys(step.PLAN_SECTIONS));
});

test('the engine takes all values of sampling.ts, and off is the same on both sides', () => {
  const [min, max, off] = ranges.map((name) => compiled[name] ?? {});
  for (const [name, param] of Object.entries(samplingParams)) {
    const least = name === 'top_k' ? 0 : param.min; // -1 is packed as 0
    assert.ok(Math.fround(least) >= (min?.[name] ?? Number.NaN), `${name} from ${least}, the engine from ${min?.[name]}`);
    assert.ok(Math.fround(param.max) <= (max?.[name] ?? Number.NaN), `${name} to ${param.max}, the engine to ${max?.[name]}`);
    assert.equal(off?.[name], param.default, `${name} without a value`);
  }
});
