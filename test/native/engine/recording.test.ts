/** Recordings of an engine: which steps and ops they hold, on whose clock, and their bounds. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type DeviceTrace, TRACE_KIND } from '../../../native/index.js';
import { nativeError, runStep } from '../../helpers/native/native-engine.js';
import { buildPlan } from '../../helpers/native/plan.js';
import { open, prefill, prompt } from './rig.js';

describe('a recording', () => {
  const names = (trace: DeviceTrace, kind: number): string[] =>
    [...trace.kind].flatMap((k, i) => (k === kind ? [trace.names[trace.name[i] ?? -1] ?? '?'] : []));

  test('has the steps and ops of its time in order, on the clock of the engine', () => {
    const engine = open();
    runStep(engine, prefill(0, 0));
    const before = engine.profileClock?.() ?? 0;
    engine.profileStart?.(10_000);
    for (let i = 0; i < 3; i++) {
      const step = 7 + i;
      runStep(engine, { step, rows: [{ slot: 0, start: prompt.length + i, count: 1 }], samples: [{ row: 0, slot: 0 }] });
    }
    const trace = engine.profileStop?.();
    const after = engine.profileClock?.() ?? 0;
    runStep(engine, prefill(1, 4));
    engine.close();
    assert.ok(trace !== undefined);
    assert.deepEqual([trace.source, trace.note, trace.dropped], ['ops', '', 0]);
    const steps = [...trace.kind].flatMap((kind, i) => (kind === TRACE_KIND.step ? [trace.value[i]] : []));
    assert.deepEqual(steps, [7, 8, 9]);
    const ops = names(trace, TRACE_KIND.op);
    for (const name of ['linear', 'attention', 'rope_and_cache', 'sample'])
      assert.equal(ops.filter((op) => op === name).length % 3, 0, name);
    assert.ok(ops.includes('linear') && ops.includes('sample'));
    for (let i = 0; i < trace.kind.length; i++) {
      const start = trace.startUs[i] ?? 0;
      assert.ok(start >= before && start + (trace.durationUs[i] ?? 0) <= after, 'within the recording');
      assert.ok(i === 0 || start >= (trace.startUs[i - 1] ?? 0), 'in order of start');
    }
  });

  test('keeps what there is room for and counts the rest', () => {
    const engine = open();
    engine.profileStart?.(5);
    runStep(engine, prefill(0, 0));
    const trace = engine.profileStop?.();
    engine.close();
    assert.equal(trace?.kind.length, 5);
    assert.ok((trace?.dropped ?? 0) > 5);
  });

  test('runs one at a time and ends with its engine', () => {
    const engine = open();
    assert.throws(() => engine.profileStop?.(), nativeError('usage', /No recording is running/));
    assert.throws(() => engine.profileStart?.(0), nativeError('usage', /maxEvents is 0/));
    engine.profileStart?.(100);
    assert.throws(() => engine.profileStart?.(100), nativeError('usage', /running already/));
    engine.submit(buildPlan(prefill(0, 0)));
    engine.close();
  });
});
