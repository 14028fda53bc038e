/**
 * The grammars of constrained requests: written as GBNF in a thread beside this one (grammar-texts.ts), compiled by the addon on threads of
 * its own, and held in the process, where the native engine finds them by number. A tokenizer's thread.
 *
 * A grammar is held from `hold` to `release`; equal ones are compiled once. One is compiled at a time, and clients take turns: the threads
 * that compile are the process's few, on which prompts are encoded too.
 */
import { loadAddon } from '../../../native/index.js';
import { type AskedConstraint, NO_GRAMMAR } from '../../messages/constraint.js';
import { invalidParams } from '../../messages/errors.js';
import type { TokenTable } from '../model/byte-decoder.js';
import { Places } from '../work/places.js';
import type { Asker } from '../work/waiting-line.js';
import type { AnswerGrammar } from './answer-grammar.js';
import type { GrammarLimits } from './grammar-limits.js';
import { type ChatPart, GrammarTexts } from './grammar-texts.js';

/** Parentheses that one level of a constraint may become. */
const GROUPS_A_LEVEL = 8;

/** A chat prompt as its grammar depends on it, and the markers of its model that are control tokens, by id. */
export interface ChatStyle {
  readonly chat: ChatPart;
  readonly markerIds: readonly number[];
}

export class Grammars {
  readonly #limits: GrammarLimits;
  readonly #table: TokenTable;
  readonly #endIds: readonly number[];
  readonly #texts: GrammarTexts;
  readonly #places = new Places(1);
  /** Numbers of vocabularies in the addon, by the control tokens that are spelled in them. */
  readonly #vocabularies = new Map<string, number>();

  /** @param endIds the tokens that end an answer */
  constructor(table: TokenTable, endIds: readonly number[], limits: GrammarLimits) {
    this.#table = table;
    this.#endIds = endIds;
    this.#limits = limits;
    this.#texts = new GrammarTexts(limits);
  }

  /**
   * Number of the compiled grammar; NO_GRAMMAR for none. To be released once, unless it rejects.
   * @param style null for a prompt that is no chat
   * @throws (rejects) InferdError invalid_params when the constraint cannot be enforced; cancelled
   */
  async hold(asked: AskedConstraint | null, style: ChatStyle | null, asker: Asker): Promise<number> {
    const grammar = await this.#texts.write({ asked, chat: style?.chat ?? null }, asker);
    if (grammar === null) return NO_GRAMMAR;
    const vocabulary = this.#vocabulary(grammar.markers ? (style?.markerIds ?? []) : []);
    try {
      return await this.#places.run(asker, () => this.#compile(vocabulary, grammar));
    } catch (error) {
      throw refusal(error, asked?.param ?? 'tools');
    }
  }

  release(grammar: number): void {
    if (grammar !== NO_GRAMMAR) loadAddon().releaseGrammar(grammar);
  }

  close(): void {
    this.#texts.close();
  }

  #compile(vocabulary: number, { text, extensions }: AnswerGrammar): Promise<number> {
    const { maxGrammarBytes, maxCompiledStates, maxCompiledBytes, maxDepth, compileDeadlineMs } = this.#limits;
    return loadAddon().compileGrammar(vocabulary, text, {
      maxTextBytes: maxGrammarBytes,
      maxStates: maxCompiledStates,
      maxMemoryBytes: maxCompiledBytes,
      maxDepth: GROUPS_A_LEVEL * maxDepth,
      deadlineMs: compileDeadlineMs,
      extensions,
    });
  }

  #vocabulary(spelled: readonly number[]): number {
    const key = spelled.join();
    const known = this.#vocabularies.get(key) ?? registered(this.#table, this.#endIds, new Set(spelled));
    this.#vocabularies.set(key, known);
    return known;
  }
}

/** Special tokens are no text, whatever they look like, but those that are spelled. */
function registered(table: TokenTable, endIds: readonly number[], spelled: ReadonlySet<number>): number {
  const isText = (id: number): boolean => table.special[id] !== 1 || spelled.has(id);
  const bytes = Array.from({ length: table.size }, (_, id) => (isText(id) ? table.bytes(id) : new Uint8Array(0)));
  const offsets = new Int32Array(bytes.length + 1);
  bytes.forEach((b, id) => {
    offsets[id + 1] = offsets[id]! + b.length; // id < length
  });
  return loadAddon().grammarVocabulary(Buffer.concat(bytes), offsets, Int32Array.from(endIds));
}

/** What cannot be compiled, as a wrong value of the parameter that asks for it. */
function refusal(error: unknown, param: string): unknown {
  const code = (error as { readonly code?: unknown } | null)?.code;
  const wrong = error instanceof Error && (code === 'usage' || code === 'unsupported');
  return wrong ? invalidParams([{ path: param, message: error.message }]) : error;
}
