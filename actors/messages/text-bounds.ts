/**
 * What a tokenizer says of the texts that it takes, so that one that it is certain to refuse is found where it comes in, and nobody has to
 * carry it. Pure; told by tokenizers, used where messages are decoded.
 */
import { Buffer } from 'node:buffer';
import type { Failure } from './errors.js';
import { nextCut } from './text-cuts.js';

/**
 * A text is refused for a stretch without a place to cut it that has more bytes of UTF-8 and more UTF-16 units than these: it would be
 * too long for the tokenizer at once.
 */
export interface StretchBound {
  readonly bytes: number;
  readonly units: number;
  /** First UTF-16 units of all control tokens, and the length of the longest: a text is cut at those, too. */
  readonly controlStarts: string;
  readonly longestControl: number;
  /** What it is refused with. */
  readonly failure: Failure;
}

/** tokenizer -> front: its first message. */
export interface TextBounds {
  readonly k: 'bounds';
  /** UTF-16 units of a prompt that one id may stand for; Infinity where that is not known. */
  readonly charsOfAnId: number;
  /** Null where that is not known. */
  readonly stretch: StretchBound | null;
}

/** The text of a stretch between `from` and `to` that is refused, no longer than it has to be for that; null where there is none. */
export function refusedStretch(text: string, from: number, to: number, bound: StretchBound): string | null {
  const controls = bound.controlStarts.split('').map((start) => ({ start, at: -1 }));
  const least = Math.max(bound.units, Math.floor(bound.bytes / MOST_BYTES));
  const enough = Math.max(bound.units, bound.bytes) + 1 + bound.longestControl;
  // What lies before this may be part of a control token.
  let plain = bound.controlStarts.includes(text.charAt(from)) ? from + bound.longestControl : from;
  for (let begin = from; to - begin > least; ) {
    // More than that is refused, wherever it ends.
    let end = nextCut(text, begin + 1, Math.min(to, begin + enough));
    for (const control of controls) {
      if (control.at <= begin) control.at = text.indexOf(control.start, begin + 1);
      if (control.at < 0) control.at = text.length;
      end = Math.min(end, control.at);
    }
    const first = Math.max(begin, plain);
    const refused = end - first > least ? beyond(text.slice(first, end), bound) : null;
    if (refused !== null) return refused;
    if (bound.controlStarts.includes(text.charAt(end))) plain = end + bound.longestControl;
    begin = end;
  }
  return null;
}

/** Bytes that a UTF-16 unit takes at most. */
const MOST_BYTES = 3;

/** As much of the beginning of a stretch as is refused, or null. */
function beyond(stretch: string, { bytes, units }: StretchBound): string | null {
  let counted = 0;
  let at = 0;
  for (let more = units + 1; ; more = Math.max(1, Math.ceil((bytes + 1 - counted) / MOST_BYTES))) {
    const end = wholeCharacters(stretch, at + more);
    counted += Buffer.byteLength(stretch.slice(at, end));
    at = end;
    if (counted > bytes) return stretch.slice(0, at);
    if (at === stretch.length) return null;
  }
}

/** `end`, or one more where that would be between the halves of a character. */
function wholeCharacters(text: string, end: number): number {
  if (end >= text.length) return text.length;
  const before = text.charCodeAt(end - 1);
  const behind = text.charCodeAt(end);
  return before >= 0xd800 && before < 0xdc00 && behind >= 0xdc00 && behind < 0xe000 ? end + 1 : end;
}
