/**
 * One completion call from submit to answer: a request to the engine per prompt, their sequences collected, their pieces streamed.
 * Ends exactly once: when every request has ended and everything is sent, at the first failure, when the caller cancels, or when the
 * caller reads too slowly; whichever comes first ends the rest. After that nothing is sent on the stream.
 */
import type { EngineClient, RequestHandle, RequestSink, StartProgress, TokenText } from '../../actors/client-types.js';
import { type Failure, failureOf, InferdError } from '../../actors/messages/errors.js';
import type { Delta, GenerationParams, Notice, PromptInput, Started } from '../../actors/messages/requests.js';
import type { AnswerHead } from '../client/chunk.js';
import type { CallContext, RpcDeps } from '../context.js';
import { type EndedAnswer, maxPromptsTold } from '../insight/ended-answers.js';
import { adapterParams, type KnownModel, type Lease, servedName } from '../models.js';
import type { OpenSink, SinkEvent } from '../sink.js';
import { AnswerStream } from './answer-stream.js';
import { Choice, type Keep } from './choice.js';
import { RecordStore, type TextOf } from './logprob-records.js';
import type { Piece } from './piece.js';
import { PromptEntries } from './prompt-logprobs.js';
import { ReportBudget, type Reports } from './report-budget.js';
import { countedTokens, type PromptFacts, usageOf } from './usage.js';

/** Where the pieces of a streaming call go, and how they look. */
export interface StreamShape {
  readonly open: OpenSink;
  readonly shape: (pieces: readonly Piece[]) => readonly object[];
  /** What the chunk of these pieces has beside its choices. */
  readonly chunkFields?: (pieces: readonly Piece[]) => object;
  /** The pieces to send for one delta of choice `index`; may be none. */
  readonly pieces: (delta: Delta, index: number, prompt: PromptRun) => readonly Piece[];
}

export interface CallPlan {
  readonly known: KnownModel;
  readonly head: AnswerHead;
  readonly prompts: readonly PromptInput[];
  readonly params: GenerationParams;
  readonly keep: Keep;
  readonly reports: Reports;
  /** `null`: not streamed. */
  readonly stream: StreamShape | null;
}

/** One prompt: what the engine told of it. */
export class PromptRun implements PromptFacts {
  readonly index: number;
  promptIds: Int32Array = new Int32Array(0);
  promptText = '';
  cachedTokens = 0;
  queueMs = 0;
  /** Empty when not asked for. Position 0, which has no log-probability, is missing. */
  readonly logprobs: RecordStore;
  ended = false;
  #entries: PromptEntries | null = null;

  constructor(index: number, textOf: TextOf) {
    this.index = index;
    this.logprobs = new RecordStore(textOf);
  }

  /** All tokens with what was reported of them; to be asked for when the prompt is known. */
  get entries(): PromptEntries {
    this.#entries ??= new PromptEntries(this.logprobs, this.promptText, this.promptIds[0] ?? 0);
    return this.#entries;
  }

  get promptTokens(): number {
    return this.promptIds.length;
  }
}

export interface CallOutcome {
  readonly prompts: readonly PromptRun[];
  /** bestOf per prompt, in the order of prompts. */
  readonly choices: readonly Choice[];
}

const noText: TokenText = { token: '', bytes: [] };

export class GenerationCall {
  readonly prompts: readonly PromptRun[];
  readonly choices: readonly Choice[];
  readonly #deps: RpcDeps;
  readonly #plan: CallPlan;
  readonly #ctx: CallContext;
  readonly #budget: ReportBudget;
  readonly #handles: RequestHandle[] = [];
  readonly #onAbort = (): void => this.#fail({ kind: 'cancelled' });
  /** Nothing but the prompt is asked for. The engine gives a sequence one token all the same, which is dropped here. */
  readonly #promptOnly: boolean;
  #stream: AnswerStream | null = null;
  #lease: Lease | null = null;
  #paused = false;
  #running: number;
  #settled = false;
  #resolve: (outcome: CallOutcome) => void = () => {};
  #reject: (error: InferdError) => void = () => {};

  constructor(deps: RpcDeps, plan: CallPlan, ctx: CallContext) {
    this.#deps = deps;
    this.#plan = plan;
    this.#ctx = ctx;
    const textOf: TextOf = (id) => this.textOf(id);
    this.prompts = plan.prompts.map((_, i) => new PromptRun(i, textOf));
    const { reports, params } = plan;
    const limit = plan.known.config.validation.max_reported_logprobs;
    this.#budget = new ReportBudget({ reports, params, numPrompts: this.prompts.length, limit, holding: ctx.holding });
    this.choices = this.prompts.flatMap((p) => Array.from({ length: params.bestOf }, (_, s) => new Choice(p.index, s, plan.keep, textOf)));
    this.#running = this.prompts.length;
    this.#promptOnly = params.maxTokens === 0;
  }

  /** Submits as soon as the model is loaded. @throws (rejects) InferdError */
  run(): Promise<CallOutcome> {
    return new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
      const refusal = this.#refusal();
      if (refusal !== null) {
        this.#fail(refusal);
        return;
      }
      this.#openStream();
      if (this.#ctx.cancellation.cancelled) {
        this.#onAbort();
        return;
      }
      this.#ctx.cancellation.listen(this.#onAbort);
      this.#askForEngine();
    });
  }

  /** What a token of the prompts or answers of this call stands for. */
  textOf(id: number): TokenText {
    return this.#lease?.served.engine.tokenText(id) ?? noText;
  }

  usage() {
    return usageOf(this.prompts, this.choices, this.#ctx.arrivalMs, performance.now());
  }

  /** Why the answer is known to be too large before anything is done, or null. */
  #refusal(): Failure | null {
    const { prompts, params } = this.#plan;
    return this.#budget.addPrompts(prompts.reduce((sum, input) => sum + (knownTokens(input, params) ?? 0), 0));
  }

  #openStream(): void {
    const { stream, head } = this.#plan;
    if (stream === null) return;
    this.#stream = new AnswerStream({
      open: stream.open,
      head,
      timeoutMs: this.#deps.config.server.slow_client_timeout_s * 1000,
      counted: () => this.usage(),
      shape: stream.shape,
      ...(stream.chunkFields === undefined ? {} : { chunkFields: stream.chunkFields }),
      setPaused: (paused) => this.#setPaused(paused),
      onStuck: () => this.#fail({ kind: 'slow_consumer' }),
    });
  }

  #askForEngine(): void {
    const fail = (error: unknown): void => this.#fail(failureOf(error));
    try {
      const lease = this.#deps.models.acquire(servedName(this.#plan.known), {
        cancellation: this.#ctx.cancellation,
        onLoading: (progress) => this.#loading(progress),
      });
      if (lease instanceof Promise) lease.then((came) => this.#begin(came), fail);
      else this.#begin(lease);
    } catch (error) {
      fail(error);
    }
  }

  #loading({ phase, done, total }: StartProgress): void {
    if (!this.#settled) this.#stream?.notice({ kind: 'loading', phase, done, total });
  }

  #begin(lease: Lease): void {
    this.#lease = lease;
    if (this.#settled) lease.release();
    for (const prompt of this.prompts) if (!this.#settled) this.#submit(prompt, lease.served.engine);
  }

  #submit(prompt: PromptRun, engine: EngineClient): void {
    const input = this.#plan.prompts[prompt.index];
    if (input === undefined) return;
    const handle = engine.submit(
      input,
      { ...this.#plan.params, ...adapterParams(this.#lease?.served ?? {}) },
      this.#sink(prompt),
      this.#ctx.client,
    );
    if (this.#settled) {
      handle.cancel();
      return;
    }
    this.#handles.push(handle);
    if (prompt.ended) return;
    this.#ctx.live.set(handle.id, {
      answerId: this.#plan.head.id,
      model: servedName(this.#plan.known),
      session: this.#ctx.session,
      cancel: this.#onAbort,
    });
    if (this.#paused) handle.setPaused(true);
  }

  #sink(prompt: PromptRun): RequestSink {
    return {
      arrivalMs: this.#ctx.arrivalMs,
      onEncoded: (promptIds, _maxTokens, promptText) => {
        prompt.promptIds = promptIds;
        prompt.promptText = promptText ?? '';
        const input = this.#plan.prompts[prompt.index];
        if (this.#settled || input === undefined || knownTokens(input, this.#plan.params) !== null) return;
        const refusal = this.#budget.addPrompts(promptIds.length);
        if (refusal !== null) this.#fail(refusal);
      },
      onNotice: (notice) => this.#notice(notice, prompt),
      onStarted: (started: Started) => {
        prompt.cachedTokens = started.cachedTokens;
        prompt.queueMs = started.queueMs;
      },
      onPromptLogprobs: (records) => prompt.logprobs.add(records),
      onDeltas: (deltas) => this.#deltas(deltas, prompt),
      onEnd: (failure) => {
        prompt.ended = true;
        if (this.#settled) return;
        if (failure !== null) this.#fail(failure);
        else if (--this.#running === 0) this.#finish();
      },
    };
  }

  #notice(notice: Notice, prompt: PromptRun): void {
    if (this.#settled || this.#stream === null) return;
    const which = this.prompts.length > 1 ? { prompt: prompt.index } : {};
    const event: SinkEvent =
      notice.kind === 'queued'
        ? { kind: 'queued', position: notice.position, ...which }
        : { kind: 'prefill', done: notice.done, total: notice.total, ...which };
    this.#stream.notice(event);
  }

  #deltas(deltas: readonly Delta[], prompt: PromptRun): void {
    if (this.#settled) return;
    const nowMs = performance.now();
    const pieces: Piece[] = [];
    for (const told of deltas) {
      const delta = this.#promptOnly ? withoutTokens(told) : told;
      const index = prompt.index * this.#plan.params.bestOf + delta.index;
      const choice = this.choices[index];
      if (choice === undefined) continue;
      choice.add(delta, nowMs);
      const refusal = this.#budget.addGenerated(delta.tokens.length, delta.logprobs?.length ?? 0);
      if (refusal !== null) {
        this.#fail(refusal);
        return;
      }
      if (this.#plan.stream === null) continue;
      for (const piece of this.#plan.stream.pieces(delta, index, prompt)) pieces.push(piece);
    }
    if (pieces.length > 0) this.#stream?.push(pieces);
  }

  #setPaused(paused: boolean): void {
    this.#paused = paused;
    for (const handle of this.#handles) handle.setPaused(paused);
  }

  #finish(): void {
    if (this.#stream === null) this.#settle('finished', () => this.#resolve(this));
    else void this.#stream.drained().then(() => this.#settle('finished', () => this.#resolve(this)));
  }

  #fail(failure: Failure): void {
    const state = failure.kind === 'cancelled' ? 'cancelled' : 'failed';
    this.#settle(state, () => this.#reject(new InferdError(failure.kind, failure.message, this.#failureData(failure))));
    for (const handle of this.#handles) handle.cancel();
  }

  #failureData(failure: Failure): Failure['data'] {
    if (failure.kind === 'cancelled' || failure.kind === 'slow_consumer') {
      return { usage: this.usage(), last_seq: (this.#stream?.numEvents ?? 0) - 1 };
    }
    return failure.data;
  }

  #settle(state: EndedAnswer['state'], answer: () => void): void {
    if (this.#settled) return;
    this.#settled = true;
    answer();
    this.#ctx.cancellation.unlisten(this.#onAbort);
    this.#stream?.close();
    for (const handle of this.#handles) this.#ctx.live.delete(handle.id);
    if (this.#handles.length > 0) this.#remember(state);
    this.#lease?.release();
  }

  #remember(state: EndedAnswer['state']): void {
    this.#ctx.ended.add({
      answerId: this.#plan.head.id,
      model: servedName(this.#plan.known),
      state,
      ...countedTokens(this.prompts, this.choices),
      durationMs: performance.now() - this.#ctx.arrivalMs,
      endedAt: Date.now(),
      ids: this.#handles.slice(0, maxPromptsTold).map(({ id }) => id),
      session: this.#ctx.session === null ? null : new WeakRef(this.#ctx.session),
    });
  }
}

/** Tokens of a prompt that can be told before it is encoded, or null. */
function knownTokens(input: PromptInput, { truncatePromptTokens }: GenerationParams): number | null {
  return input.kind === 'ids' ? Math.min(input.ids.length, truncatePromptTokens ?? Number.POSITIVE_INFINITY) : null;
}

function withoutTokens({ id, index, finish }: Delta): Delta {
  return { id, index, text: '', tokens: [], ...(finish === undefined ? {} : { finish: 'length' }) };
}
