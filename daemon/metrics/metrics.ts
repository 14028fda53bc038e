/**
 * What `GET /metrics` says of one model: keeps the books, and joins them with what the scheduler answers at that moment. Main thread; made
 * once, by daemon.ts.
 */
import type { EngineClient } from '../../actors/client-types.js';
import type { EngineCallName, EngineCalls, HistogramCounts } from '../../actors/messages/calls.js';
import type { ModelFolder } from '../../config/model-folder.js';
import type { Config } from '../../config/schema.js';
import type { Traffic } from '../front/traffic.js';
import { Books } from './books.js';
import { expose, expositionType, type Family, type Labels, processFigures } from './exposition.js';
import { meteredEngine } from './metered-engine.js';
import { Rate } from './rate.js';
import { daemonReadings, engineReadings, type Reading, type Source } from './readings.js';

export interface MetricsDeps {
  readonly engine: EngineClient;
  readonly model: ModelFolder;
  readonly config: Config;
  readonly traffic: Traffic;
  /** Open WebSocket connections. */
  webSockets(): number;
}

export class Metrics {
  /** The engine for everybody whose requests count. */
  readonly engine: EngineClient;
  readonly #deps: MetricsDeps;
  readonly #books: Books;
  readonly #labels: Labels;
  readonly #promptRate = new Rate(performance.now());
  readonly #generationRate = new Rate(performance.now());

  constructor(deps: MetricsDeps) {
    this.#deps = deps;
    this.#books = new Books(deps.model.maxModelLen);
    // One engine a model; vLLM numbers those of its data-parallel ranks.
    this.#labels = { model_name: deps.model.name, engine: '0' };
    this.engine = meteredEngine(deps.engine, this.#books, deps.config.cache.enable_prefix_caching);
    processFigures();
  }

  /** Times to the first token of a model, seconds; null for one that these are not the books of. */
  firstTokens(model: string): HistogramCounts | null {
    return model === this.#deps.model.name ? this.#books.firstToken.snapshot() : null;
  }

  /** All figures as text. Never rejects: while the engine does not answer, those that only it knows are 0. */
  async scrape(): Promise<{ readonly type: string; readonly body: string }> {
    const source = await this.#source();
    const family =
      (labels: Labels) =>
      ({ name, type, help, read }: Reading): Family => ({ name, type, help, labels, value: read(source) });
    const observed = this.#books.histograms.map(({ observed: { name, help }, histogram }): Family => {
      return { name, type: 'histogram', help, labels: this.#labels, value: histogram };
    });
    const body = await expose([...engineReadings.map(family(this.#labels)), ...observed, ...daemonReadings.map(family({}))]);
    return { type: expositionType, body };
  }

  async #source(): Promise<Source> {
    const { engine, config, traffic } = this.#deps;
    const [stats, steps] = await Promise.all([this.#ask('stats'), this.#ask('steps')]);
    const books = this.#books;
    const nowMs = performance.now();
    return {
      books,
      stats,
      steps,
      unfinished: engine.requests().length,
      model: engine.model(),
      cache: config.cache,
      traffic,
      webSockets: this.#deps.webSockets(),
      rates: { prompt: this.#promptRate.of(books.promptTokens, nowMs), generation: this.#generationRate.of(books.generatedTokens, nowMs) },
    };
  }

  #ask<N extends EngineCallName>(name: N): Promise<EngineCalls[N]['reply'] | null> {
    return this.#deps.engine.ask(name, null).catch(() => null);
  }
}
