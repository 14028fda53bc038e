/**
 * What a backend is: how to reach a server and how to ask it for one answer, chunk by chunk. The load (load.ts) knows no more of a server
 * than this.
 */
import type { VerbInput } from '../../../verb.js';
import type { Tokenizer } from '../datasets/dataset.js';
import type { BenchRequest, Piece, TokenUsage } from '../request.js';

/** What each request says besides its prompt. */
export interface Asking {
  /** The model's name in requests; null: the server's own. */
  readonly model: string | null;
  readonly ignoreEos: boolean;
  readonly bestOf: number;
  readonly logprobs: number | null;
}

export interface Address {
  /** "http://host:port" without a path at the end; null: the running daemon. */
  readonly base: string | null;
  /** Path of the method; null where the backend has none. */
  readonly endpoint: string | null;
  readonly headers: Readonly<Record<string, string>>;
  /** A bearer token, from the environment. */
  readonly apiKey: string | null;
  /** As many requests as may be in flight, as far as is known. */
  readonly connections: number;
}

/** Calls `on` with each chunk as it comes. Resolves at the end of the answer. @throws whatever ended it before */
export type Generate = (request: BenchRequest, on: (piece: Piece) => void, signal: AbortSignal) => Promise<TokenUsage>;

export interface ServerModel {
  readonly name: string;
  /** Null where the server does not say. */
  readonly vocabSize: number | null;
}

export interface BenchServer {
  /** Where it is, for people. */
  readonly url: string;
  readonly model: ServerModel;
  /** Null where the server has none. */
  readonly tokenizer: Tokenizer | null;
  readonly generate: Generate;
  /** Both fail where the server has no profiler. */
  startProfile(): Promise<void>;
  /** Files and the like, as the server tells them. */
  stopProfile(): Promise<unknown>;
  close(): Promise<void>;
}

export interface Backend {
  readonly name: string;
  readonly doc: string;
  /** What the endpoint must end with, and its default; null for a backend without paths. */
  readonly endpoint: string | null;
  /** Where it is when nothing is said; null: the running daemon. */
  readonly port: number | null;
  /** Takes prompts of token ids. */
  readonly takesIds: boolean;
  open(address: Address, asking: Asking, io: VerbInput['io']): Promise<BenchServer>;
}
