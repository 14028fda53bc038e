/**
 * What the outside (rpc, daemon) knows of the engine: submit, cancel, a few calls. Implemented by client.ts on the main thread.
 * Tests of rpc implement it with a fake.
 */
import type { EngineCallName, EngineCalls } from './messages/calls.js';
import type { Failure } from './messages/errors.js';
import type { RequestId } from './messages/ids.js';
import type { Delta, GenerationParams, Notice, PromptInput, Started, TokenIds } from './messages/requests.js';
import type { TextBounds } from './messages/text-bounds.js';
import type { Cancellation } from './runtime/cancellation.js';

/** Receives what happens to one request, in order, on the caller's event loop. No call comes after `onEnd`. */
export interface RequestSink {
  /** When the request reached this process, performance.now(); not said: when it is submitted. */
  readonly arrivalMs?: number;
  /** The prompt was encoded: before all else but notices, which come another way, unless the request fails before. */
  onEncoded(promptIds: Int32Array, maxTokens: number, promptText?: string): void;
  onNotice(notice: Notice): void;
  /** The request ran its first step, in an engine group; that is 0 where nothing is said. */
  onStarted(started: Started, group?: number): void;
  /** Whole records (actors/messages/logprobs.ts) of the prompt's next tokens, from the second on. They belong to the sink. */
  onPromptLogprobs(records: Int32Array): void;
  /** All pieces of one engine step for this request. */
  onDeltas(deltas: readonly Delta[]): void;
  /** Exactly once, last. `null`: every sequence has finished. */
  onEnd(failure: Failure | null): void;
}

/** What a token id stands for. */
export interface TokenText {
  /** Invalid bytes show as U+FFFD. Special tokens have their own text, even where the answer hides them. */
  readonly token: string;
  readonly bytes: readonly number[];
}

export interface RequestHandle {
  readonly id: RequestId;
  /** Ends the request now: `onEnd({kind: "cancelled"})` runs before this returns. Does nothing after the end. */
  cancel(): void;
  /** Stops or continues the sequences of a request whose reader is slow; the request keeps its KV blocks. */
  setPaused(paused: boolean): void;
}

/** A client, that is a program that asks, as queues tell it from others: an object that lives as long as its connection. */
export type ClientKey = object;

/** Who asks for a call, and how they leave it. */
export interface Asker {
  /** Calls of different clients take turns; those that name none are one client's. */
  readonly client?: ClientKey;
  /** The call ends as cancelled when it fires, and is no more worked on. */
  readonly cancellation?: Cancellation;
}

export interface RequestSummary {
  readonly id: RequestId;
  readonly state: 'encoding' | 'queued' | 'running';
  /** The engine group that has it; null before one was chosen. */
  readonly group: number | null;
  readonly ageMs: number;
  readonly promptTokens: number;
  readonly generatedTokens: number;
}

export type EngineState = 'starting' | 'ready' | 'restarting' | 'draining' | 'failed' | 'stopped';

/** Facts of the served model, known once the engine is ready. */
export interface ServedModel {
  /** Name the API reports. */
  readonly name: string;
  readonly architecture: string;
  readonly dtype: string;
  readonly kvDtype: string;
  readonly vocabSize: number;
  /** Prompt plus answer, at most, tokens. */
  readonly maxModelLen: number;
  readonly weightBytes: number;
  readonly parameters: number;
  readonly backend: string;
  readonly blockSize: number;
  /** Of all engine groups, as the weights are. */
  readonly totalBlocks: number;
  /** Of one KV block. */
  readonly blockBytes: number;
}

/** Progress of start-up, 0..1 per phase. */
export interface StartProgress {
  readonly phase: 'tokenizer' | 'weights' | 'kv' | 'warmup';
  readonly done: number;
  readonly total: number;
}

/** An adapter that requests may name in place of the model. */
export interface LoadedAdapter {
  readonly name: string;
  /** Of this load: under a name that is loaded again it is another one. */
  readonly number: number;
  /** Its folder, absolute. */
  readonly path: string;
  readonly rank: number;
  /** Weights of the model that it adds to. */
  readonly modules: number;
  /** What it says that it was trained for, or "". */
  readonly base: string;
  readonly loadedAtMs: number;
}

/** The adapters of an engine. */
export interface EngineAdapters {
  list(): readonly LoadedAdapter[];
  find(name: string): LoadedAdapter | null;
  /** Of a number that requests use. */
  nameOf(adapter: number): string | null;
  /** `inPlace`: also in place of one of that name. @throws (rejects) InferdError request_failed, model_not_found, unsupported */
  load(name: string, path: string, inPlace: boolean): Promise<LoadedAdapter>;
  /** Nobody finds it any more; it goes when its last request has ended. @throws InferdError model_not_found */
  unload(name: string): LoadedAdapter;
  /** It stays until the function is called. */
  hold(adapter: LoadedAdapter): () => void;
}

export interface EngineClient {
  /** Absent where there is no room for any. */
  readonly adapters?: EngineAdapters;
  /**
   * Never throws; refusals arrive through `sink.onEnd`, possibly before this returns. Waiting requests of different `client`s take turns;
   * those that name none are one client's.
   */
  submit(prompt: PromptInput, params: GenerationParams, sink: RequestSink, client?: ClientKey): RequestHandle;
  /** @throws InferdError with the kind of the failure, also when the deadline passes. */
  encode(prompt: PromptInput, asker?: Asker): Promise<Int32Array>;
  decode(ids: TokenIds, skipSpecialTokens: boolean, asker?: Asker): Promise<string>;
  /** From then on `tokenText` knows these ids. */
  learnTexts(ids: Iterable<number>, asker?: Asker): Promise<void>;
  /**
   * A control call, to one group where `group` names it by its number. @throws InferdError with the kind of the failure, also when its
   * deadline passes or the engine restarts.
   */
  ask<N extends EngineCallName>(name: N, params: EngineCalls[N]['params'], group?: number): Promise<EngineCalls[N]['reply']>;
  /** Of an id in a record that a sink was given. */
  tokenText(id: number): TokenText;
  requests(): readonly RequestSummary[];
  /** `null` until the engine was ready once. */
  model(): ServedModel | null;
  /** What its tokenizers take; `null` until one has said so. */
  textBounds(): TextBounds | null;
  state(): EngineState;
  /** True while the scheduler's loop ticks and, if there is work, steps complete. Never waits. */
  healthy(): boolean;
}
