/** A request of the benchmark before it is sent, and what was seen of it afterwards. Times in ms of performance.now(). */

export interface BenchRequest {
  readonly prompt: string | readonly number[];
  /** Tokens of the prompt, as far as is known before the server has counted them. */
  readonly inputLen: number;
  /** Most tokens of the answer; all of them with --ignore-eos. */
  readonly outputLen: number;
}

/** One chunk of an answer: an event that held a choice. It may hold several tokens, or none. */
export interface Piece {
  readonly atMs: number;
  readonly text: string;
}

/** The server's own count. */
export interface TokenUsage {
  readonly prompt: number | null;
  readonly completion: number | null;
}

export interface Sample {
  readonly request: BenchRequest;
  readonly sentMs: number;
  /** When each chunk came. */
  readonly chunkMs: readonly number[];
  readonly text: string;
  readonly inputLen: number;
  /** 0 for a request that failed. */
  readonly outputLen: number;
  /** Why it failed; null when it did not. */
  readonly error: string | null;
}
