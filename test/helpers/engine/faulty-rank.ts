/**
 * The native engine with one rank that fails: in its start, in a collective of a step, or at its end. Loaded by executor threads in place of
 * the addon; the URL says what is to happen, and a file that it happens once only, so that the engine's next life is sound.
 */
import { openSync } from 'node:fs';
import { type EngineOptions, loadAddon, type NativeEngine } from '../../../native/index.js';

export interface RankFault {
  readonly rank: number;
  /** `step`: in its eleventh plan; `op`: in a collective inside a step. */
  readonly where: 'create' | 'load' | 'agree' | 'allocate' | 'step' | 'op' | 'close';
  /** Its thread is ended; it sleeps for `ms` and goes on; it throws. */
  readonly how: 'exit' | 'sleep' | 'throw';
  readonly ms: number;
  /** Is made when it happens. */
  readonly once: string;
}

/** The `executorModule`. */
export const faultyRankModule = (fault: RankFault): string => `${import.meta.url}?${new URLSearchParams({ fault: JSON.stringify(fault) })}`;

const AT_STEP = 11;
const AT_OP = 333;

const given = new URL(import.meta.url).searchParams.get('fault');
const fault = given === null ? null : (JSON.parse(given) as RankFault);

/** True the first time in the life of the test. */
function firstTime({ once }: RankFault): boolean {
  try {
    openSync(once, 'wx');
    return true;
  } catch {
    return false;
  }
}

export function createEngine(options: EngineOptions): NativeEngine {
  if (fault === null || options.rank !== fault.rank) return loadAddon().createEngine(options);
  let plans = 0;
  const strike = (where: RankFault['where']): void => {
    if (where !== fault.where || (where === 'step' && ++plans < AT_STEP) || !firstTime(fault)) return;
    if (fault.how === 'throw') throw new Error(`a fault at ${where}`);
    if (fault.how === 'exit') process.exit(1);
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, fault.ms);
  };
  strike('create');
  const inStep = fault.where === 'op' && firstTime(fault);
  const commFault = { at: AT_OP, sleepMs: fault.how === 'sleep' ? fault.ms : 0 };
  const engine = loadAddon().createEngine(inStep ? { ...options, commFault } : options);
  const struck = <T>(where: RankFault['where'], call: () => T): T => {
    strike(where);
    return call();
  };
  return {
    load: (bytes) => struck('load', () => engine.load(bytes)),
    info: () => engine.info(),
    agree: (values) => struck('agree', () => engine.agree?.(values) ?? [...values]),
    allocateKv: (blocks, swap) => struck('allocate', () => engine.allocateKv(blocks, swap)),
    submit: (plan) => struck('step', () => engine.submit(plan)),
    wait: (result, ms) => engine.wait(result, ms),
    lastError: () => engine.lastError?.() ?? '',
    pending: () => engine.pending(),
    close: (ms) => struck('close', () => engine.close(ms)),
  };
}
