/**
 * A well-behaved client on a thread of its own: asks one short question after the other over one connection and times each whole
 * answer. What an attack in the test's thread costs it, is what the attack costs anybody.
 */
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { inTime } from '../../helpers/eventually.js';

/** From the thread: one answer. */
export interface Answered {
  readonly ms: number;
  /** Null, or what was wrong with the answer. */
  readonly fault: string | null;
}

export interface Served {
  readonly count: number;
  readonly p50: number;
  readonly p99: number;
}

/** Of times of answers, ms. */
export function servedIn(times: readonly number[]): Served {
  const sorted = times.toSorted((a, b) => a - b);
  const at = (share: number) => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? 0;
  return { count: sorted.length, p50: at(0.5), p99: at(0.99) };
}

export class Bystander {
  readonly #worker: Worker;
  #times: number[] = [];
  #fault: string | null = null;
  #more: (() => void) | null = null;

  private constructor(worker: Worker) {
    this.#worker = worker;
    worker.on('message', ({ ms, fault }: Answered) => {
      this.#times.push(ms);
      this.#fault ??= fault;
      this.#more?.();
    });
    worker.on('error', (error) => {
      this.#fault ??= String(error);
      this.#more?.();
    });
  }

  /** Connects to the WebSocket at `url` and begins. */
  static async start(url: string): Promise<Bystander> {
    const worker = new Worker(new URL('./bystander-thread.js', import.meta.url), { workerData: url });
    const bystander = new Bystander(worker);
    await bystander.served(3);
    bystander.take();
    return bystander;
  }

  /** Resolves when `count` more questions were answered. @throws when an answer was wrong. */
  async served(count: number): Promise<void> {
    const until = this.#times.length + count;
    const enough = () => this.#times.length >= until || this.#fault !== null;
    while (!enough()) {
      await inTime(
        'the bystander is served',
        new Promise<void>((resolve) => {
          this.#more = resolve;
        }),
      );
    }
    if (this.#fault !== null) throw new Error(`the bystander was not served well: ${this.#fault}`);
  }

  /** Answers since the last `take`. */
  get count(): number {
    return this.#times.length;
  }

  /** How long each answer took since the last call, ms. */
  take(): readonly number[] {
    const times = this.#times;
    this.#times = [];
    return times;
  }

  async stop(): Promise<void> {
    const ended = once(this.#worker, 'exit');
    this.#worker.postMessage('stop');
    await ended;
  }
}
