/**
 * How long a pull goes on trying: the waits between two tries, and their number in a row. One for each pull: when the hub says "later" to
 * one connection, all wait. Every wait and every row of tries is bounded by the configuration.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { cancelled, PullError, systemCode } from '../error.js';
import { TryLater } from './refusal.js';

export interface PatienceLimits {
  /** Tries that fail in a row, without a byte between them, before the pull gives up. */
  readonly maxRetries: number;
  /** Longest wait that the hub may ask for. */
  readonly maxWaitMs: number;
}

/** Errors of connections; what is not here is a bug or has a sentence of its own. */
const broken =
  /^(E(CONNRESET|CONNREFUSED|CONNABORTED|PIPE|TIMEDOUT|HOSTUNREACH|NETUNREACH|NETDOWN|HOSTDOWN|AI_AGAIN|NOTFOUND|PROTO|ADDRNOTAVAIL)|HPE_\w+|ERR_STREAM_PREMATURE_CLOSE|ERR_SSL_\w+|ERR_HTTP_\w+|ABORT_ERR)$/;
/** Nobody is there: more tries are of little use when nothing has ever come from there. */
const absent = /^E(CONNREFUSED|NOTFOUND)$/;
const triesOfAbsent = 2;
const firstWaitMs = 400;
const longestWaitMs = 20_000;

export class Patience {
  readonly #limits: PatienceLimits;
  readonly #signal: AbortSignal;
  readonly #onWait: (message: string, ms: number) => void;
  /** No request starts before. */
  #until = 0;
  #answered = false;

  constructor(limits: PatienceLimits, signal: AbortSignal, onWait: (message: string, ms: number) => void) {
    this.#limits = limits;
    this.#signal = signal;
    this.#onWait = onWait;
  }

  /**
   * Runs `attempt` until it succeeds. It says `progress()` whenever bytes came, which begins the count of tries anew. `signal`: ends the
   * waits too, where that of the pull is not the only one.
   * @throws PullError network when that is too many times in vain; whatever `attempt` throws that waiting does not help.
   */
  async persist<T>(attempt: (progress: () => void) => Promise<T>, signal = this.#signal): Promise<T> {
    let failures = 0;
    const progress = (): void => {
      failures = 0;
      this.#answered = true;
    };
    for (;;) {
      await pause(this.#until - Date.now(), signal);
      try {
        const value = await attempt(progress);
        this.#answered = true;
        return value;
      } catch (error) {
        if (signal.aborted) throw cancelled();
        const later = asTryLater(error);
        if (later === null) throw error;
        failures++;
        this.#giveUp(later, failures);
        await this.#wait(later, failures, signal);
      }
    }
  }

  #giveUp(later: TryLater, failures: number): void {
    const nobody = !this.#answered && absent.test(systemCode(later.cause) ?? '');
    if (failures > Math.min(this.#limits.maxRetries, nobody ? triesOfAbsent - 1 : Number.POSITIVE_INFINITY))
      throw new PullError('network', `${later.message}; check the network and HF_ENDPOINT, and pull again: what came is kept`, later);
    if (later.afterMs !== null && later.afterMs > this.#limits.maxWaitMs)
      throw new PullError(
        'network',
        `${later.message} and asks to come back in ${Math.ceil(later.afterMs / 1000)} s; pull again then: what came is kept`,
        later,
      );
  }

  async #wait(later: TryLater, failures: number, signal: AbortSignal): Promise<void> {
    const backoff = Math.min(longestWaitMs, firstWaitMs * 2 ** (failures - 1)) * (0.5 + Math.random() / 2);
    const ms = later.afterMs ?? backoff;
    if (later.afterMs !== null) this.#until = Math.max(this.#until, Date.now() + ms);
    this.#onWait(later.message, ms);
    await pause(ms, signal);
  }
}

async function pause(ms: number, signal: AbortSignal): Promise<void> {
  if (signal.aborted) throw cancelled();
  if (ms <= 0) return;
  try {
    await sleep(ms, undefined, { signal });
  } catch {
    throw cancelled();
  }
}

/** The error as one that waiting may help, or null. */
function asTryLater(error: unknown): TryLater | null {
  if (error instanceof TryLater) return error;
  if (error instanceof PullError) return null;
  const code = systemCode(error);
  const message = error instanceof Error ? error.message : '';
  if (code !== null && broken.test(code)) return new TryLater(`The connection to the hub broke (${code})`, null, error);
  return /^(aborted|terminated|socket hang up)$/.test(message) ? new TryLater('The connection to the hub broke', null, error) : null;
}
