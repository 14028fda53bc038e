/**
 * Times steps of a native engine for `inferd bench forward`. As a daemon does, it keeps two steps in flight, so that what is timed is the
 * time between the ends of two steps. Blocks its thread.
 */
import { RESULT } from '../../../actors/messages/step.js';
import type { NativeEngine } from '../../../native/index.js';
import { CliError, EXIT } from '../verb.js';
import { median } from './limits.js';
import { admissionPlan, type BatchShape, decodePlan, placementPlan, prefillPlans } from './plans.js';
import { type ExpertSummary, summarize } from './work.js';

const stepTimeoutMs = 600_000;
const resultBytes = 2 ** 20;
/** Of a sample in a result, generously. */
const sampleBytes = 1024;

export interface StepTime {
  /** Wall time, seconds. */
  readonly seconds: number;
  /** What the device, or the CPU's compute threads, spent on it by the engine's own clock, seconds. */
  readonly execSeconds: number;
}

/** An engine and the slots that the last batch has filled. */
export class StepTimer {
  readonly #engine: NativeEngine;
  readonly #vocabSize: number;
  readonly #result: Uint8Array;
  #inUse = 0;

  constructor(engine: NativeEngine, vocabSize: number, mostSlots: number) {
    this.#engine = engine;
    this.#vocabSize = vocabSize;
    this.#result = new Uint8Array(resultBytes + mostSlots * sampleBytes);
  }

  /** Reads an adapter into as many places, each of which has its factors in memory of its own. @throws CliError when the step fails. */
  placeAdapters(folder: string, places: number): void {
    this.#engine.loadAdapter?.(1, folder);
    this.#run([placementPlan(1, places)]);
  }

  /** All prompts of a batch, from the submission of the first chunk to the end of the last. @throws CliError when a step fails. */
  prefill(shape: BatchShape, chunk: number): StepTime {
    this.#engine.submit(admissionPlan(shape, this.#vocabSize, this.#inUse));
    this.#inUse = shape.batch;
    this.#collect();
    const plans = prefillPlans(shape, chunk);
    const started = now();
    const steps = this.#run(plans);
    return { seconds: (steps.at(-1)?.endedAt ?? started) - started, execSeconds: steps.reduce((sum, s) => sum + s.execSeconds, 0) };
  }

  /** Median of the decode steps that follow a prefill, without the first `warmup`. @throws CliError when a step fails. */
  decode(shape: BatchShape, warmup: number): StepTime {
    const started = now();
    const steps = this.#run(Array.from({ length: shape.steps }, (_, i) => decodePlan(shape, shape.length + i)));
    const kept = steps.map((step, i) => ({ ...step, seconds: step.endedAt - (steps[i - 1]?.endedAt ?? started) })).slice(warmup);
    return { seconds: median(kept.map((s) => s.seconds)), execSeconds: median(kept.map((s) => s.execSeconds)) };
  }

  /** What the last step made of the model's experts. */
  experts(): ExpertSummary | null {
    return summarize(this.#engine.expertWork?.() ?? []);
  }

  #run(plans: readonly Uint8Array[]): { readonly endedAt: number; readonly execSeconds: number }[] {
    const steps = [];
    for (const [i, plan] of plans.entries()) {
      this.#engine.submit(plan);
      if (i > 0) steps.push(this.#collect());
    }
    steps.push(this.#collect());
    return steps;
  }

  #collect(): { endedAt: number; execSeconds: number } {
    const bytes = this.#engine.wait(this.#result, stepTimeoutMs);
    const endedAt = now();
    const header = new Int32Array(this.#result.buffer, 0, RESULT.headerWords);
    if (bytes === 0 || header[RESULT.errorCode] !== 0)
      throw new CliError(`A step failed: ${this.#engine.lastError?.() || 'it took too long'}`, EXIT.internal);
    return { endedAt, execSeconds: (header[RESULT.execUs] ?? 0) / 1e6 };
  }
}

const now = (): number => performance.now() / 1000;
