/**
 * A NativeEngine without a model, for the real executor loop: PlanInterpreter behind the addon's interface. Loaded by executor threads
 * through `executorModule`; the URL's query sets it up, so that nothing global does:
 *   vocab      size of the vocabulary
 *   stepMs     how long a step takes; native waits block as the addon's do
 *   failStep   this step comes back with an error code
 *   failLoad   loading throws, with this message
 *   fatal      these faults are fatal
 *   hangStep   this step never ends
 *   hangFile   a FIFO that nobody writes to: the step hangs in opening it, which no termination of the thread interrupts
 *   stuck      closing it finds a step that still runs, and gives the engine up
 */
import { closeSync, openSync } from 'node:fs';
import { threadId } from 'node:worker_threads';
import { engineFault } from '../../../actors/messages/errors.js';
import { PLAN, RESULT } from '../../../actors/messages/step.js';
import { BrokenInvariant } from '../../../actors/runtime/invariant.js';
import type { EngineOptions, LoadProgress, NativeEngine, NativeModelInfo } from '../../../native/index.js';
import { fakeNativeModelInfo } from './fake-native-model-info.js';
import { PlanInterpreter } from './plan-interpreter.js';
import { planWords } from './plan-reader.js';

export interface FakeNativeEngineSettings {
  readonly vocab?: number;
  readonly stepMs?: number;
  readonly failStep?: number;
  readonly failLoad?: string;
  readonly fatal?: boolean;
  readonly hangStep?: number;
  readonly hangFile?: string;
  readonly stuck?: boolean;
}

/** The `executorModule` that runs with these settings. */
export function fakeNativeEngineModule(settings: FakeNativeEngineSettings = {}): string {
  const url = new URL(import.meta.url);
  url.search = '';
  for (const [key, value] of Object.entries(settings)) url.searchParams.set(key, String(value));
  return url.href;
}

const query = new URL(import.meta.url).searchParams;
const number = (name: string, otherwise: number): number => Number(query.get(name) ?? otherwise);
const MIB = 2 ** 20;

export function createEngine(options: EngineOptions): NativeEngine {
  return new FakeNativeEngine(options);
}

class FakeNativeEngine implements NativeEngine {
  readonly #options: EngineOptions;
  readonly #sleepWord = new Int32Array(new SharedArrayBuffer(4));
  #numBlocks = 0;
  #numSwapBlocks = 0;
  #loaded = 0;
  #interpreter: PlanInterpreter | null = null;
  /** When each step in flight ends. */
  readonly #dueMs: number[] = [];
  #steps = 0;

  constructor(options: EngineOptions) {
    this.#options = options;
  }

  load(maxBytes: number): LoadProgress {
    const message = query.get('failLoad');
    if (message !== null) throw Object.assign(new Error(message), { code: 'bad_model', fatal: query.has('fatal') });
    this.#loaded = Math.min(128 * MIB, this.#loaded + maxBytes);
    return { doneBytes: this.#loaded, totalBytes: 128 * MIB, done: this.#loaded === 128 * MIB };
  }

  info(): NativeModelInfo {
    const info = fakeNativeModelInfo({ vocabSize: number('vocab', 1000), maxPositions: this.#options.maxModelLen });
    return { ...info, architecture: `Fake in thread ${threadId}` };
  }

  allocateKv(numBlocks: number, numSwapBlocks = 0): void {
    this.#numBlocks = numBlocks;
    this.#numSwapBlocks = numSwapBlocks;
  }

  submit(plan: Uint8Array): void {
    const { blockSize, maxSlots, maxBatchTokens } = this.#options;
    const epoch = planWords(plan)[PLAN.epoch] ?? 0;
    const vocabSize = number('vocab', 1000);
    const blocks = { numBlocks: this.#numBlocks, numSwapBlocks: this.#numSwapBlocks, blockSize };
    this.#interpreter ??= new PlanInterpreter({ ...blocks, maxSlots, maxBatchTokens, vocabSize, epoch });
    if (this.#interpreter.pending >= 2) throw new BrokenInvariant('three steps in flight');
    this.#interpreter.submit(plan);
    this.#dueMs.push(Math.max(performance.now(), this.#dueMs.at(-1) ?? 0) + number('stepMs', 0));
  }

  wait(result: Uint8Array, timeoutMs: number): number {
    const due = this.#dueMs[0];
    if (due === undefined || this.#interpreter === null) return 0;
    const leftMs = due - performance.now();
    if (leftMs > 0) Atomics.wait(this.#sleepWord, 0, 0, Math.min(leftMs, timeoutMs));
    if (performance.now() < due) return 0;
    if (this.#steps + 1 === number('hangStep', 0)) {
      const file = query.get('hangFile');
      if (file === null) return 0;
      closeSync(openSync(file, 'r'));
    }
    this.#dueMs.shift();
    const body = this.#interpreter.takeResult();
    if (body === null) throw new BrokenInvariant('a step without a result');
    result.set(body);
    this.#steps++;
    if (this.#steps === number('failStep', 0)) {
      const words = new Int32Array(result.buffer, 0, RESULT.headerWords);
      words[RESULT.errorCode] = query.has('fatal') ? engineFault.fatal : engineFault.step;
    }
    return body.byteLength;
  }

  pending(): number {
    return this.#dueMs.length;
  }

  close(): boolean {
    this.#interpreter = null;
    return !query.has('stuck');
  }
}
