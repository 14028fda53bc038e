/**
 * The nonces that a key has used, each as long as a signature with it could be valid. An attacker without the key cannot fill it, since only
 * nonces of good signatures come here; one key cannot fill that of another. Nothing is forgotten before its time: who is full refuses.
 */
export class Nonces {
  readonly #limit: number;
  readonly #known = new Set<string>();
  /** By the second after which they can be forgotten. */
  readonly #byExpiry = new Map<number, string[]>();

  constructor(limit: number) {
    this.#limit = limit;
  }

  get size(): number {
    return this.#known.size;
  }

  /** Takes a nonce until `expiresS` has passed. Times in seconds since the epoch; expiresS whole, and at most some minutes ahead. */
  take(nonce: string, expiresS: number, nowS: number): 'taken' | 'seen' | 'full' {
    for (const [second, nonces] of this.#byExpiry) {
      if (second >= nowS) continue;
      for (const old of nonces) this.#known.delete(old);
      this.#byExpiry.delete(second);
    }
    if (this.#known.has(nonce)) return 'seen';
    if (this.#known.size >= this.#limit) return 'full';
    this.#known.add(nonce);
    const together = this.#byExpiry.get(expiresS);
    if (together === undefined) this.#byExpiry.set(expiresS, [nonce]);
    else together.push(nonce);
    return 'taken';
  }
}
