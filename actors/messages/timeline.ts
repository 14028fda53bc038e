/** What happened to a request in the scheduler, in order. Times are those of runtime/clock.ts. */

export type Mark = { readonly ms: number } & (
  | { readonly kind: 'queued' }
  /** It has slots and blocks: its first step is planned. */
  | { readonly kind: 'started'; readonly cachedTokens: number }
  /** Tokens [from, to) of a sequence were computed, from plan (`ms`) to result. */
  | { readonly kind: 'prefill'; readonly untilMs: number; readonly sequence: number; readonly from: number; readonly to: number }
  | { readonly kind: 'first_token' }
  /** A sequence gave way; its KV was swapped to the host, or is computed again. */
  | { readonly kind: 'preempted'; readonly sequence: number; readonly how: 'swap' | 'recompute' }
  | { readonly kind: 'resumed'; readonly sequence: number }
  | { readonly kind: 'sequence_ended'; readonly sequence: number; readonly tokens: number }
  | { readonly kind: 'ended'; readonly how: 'finished' | 'aborted' | 'refused' }
);

export interface Timeline {
  /** When it came to the daemon. */
  readonly arrivalMs: number;
  readonly promptTokens: number;
  /** Of all sequences. */
  readonly generatedTokens: number;
  readonly marks: readonly Mark[];
  /** Marks for which there was no room. */
  readonly leftOut: number;
}
