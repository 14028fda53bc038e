/** Opens native engines for tests: default options, loading to the end, one step at a time. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { RESULT } from '../../../actors/messages/step.js';
import { type EngineOptions, loadAddon, type NativeEngine, type NativeError, packageRoot } from '../../../native/index.js';
import { RankEngines } from '../../../native/rank-engines.js';
import { buildPlan, type PlanSpec, readResult, type StepAnswer } from './plan.js';

export const fixture = (...path: string[]): string => join(packageRoot(), 'test', 'fixtures', ...path);
export const demoModel = (): string => join(packageRoot(), 'config', 'demo-model');

export function engineOptions(modelPath: string, options: Partial<EngineOptions> = {}): EngineOptions {
  return {
    modelPath,
    backend: 'cpu',
    deviceId: 0,
    threads: 2,
    weightDtype: 'auto',
    quantization: 'none',
    kvDtype: 'f32',
    blockSize: 16,
    maxSlots: 8,
    maxBatchTokens: 256,
    maxModelLen: 256,
    slidingWindow: 0,
    loadDummy: false,
    rank: 0,
    worldSize: 1,
    isa: 'auto',
    ...options,
  };
}

/** A loaded engine with `numBlocks` KV blocks, and `numSwapBlocks` of the host. The caller closes it. */
export function openEngine(modelPath: string, options: Partial<EngineOptions> = {}, numBlocks = 64, numSwapBlocks = 0): NativeEngine {
  const engine = loadAddon().createEngine(engineOptions(modelPath, options));
  while (!engine.load(1 << 20).done);
  engine.allocateKv(numBlocks, numSwapBlocks);
  return engine;
}

/** The same of a model that `numRanks` ranks compute together; every step checks that all of them answer alike. */
export function openRanks(
  modelPath: string,
  numRanks: number,
  options: Partial<EngineOptions> = {},
  numBlocks = 64,
  numSwapBlocks = 0,
): RankEngines {
  const engine = new RankEngines(engineOptions(modelPath, options), numRanks, assertAlike);
  try {
    while (!engine.load(1 << 20).done);
    engine.allocateKv(numBlocks, numSwapBlocks);
  } catch (error) {
    engine.close();
    throw error;
  }
  return engine;
}

/** The same bits but for the times. */
function assertAlike(results: readonly Uint8Array[]): void {
  const [first, ...others] = results.map((bytes) => {
    const words = new Int32Array(bytes.slice().buffer);
    words[RESULT.queueUs] = words[RESULT.execUs] = 0;
    return Buffer.from(words.buffer);
  });
  for (const other of others) assert.ok(first?.equals(other), 'the ranks of a model answer alike');
}

/** Waits for the oldest step and reads its answer. */
export function answer(engine: NativeEngine, resultBytes = 4 << 20): StepAnswer {
  const result = new Uint8Array(resultBytes);
  const bytes = engine.wait(result, 60_000);
  if (bytes === 0) throw new Error('the step did not finish within a minute');
  return readResult(result.subarray(0, bytes), engine.info().vocabSize);
}

/** Submits one plan and waits for it. */
export function runStep(engine: NativeEngine, spec: PlanSpec): StepAnswer {
  engine.submit(buildPlan(spec));
  return answer(engine);
}

/** Block sets that give a slot the blocks [first, first + count) from index `index` on. */
export function blockSets(slot: number, first: number, count: number, index = 0): { slot: number; index: number; block: number }[] {
  return Array.from({ length: count }, (_, i) => ({ slot, index: index + i, block: first + i }));
}

/** For assert.throws: a native error of this code with a matching message. */
export function nativeError(code: NativeError['code'], message: RegExp): (error: unknown) => boolean {
  return (error) => {
    const e = error as NativeError;
    if (e.code !== code || !message.test(e.message)) throw new Error(`expected ${code} ${message}, got ${e.code}: ${e.message}`);
    return e.fatal === false;
  };
}
