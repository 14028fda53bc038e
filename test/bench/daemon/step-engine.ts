/**
 * A native engine that costs nothing: it reads of a plan only which slots sample, answers each with a token of ordinary text, and takes
 * exactly the time that the step log says. Loaded by an executor thread in place of the addon. What it does not look at (blocks, history,
 * sampling) is looked at by PlanInterpreter, which is far too slow for this.
 *
 * Its device is ideal: a step begins when it is submitted or when the one before is over, whichever is later, however late the executor's
 * thread wakes up.
 */
import { getEnvironmentData } from 'node:worker_threads';
import { LAYOUT_VERSION, PLAN, RESULT, RESULT_SAMPLE } from '../../../actors/messages/step.js';
import type { EngineOptions, LoadProgress, NativeEngine, NativeModelInfo } from '../../../native/index.js';
import { fakeNativeModelInfo } from '../../helpers/engine/fake-native-model-info.js';
import { planWords, sampledSlots } from '../../helpers/engine/plan-reader.js';
import { clockUs, STEP_LOG, StepLog } from './step-log.js';

/** The demo model's, and those of its tokens that are whole words or parts of words. */
const VOCAB_SIZE = 4096;
const FIRST_TOKEN = 300;
const NUM_TOKENS = 512;

interface Running {
  readonly result: Int32Array;
  readonly submitted: number;
  readonly began: number;
  readonly due: number;
  readonly idle: number;
}

export function createEngine(options: EngineOptions): NativeEngine {
  return new StepEngine(options);
}

class StepEngine implements NativeEngine {
  readonly #options: EngineOptions;
  readonly #log = new StepLog(getEnvironmentData(STEP_LOG) as SharedArrayBuffer); // proof: set by host.ts before it starts threads
  readonly #sleepWord = new Int32Array(new SharedArrayBuffer(4));
  readonly #running: Running[] = [];
  /** When the last submitted step is over. */
  #free = 0;

  constructor(options: EngineOptions) {
    this.#options = options;
  }

  load(): LoadProgress {
    return { doneBytes: 1, totalBytes: 1, done: true };
  }

  info(): NativeModelInfo {
    return fakeNativeModelInfo({ vocabSize: VOCAB_SIZE, maxPositions: this.#options.maxModelLen });
  }

  allocateKv(): void {}

  submit(plan: Uint8Array): void {
    const submitted = clockUs();
    const began = Math.max(submitted, this.#free);
    const idle = this.#free === 0 ? 0 : began - this.#free;
    this.#free = began + this.#log.stepUs;
    this.#running.push({ result: resultOf(planWords(plan)), submitted, began, due: this.#free, idle });
  }

  wait(result: Uint8Array, timeoutMs: number): number {
    const step = this.#running[0];
    if (step === undefined) return 0;
    const leftMs = (step.due - clockUs()) / 1000;
    if (leftMs > 0) Atomics.wait(this.#sleepWord, 0, 0, Math.min(leftMs, timeoutMs));
    const done = clockUs();
    if (done < step.due) return 0;
    this.#running.shift();
    new Int32Array(result.buffer, result.byteOffset).set(step.result);
    const { submitted, began, idle } = step;
    this.#log.add({ submitted, began, done, idle });
    return step.result.byteLength;
  }

  pending(): number {
    return this.#running.length;
  }

  close(): boolean {
    return true;
  }
}

function resultOf(plan: Int32Array): Int32Array {
  const step = plan[PLAN.step] ?? 0;
  const slots = sampledSlots(plan);
  const result = new Int32Array(RESULT.headerWords + slots.length * RESULT_SAMPLE.words);
  result[RESULT.layoutVersion] = LAYOUT_VERSION;
  result[RESULT.step] = step;
  result[RESULT.epoch] = plan[PLAN.epoch] ?? 0;
  result[RESULT.numSamples] = slots.length;
  result[RESULT.words] = result.length;
  for (let i = 0; i < slots.length; i++) {
    const slot = slots[i] ?? 0;
    const at = RESULT.headerWords + i * RESULT_SAMPLE.words;
    result[at + RESULT_SAMPLE.slot] = slot;
    result[at + RESULT_SAMPLE.token] = FIRST_TOKEN + ((step * 7 + slot * 31) % NUM_TOKENS);
  }
  return result;
}
