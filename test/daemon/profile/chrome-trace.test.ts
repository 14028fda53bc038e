import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SPAN } from '../../../actors/messages/profile.js';
import { chromeTrace } from '../../../daemon/profile/chrome-trace.js';
import { stepFacts } from '../../../daemon/profile/recording.js';
import type { DeviceTrace } from '../../../native/index.js';
import { checkTrace, deviceOf, plansOf, recordingOf, spans, type TraceFile } from '../../helpers/daemon/profile.js';

const origin = 1000;
function traceOf(device: DeviceTrace | null, scheduler = plansOf([]), executor = recordingOf([])): TraceFile {
  const recording = { rank: 0, scheduler, executor, device };
  const input = { recording, steps: stepFacts(scheduler), originUs: origin, deviceName: 'a "device"', facts: { producer: 'test' } };
  const trace = JSON.parse([...chromeTrace(input)].join('')) as TraceFile;
  checkTrace(trace);
  return trace;
}
const titles = (trace: TraceFile): Record<string, string> =>
  Object.fromEntries(trace.traceEvents.filter((e) => e.ph === 'M').map((e) => [`${e.pid}/${e.tid}`, String(e.args['name'])]));

test('spans and counters of both loops come in order of time with their step and numbers', () => {
  const scheduler = recordingOf([
    { kind: SPAN.drain, startUs: 1001, durationUs: 2, args: [3] },
    { kind: SPAN.plan, startUs: 1010.25, durationUs: 5.5, step: 7, args: [4, 4, 1] },
    { kind: SPAN.requests, startUs: 1040, args: [4, 2] },
  ]);
  const executor = recordingOf([{ kind: SPAN.submit, startUs: 1020, durationUs: 1, step: 7, args: [4, 4] }]);
  const trace = traceOf(null, scheduler, executor);
  const shown = trace.traceEvents.filter((e) => e.ph !== 'M').map(({ name, ph, ts, dur, tid, args }) => ({ name, ph, ts, dur, tid, args }));
  assert.deepEqual(JSON.parse(JSON.stringify(shown)), [
    { name: 'drain mailbox', ph: 'X', ts: 1, dur: 2, tid: 1, args: { messages: 3 } },
    { name: 'plan', ph: 'X', ts: 10.25, dur: 5.5, tid: 1, args: { step: 7, rows: 4, tokens: 4, after_idle: 1 } },
    { name: 'submit', ph: 'X', ts: 20, dur: 1, tid: 2, args: { step: 7, rows: 4, tokens: 4 } },
    { name: 'requests', ph: 'C', ts: 40, tid: 1, args: { running: 4, waiting: 2 } },
  ]);
  assert.deepEqual(trace.otherData, { producer: 'test' });
});

test('steps of the device are named by what they did', () => {
  const device = deviceOf('events', [
    { kind: 'step', startUs: 1100, endUs: 1200, value: 1 },
    { kind: 'step', startUs: 1200, endUs: 1300, value: 2 },
    { kind: 'step', startUs: 1300, endUs: 1400, value: 3 },
  ]);
  const trace = traceOf(
    device,
    plansOf([
      [1, 1, 40],
      [2, 1, 1],
    ]),
  );
  const steps = trace.traceEvents.filter((e) => e.cat === 'step');
  assert.deepEqual(
    steps.map((e) => [e.name, e.args]),
    [
      ['prompt step', { step: 1, rows: 1, tokens: 40 }],
      ['decode step', { step: 2, rows: 1, tokens: 1 }],
      ['step', { step: 3 }],
    ],
  );
});

test('kernels of a stream that overlap go to a row beside it, and ops nest in one row', () => {
  const device = deviceOf('cupti', [
    { kind: 'kernel', startUs: 1100, endUs: 1150, lane: 7, name: 'gemm<"x">' },
    { kind: 'kernel', startUs: 1145, endUs: 1180, lane: 7, name: 'norm' },
    { kind: 'copy', startUs: 1146, endUs: 1147, lane: 9, value: 512, name: 'copy host to device' },
    { kind: 'kernel', startUs: 1150, endUs: 1160, lane: 7, name: 'norm' },
    { kind: 'op', startUs: 1200, endUs: 1300, name: 'linear' },
    { kind: 'op', startUs: 1200, endUs: 1250, name: 'add' },
  ]);
  const trace = traceOf(device);
  const row = (name: string, i = 0) => spans(trace, name)[i]?.tid;
  const names = titles(trace);
  assert.equal(row('gemm<"x">'), row('norm', 1), 'it is free again when the first has ended');
  assert.notEqual(row('norm', 0), row('gemm<"x">'));
  assert.equal(names[`2/${row('norm', 1)}`], 'stream 7');
  assert.equal(names[`2/${row('norm', 0)}`], 'stream 7, overlap 1');
  assert.equal(names[`2/${row('copy host to device')}`], 'stream 9');
  assert.equal(spans(trace, 'copy host to device')[0]?.args['bytes'], 512);
  assert.equal(row('linear'), row('add'));
});

test('events that touch on a long-running clock do not overlap by a rounding', () => {
  const far = 9.1e11;
  const specs = Array.from({ length: 2000 }, (_, i) => ({
    kind: 'kernel' as const,
    startUs: far + i * 0.1,
    endUs: far + (i + 1) * 0.1,
    lane: 7,
  }));
  const recording = { rank: 0, scheduler: plansOf([]), executor: recordingOf([]), device: deviceOf('cupti', specs) };
  const input = { recording, steps: new Map(), originUs: far - 5, deviceName: 'd', facts: {} };
  const trace = JSON.parse([...chromeTrace(input)].join('')) as TraceFile;
  checkTrace(trace);
});
