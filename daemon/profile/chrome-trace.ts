/**
 * A recording as Chrome-trace JSON, which Perfetto and chrome://tracing load: complete events ("X") with the step they belong to,
 * counters ("C"), and names of rows ("M"). Pure; made piece by piece, so that the main thread can do other things in between.
 *
 *   process 1  the host: row 1 the scheduler, row 2 the executor
 *   process 2  the device: row 1 its steps, then a row for ops or for each stream. Kernels of one stream may overlap (a launch may begin
 *              before the one in front has ended), and a row holds only spans that nest: what overlaps goes to a second row of the stream.
 */
import { NO_STEP, type Recording, SPAN_ARGS, spanFacts } from '../../actors/messages/profile.js';
import { type DeviceTrace, TRACE_KIND } from '../../native/index.js';
import type { RankRecording, StepFacts } from './recording.js';
import { isDecode } from './summary.js';

const HOST = 1;
const DEVICE = 2;
const STEPS_ROW = 1;

export interface TraceInput {
  readonly recording: RankRecording;
  readonly steps: ReadonlyMap<number, StepFacts>;
  /** Becomes time 0, microseconds. */
  readonly originUs: number;
  /** Name of the device. */
  readonly deviceName: string;
  /** Goes to the head of the file. */
  readonly facts: Readonly<Record<string, unknown>>;
}

/** Characters of one piece, about. */
const PIECE = 1 << 16;

/** The file's text in pieces; events are in order of time. */
export function* chromeTrace(input: TraceInput): Generator<string, void, undefined> {
  let piece = `{"displayTimeUnit":"ms","otherData":${JSON.stringify(input.facts)},"traceEvents":[\n`;
  let first = true;
  for (const event of events(input)) {
    piece += first ? event : `,\n${event}`;
    first = false;
    if (piece.length < PIECE) continue;
    yield piece;
    piece = '';
  }
  yield `${piece}\n]}\n`;
}

/** Events of one origin, the next one first. */
interface Source {
  readonly size: number;
  readonly startUs: Float64Array;
  /** JSON of an event. */
  text(index: number): string;
}

function* events({ recording, steps, originUs, deviceName }: TraceInput): Generator<string, void, undefined> {
  const { scheduler, executor, device, rank } = recording;
  yield name('process_name', HOST, 0, 'inferd');
  yield name('thread_name', HOST, 1, 'scheduler');
  yield name('thread_name', HOST, 2, `executor ${rank}`);
  const rows = new Rows();
  const sources: Source[] = [
    { size: scheduler.size, startUs: scheduler.startUs, text: spanText(scheduler, 1, originUs) },
    { size: executor.size, startUs: executor.startUs, text: spanText(executor, 2, originUs) },
  ];
  if (device !== null) {
    yield name('process_name', DEVICE, 0, `${deviceName} (${device.source})`);
    yield name('thread_name', DEVICE, STEPS_ROW, 'steps');
    sources.push({ size: device.kind.length, startUs: device.startUs, text: deviceText(device, steps, rows, originUs) });
  }
  yield* merged(sources);
  for (const { row, title } of rows.titles()) yield name('thread_name', DEVICE, row, title);
}

function* merged(sources: readonly Source[]): Generator<string, void, undefined> {
  const at = sources.map(() => 0);
  for (;;) {
    let next = -1;
    let least = Number.POSITIVE_INFINITY;
    for (const [i, source] of sources.entries()) {
      const index = at[i] ?? 0;
      const start = index < source.size ? (source.startUs[index] ?? 0) : Number.POSITIVE_INFINITY;
      if (start >= least) continue;
      least = start;
      next = i;
    }
    const source = sources[next];
    if (source === undefined) return;
    yield source.text(at[next] ?? 0);
    at[next] = (at[next] ?? 0) + 1;
  }
}

function name(kind: string, pid: number, tid: number, text: string): string {
  return JSON.stringify({ name: kind, ph: 'M', ts: 0, pid, tid, args: { name: text } });
}

/** Whole nanoseconds: two events that touch then never overlap by a rounding. */
const nanos = (us: number): number => Math.round(us * 1000);

function spanText(recording: Recording, tid: number, originUs: number): (index: number) => string {
  const kinds = spanFacts.map((facts) => ({ facts, title: JSON.stringify(facts.name) }));
  return (i) => {
    const kind = kinds[recording.kind[i] ?? 0];
    if (kind === undefined) return '';
    const { facts, title } = kind;
    const start = nanos((recording.startUs[i] ?? 0) - originUs);
    const at = `"pid":${HOST},"tid":${tid},"ts":${start / 1000}`;
    const args = facts.args.map((arg, k) => `"${arg}":${recording.args[i * SPAN_ARGS + k]}`);
    if (facts.counter) return `{"name":${title},"ph":"C",${at},"args":{${args.join(',')}}}`;
    const step = recording.step[i] ?? NO_STEP;
    if (step !== NO_STEP) args.unshift(`"step":${step}`);
    const end = nanos((recording.startUs[i] ?? 0) + (recording.durationUs[i] ?? 0) - originUs);
    return `{"name":${title},"cat":"host","ph":"X",${at},"dur":${(end - start) / 1000},"args":{${args.join(',')}}}`;
  };
}

function deviceText(device: DeviceTrace, steps: ReadonlyMap<number, StepFacts>, rows: Rows, originUs: number): (index: number) => string {
  const titles = device.names.map((text) => JSON.stringify(text));
  const category = ['step', 'op', 'kernel', 'copy'];
  return (i) => {
    const kind = device.kind[i] ?? 0;
    const value = device.value[i] ?? 0;
    const start = nanos((device.startUs[i] ?? 0) - originUs);
    const end = nanos((device.startUs[i] ?? 0) + (device.durationUs[i] ?? 0) - originUs);
    const row = kind === TRACE_KIND.step ? STEPS_ROW : kind === TRACE_KIND.op ? rows.ops() : rows.place(device.lane[i] ?? 0, start, end);
    const title = kind === TRACE_KIND.step ? stepTitle(steps.get(value)) : titles[device.name[i] ?? 0];
    const args = kind === TRACE_KIND.step ? stepArgs(value, steps.get(value)) : kind === TRACE_KIND.copy ? `"bytes":${value}` : '';
    return (
      `{"name":${title},"cat":"${category[kind]}","ph":"X","pid":${DEVICE},"tid":${row},"ts":${start / 1000},` +
      `"dur":${(end - start) / 1000},"args":{${args}}}`
    );
  };
}

function stepTitle(facts: StepFacts | undefined): string {
  if (facts === undefined) return '"step"';
  return isDecode(facts) ? '"decode step"' : '"prompt step"';
}

function stepArgs(step: number, facts: StepFacts | undefined): string {
  return facts === undefined ? `"step":${step}` : `"step":${step},"rows":${facts.rows},"tokens":${facts.tokens}`;
}

/** Gives the events of a device their rows, so that no two of a row overlap; they come in order of start. */
class Rows {
  /** By stream: its rows and when each is free again, nanoseconds. */
  readonly #streams = new Map<number, { readonly row: number; freeNs: number }[]>();
  readonly #titles: { readonly row: number; readonly title: string }[] = [];
  #ops = 0;
  #last = STEPS_ROW;

  /** Ops nest. */
  ops(): number {
    if (this.#ops === 0) this.#ops = this.#open('ops');
    return this.#ops;
  }

  place(stream: number, startNs: number, endNs: number): number {
    const rows = this.#streams.get(stream) ?? [];
    if (rows.length === 0) this.#streams.set(stream, rows);
    let free = rows.find((row) => row.freeNs <= startNs);
    if (free === undefined) {
      free = { row: this.#open(rows.length === 0 ? `stream ${stream}` : `stream ${stream}, overlap ${rows.length}`), freeNs: 0 };
      rows.push(free);
    }
    free.freeNs = endNs;
    return free.row;
  }

  titles(): readonly { readonly row: number; readonly title: string }[] {
    return this.#titles;
  }

  #open(title: string): number {
    const row = ++this.#last;
    this.#titles.push({ row, title });
    return row;
  }
}
