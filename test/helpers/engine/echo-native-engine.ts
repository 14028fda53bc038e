/**
 * A NativeEngine that says what its prompt tells it to: the tokens that stand in the prompt between the last `<|start_header_id|>` and the
 * `<|end_header_id|>` behind it (of the demo model's tokenizer), then the end. So a chat template decides what a daemon's model answers.
 * Loaded by an executor thread in place of the addon.
 */
import { LAYOUT_VERSION, RESULT, RESULT_SAMPLE } from '../../../actors/messages/step.js';
import type { EngineOptions, LoadProgress, NativeEngine, NativeModelInfo } from '../../../native/index.js';
import { fakeNativeModelInfo } from './fake-native-model-info.js';
import { type PlanBody, type PlanNewSlot, readPlan } from './plan-reader.js';

const VOCAB_SIZE = 4096;
const START = 4090;
const END = 4091;
const EOS = 4092;

/** The `executorModule`. */
export const echoNativeEngineModule = import.meta.url;

interface Slot {
  readonly answer: readonly number[];
  /** Next of them. */
  at: number;
}

export function createEngine(options: EngineOptions): NativeEngine {
  return new EchoNativeEngine(options);
}

class EchoNativeEngine implements NativeEngine {
  readonly #options: EngineOptions;
  readonly #slots = new Map<number, Slot>();
  readonly #results: Int32Array[] = [];

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

  submit(bytes: Uint8Array): void {
    const plan = readPlan(bytes);
    for (const slot of plan.freed) this.#slots.delete(slot);
    for (const added of plan.newSlots) this.#slots.set(added.slot, this.#slotOf(added));
    this.#results.push(this.#step(plan));
  }

  wait(result: Uint8Array): number {
    const next = this.#results.shift();
    if (next === undefined) return 0;
    new Int32Array(result.buffer, result.byteOffset).set(next);
    return next.byteLength;
  }

  pending(): number {
    return this.#results.length;
  }

  close(): boolean {
    return true;
  }

  #slotOf({ forkOf, tokens, promptLen }: PlanNewSlot): Slot {
    const parent = this.#slots.get(forkOf);
    if (parent !== undefined) return { answer: parent.answer, at: 0 };
    const start = tokens.lastIndexOf(START, promptLen - 1);
    const end = tokens.indexOf(END, start);
    return { answer: start < 0 || end < 0 ? [] : tokens.slice(start + 1, end), at: tokens.length - promptLen };
  }

  #step({ step, epoch, samples }: PlanBody): Int32Array {
    const result = new Int32Array(RESULT.headerWords + samples.length * RESULT_SAMPLE.words);
    result[RESULT.layoutVersion] = LAYOUT_VERSION;
    result[RESULT.step] = step;
    result[RESULT.epoch] = epoch;
    result[RESULT.numSamples] = samples.length;
    result[RESULT.words] = result.length;
    for (const [i, { slot }] of samples.entries()) {
      const here = this.#slots.get(slot);
      const base = RESULT.headerWords + i * RESULT_SAMPLE.words;
      result[base + RESULT_SAMPLE.slot] = slot;
      result[base + RESULT_SAMPLE.token] = here?.answer[here.at++] ?? EOS;
    }
    return result;
  }
}
