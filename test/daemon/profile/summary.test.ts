import assert from 'node:assert/strict';
import { test } from 'node:test';
import { stepFacts } from '../../../daemon/profile/recording.js';
import { summaryOf } from '../../../daemon/profile/summary.js';
import type { DeviceTrace } from '../../../native/index.js';
import { type DeviceSpec, deviceOf, plansOf, recordingOf } from '../../helpers/daemon/profile.js';

type Plan = readonly [step: number, rows: number, tokens: number, afterIdle?: number];

function summarize(device: DeviceTrace | null, plans: readonly Plan[]) {
  const scheduler = plansOf(plans);
  return summaryOf({ rank: 0, scheduler, executor: recordingOf([]), device }, stepFacts(scheduler));
}

/** Decode steps of 1 ms with 100 us between them. */
const steps = (first: number, count: number, fromUs = 0): DeviceSpec[] =>
  Array.from({ length: count }, (_, i) => {
    const startUs = fromUs + i * 1100;
    return { kind: 'step', startUs, endUs: startUs + 1000, value: first + i };
  });
const decodes = (first: number, count: number): Plan[] => Array.from({ length: count }, (_, i) => [first + i, 4, 4]);
const ordered = (specs: readonly DeviceSpec[]): DeviceSpec[] => [...specs].sort((a, b) => a.startUs - b.startUs || b.endUs - a.endUs);

test('where only steps are known, the gaps between decode steps are idle', () => {
  const s = summarize(deviceOf('events', steps(1, 5)), decodes(1, 5));
  assert.deepEqual(s, {
    steps: 5,
    decode_steps: 5,
    busy_ms: 5,
    idle_ms: 0.4,
    idle_share: 0.074074,
    median_step_ms: 1,
    median_period_ms: 1.1,
  });
});

test('with kernels, the device is idle while none runs on any stream', () => {
  const kernels: DeviceSpec[] = [
    { kind: 'kernel', startUs: 10, endUs: 400, lane: 7 },
    { kind: 'copy', startUs: 300, endUs: 500, lane: 8 },
    { kind: 'kernel', startUs: 350, endUs: 450, lane: 7 },
    { kind: 'kernel', startUs: 600, endUs: 990, lane: 7 },
    { kind: 'kernel', startUs: 1110, endUs: 2090, lane: 7 },
  ];
  const s = summarize(deviceOf('cupti', ordered([...steps(1, 2), ...kernels])), decodes(1, 2));
  assert.equal(s.busy_ms, 1.86);
  assert.equal(s.idle_ms, 0.22);
  assert.equal(s.decode_steps, 2);
});

test('a pause without work, a step with a prompt and steps before the recording count for nothing', () => {
  const plans: Plan[] = [...decodes(2, 2), [4, 5, 300], ...decodes(5, 2), [7, 4, 4, 1], [8, 4, 4]];
  const device = deviceOf('events', ordered([...steps(1, 6), ...steps(7, 2, 1_000_000)]));
  const s = summarize(device, plans);
  assert.equal(s.steps, 8);
  assert.equal(s.decode_steps, 6, 'steps 2, 3, 5, 6, 7 and 8');
  assert.equal(s.idle_ms, 0.3, 'one gap in each of three runs');
  assert.equal(s.busy_ms, 6);
});

test('a step without rows, which only frees, is no decode step', () => {
  assert.equal(summarize(deviceOf('events', steps(1, 2)), [[1, 0, 0], ...decodes(2, 1)]).decode_steps, 1);
});

test('what comes after the last kernel that found room is left out', () => {
  const kernels: DeviceSpec[] = [{ kind: 'kernel', startUs: 0, endUs: 1000, lane: 7 }];
  const all = ordered([...steps(1, 3), ...kernels]);
  assert.equal(summarize(deviceOf('cupti', all, 1), decodes(1, 3)).decode_steps, 1);
  assert.equal(summarize(deviceOf('cupti', all, 0), decodes(1, 3)).decode_steps, 3);
});

test('without a device or without decode steps there is no share', () => {
  for (const device of [null, deviceOf('ops', []), deviceOf('ops', steps(1, 1))]) {
    const s = summarize(device, [[1, 1, 40]]);
    assert.deepEqual([s.decode_steps, s.idle_share, s.median_step_ms, s.median_period_ms], [0, null, null, null]);
  }
});
