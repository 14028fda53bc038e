/** Slices of a known text or number of bytes that remember how many were made and whether they were closed. */
import type { Slices } from '../../../rpc/slices.js';

export class CountedSlices implements Slices {
  made = 0;
  closed = 0;
  readonly #count: number;
  readonly #make: (index: number) => string | Uint8Array;

  constructor(count: number, make: (index: number) => string | Uint8Array) {
    this.#count = count;
    this.#make = make;
  }

  next(): string | Uint8Array | null {
    return this.made === this.#count ? null : this.#make(this.made++);
  }

  close(): void {
    this.closed++;
  }

  /** All of them, as one text. */
  get text(): string {
    return Array.from({ length: this.#count }, (_, i) => String(this.#make(i))).join('');
  }
}
