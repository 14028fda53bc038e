/**
 * How the answers of one model are read: found once from its chat templates and the options, then asked for each request. Tokenizer
 * thread; used by actor.ts.
 */
import type { PromptInput } from '../../messages/requests.js';
import type { TokenTable } from '../model/byte-decoder.js';
import { AnswerReader } from './answer-reader.js';
import type { CallFormat } from './call-format.js';
import { withShortIds } from './call-ids.js';
import { formatsOf } from './formats/table.js';
import type { ReasoningFormat } from './reasoning-reader.js';

/** Values of inference.tool_call_parser and inference.reasoning_parser. */
export interface ParserChoice {
  readonly toolCalls: string;
  readonly reasoning: string;
}

/** How the answers to one kind of prompt are read. */
export interface AnswerFormat {
  readonly calls: CallFormat | null;
  readonly reasoning: ReasoningFormat | null;
  /** Control tokens that are markers: what stands for each in the text that a reader is given, by token id. */
  readonly units: ReadonlyMap<number, string>;
  /** Tokens that end an answer, whether the model's files say so or not. */
  readonly endIds: readonly number[];
}

/** How the answer to one request is read. */
export interface AnswerReading {
  /** For each sequence. */
  readonly newReader: () => AnswerReader;
  readonly units: AnswerFormat['units'];
}

type SpecialTokens = Pick<TokenTable, 'specialIds'>;
type ChatPrompt = Extract<PromptInput, { kind: 'chat' }>;

export class Answers {
  readonly #table: SpecialTokens;
  readonly #choice: ParserChoice;
  readonly #formats = new Map<string, AnswerFormat>();

  constructor(table: SpecialTokens, choice: ParserChoice) {
    this.#table = table;
    this.#choice = choice;
  }

  /** For prompts that are rendered with `template`, a chat template's text. */
  formatFor(template: string): AnswerFormat {
    const known = this.#formats.get(template);
    if (known !== undefined) return known;
    const { calls, reasoning } = formatsOf(template, this.#choice);
    const markers = [...(calls?.markers ?? []), ...(reasoning === null ? [] : [reasoning.start, reasoning.end])];
    const units = new Map<number, string>();
    for (const { text, unit } of markers) {
      const id = this.#table.specialIds.get(text);
      if (id !== undefined) units.set(id, unit);
    }
    const endIds = (calls?.channels?.ends ?? []).flatMap(({ text }) => this.#table.specialIds.get(text) ?? []);
    const format = { calls, reasoning, units, endIds };
    this.#formats.set(template, format);
    return format;
  }

  /** The prompt with earlier calls, and their ids, as `template` takes them. */
  prepared(prompt: ChatPrompt, template: string): ChatPrompt {
    const { idLength: length = null, channels } = this.formatFor(template).calls ?? {};
    if (channels !== undefined) return { ...prompt, messages: channels.messages(prompt.messages) };
    return length === null ? prompt : { ...prompt, messages: withShortIds(prompt.messages, length) };
  }

  /**
   * Null when the answer is content as it is.
   * @param promptEnd the last characters of the rendered prompt; asked only where it matters.
   */
  readingOf(prompt: ChatPrompt, template: string, promptEnd: () => string): AnswerReading | null {
    const { calls: format, reasoning, units } = this.formatFor(template);
    const names = new Set((prompt.tools ?? []).flatMap(functionName));
    const reads = format !== null && (names.size > 0 || format.channels !== undefined);
    const calls = !reads ? null : { format, names, parallel: prompt.parallelToolCalls ?? true };
    if (calls === null && reasoning === null) return null;
    const opened = reasoning !== null && isOpened(reasoning, promptEnd());
    const options = { calls, reasoning: reasoning === null ? null : { format: reasoning, opened } };
    return { newReader: () => new AnswerReader(options), units };
  }
}

/** The prompt ends inside the reasoning. `promptEnd`: its last characters. */
export function isOpened({ start }: ReasoningFormat, promptEnd: string): boolean {
  return promptEnd.trimEnd().endsWith(start.text);
}

/** A tool in OpenAI's shape, as the front has checked it. */
function functionName(tool: unknown): string[] {
  const name = (tool as { readonly function?: { readonly name?: unknown } } | null)?.function?.name;
  return typeof name === 'string' ? [name] : [];
}
