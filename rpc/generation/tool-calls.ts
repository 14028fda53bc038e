/**
 * Finds a tool call in an answer: when tools were offered and the whole text is one JSON object that names one of them, in the style of
 * Llama 3: {"name": ..., "parameters": {...}} (or "arguments"). Streamed and whole answers agree, because a stream holds its text back
 * exactly as long as it can still become such an object.
 */
import { randomBytes } from 'node:crypto';
import type { Piece, ToolCall } from './piece.js';

/** The call that `text` is, or null when it is an ordinary answer. */
export function parseToolCall(text: string, names: ReadonlySet<string>): ToolCall | null {
  if (!text.trimStart().startsWith('{')) return null;
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return null;
  }
  const { name, parameters, arguments: args } = value as { name?: unknown; parameters?: unknown; arguments?: unknown };
  const given = parameters ?? args;
  if (typeof name !== 'string' || !names.has(name)) return null;
  if (typeof given !== 'object' || given === null || Array.isArray(given)) return null;
  return { id: `call_${randomBytes(12).toString('hex')}`, type: 'function', function: { name, arguments: JSON.stringify(given) } };
}

const isSpace = (c: string): boolean => c === ' ' || c === '\n' || c === '\r' || c === '\t';

/** Reads an answer as it comes and says whether it can still be one JSON object with members. */
class ObjectPrefix {
  #state: 'start' | 'opened' | 'inside' | 'closed' | 'no' = 'start';
  #depth = 0;
  #inString = false;
  #escaped = false;

  get possible(): boolean {
    return this.#state !== 'no';
  }

  add(text: string): void {
    for (const c of text) {
      if (this.#state === 'no') return;
      if (this.#state === 'inside') this.#inside(c);
      else if (!isSpace(c)) this.#outside(c);
    }
  }

  #outside(c: string): void {
    if (this.#state === 'start' && c === '{') this.#state = 'opened';
    else if (this.#state === 'opened' && c === '"') {
      this.#state = 'inside';
      this.#depth = 1;
      this.#inString = true;
    } else this.#state = 'no';
  }

  #inside(c: string): void {
    if (this.#inString) {
      if (this.#escaped) this.#escaped = false;
      else if (c === '\\') this.#escaped = true;
      else if (c === '"') this.#inString = false;
      return;
    }
    if (c === '"') this.#inString = true;
    else if (c === '{' || c === '[') this.#depth++;
    else if ((c === '}' || c === ']') && --this.#depth === 0) this.#state = 'closed';
  }
}

/** Between one choice of a streaming call and its stream: holds pieces back while they may be a tool call. */
export class ToolCallFilter {
  readonly #names: ReadonlySet<string>;
  readonly #prefix = new ObjectPrefix();
  #held: Piece[] = [];

  constructor(names: ReadonlySet<string>) {
    this.#names = names;
  }

  /** The pieces that may be sent now. `call`: set with the piece that ends the answer, when the answer is a tool call. */
  add(piece: Piece): { readonly pieces: readonly Piece[]; readonly call: ToolCall | null } {
    if (!this.#prefix.possible) return { pieces: [piece], call: null };
    this.#prefix.add(piece.text);
    this.#held.push(piece);
    if (this.#prefix.possible && piece.finish === null) return { pieces: [], call: null };
    const held = this.#held;
    this.#held = [];
    const call = this.#prefix.possible ? parseToolCall(held.map((p) => p.text).join(''), this.#names) : null;
    if (call === null) return { pieces: held, call };
    const last: Piece = {
      ...piece,
      text: '',
      tokens: held.reduce((sum, p) => sum + p.tokens, 0),
      tokenIds: held.flatMap((p) => p.tokenIds),
      logprobs: held.flatMap((p) => p.logprobs),
      finish: 'tool_calls',
      toolCall: call,
    };
    return { pieces: [last], call };
  }
}
