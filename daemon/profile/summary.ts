/**
 * What a recording says of the device in figures: how busy it was over decode steps, and how long those took. Pure.
 *
 * Looked at are runs of decode steps (every row is one token) that follow each other without a pause for lack of requests: there an idle
 * device waits for us. Within a run, from the start of its first kernel to the end of its last, the device is busy while any kernel,
 * copy or fill is on it, on any stream; where single kernels are not known, while a step is.
 */
import { type DeviceTrace, TRACE_KIND } from '../../native/index.js';
import type { RankRecording, StepFacts } from './recording.js';

export interface ProfileSummary {
  /** Steps that the device ran, and those of them that count below. */
  readonly steps: number;
  readonly decode_steps: number;
  /** Over all runs together. */
  readonly busy_ms: number;
  readonly idle_ms: number;
  /** idle / (busy + idle); null without decode steps. */
  readonly idle_share: number | null;
  /** Time of a decode step on the device, and from the start of one to that of the next. */
  readonly median_step_ms: number | null;
  readonly median_period_ms: number | null;
}

interface Step {
  readonly number: number;
  readonly startUs: number;
  readonly endUs: number;
}

export function summaryOf({ device }: RankRecording, steps: ReadonlyMap<number, StepFacts>): ProfileSummary {
  const all = device === null ? [] : deviceSteps(device);
  const runs = device === null ? [] : runsOf(all, steps, horizonUs(device));
  const decode = runs.flat();
  const busy = device?.source === 'cupti' ? busyKernels(device, runs) : busySteps(runs);
  const total = busy.busyUs + busy.idleUs;
  return {
    steps: all.length,
    decode_steps: decode.length,
    busy_ms: ms(busy.busyUs),
    idle_ms: ms(busy.idleUs),
    idle_share: total > 0 ? Number((busy.idleUs / total).toFixed(6)) : null,
    median_step_ms: medianMs(decode.map((step) => step.endUs - step.startUs)),
    median_period_ms: medianMs(runs.flatMap((run) => run.slice(1).map((step, i) => step.startUs - (run[i]?.startUs ?? 0)))),
  };
}

/** True when every row of a step is one token. */
export function isDecode(step: StepFacts): boolean {
  return step.rows > 0 && step.rows === step.tokens;
}

function deviceSteps(device: DeviceTrace): Step[] {
  const steps: Step[] = [];
  for (let i = 0; i < device.kind.length; i++) {
    if (device.kind[i] !== TRACE_KIND.step) continue;
    const startUs = device.startUs[i] ?? 0;
    steps.push({ number: device.value[i] ?? 0, startUs, endUs: startUs + (device.durationUs[i] ?? 0) });
  }
  return steps;
}

/** Events come in about the order of time, so after the first dropped one the picture is not whole. */
function horizonUs(device: DeviceTrace): number {
  if (device.dropped === 0 || device.source !== 'cupti') return Number.POSITIVE_INFINITY;
  let last = 0;
  for (let i = 0; i < device.kind.length; i++) {
    if (isActivity(device.kind[i])) last = Math.max(last, (device.startUs[i] ?? 0) + (device.durationUs[i] ?? 0));
  }
  return last;
}

const isActivity = (kind: number | undefined): boolean => kind === TRACE_KIND.kernel || kind === TRACE_KIND.copy;

function runsOf(all: readonly Step[], facts: ReadonlyMap<number, StepFacts>, horizon: number): readonly Step[][] {
  const runs: Step[][] = [];
  let last: Step | null = null;
  for (const step of all) {
    const known = facts.get(step.number);
    if (known === undefined || !isDecode(known) || step.endUs > horizon) {
      last = null;
      continue;
    }
    if (last === null || known.afterIdle || step.number !== last.number + 1) runs.push([]);
    runs.at(-1)?.push(step);
    last = step;
  }
  return runs;
}

interface Busy {
  busyUs: number;
  idleUs: number;
}

function busySteps(runs: readonly (readonly Step[])[]): Busy {
  const busy = new Union();
  for (const run of runs) {
    for (const step of run) busy.add(step.startUs, step.endUs);
    busy.cut();
  }
  return busy;
}

/** An activity belongs to the run in which its middle lies; steps and activities are known to some microseconds of each other. */
function busyKernels(device: DeviceTrace, runs: readonly (readonly Step[])[]): Busy {
  const busy = new Union();
  let at = 0;
  for (const run of runs) {
    const from = run[0]?.startUs ?? 0;
    const to = run.at(-1)?.endUs ?? 0;
    for (; at < device.kind.length; at++) {
      const start = device.startUs[at] ?? 0;
      if (start > to) break;
      const length = device.durationUs[at] ?? 0;
      const middle = start + length / 2;
      if (isActivity(device.kind[at]) && middle >= from && middle <= to) busy.add(start, start + length);
    }
    busy.cut();
  }
  return busy;
}

/** Adds up intervals that come in order of start, and the gaps between them. */
class Union implements Busy {
  busyUs = 0;
  idleUs = 0;
  #end: number | null = null;

  add(start: number, end: number): void {
    const before = this.#end ?? start;
    this.idleUs += Math.max(0, start - before);
    this.busyUs += Math.max(0, end - Math.max(start, before));
    this.#end = Math.max(end, before);
  }

  /** What comes next is no continuation. */
  cut(): void {
    this.#end = null;
  }
}

const ms = (us: number): number => Math.round(us) / 1000;

function medianMs(valuesUs: readonly number[]): number | null {
  const middle = [...valuesUs].sort((a, b) => a - b)[Math.floor(valuesUs.length / 2)];
  return middle === undefined ? null : ms(middle);
}
