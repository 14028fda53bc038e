/**
 * Messages on the path of a request. Everything is one-way; nobody waits for an answer on the token path.
 *
 *   front --Submit--> tokenizer --Admit--> scheduler --Tokens--> tokenizer --Deltas--> front
 *   front --Abort---> tokenizer --Abort--> scheduler            (same path as Submit, so it can never overtake it)
 *   tokenizer --Stopped--> scheduler                            (a stop string matched)
 *   scheduler --Notices--> front                                (queue position, prefill progress)
 *   front --Flow--> scheduler                                   (pause or resume a request whose client is slow)
 *
 * A request has `bestOf` sequences with indices 0 .. bestOf-1. It is over for the front when every index has finished, or when a
 * Failed arrived. Late messages for a finished or aborted request are ignored by every actor.
 */

import type { Pooling } from '../../config/models/pooling.js';
import type { AskedConstraint } from './constraint.js';
import type { Failure } from './errors.js';
import type { RequestId } from './ids.js';
import type { SamplingValues } from './sampling.js';

/** A chat message in OpenAI's shape; `content` parts of type text were joined by the front. */
export interface ChatMessage {
  readonly role: string;
  readonly content: string | null;
  readonly [extra: string]: unknown;
}

export type ToolChoice = 'required' | { readonly name: string };

/** As a client gave them; many go to a tokenizer in one piece. */
export type TokenIds = readonly number[] | Int32Array;

/** What to turn into prompt token ids. */
export type PromptInput =
  | { readonly kind: 'text'; readonly text: string; readonly addSpecialTokens: boolean }
  | { readonly kind: 'ids'; readonly ids: TokenIds }
  | {
      readonly kind: 'chat';
      readonly messages: readonly ChatMessage[];
      readonly tools?: readonly unknown[];
      readonly addGenerationPrompt: boolean;
      /** A call of some tool, or of one by name, must be made; absent: the model chooses. Needs an engine that takes constraints. */
      readonly toolChoice?: ToolChoice;
      /** False: of several calls of tools in an answer only the first stays. */
      readonly parallelToolCalls?: boolean;
      /** Allow-listed extra variables of the template. */
      readonly templateArgs?: Readonly<Record<string, unknown>>;
    };

/** How the answer is generated and ended; every number was range-checked at the door. */
export interface GenerationParams {
  readonly sampling: SamplingValues;
  readonly seedLo: number;
  readonly seedHi: number;
  /** -1 = none; 0..20. */
  readonly topLogprobs: number;
  /** -1 = none; 0..20. */
  readonly promptLogprobs: number;
  /** (token id, bias) pairs. */
  readonly logitBias: readonly (readonly [number, number])[];
  /** `null`: as many as fit in max_model_len. 0: the prompt only; a token is sampled all the same, for whoever asked to drop. */
  readonly maxTokens: number | null;
  readonly stop: readonly string[];
  readonly stopTokenIds: readonly number[];
  readonly includeStop: boolean;
  readonly ignoreEos: boolean;
  readonly skipSpecialTokens: boolean;
  /** Sequences to generate (n <= bestOf). With bestOf > n the front keeps the n best. */
  readonly n: number;
  readonly bestOf: number;
  /** Smaller runs first under policy = "priority". */
  readonly priority: number;
  /** Keep only the last k prompt tokens. */
  readonly truncatePromptTokens: number | null;
  /** Repeat the prompt's text in front of the answer (completions only). */
  readonly echo: boolean;
  /** The answer is the pooled hidden state of the prompt. Nothing is sampled: `maxTokens` is then 0, `bestOf` 1. */
  readonly pooling?: Pooling;
  readonly constraint: AskedConstraint | null;
  /** The number of the adapter that it is for; none when absent. */
  readonly adapter?: number;
}

/** What the front says of everything that a tokenizer has to encode or decode. */
export interface Handed {
  /** Number of the client: those of different ones take turns. */
  readonly client: number;
  /** What is held of it, as in client-load.ts. Told back when it is let go (TOKENIZER_COUNTER.letGo). */
  readonly size: number;
}

/** front -> tokenizer. */
export interface Submit extends Handed {
  readonly k: 'submit';
  readonly id: RequestId;
  readonly prompt: PromptInput;
  readonly params: GenerationParams;
  /** Milliseconds since the epoch (fractional) when the front took the request. */
  readonly arrivalMs: number;
  /** Its place among waiting requests, smaller first: see client-turns.ts. */
  readonly turn: number;
}

/** front -> tokenizer, which may know them as calls, -> scheduler. Unknown ids are ignored. */
export interface Abort {
  readonly k: 'abort';
  readonly ids: readonly RequestId[];
}

/** tokenizer -> scheduler: a request ready to be queued. */
export interface Admit {
  readonly k: 'admit';
  readonly id: RequestId;
  /** Prompt ids, little-endian int32 bytes. */
  readonly promptIds: Uint8Array;
  /**
   * Tokens generated before a restart of the engine group, one entry per sequence index (int32 bytes), empty at first admission.
   * `finished[i]` marks sequences that had ended and need no more work.
   */
  readonly generated: readonly Uint8Array[];
  readonly finished: readonly boolean[];
  /** Sum of logprobs of `generated`, by sequence index: the last `cumulative` that Tokens told. */
  readonly cumulative?: readonly number[];
  /** SAMPLING_ROW words as bytes. */
  readonly samplingRow: Uint8Array;
  /** (id, float32 bits) pairs as int32 bytes. */
  readonly bias: Uint8Array;
  /** Resolved: prompt + maxTokens <= max_model_len was checked by the tokenizer. 0 as in GenerationParams. */
  readonly maxTokens: number;
  readonly stopTokenIds: readonly number[];
  readonly ignoreEos: boolean;
  readonly bestOf: number;
  readonly priority: number;
  readonly arrivalMs: number;
  readonly turn: number;
  /** Tokens of the prompt that the prefix cache was expected to lack; absent where nobody looked. */
  readonly newTokens?: number;
  /** It was admitted before, to a scheduler that is gone, and is not refused for want of room. */
  readonly again?: boolean;
  /** As in GenerationParams. */
  readonly pooling?: Pooling;
  readonly adapter?: number;
}

export type FinishReason = 'stop' | 'length' | 'abort';

/** Why a sequence ended, as the scheduler saw it. */
export const FINISH = { none: 0, eos: 1, stopToken: 2, length: 3 } as const;

/** scheduler -> tokenizer: the tokens of one step, for all requests of this tokenizer. Parallel columns. */
export interface Tokens {
  readonly k: 'tokens';
  readonly ids: readonly number[];
  readonly indices: readonly number[];
  readonly tokens: readonly number[];
  /** FINISH codes. */
  readonly finishes: readonly number[];
  /** Records (logprobs.ts) of the tokens that carry one, in order; present when any does. */
  readonly logprobs?: Uint8Array;
  /** With `logprobs`: words of each token's record, 0 where it carries none. */
  readonly logprobWords?: readonly number[];
  /** Sum of the sequence's logprobs up to and with this token, 0 where not asked for; final at its finish, for ranking. */
  readonly cumulative?: readonly number[];
  /** Of each token: DRAFTED when it was drafted, else how many drafts were refused behind it; absent when nothing was compared. */
  readonly drafted?: readonly number[];
  /** Prompt logprobs that became known. */
  readonly prompt?: readonly PromptLogprobs[];
  /** First tokens: timing and cache facts of the request, once. */
  readonly started?: readonly Started[];
  /** Requests that end here with what they asked to be pooled. */
  readonly pooled?: readonly Pooled[];
}

/** In `drafted` of Tokens. */
export const DRAFTED = -1;

export interface Pooled {
  readonly id: RequestId;
  /** [hidden size] float32 bytes, not normalised. */
  readonly state: Uint8Array;
}

export interface Started {
  readonly id: RequestId;
  /** Milliseconds between arrival and the first step that ran the request. */
  readonly queueMs: number;
  /** Prompt tokens taken from the prefix cache. */
  readonly cachedTokens: number;
}

/** Log-probabilities of prompt tokens that follow each other. */
export interface PromptLogprobs {
  readonly id: RequestId;
  /** Position of the first of them; 1 or more, since the first token of a prompt has none. */
  readonly first: number;
  /** A record (logprobs.ts) a token. */
  readonly logprobs: Uint8Array;
}

/** tokenizer -> scheduler: a stop string matched; the sequence is over and its later tokens are dropped. */
export interface Stopped {
  readonly k: 'stopped';
  readonly id: RequestId;
  readonly index: number;
}

/** What token ids stand for. A tokenizer tells each id that its records name once, in the message that names it first or before. */
export interface TokenNames {
  readonly ids: readonly number[];
  /** The text of each; its bytes where they are not whole UTF-8. */
  readonly texts: readonly (string | Uint8Array)[];
}

/** tokenizer -> front: the request was encoded and sent to the scheduler. Nothing but Routed comes before it of an accepted request. */
export interface Encoded {
  readonly k: 'encoded';
  readonly id: RequestId;
  readonly promptIds: Uint8Array;
  readonly maxTokens: number;
  /** Text of the prompt, only when `echo` was asked. */
  readonly promptText?: string;
}

/** tokenizer -> front: the engine group that the request is in, or in now after another one failed. Told only where there are several. */
export interface Routed {
  readonly k: 'routed';
  readonly id: RequestId;
  readonly group: number;
}

/** What one call of a function gained. Concatenated `arguments` of an index are the JSON text that the model wrote. */
export interface CallPiece {
  /** Number of the call in its answer, from 0. */
  readonly index: number;
  /** With the first piece of the call. */
  readonly id?: string;
  /** With the first piece of the call: one of the functions that were offered. */
  readonly name?: string;
  readonly arguments: string;
}

/** One piece of one sequence. Concatenated `text` of an index is its answer, byte for byte. */
export interface Delta {
  readonly id: RequestId;
  readonly index: number;
  /** Content of the answer, without its reasoning and its calls. */
  readonly text: string;
  readonly reasoning?: string;
  readonly calls?: readonly CallPiece[];
  /** Drafts of these tokens that were accepted, and that were refused; there when some were compared. */
  readonly drafts?: { readonly accepted: number; readonly rejected: number };
  /** How many of `tokens` are reasoning; there when the model marks its reasoning. */
  readonly reasoningTokens?: number;
  /** Token ids this piece accounts for (a piece may be empty text while bytes, a stop string or a call are held back). */
  readonly tokens: readonly number[];
  /** A record (logprobs.ts) for each of `tokens`, when asked for. */
  readonly logprobs?: Uint8Array;
  readonly finish?: FinishReason;
  /** Which stop string or token id ended it. */
  readonly stopReason?: string | number;
  /** With `finish`: sum of logprobs, when it was asked for. */
  readonly cumulative?: number;
  /** With `finish`: the whole answer, when a pooled state was asked for; [hidden size] float32 bytes, not normalised. */
  readonly pooled?: Uint8Array;
}

/** tokenizer -> front: all pieces of one step. */
export interface Deltas {
  readonly k: 'deltas';
  readonly deltas: readonly Delta[];
  readonly started?: readonly Started[];
  /** In the order of positions, each position once. */
  readonly prompt?: readonly PromptLogprobs[];
  /** To be learned before the rest is read. */
  readonly names?: TokenNames;
}

/** tokenizer or scheduler -> front: the request ends here without (more of) an answer. */
export interface Failed {
  readonly k: 'failed';
  readonly id: RequestId;
  readonly failure: Failure;
}

/** scheduler -> tokenizer: the request was refused or failed; drop its state and tell the front. */
export interface Refused {
  readonly k: 'refused';
  readonly id: RequestId;
  readonly failure: Failure;
}

export type Notice =
  | { readonly kind: 'queued'; readonly id: RequestId /** 0 = next. */; readonly position: number }
  | { readonly kind: 'prefill'; readonly id: RequestId; readonly done: number; readonly total: number };

/** scheduler -> front. */
export interface Notices {
  readonly k: 'notices';
  readonly notices: readonly Notice[];
}

/** front -> scheduler: stop or go on scheduling a request whose client cannot keep up. It keeps its KV blocks. */
export interface Flow {
  readonly k: 'flow';
  readonly id: RequestId;
  readonly paused: boolean;
}
