/**
 * A native engine that gives the logits of every position of windows of a text, for `inferd eval --compare`. One window at a time, in
 * steps of a few rows, whose logits stay within some megabytes. Blocks its thread.
 */
import { PlanBuilder } from '../../../actors/messages/plan-builder.js';
import { defaultSampling, packSamplingRow } from '../../../actors/messages/sampling.js';
import { RESULT, RESULT_LOGITS, ROW_FLAG } from '../../../actors/messages/step.js';
import { invariant } from '../../../actors/runtime/invariant.js';
import { isGguf } from '../../../config/gguf/files.js';
import type { ModelFolder } from '../../../config/models/model-folder.js';
import type { Config } from '../../../config/schema.js';
import { loadAddon, type NativeEngine } from '../../../native/index.js';
import { bestBackend } from '../../life/topology.js';
import { CliError, EXIT } from '../verb.js';

const blockSize = 16;
const loadBytes = 256 * 2 ** 20;
const logitBytes = 64 * 2 ** 20;
const stepTimeoutMs = 600_000;
const samplingRow = packSamplingRow({ ...defaultSampling, temperature: 0 }, { seedLo: 0, seedHi: 0, topLogprobs: -1, promptLogprobs: -1 });

export class WindowLogits {
  readonly #engine: NativeEngine;
  readonly #vocabSize: number;
  readonly #rows: number;
  readonly #result: Uint8Array<ArrayBuffer>;
  #used = false;

  /** Loads the model. `window`: the longest one. @throws NativeError */
  constructor(config: Config, model: ModelFolder, window: number) {
    const { inference } = config;
    this.#vocabSize = model.vocabSize;
    this.#rows = Math.max(1, Math.min(window, Math.floor(logitBytes / (4 * model.vocabSize))));
    this.#result = new Uint8Array(4 * (RESULT.headerWords + this.#rows * (RESULT_LOGITS.logits + model.vocabSize)));
    this.#engine = loadAddon().createEngine({
      modelPath: model.path,
      ...(isGguf(model.path) ? { modelConfig: JSON.stringify(model.config) } : {}),
      backend: inference.device === 'auto' ? bestBackend(config) : inference.device,
      deviceId: inference.device_ids[0] ?? 0,
      threads: inference.threads,
      weightDtype: inference.dtype,
      quantization: inference.quantization,
      kvDtype: 'auto',
      blockSize,
      maxSlots: 1,
      maxBatchTokens: this.#rows,
      maxModelLen: window,
      slidingWindow: 0,
      loadDummy: false,
      rank: 0,
      worldSize: 1,
      isa: 'auto',
    });
    while (!this.#engine.load(loadBytes).done);
    this.#engine.allocateKv(Math.ceil(window / blockSize));
  }

  /** Logits behind each of `tokens`, in their order, which are valid until the next are asked for. @throws CliError */
  *run(tokens: Int32Array): Generator<Float32Array, void> {
    const begin = new PlanBuilder(0);
    if (this.#used) begin.free(0);
    this.#used = true;
    const lists = { bias: [], masked: [] };
    begin.newSlot({ slot: 0, forkOf: -1, promptLen: tokens.length, tokens, samplingRow, sequenceIndex: 0, lists });
    for (let i = 0; i < Math.ceil(tokens.length / blockSize); i++) begin.blockSet(0, i, i);
    this.#step(begin);
    const floats = new Float32Array(this.#result.buffer);
    const each = RESULT_LOGITS.logits + this.#vocabSize;
    for (let start = 0; start < tokens.length; start += this.#rows) {
      const plan = new PlanBuilder(0);
      const rows = Math.min(this.#rows, tokens.length - start);
      plan.row(0, start, rows, ROW_FLAG.rawLogits);
      const words = this.#step(plan);
      for (let row = 0; row < rows; row++) {
        const at = RESULT.headerWords + row * each;
        invariant(words[at + RESULT_LOGITS.position] === start + row, 'logits are of another position');
        yield floats.subarray(at + RESULT_LOGITS.logits, at + each);
      }
    }
  }

  close(): void {
    this.#engine.close();
  }

  #step(plan: PlanBuilder): Int32Array {
    this.#engine.submit(plan.finish(0, 0));
    const bytes = this.#engine.wait(this.#result, stepTimeoutMs);
    const words = new Int32Array(this.#result.buffer);
    if (bytes === 0 || words[RESULT.errorCode] !== 0)
      throw new CliError(`A step failed: ${this.#engine.lastError?.() || 'it took too long'}`, EXIT.internal);
    return words;
  }
}
