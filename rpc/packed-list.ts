/**
 * A list of an answer whose elements are kept packed, or not made at all, until it is written. Made by those who build answers, read by
 * slices.ts for large answers; a small one is encoded whole, through toJSON. Each reading makes the elements anew.
 */

export interface PackedListSource<T> {
  /** Elements that `iterate` gives. */
  readonly length: number;
  /** Characters of the list as JSON, roughly: decides whether the answer is written in slices. */
  readonly chars: number;
  readonly iterate: () => Iterable<T>;
}

export class PackedList<T> implements Iterable<T> {
  readonly length: number;
  readonly chars: number;
  readonly #iterate: () => Iterable<T>;

  constructor({ length, chars, iterate }: PackedListSource<T>) {
    this.length = length;
    this.chars = chars;
    this.#iterate = iterate;
  }

  [Symbol.iterator](): Iterator<T> {
    return this.#iterate()[Symbol.iterator]();
  }

  /** What JSON.stringify and the msgpack encoder write instead. */
  toJSON(): readonly T[] {
    return [...this];
  }
}

/** A packed list where the shape of an answer has an array. Only encoders read it, and they write it as an array. */
export function packedList<T>(source: PackedListSource<T>): T[] {
  return new PackedList(source) as unknown as T[]; // proof: see above
}

/** A digit or two more than most ids have. */
const ID_CHARS = 6;

/** Token ids, in blocks that are not copied. */
export function packedIds(length: number, blocks: Iterable<Int32Array>): number[] {
  return packedList({
    length,
    chars: length * ID_CHARS,
    *iterate() {
      for (const block of blocks) yield* block;
    },
  });
}
