/**
 * Records what one executor and its device do: the spans of its loop beside the engine's own recording. Runs in the executor's thread.
 */
import type { DeviceTrace, NativeEngine } from '../../native/index.js';
import type { ProfileCall } from '../messages/control.js';
import type { Failure } from '../messages/errors.js';
import type { Recording } from '../messages/profile.js';
import type { Control } from '../runtime/actor.js';
import { offsetUs } from '../runtime/clock.js';
import { buffersOf, SpanRecorder } from '../runtime/spans.js';

/** The answer to `handover`. */
export interface ExecutorRecording {
  readonly spans: Recording;
  /** Null when the engine cannot record. */
  readonly device: DeviceTrace | null;
  /** What to add to times of `device` to come to those of `spans`, microseconds. */
  readonly deviceOffsetUs: number;
}

/** Obeys the calls of the supervisor. `failureOf` turns an error of the engine into an answer. */
export class ExecutorRecorder {
  readonly spans = new SpanRecorder();
  readonly #engine: NativeEngine;
  readonly #control: Control;
  readonly #failureOf: (error: unknown) => Failure;

  constructor(engine: NativeEngine, control: Control, failureOf: (error: unknown) => Failure) {
    this.#engine = engine;
    this.#control = control;
    this.#failureOf = failureOf;
  }

  onCall(message: ProfileCall): void {
    try {
      if (message.k === 'record') this.#record(message.call, message.maxEvents);
      else this.#handOver(message.call);
    } catch (error) {
      this.#control.refuse(message.call, this.#failureOf(error));
    }
  }

  #record(call: number, maxEvents: number): void {
    this.spans.start(maxEvents);
    try {
      this.#engine.profileStart?.(maxEvents);
    } catch (error) {
      this.spans.stop();
      throw error;
    }
    this.#control.answer(call, null);
  }

  #handOver(call: number): void {
    const engine = this.#engine;
    const clock = engine.profileClock?.bind(engine);
    const deviceOffsetUs = clock === undefined ? 0 : offsetUs(() => this.spans.nowUs(), clock);
    const spans = this.spans.stop();
    const device = engine.profileStop?.() ?? null;
    const recording: ExecutorRecording = { spans, device, deviceOffsetUs };
    this.#control.answer(call, recording, [...buffersOf(spans), ...(device === null ? [] : deviceBuffers(device))]);
  }
}

function deviceBuffers({ kind, name, lane, value, startUs, durationUs }: DeviceTrace): ArrayBuffer[] {
  return [kind.buffer, name.buffer, lane.buffer, value.buffer, startUs.buffer, durationUs.buffer];
}
