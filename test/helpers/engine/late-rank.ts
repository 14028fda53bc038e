/**
 * The native engine with a rank that learns late that a step is done, as a thread does that gets no core: rank 1 says of every step a few
 * times that it still runs. Loaded by executor threads in place of the addon.
 */
import { type EngineOptions, loadAddon, type NativeEngine } from '../../../native/index.js';

/** The `executorModule`. */
export const lateRankModule = import.meta.url;

const LATE_TIMES = 3;
const LATE_MS = 2;

export function createEngine(options: EngineOptions): NativeEngine {
  const engine = loadAddon().createEngine(options);
  if (options.rank !== 1) return engine;
  const word = new Int32Array(new SharedArrayBuffer(4));
  let late = 0;
  const wait: NativeEngine['wait'] = (result, ms) => {
    if (late++ < LATE_TIMES) {
      Atomics.wait(word, 0, 0, LATE_MS);
      return 0;
    }
    const bytes = engine.wait(result, ms);
    if (bytes > 0) late = 0;
    return bytes;
  };
  return new Proxy(engine, {
    get: (_, name) => {
      if (name === 'wait') return wait;
      const value: unknown = Reflect.get(engine, name);
      return typeof value === 'function' ? value.bind(engine) : value;
    },
  });
}
