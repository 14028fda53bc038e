/**
 * The native engine with a fault that can be asked for: when the file named in this module's URL (`?fault=PATH`) appears, it is removed
 * and the step at hand fails, either at its submission or in its result. Loaded by an executor thread in place of the addon.
 */
import { existsSync, rmSync } from 'node:fs';
import { engineFault } from '../../../actors/messages/errors.js';
import { RESULT } from '../../../actors/messages/step.js';
import { type EngineOptions, loadAddon, type NativeEngine } from '../../../native/index.js';

const file = new URL(import.meta.url).searchParams.get('fault') ?? '';

function asked(): boolean {
  if (!existsSync(file)) return false;
  rmSync(file, { force: true });
  return true;
}

export function createEngine(options: EngineOptions): NativeEngine {
  const engine = loadAddon().createEngine(options);
  return {
    load: (maxBytes) => engine.load(maxBytes),
    info: () => engine.info(),
    allocateKv: (numBlocks, numSwapBlocks) => engine.allocateKv(numBlocks, numSwapBlocks),
    submit(plan) {
      if (asked() && Math.random() < 0.5) throw Object.assign(new Error('a fault of the soak'), { code: 'device', fatal: false });
      engine.submit(plan);
    },
    wait(result, timeoutMs) {
      const bytes = engine.wait(result, timeoutMs);
      if (bytes > 0 && asked()) new Int32Array(result.buffer, result.byteOffset, RESULT.headerWords)[RESULT.errorCode] = engineFault.step;
      return bytes;
    },
    pending: () => engine.pending(),
    close: () => engine.close(),
  };
}
