/**
 * The grammars of constrained requests: written as GBNF here (actors/grammar), compiled by the addon on threads of its own, and held in
 * the process, where the native engine finds them by number. A tokenizer's thread.
 *
 * A grammar is held from `hold` to `release`; equal ones are compiled once. One is compiled at a time, and clients take turns: the threads
 * that compile are the process's few, on which prompts are encoded too.
 */
import type { Config } from '../../../config/schema.js';
import { loadAddon } from '../../../native/index.js';
import { ConstraintError, type ConstraintLimits, constraintLimits } from '../../grammar/index.js';
import { type AskedConstraint, NO_GRAMMAR } from '../../messages/constraint.js';
import { invalidParams } from '../../messages/errors.js';
import type { PromptInput } from '../../messages/requests.js';
import { constrainsCalls } from '../answer/tool-constraint.js';
import type { TokenTable } from '../model/byte-decoder.js';
import { Places } from '../work/places.js';
import type { Asker } from '../work/waiting-line.js';
import { type AnswerGrammar, type AnswerStyle, answerGrammar } from './answer-grammar.js';

/** Bounds on a constraint, and on what becomes of it: see [structured_output] of the options. */
export type GrammarLimits = ConstraintLimits & {
  readonly maxCompiledStates: number;
  readonly maxCompiledBytes: number;
  readonly compileDeadlineMs: number;
};

export function grammarLimits(options: Config['structured_output']): GrammarLimits {
  return {
    ...constraintLimits(options),
    maxCompiledStates: options.max_compiled_states,
    maxCompiledBytes: options.max_compiled_bytes,
    compileDeadlineMs: options.compile_deadline_ms,
  };
}

/** Parentheses that one level of a constraint may become. */
const GROUPS_A_LEVEL = 8;

export class Grammars {
  readonly #limits: GrammarLimits;
  readonly #table: TokenTable;
  readonly #endIds: readonly number[];
  readonly #places = new Places(1);
  /** Numbers of vocabularies in the addon, by the control tokens that are spelled in them. */
  readonly #vocabularies = new Map<string, number>();

  /** @param endIds the tokens that end an answer */
  constructor(table: TokenTable, endIds: readonly number[], limits: GrammarLimits) {
    this.#table = table;
    this.#endIds = endIds;
    this.#limits = limits;
  }

  /**
   * Number of the compiled grammar; NO_GRAMMAR for none. To be released once, unless it rejects.
   * @throws (rejects) InferdError invalid_params when the constraint cannot be enforced; cancelled
   */
  async hold(prompt: PromptInput, asked: AskedConstraint | null, style: AnswerStyle | null, asker: Asker): Promise<number> {
    if (asked === null && !(prompt.kind === 'chat' && constrainsCalls(prompt))) return NO_GRAMMAR;
    try {
      return await this.#places.run(asker, () => {
        const grammar = answerGrammar(prompt, asked?.constraint ?? null, style, this.#limits);
        return grammar === null ? NO_GRAMMAR : this.#compile(grammar);
      });
    } catch (error) {
      throw refusal(error, asked?.param ?? 'tools');
    }
  }

  #compile({ text, extensions, spelled }: AnswerGrammar): Promise<number> {
    const { maxGrammarBytes, maxCompiledStates, maxCompiledBytes, maxDepth, compileDeadlineMs } = this.#limits;
    return loadAddon().compileGrammar(this.#vocabulary(spelled), text, {
      maxTextBytes: maxGrammarBytes,
      maxStates: maxCompiledStates,
      maxMemoryBytes: maxCompiledBytes,
      maxDepth: GROUPS_A_LEVEL * maxDepth,
      deadlineMs: compileDeadlineMs,
      extensions,
    });
  }

  release(grammar: number): void {
    if (grammar !== NO_GRAMMAR) loadAddon().releaseGrammar(grammar);
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

/** What cannot be enforced, as a wrong value of the parameter that asks for it. */
function refusal(error: unknown, param: string): unknown {
  if (error instanceof ConstraintError) return invalidParams([{ path: pathText(param, error.path), message: error.message }]);
  const code = (error as { readonly code?: unknown } | null)?.code;
  const wrong = error instanceof Error && (code === 'usage' || code === 'unsupported');
  return wrong ? invalidParams([{ path: param, message: error.message }]) : error;
}

/** Longest path that an error names: keys of a schema are a client's. */
const LONGEST_PATH = 200;

function pathText(param: string, path: readonly (string | number)[]): string {
  const text = path.reduce<string>((at, part) => (typeof part === 'number' ? `${at}[${part}]` : `${at}.${part}`), param);
  return text.length > LONGEST_PATH ? `${text.slice(0, LONGEST_PATH)}…` : text;
}
