/**
 * One call for embeddings from submit to answer: a request to the engine for each input, a few at a time, so that one call of many
 * inputs does not fill the queue. Ends exactly once: when every request has ended, at the first failure, or when the caller cancels;
 * whichever comes first ends the rest.
 */
import type { EngineClient, RequestHandle, RequestSink } from '../../actors/client-types.js';
import { int32Of } from '../../actors/messages/codec.js';
import { type Failure, failureOf, InferdError, type ParamIssue } from '../../actors/messages/errors.js';
import type { RequestId } from '../../actors/messages/ids.js';
import type { Delta, GenerationParams, PromptInput } from '../../actors/messages/requests.js';
import type { CallContext } from '../context.js';
import { type EndedAnswer, maxPromptsTold } from '../insight/ended-answers.js';
import { adapterParams, type KnownModel, type Lease, type Models, servedName } from '../models.js';

export interface EmbeddingPlan {
  readonly known: KnownModel;
  /** By which the call is known while it runs: "embd-…". */
  readonly id: string;
  readonly inputs: readonly PromptInput[];
  /** With `pooling`. */
  readonly params: GenerationParams;
  /** Requests that run or wait at a time, at most. */
  readonly atOnce: number;
  /** Called for each input when its state is there, in any order; `state` belongs to it. @throws InferdError, which ends the call */
  readonly onState: (index: number, state: Float32Array) => void;
}

/** Token counts of all inputs together. */
export interface EmbeddingUsage {
  promptTokens: number;
  cachedTokens: number;
}

export class EmbeddingCall {
  readonly #models: Models;
  readonly #plan: EmbeddingPlan;
  readonly #ctx: CallContext;
  readonly #usage: EmbeddingUsage = { promptTokens: 0, cachedTokens: 0 };
  /** Of requests that have not ended. */
  readonly #handles = new Map<number, RequestHandle>();
  readonly #onAbort = (): void => this.#fail({ kind: 'cancelled' });
  /** Inputs that were submitted, and those that are done. */
  #next = 0;
  #done = 0;
  #filling = false;
  #lease: Lease | null = null;
  /** Requests of the engine that requests.get will tell of. */
  readonly #told: RequestId[] = [];
  #settled = false;
  #resolve: (usage: EmbeddingUsage) => void = () => {};
  #reject: (error: InferdError) => void = () => {};

  constructor(models: Models, plan: EmbeddingPlan, ctx: CallContext) {
    this.#models = models;
    this.#plan = plan;
    this.#ctx = ctx;
  }

  /** Submits as soon as the model is loaded; resolves when every state was handed out. @throws (rejects) InferdError */
  run(): Promise<EmbeddingUsage> {
    return new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
      if (this.#ctx.cancellation.cancelled) {
        this.#onAbort();
        return;
      }
      this.#ctx.cancellation.listen(this.#onAbort);
      this.#askForEngine();
    });
  }

  #askForEngine(): void {
    const fail = (error: unknown): void => this.#fail(failureOf(error));
    try {
      const lease = this.#models.acquire(servedName(this.#plan.known), { cancellation: this.#ctx.cancellation });
      if (lease instanceof Promise) lease.then((came) => this.#begin(came), fail);
      else this.#begin(lease);
    } catch (error) {
      fail(error);
    }
  }

  #begin(lease: Lease): void {
    this.#lease = lease;
    if (this.#settled) lease.release();
    else this.#fill();
  }

  /** Submits what may be. A request that ends at once comes back here, which the loop sees by itself. */
  #fill(): void {
    if (this.#filling) return;
    this.#filling = true;
    const { inputs, atOnce } = this.#plan;
    const engine = this.#lease?.served.engine;
    while (engine !== undefined && !this.#settled && this.#next < inputs.length && this.#next - this.#done < atOnce)
      this.#submit(this.#next++, engine);
    this.#filling = false;
  }

  #submit(index: number, engine: EngineClient): void {
    const { inputs, params, id } = this.#plan;
    const input = inputs[index];
    if (input === undefined) return;
    let ended = false;
    const sink = this.#sink(index, () => {
      ended = true;
    });
    const handle = engine.submit(input, { ...params, ...adapterParams(this.#lease?.served ?? {}) }, sink, this.#ctx.client);
    if (ended) return;
    if (this.#settled) {
      handle.cancel();
      return;
    }
    this.#handles.set(index, handle);
    this.#ctx.live.set(handle.id, {
      answerId: id,
      model: servedName(this.#plan.known),
      session: this.#ctx.session,
      cancel: this.#onAbort,
    });
    if (this.#told.length < maxPromptsTold) this.#told.push(handle.id);
  }

  #sink(index: number, onEnd: () => void): RequestSink {
    let answered = false;
    return {
      arrivalMs: this.#ctx.arrivalMs,
      onEncoded: (promptIds) => {
        this.#usage.promptTokens += promptIds.length;
      },
      onNotice() {},
      onStarted: ({ cachedTokens }) => {
        this.#usage.cachedTokens += cachedTokens;
      },
      onPromptLogprobs() {},
      onDeltas: (deltas) => {
        for (const { pooled } of deltas) if (pooled !== undefined) answered = this.#take(index, pooled);
      },
      onEnd: (failure) => {
        onEnd();
        this.#forget(index);
        if (this.#settled) return;
        if (failure !== null) this.#fail(ofInput(failure, index, this.#plan.inputs.length));
        else if (!answered) this.#fail({ kind: 'internal' });
        else if (++this.#done === this.#plan.inputs.length) this.#settle('finished', () => this.#resolve(this.#usage));
        else this.#fill();
      },
    };
  }

  /** True when the state was handed out. */
  #take(index: number, pooled: NonNullable<Delta['pooled']>): boolean {
    if (this.#settled) return false;
    const words = int32Of(pooled);
    try {
      this.#plan.onState(index, new Float32Array(words.buffer, words.byteOffset, words.length));
      return true;
    } catch (error) {
      this.#fail(error instanceof InferdError ? error.failure : { kind: 'internal' });
      return false;
    }
  }

  #forget(index: number): void {
    const handle = this.#handles.get(index);
    if (handle === undefined) return;
    this.#handles.delete(index);
    this.#ctx.live.delete(handle.id);
  }

  #fail({ kind, message, data }: Failure): void {
    this.#settle(kind === 'cancelled' ? 'cancelled' : 'failed', () => this.#reject(new InferdError(kind, message, data)));
    // A handle that is cancelled leaves the map.
    for (const handle of [...this.#handles.values()]) handle.cancel();
  }

  #settle(state: EndedAnswer['state'], answer: () => void): void {
    if (this.#settled) return;
    this.#settled = true;
    answer();
    this.#ctx.cancellation.unlisten(this.#onAbort);
    if (this.#told.length > 0) this.#remember(state);
    this.#lease?.release();
  }

  #remember(state: EndedAnswer['state']): void {
    const { session, ended } = this.#ctx;
    ended.add({
      answerId: this.#plan.id,
      model: servedName(this.#plan.known),
      state,
      promptTokens: this.#usage.promptTokens,
      completionTokens: 0,
      durationMs: performance.now() - this.#ctx.arrivalMs,
      endedAt: Date.now(),
      ids: this.#told,
      session: session === null ? null : new WeakRef(session),
    });
  }
}

/** What the engine says of a prompt, said of the input that it was. */
function ofInput({ kind, message, data }: Failure, index: number, count: number): Failure {
  const name = count === 1 ? 'input' : `input[${index}]`;
  if (kind === 'invalid_params' && Array.isArray(data)) {
    const issues = (data as readonly ParamIssue[]).map((issue) => ({ ...issue, path: name })); // proof: what invalidParams gives
    return { kind, message: `Invalid params: ${name}: ${issues[0]?.message ?? 'not valid'}`, data: issues };
  }
  const where = count === 1 || message === undefined || kind !== 'context_length_exceeded' ? '' : `${name}: `;
  return { kind, ...(message === undefined ? {} : { message: `${where}${message}` }), ...(data === undefined ? {} : { data }) };
}
