/** Profiles in tests: recordings made of plain lists, and files read back and checked for what every viewer relies on. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import { NO_STEP, type Recording, SPAN, type SpanKind } from '../../../actors/messages/profile.js';
import { type DeviceTrace, TRACE_KIND } from '../../../native/index.js';

export interface TraceEvent {
  readonly name: string;
  readonly ph: 'X' | 'C' | 'M';
  readonly ts: number;
  readonly dur: number;
  readonly pid: number;
  readonly tid: number;
  readonly cat?: string;
  readonly args: Readonly<Record<string, number | string>>;
}

export interface TraceFile {
  readonly traceEvents: readonly TraceEvent[];
  readonly otherData: Readonly<Record<string, unknown>>;
}

export function readTrace(file: string): TraceFile {
  return JSON.parse(gunzipSync(readFileSync(file)).toString()) as TraceFile;
}

/** Every event has its fields, events come in order of time, and spans of a row nest. */
export function checkTrace({ traceEvents }: TraceFile): void {
  let lastTs = Number.NEGATIVE_INFINITY;
  const open = new Map<string, number[]>();
  for (const event of traceEvents) {
    const { name, ph, ts, dur, pid, tid } = event;
    const what = JSON.stringify(event);
    assert.ok(typeof name === 'string' && name !== '' && ['X', 'C', 'M'].includes(ph), what);
    assert.ok([ts, pid, tid].every(Number.isFinite), what);
    if (ph === 'M') continue;
    assert.ok(ts >= lastTs, `out of order: ${what}`);
    lastTs = ts;
    if (ph !== 'X') continue;
    assert.ok(Number.isFinite(dur) && dur >= 0, what);
    const ends = open.get(`${pid}/${tid}`) ?? [];
    open.set(`${pid}/${tid}`, ends);
    const start = Math.round(ts * 1000);
    const end = start + Math.round(dur * 1000);
    while ((ends.at(-1) ?? Number.POSITIVE_INFINITY) <= start) ends.pop();
    assert.ok(end <= (ends.at(-1) ?? Number.POSITIVE_INFINITY), `overlaps the span around it: ${what}`);
    ends.push(end);
  }
}

/** Spans by name. */
export function spans(trace: TraceFile, name: string): readonly TraceEvent[] {
  return trace.traceEvents.filter((event) => event.ph === 'X' && event.name === name);
}

export const stepsOf = (events: readonly TraceEvent[]): number[] => [...new Set(events.map((event) => Number(event.args['step'])))];

export interface SpanSpec {
  readonly kind: SpanKind;
  readonly startUs: number;
  readonly durationUs?: number;
  readonly step?: number;
  readonly args?: readonly number[];
}

export function recordingOf(specs: readonly SpanSpec[]): Recording {
  return {
    size: specs.length,
    dropped: 0,
    kind: Uint8Array.from(specs, (s) => s.kind),
    startUs: Float64Array.from(specs, (s) => s.startUs),
    durationUs: Float64Array.from(specs, (s) => s.durationUs ?? 0),
    step: Int32Array.from(specs, (s) => s.step ?? NO_STEP),
    args: Int32Array.from(specs.flatMap((s) => [0, 1, 2].map((i) => s.args?.[i] ?? 0))),
  };
}

/** The scheduler's spans of plans: [step, rows, tokens, after idle]. */
export function plansOf(plans: readonly (readonly [number, number, number, number?])[]): Recording {
  return recordingOf(
    plans.map(([step, rows, tokens, idle = 0], i) => ({ kind: SPAN.plan, startUs: i, durationUs: 0.5, step, args: [rows, tokens, idle] })),
  );
}

export interface DeviceSpec {
  readonly kind: keyof typeof TRACE_KIND;
  readonly startUs: number;
  readonly endUs: number;
  readonly lane?: number;
  readonly value?: number;
  readonly name?: string;
}

/** Events in order of start. */
export function deviceOf(source: DeviceTrace['source'], specs: readonly DeviceSpec[], dropped = 0): DeviceTrace {
  const names = [...new Set(specs.map((s) => s.name ?? s.kind))];
  return {
    source,
    note: '',
    dropped,
    names,
    kind: Uint8Array.from(specs, (s) => TRACE_KIND[s.kind]),
    name: Int32Array.from(specs, (s) => names.indexOf(s.name ?? s.kind)),
    lane: Int32Array.from(specs, (s) => s.lane ?? 0),
    value: Float64Array.from(specs, (s) => s.value ?? 0),
    startUs: Float64Array.from(specs, (s) => s.startUs),
    durationUs: Float64Array.from(specs, (s) => s.endUs - s.startUs),
  };
}
