/** What is known of a request while it runs and when it ends. Times are performance.now(), 0 before they are known. */

/** One prompt with all its sequences. */
export interface PromptRun {
  readonly n: number;
  /** Resolved once the prompt is encoded. */
  readonly maxTokens: number | null;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  /** The prefix cache may be used for it. */
  readonly looksUp: boolean;
  /** When its message had been read whole, before it was decoded and checked. */
  readonly arrivalMs: number;
  /** From then until its first step. */
  readonly queueMs: number;
  /** It ran, and its prompt counts. */
  readonly computed: boolean;
  /** Of a token; of a prompt that was pooled, when that was done. */
  readonly firstMs: number;
  readonly lastMs: number;
  readonly endMs: number;
  readonly sequences: readonly SequenceRun[];
}

export interface SequenceRun {
  tokens: number;
  firstMs: number;
  lastMs: number;
  ended: boolean;
}
