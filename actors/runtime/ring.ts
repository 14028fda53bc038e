/**
 * A byte ring in shared memory with one writer and a fixed number of readers, each of which sees every entry in order. It carries step
 * plans (scheduler -> all executors) and results (executor 0 -> scheduler). Nothing here blocks: a writer without room keeps the rest
 * of its entry and goes on with `resume`, and readers ring it when they have made room.
 *
 *   words:  [written | writerWaits | pad.. | read[0] | pad.. | read[1] | pad.. ]  positions in units of 8 bytes, modulo 2^32
 *   data:   fragment*           fragment = [length << 1 | more : int32][sequence : int32][payload, padded to 8]
 *
 * An entry larger than the free or contiguous space is split into fragments, so wrap-around needs no filler, and a plan with very long
 * prompts needs no ring of its size. Entries are raw step bodies: their header names step and epoch already, and a copy is several
 * times cheaper than packing an envelope around them (test/bench/actors.ts).
 */
import { type Doorbell, ring } from './doorbell.js';
import { invariant } from './invariant.js';

const LINE_WORDS = 16;
const WRITTEN = 0;
const WRITER_WAITS = 1;
const UNIT = 8;
const readCell = (reader: number): number => (1 + reader) * LINE_WORDS;

/** What both sides need; plain data, safe to post to a thread. */
export interface RingMemory {
  readonly memory: SharedArrayBuffer;
  readonly readers: number;
  /** Longest entry, bytes; bounds a reader's private buffer. */
  readonly maxEntryBytes: number;
}

/** `capacityBytes` is rounded up to a power of two, so that positions may wrap at 2^32. */
export function createRing(options: { capacityBytes: number; readers: number; maxEntryBytes: number }): RingMemory {
  const capacity = 2 ** Math.ceil(Math.log2(Math.max(options.capacityBytes, 4 * UNIT)));
  const memory = new SharedArrayBuffer(readCell(options.readers) * 4 + capacity);
  return { memory, readers: options.readers, maxEntryBytes: options.maxEntryBytes };
}

interface Views {
  readonly words: Int32Array;
  readonly heads: Int32Array;
  readonly data: Uint8Array;
  /** Units of 8 bytes. */
  readonly capacity: number;
}

function viewsOf({ memory, readers }: RingMemory): Views {
  const offset = readCell(readers) * 4;
  return {
    words: new Int32Array(memory, 0, readCell(readers)),
    heads: new Int32Array(memory, offset),
    data: new Uint8Array(memory, offset),
    capacity: (memory.byteLength - offset) / UNIT,
  };
}

export class RingWriter {
  readonly #v: Views;
  readonly #ring: RingMemory;
  readonly #bells: readonly Doorbell[];
  #rest: Uint8Array | null = null;
  #sequence = 0;

  /** `bells` of all readers; rung once per write or resume that left something. */
  constructor(memory: RingMemory, bells: readonly Doorbell[]) {
    this.#ring = memory;
    this.#v = viewsOf(memory);
    this.#bells = bells;
  }

  /** True while an entry waits for room; `write` must not be called then. */
  get busy(): boolean {
    return this.#rest !== null;
  }

  /** Writes one entry. False: it did not fit yet; keep `bytes` unchanged and call `resume` after the next ring of the doorbell. */
  write(bytes: Uint8Array): boolean {
    invariant(this.#rest === null, 'ring: write while an entry waits');
    invariant(bytes.byteLength <= this.#ring.maxEntryBytes, `ring: entry of ${bytes.byteLength} bytes, limit ${this.#ring.maxEntryBytes}`);
    this.#rest = bytes;
    return this.resume();
  }

  /** Goes on with a waiting entry. True when nothing waits any more. */
  resume(): boolean {
    if (this.#rest === null) return true;
    Atomics.store(this.#v.words, WRITER_WAITS, 0);
    let wrote = this.#advance();
    if (this.#rest !== null) {
      // Announce, then look again: a reader that made room in between saw no flag.
      Atomics.store(this.#v.words, WRITER_WAITS, 1);
      wrote = this.#advance() || wrote;
      if (this.#rest === null) Atomics.store(this.#v.words, WRITER_WAITS, 0);
    }
    if (wrote) for (const bell of this.#bells) ring(bell);
    return this.#rest === null;
  }

  #advance(): boolean {
    const { words, heads, data, capacity } = this.#v;
    let wrote = false;
    while (this.#rest !== null) {
      const written = Atomics.load(words, WRITTEN);
      const at = (written >>> 0) % capacity;
      const room = Math.min(this.#free(written), capacity - at);
      if (room < 1 || (room === 1 && this.#rest.byteLength > 0 && capacity - at > 1)) break;
      const length = Math.min(this.#rest.byteLength, (room - 1) * UNIT);
      const more = length < this.#rest.byteLength;
      heads[at * 2] = (length << 1) | (more ? 1 : 0);
      heads[at * 2 + 1] = this.#sequence;
      data.set(more ? this.#rest.subarray(0, length) : this.#rest, (at + 1) * UNIT);
      this.#sequence = (this.#sequence + 1) | 0;
      this.#rest = more ? this.#rest.subarray(length) : null;
      Atomics.store(words, WRITTEN, (written + 1 + Math.ceil(length / UNIT)) | 0);
      wrote = true;
    }
    return wrote;
  }

  /** Units free for the slowest reader. */
  #free(written: number): number {
    let free = this.#v.capacity;
    for (let r = 0; r < this.#ring.readers; r++) {
      free = Math.min(free, this.#v.capacity - ((written - Atomics.load(this.#v.words, readCell(r))) >>> 0));
    }
    return free;
  }
}

export class RingReader {
  readonly #v: Views;
  readonly #maxEntryBytes: number;
  readonly #cell: number;
  readonly #writerBell: Doorbell;
  #entry = new Uint8Array(4096);
  #length = 0;
  #sequence = 0;

  constructor(memory: RingMemory, reader: number, writerBell: Doorbell) {
    invariant(reader >= 0 && reader < memory.readers, `ring: reader ${reader} of ${memory.readers}`);
    this.#v = viewsOf(memory);
    this.#maxEntryBytes = memory.maxEntryBytes;
    this.#cell = readCell(reader);
    this.#writerBell = writerBell;
  }

  /** The next whole entry, or null. The view is private memory (8-byte aligned) and valid until the next call. */
  read(): Uint8Array | null {
    const { words, heads, data, capacity } = this.#v;
    for (;;) {
      const position = Atomics.load(words, this.#cell);
      if (position === Atomics.load(words, WRITTEN)) return null;
      const at = (position >>> 0) % capacity;
      const head = heads[at * 2] ?? 0;
      invariant(heads[at * 2 + 1] === this.#sequence, `ring: fragment ${heads[at * 2 + 1]} where ${this.#sequence} was due`);
      const length = head >>> 1;
      this.#reserve(this.#length + length);
      this.#entry.set(data.subarray((at + 1) * UNIT, (at + 1) * UNIT + length), this.#length);
      this.#length += length;
      this.#sequence = (this.#sequence + 1) | 0;
      Atomics.store(words, this.#cell, (position + 1 + Math.ceil(length / UNIT)) | 0);
      if (Atomics.load(words, WRITER_WAITS) === 1) ring(this.#writerBell);
      if ((head & 1) === 0) {
        const entry = this.#entry.subarray(0, this.#length);
        this.#length = 0;
        return entry;
      }
    }
  }

  #reserve(bytes: number): void {
    if (bytes <= this.#entry.byteLength) return;
    invariant(bytes <= this.#maxEntryBytes, `ring: entry above ${this.#maxEntryBytes} bytes`);
    const larger = new Uint8Array(Math.min(Math.max(bytes, 2 * this.#entry.byteLength), Math.max(this.#maxEntryBytes, 4096)));
    larger.set(this.#entry.subarray(0, this.#length));
    this.#entry = larger;
  }
}
