/** Stands in front of the native engine and makes it take the kernel set that its own URL names: `?isa=avx2`. */
import { type EngineOptions, loadAddon, type NativeEngine } from '../../native/index.js';

const isa = new URL(import.meta.url).searchParams.get('isa') ?? 'auto';

export function createEngine(options: EngineOptions): NativeEngine {
  return loadAddon().createEngine({ ...options, isa });
}
