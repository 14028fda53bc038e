/**
 * How the answers of one model are read: found once from its chat templates and the options, then asked for each request. Tokenizer
 * thread; used by actor.ts.
 */
import type { PromptInput } from '../../messages/requests.js';
import type { TokenTable } from '../model/byte-decoder.js';
import { AnswerReader } from './answer-reader.js';
import type { CallFormat } from './call-format.js';
import { withShortIds } from './call-ids.js';
import { callFormatOf, reasoningFormatOf } from './formats/table.js';
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
    const calls = callFormatOf(template, this.#choice.toolCalls);
    const reasoning = reasoningFormatOf(template, this.#choice.reasoning);
    const markers = [...(calls?.markers ?? []), ...(reasoning === null ? [] : [reasoning.start, reasoning.end])];
    const units = new Map<number, string>();
    for (const { text, unit } of markers) {
      const id = this.#table.specialIds.get(text);
      if (id !== undefined) units.set(id, unit);
    }
    const format = { calls, reasoning, units };
    this.#formats.set(template, format);
    return format;
  }

  /** The prompt with ids of earlier calls that `template` takes. */
  prepared(prompt: ChatPrompt, template: string): ChatPrompt {
    const length = this.formatFor(template).calls?.idLength ?? null;
    return length === null ? prompt : { ...prompt, messages: withShortIds(prompt.messages, length) };
  }

  /**
   * Null when the answer is content as it is.
   * @param promptEnd the last characters of the rendered prompt; asked only where it matters.
   */
  readingOf(prompt: ChatPrompt, template: string, promptEnd: () => string): AnswerReading | null {
    const { calls: format, reasoning, units } = this.formatFor(template);
    const names = new Set((prompt.tools ?? []).flatMap(functionName));
    const calls = format === null || names.size === 0 ? null : { format, names, parallel: prompt.parallelToolCalls ?? true };
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
