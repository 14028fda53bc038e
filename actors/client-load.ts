/**
 * What the tokenizers hold to encode or decode: every prompt counts from being handed out until the tokenizer says that it has let go
 * of it, whether anybody still waits for it or not. Bounds the memory of the engine and finds the tokenizer with the least to do.
 * Used by client-tokenizers.ts on the main thread.
 */
import type { PromptInput, TokenIds } from './messages/requests.js';
import { type Counters, TOKENIZER_COUNTER } from './runtime/counters.js';

/** What the books of one prompt take, about: bounds the number of small ones. */
const OWN_SIZE = 1024;
/** Below this a prompt is small. */
const SMALL_SIZE = 65_536;
/** A number in a list, a value or the name of a member in an object. */
const VALUE_SIZE = 8;

/** Bytes that a prompt takes in memory, about: those of its characters when all are below U+0100, else half of that. */
export function promptSize(prompt: PromptInput): number {
  switch (prompt.kind) {
    case 'text':
      return OWN_SIZE + prompt.text.length;
    case 'ids':
      return idsSize(prompt.ids);
    case 'chat':
      return OWN_SIZE + sizeOf(prompt.messages) + sizeOf(prompt.tools) + sizeOf(prompt.templateArgs);
    default:
      return prompt satisfies never;
  }
}

export function idsSize(ids: TokenIds): number {
  return OWN_SIZE + VALUE_SIZE * ids.length;
}

/** `value`: of a message whose depth was checked. */
function sizeOf(value: unknown): number {
  if (typeof value === 'string') return VALUE_SIZE + value.length;
  if (typeof value !== 'object' || value === null) return VALUE_SIZE;
  let size = VALUE_SIZE;
  if (Array.isArray(value)) for (const one of value) size += sizeOf(one);
  else for (const [name, one] of Object.entries(value)) size += VALUE_SIZE + name.length + sizeOf(one);
  return size;
}

interface Books {
  /** Sizes of all prompts, added up. */
  handed: number;
  readonly counters: Counters;
}

export class TokenizerLoad {
  readonly #limit: number;
  readonly #books = new Map<number, Books>();

  /** `limit`: sizes of the prompts that all tokenizers may hold together. Small prompts may take as much again: no large ones keep them out. */
  constructor(limit: number) {
    this.#limit = limit;
  }

  /** A tokenizer begins, or begins anew, with nothing. */
  attach(index: number, counters: Counters): void {
    this.#books.set(index, { handed: 0, counters });
  }

  detach(index: number): void {
    this.#books.delete(index);
  }

  handOut(index: number, size: number): void {
    const books = this.#books.get(index);
    if (books !== undefined) books.handed += size;
  }

  /** A prompt never came there. */
  takeBack(index: number, size: number): void {
    this.handOut(index, -size);
  }

  /** Size of what one tokenizer holds. */
  held(index: number): number {
    const books = this.#books.get(index);
    return books === undefined ? 0 : books.handed - (books.counters[TOKENIZER_COUNTER.letGo] ?? 0);
  }

  /** True while a prompt of `size` may be handed out. */
  hasRoom(size: number): boolean {
    let held = 0;
    for (const index of this.#books.keys()) held += this.held(index);
    return held === 0 || held + size <= (size > SMALL_SIZE ? this.#limit : 2 * this.#limit);
  }
}
