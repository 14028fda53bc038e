/**
 * The counters of one request and of its sequences. Runs in the scheduler thread. Data and arithmetic only: who runs when is
 * scheduler.ts, who owns which block is kv-cache.ts.
 *
 * A request has `bestOf` sequences. Until the last chunk of its prompt is planned it has one, the leader (index 0), which reserves
 * the slots of its siblings; then the siblings are forked from it. After a restart of the engine every unfinished sequence comes
 * back on its own, with the tokens it had generated.
 *
 * Positions of a sequence, all counted in tokens from the start of the prompt:
 *
 *   0 ....... numRetired ....... numComputed ....... length
 *             KV written by      KV written by       tokens the executor will have when
 *             retired steps      planned steps       the planned steps have run
 *   0 ...................... numKnown ............. length
 *             prompt and tokens read from results    placeholders: sampled in steps not read yet
 *
 * With drafts a step gives fewer tokens than planned, perhaps: `length` and `numComputed` are then the most that there may be, until its
 * result takes back what was refused.
 *
 *   numRetired <= numComputed < length while it runs, numRetired <= numKnown <= length, length <= promptLen + maxTokens
 */
import type { Pooling } from '../../config/models/pooling.js';
import type { RequestId } from '../messages/ids.js';
import type { Admit } from '../messages/requests.js';
import { SAMPLING_ROW } from '../messages/sampling.js';
import { NO_ADAPTER, type SlotLists } from '../messages/step.js';
import { rootKey } from '../routing/prefix-key.js';
import { NO_ADAPTER_ID } from './adapter-places.js';
import { DraftHistory } from './drafts.js';
import { ROOT } from './prefix-cache.js';

export const WAITING = 0;
export const RUNNING = 1;
export const FINISHED = 2;
export type SequenceState = typeof WAITING | typeof RUNNING | typeof FINISHED;

export class Request {
  readonly id: RequestId;
  readonly owner: number;
  /** Smaller runs first; see queue.ts. */
  readonly rank: number;
  readonly arrivalMs: number;
  /** Its client's turn (actors/client-turns.ts): orders those of one rank that have never run, before arrival. */
  readonly turn: number;
  /** Counts admissions: settles ties of rank and arrival. */
  readonly ordinal: number;
  /** When it entered the queue; its queue timeout counts from here. */
  readonly enqueuedMs: number;
  readonly promptLen: number;
  /** Of the prompt, what no prefix cache was expected to have; an estimate. */
  readonly newTokens: number;
  /** At least 1: a pooled state takes the place of a token that is sampled, until its result is read. */
  readonly maxTokens: number;
  /** The hidden states of the prompt are pooled; nothing is sampled. */
  readonly pooling: Pooling | null;
  /** The adapter that it is for, or NO_ADAPTER_ID. */
  readonly adapter: number;
  /** Serial of its empty prefix: of each adapter, that is of each load of one, a root of its own, so that no KV is shared. */
  readonly rootSerial: number;
  readonly bestOf: number;
  readonly ignoreEos: boolean;
  readonly stopTokenIds: readonly number[];
  readonly lists: SlotLists;
  /** As sent to the executor, less sequenceIndex. */
  readonly samplingRow: Int32Array;
  /** The client asked for logprobs of the answer. */
  readonly wantsLogprobs: boolean;
  /** The executor returns logprobs, because the client asked or because best_of ranks by them. */
  readonly sumsLogprobs: boolean;
  readonly wantsPromptLogprobs: boolean;

  readonly sequences: Sequence[] = [];
  unfinished = 0;
  /** Sequences that hold a slot. */
  numRunning = 0;
  paused = false;
  /** Has run, now or before a preemption or restart: it has no queue timeout and no place in the queue's bound. */
  started = false;
  /** The leader's siblings do not exist yet. */
  forkPending: boolean;
  /** First token sent, with the `started` facts. */
  announced: boolean;
  queueMs = 0;
  cachedTokens = 0;
  /** Prompt positions up to this one had their logprobs sent. */
  promptLogprobsSent: number;
  /** Prompt tokens of the last `prefill` notice. */
  prefillNoticed = 0;
  /** Last `queued` notice; -1 = none yet. */
  noticedPosition = -1;
  noticedMs = 0;

  constructor(message: Admit, context: RequestContext) {
    const { options } = context;
    this.id = message.id;
    this.owner = context.owner;
    this.rank = context.rank;
    this.arrivalMs = message.arrivalMs;
    this.turn = message.turn;
    this.ordinal = context.ordinal;
    this.enqueuedMs = context.nowMs;
    const prompt = wordsOf(message.promptIds);
    this.promptLen = prompt.length;
    this.newTokens = message.newTokens ?? prompt.length;
    // The last token of a sequence is never computed, so the one after a prompt that is all that is wanted needs no KV.
    this.maxTokens = Math.max(1, message.maxTokens);
    this.pooling = message.pooling ?? null;
    this.adapter = message.adapter ?? NO_ADAPTER_ID;
    this.rootSerial = ROOT - this.adapter;
    this.bestOf = message.bestOf;
    this.ignoreEos = message.ignoreEos;
    this.stopTokenIds = message.stopTokenIds;
    const row = wordsOf(message.samplingRow);
    this.wantsLogprobs = (row[SAMPLING_ROW.topLogprobs] ?? -1) >= 0;
    this.sumsLogprobs = this.wantsLogprobs || message.bestOf > 1;
    this.wantsPromptLogprobs = (row[SAMPLING_ROW.promptLogprobs] ?? -1) >= 0;
    if (this.sumsLogprobs && !this.wantsLogprobs) row[SAMPLING_ROW.topLogprobs] = 0;
    this.samplingRow = row;
    const masks = (row[SAMPLING_ROW.minTokens] ?? 0) > 0;
    const masked = masks ? [...new Set([...message.stopTokenIds, ...(message.ignoreEos ? [] : options.eosTokenIds)])] : [];
    this.lists = { bias: wordsOf(message.bias), masked };

    const resumed = wasRunning(message);
    this.started = resumed;
    this.announced = resumed;
    this.forkPending = !resumed && message.bestOf > 1;
    // The first token of an answer goes out together with the last prompt logprobs.
    this.promptLogprobsSent = resumed || !this.wantsPromptLogprobs ? this.promptLen : 0;
    if (resumed) {
      for (let index = 0; index < message.bestOf; index++) {
        if (message.finished[index] === true) continue;
        const generated = wordsOf(message.generated[index] ?? new Uint8Array(0));
        this.add(new Sequence(this, index, prompt, generated, message.cumulative?.[index] ?? 0));
      }
    } else {
      this.add(new Sequence(this, 0, prompt, new Int32Array(0), 0));
    }
  }

  /** Adds a sequence: at admission, or a sibling when the leader forks. */
  add(sequence: Sequence): void {
    this.sequences.push(sequence);
    this.unfinished++;
  }

  /** The unfinished sequence `index`, or undefined. */
  sequence(index: number): Sequence | undefined {
    for (const s of this.sequences) if (s.index === index && s.state !== FINISHED) return s;
    return undefined;
  }

  /** Slots its next admission takes or reserves. */
  get slotsNeeded(): number {
    return this.forkPending ? this.bestOf : 1;
  }
}

export interface RequestContext {
  readonly options: { readonly eosTokenIds: readonly number[] };
  readonly owner: number;
  /** Of its priority, under the policy. */
  readonly rank: number;
  readonly ordinal: number;
  readonly nowMs: number;
}

/** The copy of a part of its KV on the host (swap-space.ts): host block of each index of its table from `first` on. */
export interface SavedKv {
  readonly first: number;
  readonly blocks: readonly number[];
  /** Tokens whose KV it has, from the start of the prompt. */
  readonly numTokens: number;
}

export class Sequence {
  readonly request: Request;
  readonly index: number;
  state: SequenceState = WAITING;
  /** Counts the times it left a slot: results of a step planned under another generation are dropped. */
  generation = 0;
  /** Index in the executors' tables while RUNNING, else -1. */
  slot = -1;
  /** Known tokens, [numKnown] of a growing buffer. */
  tokens: Int32Array;
  numKnown: number;
  length: number;
  numComputed = 0;
  numRetired = 0;
  /** Physical blocks by table index, [numBlocks] of a growing buffer. */
  blocks = new Int32Array(8);
  numBlocks = 0;
  /** Leading blocks that were published or came from the prefix cache, and the serial of the prefix they make; its key, where it is shown. */
  numPublished = 0;
  prefixSerial: number;
  prefixKey: number;
  /** Where its adapter lies while RUNNING, else NO_ADAPTER. */
  adapterPlace = NO_ADAPTER;
  /** Its KV on the host, while it waits after a preemption by swapping. */
  saved: SavedKv | null = null;
  cumulativeLogprob: number;
  /** That its last planned sample asks for: the most that its next row may compute. */
  drafts = 0;
  readonly draftHistory = new DraftHistory();

  constructor(request: Request, index: number, prompt: Int32Array, generated: Int32Array, cumulativeLogprob: number) {
    this.request = request;
    this.index = index;
    this.prefixSerial = request.rootSerial;
    this.prefixKey = rootKey(request.adapter);
    this.numKnown = prompt.length + generated.length;
    this.length = this.numKnown;
    this.tokens = new Int32Array(this.numKnown + Math.min(request.maxTokens - generated.length, 64));
    this.tokens.set(prompt);
    this.tokens.set(generated, prompt.length);
    this.cumulativeLogprob = cumulativeLogprob;
  }

  /** Tokens generated and known. */
  get numGenerated(): number {
    return this.numKnown - this.request.promptLen;
  }

  /** True when one more sampled token stays within max_tokens, placeholders counted. */
  get maySample(): boolean {
    return this.length - this.request.promptLen < this.request.maxTokens;
  }

  /** Tokens that may still be sampled, placeholders counted. */
  get room(): number {
    return this.request.promptLen + this.request.maxTokens - this.length;
  }

  /** Tokens whose KV is not planned yet. */
  get remaining(): number {
    return this.length - this.numComputed;
  }

  /** Appends a token read from a result. */
  push(token: number): void {
    if (this.numKnown === this.tokens.length) {
      const grown = new Int32Array(Math.min(this.numKnown * 2, this.request.promptLen + this.request.maxTokens));
      grown.set(this.tokens);
      this.tokens = grown;
    }
    this.tokens[this.numKnown++] = token;
  }

  /** Of the tokens planned so many do not come. */
  takeBack(tokens: number): void {
    this.length -= tokens;
    this.numComputed -= tokens;
  }

  /** Back to what is known: nothing computed, no slot, results of planned steps void. The caller has released blocks and slot. */
  reset(): void {
    this.generation++;
    this.slot = -1;
    this.length = this.numKnown;
    this.drafts = 0;
    this.numComputed = 0;
    this.numRetired = 0;
    this.numPublished = 0;
    this.prefixSerial = this.request.rootSerial;
    this.prefixKey = rootKey(this.request.adapter);
  }
}

/** True for a request that had begun to answer before a restart of the engine. */
export function wasRunning(message: Admit): boolean {
  return message.generated.some((g) => g.byteLength > 0) || message.finished.includes(true);
}

/** Copies int32 bytes of a message to an array of their own: the bytes may be unaligned and belong to the message. */
function wordsOf(bytes: Uint8Array): Int32Array {
  const words = new Int32Array(bytes.byteLength >> 2);
  new Uint8Array(words.buffer).set(bytes.subarray(0, words.byteLength));
  return words;
}
