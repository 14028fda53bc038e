/**
 * An EngineClient that answers from a script, one token per sequence and step, for tests of rpc and daemon without an engine.
 * With `auto` steps run by themselves, one per turn of the event loop; else the test calls `step()`. Its tokenizer is bytes: id = byte.
 */
import { RequestIds } from '../../../actors/client-ids.js';
import type {
  Asker,
  EngineClient,
  EngineState,
  RequestHandle,
  RequestSink,
  RequestSummary,
  ServedModel,
  TokenText,
} from '../../../actors/client-types.js';
import type { EngineCallHandlers, EngineCallName, EngineCalls, SchedulerStats } from '../../../actors/messages/calls.js';
import { bytesOf } from '../../../actors/messages/codec.js';
import { type Failure, InferdError } from '../../../actors/messages/errors.js';
import type { RequestId } from '../../../actors/messages/ids.js';
import type { Delta, GenerationParams, Notice, PromptInput } from '../../../actors/messages/requests.js';
import type { AnswerReader } from '../../../actors/tokenizer/answer/answer-reader.js';
import { Answers } from '../../../actors/tokenizer/answer/answers.js';
import { checkIds, checkTokenIds } from '../../../actors/tokenizer/model/token-ids.js';
import { recordsOf, type TokenLogprob } from './logprobs.js';

/** The tokens of sequence `index`, as texts. */
export type Script = (prompt: PromptInput, params: GenerationParams, index: number) => readonly string[];

export interface FakeRequest {
  readonly id: RequestId;
  readonly prompt: PromptInput;
  readonly params: GenerationParams;
  readonly sink: RequestSink;
  readonly texts: readonly (readonly string[])[];
  /** Of each sequence; null where its text is content as it is. */
  readonly readers: readonly (AnswerReader | null)[];
  /** Next token of each sequence; -1 when it has finished. */
  readonly at: number[];
  paused: boolean;
  ended: boolean;
  started: boolean;
}

/** What the last user message, or the prompt, says; echoed back by the default script. */
export function promptText(prompt: PromptInput): string {
  if (prompt.kind === 'text') return prompt.text;
  if (prompt.kind === 'ids') return new TextDecoder().decode(Uint8Array.from(prompt.ids));
  return prompt.messages.at(-1)?.content ?? '';
}

/** Words with the space before them, as a tokenizer would cut them. */
export function words(text: string): readonly string[] {
  return text.match(/\s*\S+|\s+$/g) ?? [];
}

/** Token ids: one a byte. */
const VOCABULARY = 256;

/** What a delta says of a token's text, as the tokenizer says it. */
function readText(
  text: string,
  reader: AnswerReader | null,
  last: boolean,
): Pick<Delta, 'text' | 'reasoning' | 'calls' | 'reasoningTokens'> {
  if (reader === null) return { text };
  const reasoned = reader.reasons;
  reader.push(text);
  const inside = reasoned && reader.reasons;
  if (last) reader.end();
  const { content, reasoning, calls } = reader.take();
  return {
    text: content,
    ...(reasoning === '' ? {} : { reasoning }),
    ...(calls.length === 0 ? {} : { calls }),
    ...(reasoned === null ? {} : { reasoningTokens: inside ? 1 : 0 }),
  };
}

function faultOf(check: () => void): Failure | null {
  try {
    check();
    return null;
  } catch (error) {
    if (error instanceof InferdError) return error.failure;
    throw error;
  }
}

export class FakeEngineClient implements EngineClient {
  readonly all: FakeRequest[] = [];
  readonly cancelled: RequestId[] = [];
  readonly pauses: { readonly id: RequestId; readonly paused: boolean }[] = [];
  script: Script = (prompt, _params, index) => words(`${index > 0 ? `(${index}) ` : ''}You said: ${promptText(prompt)}`);
  /** What a prompt is pooled to. */
  pool: (prompt: PromptInput) => readonly number[] = (prompt) => [3, 4, 0, promptText(prompt).length];
  /** When set, the next submit is refused with it. */
  refuseNext: Failure | null = null;
  /** What control calls are answered. */
  answers: Partial<EngineCallHandlers> = { stats: () => this.#stats() };
  /** Who asked for encode and decode. */
  readonly askers: Asker[] = [];
  /** When set, encode and decode wait for it. */
  gate: Promise<void> | null = null;
  current: EngineState = 'ready';
  /** Text of the chat template, from which the format of answers is found, and the end of what it renders. */
  template = '';
  promptEnd = '';
  readonly #answers = new Answers({ specialIds: new Map() }, { toolCalls: 'auto', reasoning: 'auto' });
  readonly #auto: boolean;
  #scheduled = false;
  readonly #ids: RequestIds;
  /** Of the ids from 256 on. */
  readonly #texts: string[] = [];

  constructor({ auto = true, ids = new RequestIds() }: { readonly auto?: boolean; readonly ids?: RequestIds } = {}) {
    this.#auto = auto;
    this.#ids = ids;
  }

  get live(): readonly FakeRequest[] {
    return this.all.filter((r) => !r.ended);
  }

  submit(prompt: PromptInput, params: GenerationParams, sink: RequestSink): RequestHandle {
    const id = this.#ids.take();
    const texts = Array.from({ length: params.bestOf }, (_, i) => this.script(prompt, params, i));
    const reading = prompt.kind === 'chat' ? this.#answers.readingOf(prompt, this.template, () => this.promptEnd) : null;
    const request: FakeRequest = {
      id,
      prompt,
      params,
      sink,
      texts,
      readers: texts.map(() => reading?.newReader() ?? null),
      at: texts.map(() => 0),
      paused: false,
      ended: false,
      started: false,
    };
    this.all.push(request);
    const refusal =
      this.refuseNext ??
      faultOf(() => {
        checkTokenIds(params, VOCABULARY);
        if (prompt.kind === 'ids') checkIds(prompt.ids, VOCABULARY, 'prompt');
      });
    this.refuseNext = null;
    if (refusal !== null) this.#end(request, refusal);
    else {
      const text = promptText(prompt);
      sink.onEncoded(Int32Array.from(Buffer.from(text)), params.maxTokens ?? 4096, params.echo ? text : undefined);
      this.#schedule();
    }
    return {
      id,
      cancel: () => {
        if (request.ended) return;
        this.cancelled.push(id);
        this.#end(request, { kind: 'cancelled' });
      },
      setPaused: (paused) => {
        request.paused = paused;
        this.pauses.push({ id, paused });
        if (!paused) this.#schedule();
      },
    };
  }

  /** One token for each sequence of each request that is not paused. */
  step(): void {
    for (const request of this.all) if (!request.ended && !request.paused) this.#advance(request);
  }

  notice(request: FakeRequest, notice: Notice): void {
    if (!request.ended) request.sink.onNotice(notice);
  }

  fail(request: FakeRequest, failure: Failure): void {
    this.#end(request, failure);
  }

  async encode(prompt: PromptInput, asker: Asker = {}): Promise<Int32Array> {
    this.askers.push(asker);
    await this.gate;
    return Int32Array.from(Buffer.from(promptText(prompt)));
  }

  async decode(ids: readonly number[], _skipSpecialTokens: boolean, asker: Asker = {}): Promise<string> {
    this.askers.push(asker);
    await this.gate;
    checkIds(ids, VOCABULARY, 'ids');
    return Buffer.from(ids).toString('utf8');
  }

  async learnTexts(_ids: Iterable<number>, asker: Asker = {}): Promise<void> {
    this.askers.push(asker);
    await this.gate;
  }

  /** A byte, or a text that a record names. */
  tokenText(id: number): TokenText {
    const token = id < 256 ? String.fromCharCode(id) : (this.#texts[id - 256] ?? '');
    return { token, bytes: token.startsWith('alt') ? [97] : [...Buffer.from(token)] };
  }

  async ask<N extends EngineCallName>(name: N, params: EngineCalls[N]['params']): Promise<EngineCalls[N]['reply']> {
    const answer = this.answers[name];
    if (answer === undefined) throw new InferdError('unsupported');
    return answer(params);
  }

  #stats(): SchedulerStats {
    const running = this.live.length;
    return {
      requests: { running, waiting: 0, swapped: 0, finished_total: this.all.length - running, aborted_total: 0, preempted_total: 0 },
      kv: {
        block_size: 16,
        total_blocks: 64,
        used_blocks: running,
        cached_blocks: 0,
        free_blocks: 64 - running,
        swap_total: 0,
        swap_used: 0,
      },
      tokens: { prompt_total: 0, generated_total: 0, prefix_hit_total: 0 },
      step: { count: 0, p50_ms: 0, p99_ms: 0 },
    };
  }

  requests(): readonly RequestSummary[] {
    return this.live.map((r) => ({
      id: r.id,
      state: r.started ? ('running' as const) : ('queued' as const),
      group: 0,
      ageMs: 1,
      promptTokens: promptText(r.prompt).length,
      generatedTokens: Math.max(0, ...r.at),
    }));
  }

  textBounds(): null {
    return null;
  }
  model(): ServedModel {
    return {
      name: 'fake',
      architecture: 'FakeForCausalLM',
      dtype: 'f32',
      kvDtype: 'f32',
      vocabSize: VOCABULARY,
      maxModelLen: 4096,
      weightBytes: 1000,
      parameters: 250,
      backend: 'cpu',
      blockSize: 16,
      totalBlocks: 64,
      blockBytes: 1024,
    };
  }

  state(): EngineState {
    return this.current;
  }

  healthy(): boolean {
    return this.current === 'ready';
  }

  #schedule(): void {
    if (!this.#auto || this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      this.step();
      if (this.live.some((r) => !r.paused)) this.#schedule();
    });
  }

  #advance(request: FakeRequest): void {
    const { params, sink } = request;
    if (!request.started) {
      request.started = true;
      if (params.promptLogprobs >= 0) {
        const bytes = [...Buffer.from(promptText(request.prompt))];
        sink.onPromptLogprobs(recordsOf(bytes.slice(1).map((b) => this.#logprob(b, params.promptLogprobs))));
      }
      sink.onStarted({ id: request.id, queueMs: 1, cachedTokens: 2 });
    }
    if (params.pooling !== undefined) {
      const pooled = new Uint8Array(Float32Array.from(this.pool(request.prompt)).buffer);
      sink.onDeltas([{ id: request.id, index: 0, text: '', tokens: [], finish: 'stop', pooled }]);
      this.#end(request, null);
      return;
    }
    const deltas: Delta[] = [];
    for (const [index, texts] of request.texts.entries()) {
      const at = request.at[index] ?? -1;
      if (at < 0) continue;
      const text = texts[at] ?? '';
      const finish = at + 1 >= texts.length ? 'stop' : params.maxTokens !== null && at + 1 >= params.maxTokens ? 'length' : undefined;
      const id = at % 256;
      deltas.push({
        id: request.id,
        index,
        ...readText(text, request.readers[index] ?? null, finish !== undefined),
        tokens: [id],
        ...(params.topLogprobs < 0 ? {} : { logprobs: bytesOf(recordsOf([this.#logprob(this.#idOf(text), params.topLogprobs)])) }),
        ...(finish === undefined ? {} : { finish, cumulative: -index }),
      });
      request.at[index] = finish === undefined ? at + 1 : -1;
    }
    sink.onDeltas(deltas);
    if (!request.ended && request.at.every((at) => at < 0)) this.#end(request, null);
  }

  #end(request: FakeRequest, failure: Failure | null): void {
    if (request.ended) return;
    request.ended = true;
    request.sink.onEnd(failure);
  }

  /** An id for the text of a generated token, which may be any. */
  #idOf(text: string): number {
    const known = this.#texts.indexOf(text);
    return 256 + (known >= 0 ? known : this.#texts.push(text) - 1);
  }

  #logprob(id: number, top: number): TokenLogprob {
    const others = Array.from({ length: Math.max(0, top - 1) }, (_, i) => [this.#idOf(`alt${i}`), -1 - i] as const);
    return { token: id, logprob: -0.5, rank: 1, top: top > 0 ? [[id, -0.5], ...others] : [] };
  }
}
