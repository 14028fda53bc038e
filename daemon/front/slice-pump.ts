/**
 * Moves the slices of a large answer to its client: one at a time, while the client takes them, and never so many in a turn of the event
 * loop that others notice, however many answers are written at once. Used by websocket.ts and http-reply.ts on the main thread.
 */
import type { Slices } from '../../rpc/slices.js';

type Slice = string | Uint8Array;

/** Where slices go. */
export interface SliceTarget {
  /** Takes a slice; `last`: nothing follows. Returns false when there is no room for more until `go`. */
  write(slice: Slice, last: boolean): boolean;
  /** Runs once, when the slices are closed: all were written, `stop` was called, or `error` was thrown while one was made or written. */
  done(error: unknown): void;
}

/** Time that all pumps may take in one turn of the event loop; the slice that is begun is finished. */
const TURN_MS = 5;

const ready: SlicePump[] = [];
let scheduled = false;

function runTurn(): void {
  const until = performance.now() + TURN_MS;
  do {
    const pump = ready.shift();
    if (pump === undefined) break;
    if (pump.step()) ready.push(pump);
  } while (performance.now() < until);
  scheduled = ready.length > 0;
  if (scheduled) setImmediate(runTurn);
}

export class SlicePump {
  readonly #slices: Slices;
  readonly #target: SliceTarget;
  #next: Slice | null = null;
  #begun = false;
  #running = false;
  #over = false;

  /** Begins in a later turn. */
  constructor(slices: Slices, target: SliceTarget) {
    this.#slices = slices;
    this.#target = target;
    this.go();
  }

  /** There is room again. */
  go(): void {
    if (this.#running || this.#over) return;
    this.#running = true;
    ready.push(this);
    if (scheduled) return;
    scheduled = true;
    setImmediate(runTurn);
  }

  /** The client is gone: the rest is not made. */
  stop(): void {
    this.#end(null);
  }

  /** Writes one slice. For the turn above only. @returns true when it can go on at once. */
  step(): boolean {
    if (this.#over) return false;
    try {
      const slice = this.#begun ? this.#next : this.#slices.next();
      this.#begun = true;
      this.#next = slice === null ? null : this.#slices.next();
      if (slice !== null) this.#running = this.#target.write(slice, this.#next === null);
      if (slice === null || this.#next === null) this.#end(null);
    } catch (error) {
      this.#end(error);
    }
    return this.#running && !this.#over;
  }

  #end(error: unknown): void {
    if (this.#over) return;
    this.#over = true;
    this.#next = null;
    this.#slices.close();
    this.#target.done(error);
  }
}
