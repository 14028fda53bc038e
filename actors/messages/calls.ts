/**
 * Calls: the few questions the front asks an actor and waits for, each with a deadline; never on the token path.
 * `call` is chosen by the front and repeated in the answer.
 */
import type { Failure } from './errors.js';
import type { RequestId } from './ids.js';
import type { KvMap } from './kv-map.js';
import type { Handed, PromptInput, TokenIds } from './requests.js';
import type { Timeline } from './timeline.js';

/** front -> tokenizer. An Abort with its number drops it: nobody waits for the answer any more. */
export type TokenizerCall = (
  | { readonly k: 'encode'; readonly prompt: PromptInput }
  | { readonly k: 'decode'; readonly ids: TokenIds; readonly skipSpecialTokens: boolean }
  /** Answered with TokenNames. */
  | { readonly k: 'names'; readonly ids: readonly number[] }
) & { readonly call: RequestId } & Handed;

/**
 * Control calls: what the front may ask the engine, by name. A new one is a row here, its deadline below, and a handler in
 * actors/scheduler/actor.ts, which answers between two plans.
 */
export interface EngineCalls {
  /** How much work there is, and how it goes. */
  readonly stats: { readonly params: null; readonly reply: SchedulerStats };
  /** How long steps took and how much they held, since the engine started. */
  readonly steps: { readonly params: null; readonly reply: StepHistograms };
  /** The last steps, from number `since` on, one number for each engine group; all that are kept where there is none. */
  readonly recent: { readonly params: { readonly since: readonly number[] }; readonly reply: RecentSteps };
  /** Whose each KV block is, in at most so many cells. */
  readonly kvMap: { readonly params: { readonly maxCells: number }; readonly reply: KvMap };
  /** What happened to a request; null when it is unknown or forgotten. */
  readonly timeline: { readonly params: { readonly id: RequestId }; readonly reply: Timeline | null };
  /** Which adapters requests use. */
  readonly adapterUse: { readonly params: null; readonly reply: AdapterUse };
  /** Executors have the adapter: requests may name it. */
  readonly addAdapter: { readonly params: { readonly adapter: number }; readonly reply: null };
  /** Requests may name it no more; 0 when none does and no step on its way needs it: until then it is asked again. */
  readonly dropAdapter: { readonly params: { readonly adapter: number }; readonly reply: number };
}
export type EngineCallName = keyof EngineCalls;

/** When the front gives up waiting for an answer, ms. */
export const engineCallDeadlineMs: { readonly [N in EngineCallName]: number } = {
  stats: 5000,
  steps: 5000,
  recent: 5000,
  kvMap: 5000,
  timeline: 5000,
  adapterUse: 5000,
  addAdapter: 5000,
  dropAdapter: 5000,
};

/** front -> scheduler. */
export type EngineCall<N extends EngineCallName = EngineCallName> = {
  [K in N]: { readonly k: 'ask'; readonly call: number; readonly name: K; readonly params: EngineCalls[K]['params'] };
}[N];

/** One for each name. An InferdError that a handler throws is its answer. */
export type EngineCallHandlers = { readonly [N in EngineCallName]: (params: EngineCalls[N]['params']) => EngineCalls[N]['reply'] };

/** actor -> front. */
export type CallReply =
  | { readonly k: 'reply'; readonly call: number; readonly ok: true; readonly value: unknown }
  | { readonly k: 'reply'; readonly call: number; readonly ok: false; readonly failure: Failure };

/** Answer to `stats`; the shape of the RPC method stats.get, less what the front adds (engine, memory). */
export interface SchedulerStats {
  readonly requests: {
    readonly running: number;
    readonly waiting: number;
    /** Not running, with the KV of a sequence on the host. */
    readonly swapped: number;
    readonly finished_total: number;
    readonly aborted_total: number;
    readonly preempted_total: number;
  };
  readonly kv: {
    readonly block_size: number;
    readonly total_blocks: number;
    /** Held by live requests. */
    readonly used_blocks: number;
    /** Free but still holding reusable content. */
    readonly cached_blocks: number;
    readonly free_blocks: number;
    /** Blocks of the host for swapped requests. */
    readonly swap_total: number;
    readonly swap_used: number;
  };
  readonly tokens: { readonly prompt_total: number; readonly generated_total: number; readonly prefix_hit_total: number };
  readonly step: { readonly count: number; readonly p50_ms: number; readonly p99_ms: number };
  /** Where tokens are drafted. */
  readonly speculation?: DraftCounts;
}

/** Answer to `adapterUse`: numbers of adapters, each once. */
export interface AdapterUse {
  readonly running: readonly number[];
  readonly waiting: readonly number[];
}

/** What has become of drafts since the engine started. */
export interface DraftCounts {
  /** Samples that compared drafts. */
  readonly drafts_total: number;
  readonly draft_tokens_total: number;
  readonly accepted_tokens_total: number;
  /** By position of the draft, from 0 on. */
  readonly accepted_per_position: number[];
  /** Samples by the number of drafts that were accepted, from 0 on. */
  readonly accepted_histogram: number[];
}

/** Answer to `recent`: a column each, oldest first. */
export interface RecentSteps {
  /** Number of the step after the last of these, of each group: the `since` of who asks again. Steps are counted from 0 when a group starts. */
  readonly next: readonly number[];
  /** When the result was read. */
  readonly atMs: readonly number[];
  /** On the device. */
  readonly execUs: readonly number[];
  /** Tokens of prompts, and those that are computed again after a preemption. */
  readonly promptTokens: readonly number[];
  readonly decodeTokens: readonly number[];
  /** Requests that ran. */
  readonly running: readonly number[];
}

/** How often values were seen, by the first edge that they do not exceed. */
export interface HistogramCounts {
  /** Ascending. */
  readonly edges: readonly number[];
  /** One for each edge, and one for what is above all; not added up. */
  readonly counts: readonly number[];
  readonly sum: number;
}

/** Answer to `steps`. */
export interface StepHistograms {
  readonly seconds: HistogramCounts;
  readonly tokens: HistogramCounts;
}
