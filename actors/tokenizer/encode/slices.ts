/**
 * Cuts a prompt into the texts that the library gets, one after the other (vocab.ts): between them the caller is asked whether anybody
 * still wants the ids, the ids are counted, and the thread pool is free for others.
 *
 * In each, a control token is replaced by `mark`. A tokenizer whose text may not be cut (cuts.ts) gets all in one.
 */
import { type Failure, InferdError } from '../../messages/errors.js';
import { nextCut } from '../../messages/text-cuts.js';
import type { Segment } from '../model/added-tokens.js';

export interface Slice {
  readonly text: string;
  /** Ids for the marks in it, in order. */
  readonly marks: readonly number[];
  /** UTF-16 units of plain text in it. */
  readonly plainChars: number;
}

/** A slice ends at the first safe place behind so many characters: about 50 ms of a thread. */
const SLICE_CHARS = 32_768;
/**
 * Bytes of a text without a safe place, as many as a message has by default. The library takes up to 400 bytes of memory for each, and
 * Oniguruma retries once for each where they are spaces, of 10,000,000 times that end the process.
 */
export const MAX_SLICE_BYTES = 4 * 2 ** 20;

/** Characters that are looked at for a place to cut before others have a turn of the thread: half a millisecond. */
const TURN_CHARS = 131_072;

/** What a text is refused with that has a longer one. */
export const tooLongAtOnce: Failure = {
  kind: 'invalid_params',
  message: `The tokenizer of this model takes at most ${MAX_SLICE_BYTES} bytes of text at once, and this text cannot be cut into smaller parts`,
};

/**
 * The slices, and null where others should have a turn of the thread before it goes on.
 * @param cut the tokenizer's text may be cut.
 * @throws InferdError invalid_params in the place of a slice of more than MAX_SLICE_BYTES
 */
export function* slicesOf(segments: readonly Segment[], mark: string, cut: boolean): Generator<Slice | null> {
  const size = cut ? SLICE_CHARS : Number.POSITIVE_INFINITY;
  let text = '';
  let marks: number[] = [];
  let plainChars = 0;
  const taken = (): Slice => {
    const slice = { text, marks, plainChars };
    text = '';
    marks = [];
    plainChars = 0;
    return checked(slice);
  };
  for (const segment of segments) {
    if (segment.id === null) {
      for (let from = 0; from < segment.text.length; ) {
        const to = cut
          ? yield* cutInTurns(segment.text, from + Math.max(0, size - text.length), from + 1 + MAX_SLICE_BYTES)
          : segment.text.length;
        text += segment.text.slice(from, to);
        plainChars += to - from;
        from = to;
        if (from < segment.text.length) yield taken();
      }
    } else {
      text += mark;
      marks.push(segment.id);
      // The library takes the texts beside a mark apart, so the place behind it is safe.
      if (text.length >= size) yield taken();
    }
  }
  if (text !== '') yield taken();
}

/** As nextCut. */
function* cutInTurns(text: string, from: number, until: number): Generator<null, number> {
  const last = Math.min(text.length, until);
  for (let at = from; ; ) {
    const end = Math.min(last, at + TURN_CHARS);
    const found = nextCut(text, at, end);
    if (found < end || end === last) return found;
    at = end;
    yield null;
  }
}

function checked(slice: Slice): Slice {
  const { text } = slice;
  if (text.length * 3 <= MAX_SLICE_BYTES || (text.length <= MAX_SLICE_BYTES && Buffer.byteLength(text) <= MAX_SLICE_BYTES)) return slice;
  throw new InferdError(tooLongAtOnce.kind, tooLongAtOnce.message);
}
