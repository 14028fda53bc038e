/**
 * Runs a synchronous function and kills it when it takes too long. Used for chat templates, which come with a model and are code
 * in all but name. `node:vm` arms V8's own interrupt, which ends any loop that no catch clause can hold on to; about 35 us a call.
 * The function runs in this realm; the small context only carries the call.
 *
 * The limit is meant in processor time, so that it can be short and yet spare good work on a crowded machine; the interrupt knows wall
 * time only. So work that was killed without having had its share is run again with more wall time.
 */
import vm from 'node:vm';
import { threadCpuClock } from '../../runtime/cpu-time.js';

/** Wall time that work may get where processor time is not known, or not to be had: this many times the limit. */
const PATIENCE = 4;
/** A thread that got less than this share of the processor was held up by others. */
const FAIR_SHARE = 0.5;

export class TimeBox {
  readonly #context = vm.createContext({ call: null });
  readonly #script = new vm.Script('call()');
  readonly #cpuMs = threadCpuClock();

  /**
   * @param work may be run more than once.
   * @returns what `work` returns, or null when it was killed after `limitMs`. Throws what `work` throws.
   */
  run<T>(work: () => T, limitMs: number): { readonly value: T } | null {
    if (this.#cpuMs === null) return this.#runOnce(work, PATIENCE * limitMs);
    for (let wallMs = limitMs; ; wallMs *= 2) {
      const before = this.#cpuMs();
      const done = this.#runOnce(work, wallMs);
      if (done !== null || wallMs >= PATIENCE * limitMs || this.#cpuMs() - before >= FAIR_SHARE * limitMs) return done;
    }
  }

  #runOnce<T>(work: () => T, limitMs: number): { readonly value: T } | null {
    let value: T | undefined;
    this.#context['call'] = () => {
      value = work();
    };
    try {
      this.#script.runInContext(this.#context, { timeout: Math.max(1, Math.ceil(limitMs)) });
    } catch (error) {
      // Made in the small context, so it is no instance of this realm's Error.
      if ((error as { code?: unknown } | null)?.code === 'ERR_SCRIPT_EXECUTION_TIMEOUT') return null;
      throw error;
    } finally {
      this.#context['call'] = null;
    }
    return { value: value as T }; // the script ran to its end, so call() assigned it
  }
}
