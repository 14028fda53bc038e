/**
 * Adapters on their way into the host memory of an executor. The engine reads them on a thread of its own; the executor's loop asks between
 * two steps what has been read, so that no step waits for a disk. Runs in the executor's thread; used by actor.ts.
 *
 * What goes wrong with the file of an adapter harms no request.
 */
import type { AdapterInfo, NativeEngine } from '../../native/index.js';
import type { AdapterCall } from '../messages/control.js';
import type { Failure } from '../messages/errors.js';

/** Where calls are answered: the executor's Control. */
export interface AdapterAnswers {
  answer(call: number, value: AdapterInfo | null): void;
  refuse(call: number, failure: Failure): void;
}

type AdapterEngine = Pick<NativeEngine, 'beginAdapter' | 'adapterRead' | 'unloadAdapter'>;

export class AdapterLoads {
  readonly #engine: AdapterEngine;
  readonly #answers: AdapterAnswers;
  readonly #failureOf: (error: unknown) => Failure;
  /** Calls that wait, by adapter; as many as lora.max_adapters at most. */
  readonly #reading = new Map<number, number>();

  constructor(engine: AdapterEngine, answers: AdapterAnswers, failureOf: (error: unknown) => Failure) {
    this.#engine = engine;
    this.#answers = answers;
    this.#failureOf = failureOf;
  }

  onCall(message: AdapterCall): void {
    const { call, adapter } = message;
    try {
      if (message.k === 'load_adapter') {
        this.#engine.beginAdapter?.(adapter, message.folder);
        this.#reading.set(adapter, call);
      } else {
        this.#callOff(adapter);
        this.#engine.unloadAdapter?.(adapter);
        this.#answers.answer(call, null);
      }
    } catch (error) {
      this.#answers.refuse(call, this.#failureOf(error));
    }
  }

  /** Answers the calls whose adapter has been read, or cannot be. True while some are still being read. Never waits. */
  answer(): boolean {
    for (const [adapter, call] of this.#reading) {
      try {
        const info = this.#engine.adapterRead?.(adapter);
        if (info === null) continue;
        this.#reading.delete(adapter);
        this.#answers.answer(call, info ?? null);
      } catch (error) {
        this.#reading.delete(adapter);
        this.#answers.refuse(call, this.#failureOf(error));
      }
    }
    return this.#reading.size > 0;
  }

  #callOff(adapter: number): void {
    const call = this.#reading.get(adapter);
    if (call === undefined) return;
    this.#reading.delete(adapter);
    this.#answers.refuse(call, { kind: 'request_failed', message: 'The adapter was unloaded while it was being read' });
  }
}
