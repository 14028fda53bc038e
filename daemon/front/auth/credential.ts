/**
 * A credential in the running daemon: what its holder may do, and when that ends. Connections and streams wait for the end. Main thread.
 */
import { allScopes, type Scopes } from '../../../rpc/scope.js';
import type { Peer } from '../route.js';

export class Credential implements Peer {
  /** How the log calls it; never a secret. */
  readonly name: string;
  readonly scopes: Scopes;
  /** Milliseconds since the epoch; Infinity: never. */
  readonly expiresMs: number;
  readonly bodyDigest = null;
  #ended = false;
  readonly #waiting = new Set<() => void>();

  constructor(name: string, scopes: Scopes, expiresMs = Number.POSITIVE_INFINITY) {
    this.name = name;
    this.scopes = scopes;
    this.expiresMs = expiresMs;
  }

  get ended(): boolean {
    return this.#ended;
  }

  onEnd(listener: () => void): () => void {
    this.#waiting.add(listener);
    return () => this.#waiting.delete(listener);
  }

  /** It was revoked or has expired. All that it opened is told, once. */
  end(): void {
    if (this.#ended) return;
    this.#ended = true;
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const listener of waiting) listener();
  }
}

/** Everybody who is let in without showing anything, with these scopes: nothing ends it. */
export const unnamed = (scopes: Scopes): Peer => ({ scopes, bodyDigest: null, onEnd: () => () => {} });

export const everybody = unnamed(allScopes);
