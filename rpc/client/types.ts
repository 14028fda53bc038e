/** Types of the client, derived from the daemon's method values; nothing of those is loaded at run time. */

import type { MethodName, MethodParams, MethodResult } from '../methods/index.js';
import type { ChatDelta } from '../schemas/chat.js';
import type { Usage } from '../schemas/common.js';
import type { CompletionDelta } from '../schemas/completion.js';
import type { Chunk, chunkObjects } from './chunk.js';

export type { MethodName, MethodParams, MethodResult };

export type ChatCompletionParams = Omit<MethodParams<'chat.completions.create'>, 'stream'>;
export type CompletionParams = Omit<MethodParams<'completions.create'>, 'stream'>;
export type EmbeddingParams = MethodParams<'embeddings.create'>;
export type ChatCompletion = MethodResult<'chat.completions.create'>;
export type Completion = MethodResult<'completions.create'>;
export type EmbeddingList = MethodResult<'embeddings.create'>;

export type ChatCompletionChunk = Chunk<ChatDelta, Usage, (typeof chunkObjects)['chat.completions.create']>;
export type CompletionChunk = Chunk<CompletionDelta, Usage, (typeof chunkObjects)['completions.create']>;

/** What happens before the first token. */
export type ProgressEvent =
  | { readonly kind: 'queued' /** 0 is next. */; readonly position: number; readonly prompt?: number }
  | { readonly kind: 'loading'; readonly phase: string; readonly done: number; readonly total: number }
  | { readonly kind: 'prefill' /** Tokens. */; readonly done: number; readonly total: number; readonly prompt?: number };

export interface CallOptions {
  /** Cancels the call in the daemon and rejects with its reason (an AbortError by default). */
  readonly signal?: AbortSignal;
}
export interface StreamCallOptions extends CallOptions {
  /** Hears of queue position and prefill of a streaming call. */
  readonly onProgress?: (event: ProgressEvent) => void;
}
