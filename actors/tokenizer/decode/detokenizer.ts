/**
 * Turns the tokens of one sequence into text as they come. Runs in the tokenizer thread, one object a sequence.
 *
 * Invariant: the pieces returned by `push` and `flush`, joined, equal the decoding of all bytes at once, with each maximal invalid
 * part replaced by U+FFFD (the WHATWG rule, also that of Rust's from_utf8_lossy). Bytes that may still become a character are held
 * back, at most three. A token that is whole UTF-8 costs one array read.
 */
import type { TokenTable } from '../model/byte-decoder.js';

export class Detokenizer {
  readonly #table: TokenTable;
  readonly #skipSpecial: boolean;
  /** Start of a character that is not complete; never more than 3 bytes. */
  #pending: Uint8Array | null = null;

  constructor(table: TokenTable, skipSpecial: boolean) {
    this.#table = table;
    this.#skipSpecial = skipSpecial;
  }

  /** Text that became certain with this token; '' when it is hidden, incomplete or names nothing. */
  push(id: number): string {
    const table = this.#table;
    if (this.#skipSpecial && table.special[id] === 1) return '';
    const text = table.texts[id];
    if (text === undefined) return '';
    if (this.#pending === null) return text ?? this.#pushBytes(table.partialBytes(id));
    return text === '' ? '' : this.#pushBytes(text === null ? table.partialBytes(id) : Buffer.from(text, 'utf8'));
  }

  /** The end of the sequence: what was held back becomes U+FFFD. */
  flush(): string {
    const rest = this.#pending;
    this.#pending = null;
    return rest === null ? '' : lossy(rest);
  }

  #pushBytes(bytes: Uint8Array): string {
    const all = this.#pending === null ? bytes : Buffer.concat([this.#pending, bytes]);
    const held = incompleteTail(all);
    this.#pending = held === 0 ? null : all.slice(all.length - held);
    return lossy(held === 0 ? all : all.subarray(0, all.length - held));
  }
}

/** Ids that are decoded in one turn of the event loop: about a millisecond. */
const SLICE_IDS = 16_384;

/** Text of all ids at once. Allocates. */
export function decodeAll(table: TokenTable, ids: Iterable<number>, skipSpecial: boolean): string {
  const detokenizer = new Detokenizer(table, skipSpecial);
  let text = '';
  for (const id of ids) text += detokenizer.push(id);
  return whole(table, text + detokenizer.flush());
}

/** As `decodeAll`, for any number of ids, in slices. `turn`: waits between them, so that other work of the thread goes there. */
export async function decodeInTurns(table: TokenTable, ids: Int32Array, skipSpecial: boolean, turn: () => Promise<void>): Promise<string> {
  const detokenizer = new Detokenizer(table, skipSpecial);
  let text = '';
  for (let first = 0; first < ids.length; first += SLICE_IDS) {
    if (first > 0) await turn();
    for (const id of ids.subarray(first, first + SLICE_IDS)) text += detokenizer.push(id);
  }
  return whole(table, text + detokenizer.flush());
}

function whole(table: TokenTable, text: string): string {
  return table.rules.stripsFirstSpace && text.startsWith(' ') ? text.slice(1) : text;
}

/** Bytes as text, invalid parts as U+FFFD. */
export function lossy(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('utf8');
}

/** Bytes at the end that are the proper beginning of one well-formed character, 0..3 (Unicode 15, table 3-7). */
export function incompleteTail(bytes: Uint8Array): number {
  const end = bytes.length;
  for (let back = 1; back <= 3 && back <= end; back++) {
    const lead = bytes[end - back]!; // back <= end
    if (lead < 0x80) return 0;
    if (lead < 0xc0) continue;
    const length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || back >= length) return 0;
    return back === 1 || secondByteFits(lead, bytes[end - back + 1]!) ? back : 0; // back > 1
  }
  return 0;
}

function secondByteFits(lead: number, second: number): boolean {
  if (lead === 0xe0) return second >= 0xa0;
  if (lead === 0xed) return second <= 0x9f;
  if (lead === 0xf0) return second >= 0x90;
  if (lead === 0xf4) return second <= 0x8f;
  return true;
}
