/**
 * An EngineClient that keeps the books of what passes through it: one object a request, and for each step of it one reading of the clock.
 * Main thread, between rpc and the engine's door.
 */
import type { ClientKey, EngineClient, RequestHandle, RequestSink } from '../../actors/client-types.js';
import { type ErrorKind, errorTable, type Failure } from '../../actors/messages/errors.js';
import type { Delta, GenerationParams, PromptInput, Started } from '../../actors/messages/requests.js';
import type { Books, Ending } from './books.js';
import type { PromptRun, SequenceRun } from './runs.js';

/** How a failure ends the sequences of a request that was taken. A kind that is missing refuses: nothing was begun. */
const endings: Partial<Record<ErrorKind, Ending>> = {
  cancelled: 'abort',
  slow_consumer: 'abort',
  shutting_down: 'abort',
  engine_failure: 'error',
  out_of_memory: 'error',
  internal: 'error',
};

/** `engine` with books, one for each of its groups: the first also takes what never came to a group. `prefixCache`: it looks prompts up. */
export function meteredEngine(engine: EngineClient, books: readonly [Books, ...Books[]], prefixCache: boolean): EngineClient {
  return {
    ...(engine.adapters === undefined ? {} : { adapters: engine.adapters }),
    submit: (prompt, params, sink, client) =>
      submit(engine, new Run(books, params, { prefixCache, arrivalMs: sink.arrivalMs }), { prompt, params, sink, client }),
    encode: (prompt, asker) => engine.encode(prompt, asker),
    decode: (ids, skip, asker) => engine.decode(ids, skip, asker),
    learnTexts: (ids, asker) => engine.learnTexts(ids, asker),
    ask: (name, params, group) => engine.ask(name, params, group),
    tokenText: (id) => engine.tokenText(id),
    requests: () => engine.requests(),
    model: () => engine.model(),
    textBounds: () => engine.textBounds(),
    state: () => engine.state(),
    healthy: () => engine.healthy(),
  };
}

interface Submission {
  readonly prompt: PromptInput;
  readonly params: GenerationParams;
  readonly sink: RequestSink;
  readonly client: ClientKey | undefined;
}

function submit(engine: EngineClient, run: Run, { prompt, params, sink, client }: Submission): RequestHandle {
  const metered: RequestSink = {
    arrivalMs: run.arrivalMs,
    onEncoded(promptIds, maxTokens, promptText) {
      run.encoded(promptIds.length, maxTokens);
      sink.onEncoded(promptIds, maxTokens, promptText);
    },
    onNotice: (notice) => sink.onNotice(notice),
    onStarted(started, group) {
      run.started(started, group);
      sink.onStarted(started, group);
    },
    onPromptLogprobs: (records) => sink.onPromptLogprobs(records),
    onDeltas(deltas) {
      run.deltas(deltas);
      sink.onDeltas(deltas);
    },
    onEnd(failure) {
      run.end(failure);
      sink.onEnd(failure);
    },
  };
  const handle = engine.submit(prompt, params, metered, client);
  run.taken = true;
  return handle;
}

interface Facts {
  readonly prefixCache: boolean;
  /** As the sink says it. */
  readonly arrivalMs: number | undefined;
}

class Run implements PromptRun {
  readonly n: number;
  readonly looksUp: boolean;
  readonly arrivalMs: number;
  readonly sequences: SequenceRun[];
  maxTokens: number | null;
  promptTokens = 0;
  cachedTokens = 0;
  queueMs = 0;
  computed = false;
  firstMs = 0;
  lastMs = 0;
  endMs = 0;
  /** The engine did not refuse it at once. */
  taken = false;
  /** From its arrival until the engine got it. */
  readonly #entryMs: number;
  readonly #all: readonly [Books, ...Books[]];
  /** Of the group that it is in. */
  #books: Books;

  constructor(books: readonly [Books, ...Books[]], params: GenerationParams, { prefixCache, arrivalMs }: Facts) {
    const nowMs = performance.now();
    this.arrivalMs = arrivalMs ?? nowMs;
    this.#entryMs = nowMs - this.arrivalMs;
    this.#all = books;
    this.#books = books[0];
    this.n = params.n;
    this.maxTokens = params.maxTokens;
    this.looksUp = prefixCache && params.promptLogprobs < 0 && params.pooling !== 'mean';
    this.sequences = Array.from({ length: params.bestOf }, () => ({ tokens: 0, firstMs: 0, lastMs: 0, ended: false }));
  }

  encoded(promptTokens: number, maxTokens: number): void {
    this.promptTokens = promptTokens;
    this.maxTokens = maxTokens;
  }

  started({ queueMs, cachedTokens }: Started, group = 0): void {
    this.#books = this.#all[group] ?? this.#all[0];
    this.queueMs = this.#entryMs + queueMs;
    this.cachedTokens = cachedTokens;
    this.computed = true;
    this.#books.promptComputed(this);
  }

  deltas(deltas: readonly Delta[]): void {
    const nowMs = performance.now();
    for (const { index, tokens, finish, pooled } of deltas) {
      const sequence = this.sequences[index];
      if (sequence === undefined) continue;
      if (tokens.length > 0) this.#tokens(sequence, tokens.length, nowMs);
      if (pooled !== undefined) this.firstMs = this.lastMs = nowMs;
      if (finish === undefined) continue;
      sequence.ended = true;
      this.#books.sequenceEnded(sequence, finish);
    }
  }

  #tokens(sequence: SequenceRun, count: number, nowMs: number): void {
    const books = this.#books;
    books.generatedTokens += count;
    if (sequence.tokens === 0) sequence.firstMs = nowMs;
    else if (nowMs > sequence.lastMs) books.gaps.observe((nowMs - sequence.lastMs) / 1000);
    sequence.tokens += count;
    sequence.lastMs = nowMs;
    if (this.firstMs === 0) {
      this.firstMs = nowMs;
      books.firstToken.observe((nowMs - this.arrivalMs) / 1000);
    }
    this.lastMs = nowMs;
  }

  end(failure: Failure | null): void {
    const ending = failure === null ? 'stop' : endings[failure.kind];
    if (failure !== null && (ending === undefined || !this.taken)) {
      const row: { readonly name?: string; readonly retriable: boolean } = errorTable[failure.kind];
      if (row.retriable) this.#books.rejected(row.name ?? failure.kind);
      return;
    }
    this.endMs = performance.now();
    for (const sequence of this.sequences) if (!sequence.ended && ending !== undefined) this.#books.sequenceEnded(sequence, ending);
    this.#books.promptEnded(this);
  }
}
