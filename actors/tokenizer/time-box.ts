/**
 * Runs a synchronous function and kills it when it takes too long. Used for chat templates, which come with a model and are code
 * in all but name. `node:vm` arms V8's own interrupt, which ends any loop that no catch clause can hold on to; about 35 us a call.
 * The function runs in this realm; the small context only carries the call.
 */
import vm from 'node:vm';

export class TimeBox {
  readonly #context = vm.createContext({ call: null });
  readonly #script = new vm.Script('call()');

  /** @returns what `work` returns, or null when it was killed after `limitMs`. Throws what `work` throws. */
  run<T>(work: () => T, limitMs: number): { readonly value: T } | null {
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
