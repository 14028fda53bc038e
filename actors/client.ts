/**
 * The only door to the engine for everything outside of it: implements EngineClient on the main thread. Requests go to a tokenizer
 * chosen by hash of the id and come back as Deltas; this file keeps the books of who still waits for an end.
 *
 * Invariants: every submitted request gets exactly one onEnd, whatever mixture of cancel, failure, actor death, drain and stop happens;
 * a request is in `#requests` exactly until then, and leaves it before its onEnd runs (a sink may submit or cancel from inside).
 * The engine (daemon/life/engine.ts) tells it which actors are there and in which state the engine is.
 */
import { Calls } from './client-calls.js';
import { type Gaining, gather } from './client-deltas.js';
import { EngineGroups } from './client-groups.js';
import type { RequestIds } from './client-ids.js';
import { idsSize, promptSize } from './client-load.js';
import { Names } from './client-names.js';
import { ANYBODY, died, type FromTokenizer, overloaded, RETRY_AFTER_MS, Tokenizers } from './client-tokenizers.js';
import { Turns } from './client-turns.js';
import type {
  Asker,
  ClientKey,
  EngineAdapters,
  EngineClient,
  EngineState,
  RequestHandle,
  RequestSink,
  RequestSummary,
  ServedModel,
  TokenText,
} from './client-types.js';
import type { CallReply, EngineCallName, EngineCalls } from './messages/calls.js';
import { int32Of } from './messages/codec.js';
import type { LinkEnd } from './messages/control.js';
import type { Failure } from './messages/errors.js';
import { InferdError } from './messages/errors.js';
import type { RequestId } from './messages/ids.js';
import type {
  Deltas,
  Encoded,
  GenerationParams,
  Notice,
  Notices,
  PromptInput,
  Routed,
  Started,
  Submit,
  TokenIds,
  TokenNames,
} from './messages/requests.js';
import type { TextBounds } from './messages/text-bounds.js';
import { nowMs } from './runtime/clock.js';
import type { Counters } from './runtime/counters.js';
import { unreachable } from './runtime/invariant.js';
import { errorFields, type Log } from './runtime/log.js';

interface Live extends Gaining {
  readonly id: RequestId;
  readonly arrivalMs: number;
  readonly sink: RequestSink;
  readonly client: ClientKey;
  readonly turn: number;
  /** Sequences without a finish yet. */
  readonly open: Set<number>;
  /** The message while no tokenizer is there to take it. */
  unsent: Submit | null;
  /** The tokenizer that has it. */
  tokenizer: number | null;
  /** The engine group that has it, or had it last. */
  group: number | null;
  encoded: boolean;
  started: boolean;
  paused: boolean;
  promptTokens: number;
  generatedTokens: number;
}

export interface ClientOptions {
  /** Numbers of requests and calls; those of all engines of a daemon come from one. */
  readonly ids: RequestIds;
  /** Engine groups; 1 when not said. */
  readonly numGroups?: number;
  /** Unfinished requests, at most: scheduler.max_queue and scheduler.max_num_sequences of each group. */
  readonly maxUnfinished: number;
  /** scheduler.hang_timeout_s, ms. */
  readonly hangTimeoutMs: number;
  /** Size of what tokenizers may hold at a time, as client-load.ts counts it. */
  readonly maxHeldSize: number;
  /** Its links do not keep the process alive. */
  readonly background?: boolean;
  readonly log: Log;
}

export class ActorClient implements EngineClient {
  readonly #options: ClientOptions;
  readonly #ids: RequestIds;
  readonly #requests = new Map<RequestId, Live>();
  /** Calls are numbered with the requests: an Abort names either. */
  readonly #calls = new Calls(() => this.#ids.take());
  readonly #turns = new Turns();
  readonly #names = new Names();
  readonly #tokenizers: Tokenizers;
  readonly #groups: EngineGroups;
  #state: EngineState = 'starting';
  #model: ServedModel | null = null;
  #textBounds: TextBounds | null = null;
  #idle: (() => void)[] = [];

  constructor(options: ClientOptions) {
    this.#options = options;
    this.#ids = options.ids;
    const { ids, maxHeldSize, background = false, log } = options;
    this.#tokenizers = new Tokenizers({
      ids,
      calls: this.#calls,
      maxHeldSize,
      background,
      log,
      onMessage: (message) => this.#onTokenizer(message),
      onUnsendable: (id, failure) => this.#end(id, failure),
      absence: () => this.#absence(),
    });
    this.#groups = new EngineGroups(this.#calls, background, (message) => this.#onScheduler(message));
  }

  // --- EngineClient ---

  /** Set by the engine. */
  adapters?: EngineAdapters;

  submit(prompt: PromptInput, params: GenerationParams, sink: RequestSink, client: ClientKey = ANYBODY): RequestHandle {
    const id = this.#ids.take();
    const size = promptSize(prompt);
    const refusal = this.#refusal(size);
    if (refusal !== null) {
      this.#guarded(() => sink.onEnd(refusal));
      return { id, cancel() {}, setPaused() {} };
    }
    const arrivalMs = nowMs();
    const turn = this.#turns.take(client);
    const live: Live = {
      id,
      gained: null,
      arrivalMs,
      sink,
      client,
      turn,
      open: new Set(Array.from({ length: params.bestOf }, (_, index) => index)),
      unsent: { k: 'submit', id, prompt, params, arrivalMs, turn, client: this.#tokenizers.numberOf(client), size },
      tokenizer: null,
      group: (this.#options.numGroups ?? 1) === 1 ? 0 : null,
      encoded: false,
      started: false,
      paused: false,
      promptTokens: 0,
      generatedTokens: 0,
    };
    this.#requests.set(id, live);
    this.#send(live);
    return { id, cancel: () => this.#cancel(id), setPaused: (paused) => this.#setPaused(id, paused) };
  }

  async encode(prompt: PromptInput, asker: Asker = {}): Promise<Int32Array> {
    const value = await this.#tokenizers.ask(asker, promptSize(prompt), (handed) => ({ k: 'encode', prompt, ...handed }));
    if (value instanceof Uint8Array) return int32Of(value);
    throw new InferdError('internal', 'The tokenizer answered with something else than token ids');
  }

  async decode(ids: TokenIds, skipSpecialTokens: boolean, asker: Asker = {}): Promise<string> {
    return String(await this.#tokenizers.ask(asker, idsSize(ids), (handed) => ({ k: 'decode', ids, skipSpecialTokens, ...handed })));
  }

  async learnTexts(ids: Iterable<number>, asker: Asker = {}): Promise<void> {
    const distinct = [...new Set(ids)];
    const value = await this.#tokenizers.ask(asker, idsSize(distinct), (handed) => ({ k: 'names', ids: distinct, ...handed }));
    this.#names.learn(value as TokenNames); // proof: what a tokenizer answers to this call
  }

  ask<N extends EngineCallName>(name: N, params: EngineCalls[N]['params'], group?: number): Promise<EngineCalls[N]['reply']> {
    return this.#groups.ask(name, params, { group, absent: () => this.#absence() });
  }

  tokenText(id: number): TokenText {
    return this.#names.of(id);
  }

  requests(): readonly RequestSummary[] {
    const now = nowMs();
    return [...this.#requests].map(([id, live]) => ({
      id,
      state: live.started ? 'running' : live.encoded ? 'queued' : 'encoding',
      group: live.group,
      ageMs: now - live.arrivalMs,
      promptTokens: live.promptTokens,
      generatedTokens: live.generatedTokens,
    }));
  }

  model(): ServedModel | null {
    return this.#model;
  }

  textBounds(): TextBounds | null {
    return this.#textBounds;
  }

  state(): EngineState {
    return this.#state;
  }

  healthy(): boolean {
    const serves = this.#state === 'ready' || this.#state === 'draining';
    return serves && this.#groups.healthy(this.#options.hangTimeoutMs);
  }

  // --- for the engine ---

  setState(state: EngineState): void {
    this.#state = state;
  }

  setModel(model: ServedModel): void {
    this.#model = model;
  }

  /** A tokenizer is ready; requests that waited for one are sent. */
  attachTokenizer(index: number, end: LinkEnd, counters: Counters): void {
    this.#tokenizers.attach(index, end, counters);
    for (const live of this.#requests.values()) this.#send(live);
  }

  /** A tokenizer died: its requests end, retriable. */
  detachTokenizer(index: number): void {
    this.#tokenizers.detach(index);
    for (const [id, live] of [...this.#requests]) if (live.tokenizer === index) this.#end(id, died);
  }

  /** The scheduler of a group is ready; `spins`: it can be woken ahead. Pauses of its requests are told again. */
  attachScheduler(end: LinkEnd, counters: Counters, group = 0, spins = false): void {
    this.#groups.attach(group, end, counters, spins);
    for (const [id, live] of this.#requests) if (live.group === group) this.#tellPaused(id, live);
  }

  /** The scheduler of a group is gone; requests wait for the next one, or are routed to another group. */
  detachScheduler(group = 0): void {
    this.#groups.detach(group);
  }

  /** Ends every request and call with `failure`. */
  failAll(failure: Failure): void {
    this.failRequests(failure);
    this.#calls.fail(null, failure);
  }

  /** Ends every request with `failure`, or those of one group; calls of the tokenizers go on. */
  failRequests(failure: Failure, group?: number): void {
    for (const [id, live] of [...this.#requests]) if (group === undefined || live.group === group) this.#abort(id, failure);
  }

  /** Resolves when no request is unfinished. */
  idle(): Promise<void> {
    if (this.#requests.size === 0) return Promise.resolve();
    return new Promise((resolve) => this.#idle.push(resolve));
  }

  /** Ends what is left and drops all links. */
  close(failure: Failure): void {
    this.failAll(failure);
    this.#tokenizers.close();
    this.#groups.detachAll();
  }

  // --- requests ---

  /** Why no request with a prompt of `size` can be taken now, or null. */
  #refusal(size: number): Failure | null {
    switch (this.#state) {
      case 'starting':
        return { kind: 'model_loading', data: { retry_after_ms: RETRY_AFTER_MS } };
      case 'draining':
      case 'stopped':
        return { kind: 'shutting_down' };
      case 'failed':
        return { kind: 'engine_failure', data: { retriable: false } };
      case 'ready':
      case 'restarting':
        return this.#requests.size >= this.#options.maxUnfinished ? overloaded : this.#tokenizers.crowded(size);
      default:
        return unreachable(this.#state);
    }
  }

  /** Hands a request that was not sent yet to a tokenizer, if one is there. */
  #send(live: Live): void {
    if (live.unsent === null) return;
    const index = this.#tokenizers.pick(live.unsent.id);
    if (index === null) return; // waits for attachTokenizer
    const message = live.unsent;
    live.tokenizer = index;
    live.unsent = null;
    this.#tokenizers.submit(index, message);
    if (live.group !== null) this.#groups.rouse(live.group); // wakes while the prompt is encoded
  }

  #cancel(id: RequestId): void {
    this.#abort(id, { kind: 'cancelled' });
  }

  /** Ends a request here and tells the engine to stop working on it. */
  #abort(id: RequestId, failure: Failure): void {
    const live = this.#requests.get(id);
    if (live === undefined) return;
    if (live.tokenizer !== null) this.#tokenizers.abort(live.tokenizer, id);
    this.#end(id, failure);
  }

  #setPaused(id: RequestId, paused: boolean): void {
    const live = this.#requests.get(id);
    if (live === undefined || live.paused === paused) return;
    live.paused = paused;
    if (live.group !== null) this.#groups.setPaused(live.group, id, paused);
  }

  /** Its group does not know it yet. */
  #tellPaused(id: RequestId, { paused, group }: Live): void {
    if (paused && group !== null) this.#groups.setPaused(group, id, true);
  }

  #end(id: RequestId, failure: Failure | null): void {
    const live = this.#requests.get(id);
    if (live === undefined) return;
    this.#requests.delete(id);
    if (!live.started) this.#turns.giveBack(live.client, live.turn);
    this.#guarded(() => live.sink.onEnd(failure));
    if (this.#requests.size > 0) return;
    const idle = this.#idle;
    this.#idle = [];
    for (const resolve of idle) resolve();
  }

  /** A sink that throws is a bug of its owner and must not harm other requests. */
  #guarded(callback: () => void): void {
    try {
      callback();
    } catch (error) {
      this.#options.log.error(errorFields(error), 'a request sink threw');
    }
  }

  #absence(): Failure {
    return this.#refusal(0) ?? { kind: 'engine_failure', message: 'The engine restarts', data: { retriable: true } };
  }

  // --- what actors say ---

  readonly #find = (id: RequestId): Live | undefined => this.#requests.get(id);

  #onTokenizer(message: FromTokenizer): void {
    switch (message.k) {
      case 'bounds':
        this.#textBounds = message;
        return;
      case 'routed':
        this.#onRouted(message);
        return;
      case 'encoded':
        this.#onEncoded(message);
        return;
      case 'deltas':
        this.#onDeltas(message);
        return;
      case 'failed':
        this.#end(message.id, message.failure);
        return;
      case 'reply':
        this.#calls.answer(message);
        return;
      default:
        unreachable(message);
    }
  }

  #onRouted({ id, group }: Routed): void {
    const live = this.#requests.get(id);
    if (live === undefined) return;
    live.group = group;
    this.#tellPaused(id, live);
  }

  #onEncoded(message: Encoded): void {
    const live = this.#requests.get(message.id);
    if (live === undefined || live.encoded) return;
    const promptIds = int32Of(message.promptIds);
    live.encoded = true;
    live.promptTokens = promptIds.length;
    this.#guarded(() => live.sink.onEncoded(promptIds, message.maxTokens, message.promptText));
  }

  #onDeltas({ deltas, started, prompt, names }: Deltas): void {
    if (names !== undefined) this.#names.learn(names);
    for (const one of started ?? []) this.#onStarted(one);
    for (const { id, logprobs } of prompt ?? []) {
      const live = this.#requests.get(id);
      if (live !== undefined) this.#guarded(() => live.sink.onPromptLogprobs(int32Of(logprobs)));
    }
    for (const live of gather(deltas, this.#find)) this.#onGained(live);
  }

  /** Told once, also when a restarted engine starts the request again. */
  #onStarted(started: Started): void {
    const live = this.#requests.get(started.id);
    if (live === undefined || live.started) return;
    live.started = true;
    this.#turns.began(live.turn);
    this.#guarded(() => live.sink.onStarted(started, live.group ?? 0));
  }

  #onGained(live: Live): void {
    const { id, gained: deltas } = live;
    live.gained = null;
    if (deltas === null || this.#requests.get(id) !== live) return; // a sink before it may have ended it
    for (const delta of deltas) {
      live.generatedTokens += delta.tokens.length;
      if (delta.finish !== undefined) live.open.delete(delta.index);
    }
    this.#guarded(() => live.sink.onDeltas(deltas));
    if (live.open.size === 0) this.#end(id, null);
  }

  #onScheduler(message: Notices | CallReply): void {
    if (message.k === 'reply') this.#calls.answer(message);
    else for (const notice of message.notices) this.#onNotice(notice);
  }

  #onNotice(notice: Notice): void {
    const live = this.#requests.get(notice.id);
    if (live !== undefined) this.#guarded(() => live.sink.onNotice(notice));
  }
}
