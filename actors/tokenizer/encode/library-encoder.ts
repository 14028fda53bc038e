/**
 * Encodes prompts by the library: slice after slice (slices.ts) on the thread pool, or apart (encode-apart.ts) where a slice is longer than
 * this process may take on (library-limits.ts). Used by vocab.ts, in the tokenizer thread.
 *
 * Only plain text ever reaches the library: each control token is replaced by one `mark`, an added token of the rewritten tokenizer, and
 * every mark in the answer by its control token's id. So what depends on the place of a piece stays exact (a Metaspace pre-tokenizer may
 * put a space before the first piece only).
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { InferdError } from '../../messages/errors.js';
import type { Segment } from '../model/added-tokens.js';
import type { EncodeApart } from './encode-apart.js';
import { encode, type LibraryTokenizer } from './library.js';
import { type Slice, slicesOf } from './slices.js';

export interface EncodeOptions {
  /** Asked between slices, and now and then while one is encoded apart: somebody still waits for the ids. */
  readonly wanted?: () => boolean;
  /** More ids are of no use to the caller. */
  readonly maxIds?: number;
}

/** A text has more ids than `maxIds`. */
export class TooManyIds extends Error {
  /** The ids that it is sure to have; the rest was not encoded. */
  readonly atLeast: number;
  constructor(atLeast: number) {
    super('The text has too many tokens');
    this.atLeast = atLeast;
  }
}

export interface LibraryEncoderStart {
  /** Null when no text may go to the library in this process. */
  readonly tokenizer: LibraryTokenizer | null;
  readonly apart: EncodeApart;
  /** Characters of a slice that may be encoded in this process. */
  readonly inProcessChars: number;
  /** Texts may be cut into slices. */
  readonly cut: boolean;
  /** UTF-16 units of plain text that one id may stand for. */
  readonly charsOfAnId: number;
  readonly mark: string;
  readonly markId: number;
  /** Ids that differ: of the library -> of the model. */
  readonly moved: ReadonlyMap<number, number> | null;
  /** 1 for ids that plain text must never become. */
  readonly control: Uint8Array;
}

export class LibraryEncoder {
  readonly #start: LibraryEncoderStart;

  constructor(start: LibraryEncoderStart) {
    this.#start = start;
  }

  /** @throws TooManyIds; InferdError cancelled, or as EncodeApart and slicesOf do */
  async encode(segments: readonly Segment[], options: EncodeOptions): Promise<Int32Array> {
    const { wanted = () => true, maxIds = Number.POSITIVE_INFINITY } = options;
    const { mark, cut, charsOfAnId } = this.#start;
    const parts: Int32Array[] = [];
    let count = 0;
    let plainChars = 0;
    let controls = 0;
    for (const segment of segments) {
      if (segment.id === null) plainChars += segment.text.length;
      else controls++;
    }
    const check = (): void => {
      const atLeast = count + controls + Math.ceil(plainChars / charsOfAnId);
      if (atLeast > maxIds) throw new TooManyIds(atLeast);
    };
    check();
    for (const slice of slicesOf(segments, mark, cut)) {
      if (!wanted()) throw new InferdError('cancelled');
      if (slice === null) {
        await nextTurn();
        continue;
      }
      for (const part of await this.#encodeSlice(slice, wanted)) {
        parts.push(part);
        count += part.length;
      }
      plainChars -= slice.plainChars;
      controls -= slice.marks.length;
      check();
    }
    return joined(parts, count);
  }

  async #encodeSlice({ text, marks, plainChars }: Slice, wanted: () => boolean): Promise<readonly Int32Array[]> {
    if (plainChars === 0) return [Int32Array.from(marks)];
    const { tokenizer, apart, inProcessChars, markId, moved, control } = this.#start;
    const parts =
      tokenizer !== null && text.length <= inProcessChars
        ? [Int32Array.from(await encode(tokenizer, text, false))]
        : await apart.encode(text, wanted);
    let mark = 0;
    for (const ids of parts) {
      for (let i = 0; i < ids.length; i++) {
        const id = ids[i]!; // i < length
        if (id === markId) ids[i] = marks[mark++] ?? -1;
        else if (moved?.has(id)) ids[i] = moved.get(id) ?? id;
        else if (control[id] === 1) throw new Error('plain text became a control token');
      }
    }
    if (mark !== marks.length) throw new Error('control tokens were lost or added in encoding');
    return parts;
  }
}

function joined(parts: readonly Int32Array[], count: number): Int32Array {
  const [first] = parts;
  if (first !== undefined && first.length === count) return first;
  const all = new Int32Array(count);
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}
