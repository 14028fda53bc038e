/**
 * Records spans and counters of one thread into columns that are allocated when a recording starts: no allocation and no sorting while
 * it runs, and one branch per call while none does. What finds no room is counted.
 *
 *   const began = spans.begin();  ...work...  spans.end(SPAN.plan, began, step, rows, tokens);
 */
import { NO_STEP, type Recording, SPAN_ARGS, type SpanKind, spanFacts } from '../messages/profile.js';
import { monotonicClock } from './clock.js';
import { invariant } from './invariant.js';

interface Columns extends Recording {
  size: number;
  dropped: number;
  /** The last numbers of each kind of counter, so that a counter is told when it changes. */
  readonly last: Int32Array;
}

export class SpanRecorder {
  #columns: Columns | null = null;
  #now: () => number = () => 0;

  get on(): boolean {
    return this.#columns !== null;
  }

  /** Allocates room for `maxEvents`. */
  start(maxEvents: number): void {
    invariant(this.#columns === null, 'a recording runs already');
    this.#now = monotonicClock();
    this.#columns = {
      size: 0,
      dropped: 0,
      kind: new Uint8Array(maxEvents),
      startUs: new Float64Array(maxEvents),
      durationUs: new Float64Array(maxEvents),
      step: new Int32Array(maxEvents),
      args: new Int32Array(maxEvents * SPAN_ARGS),
      last: new Int32Array(spanFacts.length * SPAN_ARGS).fill(-1),
    };
  }

  /** Hands the columns over; their buffers may be transferred. */
  stop(): Recording {
    const columns = this.#columns;
    invariant(columns !== null, 'no recording runs');
    this.#columns = null;
    const { last: _, ...recording } = columns;
    return recording;
  }

  /** The clock of the recording, microseconds. */
  nowUs(): number {
    return this.#now();
  }

  /** Opens a span: what it returns goes to `end`. */
  begin(): number {
    return this.#columns === null ? 0 : this.#now();
  }

  /** Ends a span and writes it. One that began before the recording is left out. */
  end(kind: SpanKind, began: number, step: number, a = 0, b = 0, c = 0): void {
    const columns = this.#columns;
    if (columns === null || began === 0) return;
    write(columns, kind, began, this.#now() - began, step, a, b, c);
  }

  /** Writes a counter, when its numbers are others than before. */
  count(kind: SpanKind, a: number, b = 0): void {
    const columns = this.#columns;
    if (columns === null) return;
    const { last } = columns;
    const at = kind * SPAN_ARGS;
    if (last[at] === a && last[at + 1] === b) return;
    last[at] = a;
    last[at + 1] = b;
    write(columns, kind, this.#now(), 0, NO_STEP, a, b, 0);
  }
}

function write(columns: Columns, kind: SpanKind, startUs: number, durationUs: number, step: number, a: number, b: number, c: number): void {
  const at = columns.size;
  if (at === columns.kind.length) {
    columns.dropped++;
    return;
  }
  columns.size = at + 1;
  columns.kind[at] = kind;
  columns.startUs[at] = startUs;
  columns.durationUs[at] = durationUs;
  columns.step[at] = step;
  columns.args[at * SPAN_ARGS] = a;
  columns.args[at * SPAN_ARGS + 1] = b;
  columns.args[at * SPAN_ARGS + 2] = c;
}

/** The buffers of a recording, to be transferred with it. */
export function buffersOf(recording: Recording): ArrayBuffer[] {
  const { kind, startUs, durationUs, step, args } = recording;
  return [kind.buffer, startUs.buffer, durationUs.buffer, step.buffer, args.buffer];
}
