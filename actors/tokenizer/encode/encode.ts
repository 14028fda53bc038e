/**
 * Turns the prompt of a request or of an `encode` call into token ids. Called by actor.ts; long texts are encoded on the thread pool.
 *
 * - text: control tokens written in it are read as such, as Hugging Face does: a raw prompt is the caller's own template.
 * - ids: taken as they are after a range check.
 * - chat: the template is rendered and cut at the control tokens that it wrote; text of the messages never becomes one
 *   (template/sentinels.ts). No special tokens are added around it: the template writes the first one itself.
 *
 * One prompt at a time is begun in a turn of the event loop (work/prompt-queue.ts): the tokens of others go between. A template that is not
 * rendered at once is rendered on a thread of its own (template/slow-render.ts). A megabyte takes seconds to encode, and the thread pool
 * has few threads: texts of one class of length share its places (LANES), at which clients take turns, and no text waits for a much longer
 * one. A prompt that nobody wants any more leaves wherever it waits, at once; only what is being encoded at that moment goes on.
 */
import { InferdError } from '../../messages/errors.js';
import type { ChatMessage, PromptInput } from '../../messages/requests.js';
import type { Segment } from '../model/added-tokens.js';
import { type ModelText, readModelText } from '../model/model-text.js';
import { checkIds } from '../model/token-ids.js';
import { ChatTemplate, type TemplateLimits, type Variables } from '../template/chat-template.js';
import { mapStrings, SentinelGuard } from '../template/sentinels.js';
import { SlowRender } from '../template/slow-render.js';
import { Places } from '../work/places.js';
import type { PromptQueue } from '../work/prompt-queue.js';
import type { Asker } from '../work/waiting-line.js';
import type { Workload } from '../work/workload.js';
import type { Ids, Vocabulary } from './vocab.js';

type ChatPrompt = Extract<PromptInput, { kind: 'chat' }>;

/**
 * How many texts below so many characters are encoded at a time. The pool has four threads. A text of the first lane takes up to some
 * tens of milliseconds, one of the second some hundreds.
 */
const LANES = [
  { below: 32_768, places: 4 },
  { below: 262_144, places: 1 },
  { below: Number.POSITIVE_INFINITY, places: 1 },
] as const;

/** Processor time for which a template may hold up the answers of others; some need a few milliseconds the first time. */
const QUICK_MS = 20;
/** The same while another one is slow: whoever sends one such prompt may send hundreds. */
const QUICK_MS_WHILE_SLOW = 5;

/** What a template sees that a caller must not set. */
const RESERVED: ReadonlySet<string> = new Set(['messages', 'tools', 'documents', 'add_generation_prompt']);

export interface EncoderModel {
  /** Folder of the model. */
  readonly path: string;
  readonly bosTokenId: number | null;
  readonly eosTokenIds: readonly number[];
}

/** What it shares with the rest of its tokenizer. */
export interface EncoderParts {
  readonly queue: PromptQueue;
  readonly workload: Workload;
}

export class PromptEncoder {
  readonly #vocabulary: Vocabulary;
  readonly #text: ModelText;
  readonly #guard: SentinelGuard;
  /** By name; a string says why a template cannot be used. */
  readonly #templates = new Map<string, ChatTemplate | string>();
  readonly #slowRender: SlowRender;
  readonly #queue: PromptQueue;
  readonly #workload: Workload;
  readonly #lanes = LANES.map(({ below, places }) => ({ below, places: new Places(places) }));

  /** Reads and parses the chat templates. A broken template only fails the prompts that need it. */
  constructor(vocabulary: Vocabulary, model: EncoderModel, limits: TemplateLimits, { queue, workload }: EncoderParts) {
    this.#vocabulary = vocabulary;
    this.#queue = queue;
    this.#workload = workload;
    this.#text = readModelText(model.path, model.bosTokenId, model.eosTokenIds[0] ?? null, (id) => vocabulary.table.texts[id] ?? '');
    this.#guard = new SentinelGuard(vocabulary.guarded);
    this.#slowRender = new SlowRender(limits);
    for (const [name, source] of this.#text.templates) this.#templates.set(name, this.#compile(source, limits));
  }

  /** Ends what it has running; nothing is encoded any more. */
  close(): void {
    this.#slowRender.close();
    this.#vocabulary.close();
  }

  #compile(source: string, limits: TemplateLimits): ChatTemplate | string {
    try {
      return new ChatTemplate(source, limits, (literal) => this.#guard.touches(literal));
    } catch (error) {
      return error instanceof Error ? error.message : 'The chat template of this model cannot be used';
    }
  }

  /**
   * @param maxIds more are of no use: work ends when it is certain that there are.
   * @throws InferdError invalid_params, or cancelled when the asker left; TooManyIds. The ids may be more than the model takes: the caller
   * checks that.
   */
  async encode(prompt: PromptInput, asker: Asker, maxIds?: number): Promise<Int32Array> {
    switch (prompt.kind) {
      case 'ids':
        return checkIds(prompt.ids, this.#vocabulary.table.size, 'prompt');
      case 'text': {
        await this.#queue.pass(asker);
        const segments = this.#workload.during(() => this.#vocabulary.split(prompt.text));
        const ids = await this.#encodeSegments(segments, asker, maxIds);
        const { prefix, suffix } = this.#vocabulary;
        return prompt.addSpecialTokens ? between(prefix, ids, suffix) : between([], ids, []);
      }
      case 'chat':
        return between([], await this.#encodeChat(prompt, asker, maxIds), []);
      default:
        return prompt satisfies never;
    }
  }

  /** Text of the template that a chat prompt is rendered with; '' when there is none. */
  templateSource({ tools }: ChatPrompt): string {
    const { templates } = this.#text;
    return (tools === undefined ? undefined : templates.get('tool_use')) ?? templates.get('default') ?? '';
  }

  #encodeSegments(segments: readonly Segment[], asker: Asker, maxIds: number | undefined): Promise<Ids> {
    const chars = segments.reduce((sum, segment) => sum + segment.text.length, 0);
    const lane = this.#lanes.find(({ below }) => chars < below)!; // the last one takes all
    return lane.places.run(asker, async () => {
      const piece = this.#workload.begin();
      const wanted = (): boolean => {
        piece.advanced(); // asked between slices
        return !asker.cancellation.cancelled;
      };
      try {
        return await this.#vocabulary.encode(segments, { wanted, ...(maxIds === undefined ? {} : { maxIds }) });
      } finally {
        piece.done();
      }
    });
  }

  async #encodeChat(prompt: ChatPrompt, asker: Asker, maxIds: number | undefined): Promise<Ids> {
    await this.#queue.pass(asker);
    const { template, variables, sentinels } = this.#workload.during(() => this.#prepare(prompt));
    let rendered: string;
    try {
      rendered = await this.#render(template, variables, template.searched.map(sentinels.protect), asker);
    } catch (error) {
      // A template may quote the messages in what it says against them.
      if (error instanceof InferdError && sentinels.active) throw new InferdError(error.failure.kind, sentinels.restore(error.message));
      throw error;
    }
    const segments = this.#workload.during(() => {
      const cut = this.#vocabulary.split(rendered);
      return sentinels.active ? cut.map((s) => (s.id === null ? { id: null, text: sentinels.restore(s.text) } : s)) : cut;
    });
    return this.#encodeSegments(segments, asker, maxIds);
  }

  #prepare(prompt: ChatPrompt) {
    const template = this.#templateFor(prompt.tools !== undefined);
    const messages = prompt.messages.map(preparedMessage);
    messages.forEach((message, i) => {
      this.#guard.checkRole(message.role, `messages.${i}.role`);
    });
    const args = Object.fromEntries(Object.entries(prompt.templateArgs ?? {}).filter(([name]) => !this.#isReserved(name)));
    const tools = prompt.tools ?? null;
    const sentinels = this.#guard.mapFor([messages, tools, args], template.source, template.escapesUnicode);
    const visible = sentinels.active ? (value: unknown) => mapStrings(value, sentinels.protect) : (value: unknown) => value;
    const variables = {
      ...(visible(args) as Record<string, unknown>), // an object in, an object out
      ...this.#text.specialTokens,
      messages: visible(messages),
      tools: visible(tools),
      documents: null,
      add_generation_prompt: prompt.addGenerationPrompt,
    };
    return { template, variables, sentinels };
  }

  async #render(template: ChatTemplate, variables: Variables, searched: readonly string[], asker: Asker): Promise<string> {
    const quick = this.#workload.during(
      () =>
        template.renderAtOnce(variables, searched) ??
        template.tryRender(variables, searched, this.#slowRender.busy ? QUICK_MS_WHILE_SLOW : QUICK_MS),
    );
    if (quick !== null) return quick;
    return this.#slowRender.render({ source: template.source, literals: template.searched, searched, variables }, asker);
  }

  #isReserved(name: string): boolean {
    return RESERVED.has(name) || Object.hasOwn(this.#text.specialTokens, name);
  }

  #templateFor(withTools: boolean): ChatTemplate {
    const named = (withTools ? this.#templates.get('tool_use') : undefined) ?? this.#templates.get('default');
    if (named === undefined)
      throw new InferdError('invalid_params', 'This model has no chat template; use completions.create with a prompt');
    if (typeof named === 'string') throw new InferdError('invalid_params', named);
    return named;
  }
}

function between(prefix: readonly number[], ids: Ids, suffix: readonly number[]): Int32Array {
  const all = new Int32Array(prefix.length + ids.length + suffix.length);
  all.set(prefix);
  all.set(ids, prefix.length);
  all.set(suffix, prefix.length + ids.length);
  return all;
}

/**
 * A message as templates expect it: text content is a string even when the caller sent null, and the arguments of earlier tool
 * calls, which OpenAI's API carries as JSON text, are the object that they stand for (vLLM does both).
 */
function preparedMessage(message: ChatMessage): ChatMessage {
  const calls = message['tool_calls'];
  return {
    ...message,
    content: message.content ?? '',
    ...(Array.isArray(calls) ? { tool_calls: calls.map(withParsedArguments) } : {}),
  };
}

function withParsedArguments(call: unknown): unknown {
  if (typeof call !== 'object' || call === null) return call;
  const called = (call as { function?: unknown }).function;
  if (typeof called !== 'object' || called === null) return call;
  const text = (called as { arguments?: unknown }).arguments;
  if (typeof text !== 'string') return call;
  let parsed: unknown;
  try {
    parsed = text.trim() === '' ? {} : JSON.parse(text);
  } catch {
    return call;
  }
  return typeof parsed === 'object' && parsed !== null ? { ...call, function: { ...called, arguments: parsed } } : call;
}
