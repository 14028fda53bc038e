/**
 * An engine of the daemon without threads: `start` gives its EngineHandle, whose client answers every prompt with "ok", when and how the
 * test says.
 */
import type { EngineClient, EngineState, RequestHandle, RequestSink } from '../../../actors/client-types.js';
import type { EngineCallName, EngineCalls } from '../../../actors/messages/calls.js';
import { type Failure, InferdError } from '../../../actors/messages/errors.js';
import type { RequestId } from '../../../actors/messages/ids.js';
import type { ModelFolder } from '../../../config/models/model-folder.js';
import type { Ending } from '../../../daemon/life/child-actor.js';
import type { EngineHandle, startEngine } from '../../../daemon/life/engine.js';

export const fakeModel: ModelFolder = {
  path: '/nowhere',
  name: 'fake',
  source: 'demo',
  config: {},
  architecture: 'LlamaForCausalLM',
  format: 'BF16',
  vocabSize: 100,
  hiddenSize: 8,
  pooling: { mode: 'last' },
  maxPositions: 512,
  maxModelLen: 512,
  maxInputLength: 511,
  maxTotalTokens: 512,
  eosTokenIds: [2],
  bosTokenId: 1,
  generation: {},
  sizeBytes: 0,
};

export class FakeEngineHandle {
  state: EngineState = 'starting';
  /** Requests that wait for `finishAll`. */
  readonly open = new Map<number, RequestSink>();
  stops = 0;
  /** False: its steps do not complete. */
  healthy = true;
  #nextId = 1;
  #ready: { resolve(): void; reject(error: Error): void } = { resolve() {}, reject() {} };
  #fail: (ending: Ending) => void = () => {};
  #idle: (() => void)[] = [];

  readonly start: typeof startEngine = (_config, _model, hooks) => {
    const ready = new Promise<void>((resolve, reject) => {
      this.#ready = {
        resolve: () => {
          this.state = 'ready';
          hooks.onState?.('ready');
          resolve();
        },
        reject,
      };
    });
    hooks.onProgress?.({ phase: 'weights', done: 1, total: 2 });
    const failed = new Promise<Ending>((resolve) => {
      this.#fail = (ending) => {
        this.state = 'failed';
        resolve(ending);
      };
    });
    const handle: EngineHandle = {
      client: this.client,
      ready,
      failed,
      drain: (deadlineMs) => this.#drain(deadlineMs),
      stop: async () => {
        this.stops++;
        this.state = 'stopped';
      },
      recorders: () => [],
      killActor() {},
    };
    return handle;
  };

  becomeReady(): void {
    this.#ready.resolve();
  }
  failToStart(message: string): void {
    this.#ready.reject(new InferdError('engine_failure', message));
  }
  giveUp(message: string, fatal = false): void {
    this.#fail({ failure: { kind: 'engine_failure', message }, fatal });
  }

  /** Every open request says "ok" and ends. */
  finishAll(): void {
    for (const [id, sink] of [...this.open]) {
      sink.onDeltas([{ id: id as RequestId, index: 0, text: 'ok', tokens: [5], finish: 'stop' }]);
      this.#end(id, null);
    }
  }

  readonly client: EngineClient = {
    submit: (_prompt, _params, sink): RequestHandle => {
      const id = this.#nextId++;
      const handle: RequestHandle = { id: id as RequestId, cancel: () => this.#end(id, { kind: 'cancelled' }), setPaused() {} };
      const refusal = refusals[this.state];
      if (refusal !== undefined) {
        sink.onEnd(refusal);
        return handle;
      }
      this.open.set(id, sink);
      sink.onEncoded(Int32Array.of(1, 2, 3), 16);
      sink.onStarted({ id: handle.id, queueMs: 0, cachedTokens: 0 });
      return handle;
    },
    encode: async () => Int32Array.of(1),
    decode: async () => 'ok',
    learnTexts: async () => {},
    ask: async (name) => {
      const answer = answers[name];
      if (answer === undefined) throw new InferdError('unsupported');
      return answer;
    },
    tokenText: () => ({ token: '', bytes: [] }),
    requests: () => [],
    textBounds: () => null,
    model: () => null,
    state: () => this.state,
    healthy: () => this.healthy && (this.state === 'ready' || this.state === 'draining'),
  };

  #end(id: number, failure: Failure | null): void {
    const sink = this.open.get(id);
    if (sink === undefined) return;
    this.open.delete(id);
    sink.onEnd(failure);
    if (this.open.size === 0) for (const resolve of this.#idle.splice(0)) resolve();
  }

  async #drain(deadlineMs: number): Promise<void> {
    this.state = 'draining';
    if (this.open.size === 0) return;
    const late = setTimeout(() => {
      for (const id of [...this.open.keys()]) this.#end(id, { kind: 'shutting_down' });
    }, deadlineMs);
    await new Promise<void>((resolve) => this.#idle.push(resolve));
    clearTimeout(late);
  }
}

const refusals: Partial<Record<EngineState, Failure>> = {
  starting: { kind: 'model_loading', data: { retry_after_ms: 1000 } },
  draining: { kind: 'shutting_down' },
  stopped: { kind: 'shutting_down' },
  failed: { kind: 'engine_failure' },
};

const answers: { readonly [N in EngineCallName]?: EngineCalls[N]['reply'] } = {
  stats: {
    requests: { running: 0, waiting: 0, swapped: 0, finished_total: 0, aborted_total: 0, preempted_total: 0 },
    kv: { block_size: 16, total_blocks: 1, used_blocks: 0, cached_blocks: 0, free_blocks: 1, swap_total: 0, swap_used: 0 },
    tokens: { prompt_total: 0, generated_total: 0, prefix_hit_total: 0 },
    step: { count: 0, p50_ms: 0, p99_ms: 0 },
  },
};
