/**
 * What `GET /metrics` says: the books of each model joined with what its scheduler answers at that moment. The books of a model stay when
 * it is unloaded, so that no counter goes back. Main thread; made once, by daemon.ts.
 */

import { histogramOf } from '../../actors/client-sums.js';
import type { EngineClient } from '../../actors/client-types.js';
import type { EngineCallName, EngineCalls, HistogramCounts } from '../../actors/messages/calls.js';
import type { ModelFolder } from '../../config/models/model-folder.js';
import type { Config } from '../../config/schema.js';
import type { Traffic } from '../front/traffic.js';
import { Books } from './books.js';
import { expose, expositionType, type Family, type Labels, processFigures, type Series } from './exposition.js';
import { meteredEngine } from './metered-engine.js';
import { Rate } from './rate.js';
import { daemonReadings, engineReadings, type Reading, type Source } from './readings.js';

export interface MetricsDeps {
  readonly traffic: Traffic;
  /** Open WebSocket connections. */
  webSockets(): number;
}

/** A model whose requests count. */
export interface MeteredModel {
  readonly engine: EngineClient;
  readonly model: ModelFolder;
  readonly config: Config;
}

export class Metrics {
  readonly #deps: MetricsDeps;
  /** By name, in the order in which they were loaded first; one for each engine group. */
  readonly #models = new Map<string, readonly [GroupMetrics, ...GroupMetrics[]]>();

  constructor(deps: MetricsDeps) {
    this.#deps = deps;
    processFigures();
  }

  /** The engine of a model for everybody whose requests count. It takes the place of the model's last one. */
  metered(metered: MeteredModel): EngineClient {
    const { name } = metered.model;
    const known = this.#models.get(name) ?? groupsOf(metered);
    this.#models.set(name, known);
    const [first, ...others] = known;
    for (const group of known) group.attach(metered);
    return meteredEngine(metered.engine, [first.books, ...others.map(({ books }) => books)], metered.config.cache.enable_prefix_caching);
  }

  /** Times to the first token of a model, seconds, in all its groups; null for one whose books are not kept. */
  firstTokens(model: string): HistogramCounts | null {
    const groups = this.#models.get(model);
    return groups === undefined ? null : histogramOf(groups.map(({ books }) => books.firstToken));
  }

  /** The engine of a model is no more asked. */
  detach(name: string): void {
    for (const group of this.#models.get(name) ?? []) group.detach();
  }

  /** All figures as text. Never rejects: while an engine does not answer, those that only it knows are 0. */
  async scrape(): Promise<{ readonly type: string; readonly body: string }> {
    const models = [...this.#models.values()].flat();
    const { traffic } = this.#deps;
    const common = { traffic, webSockets: this.#deps.webSockets() };
    // What the front counts has no model: it is told once.
    const sources = await Promise.all(models.map((model, i) => model.source(i === 0 ? common : { ...common, traffic: noTraffic })));
    const family = ({ name, type, help, read }: Reading): Family => {
      return { name, type, help, series: models.flatMap(({ labels }, i) => of(sources[i], (source) => ({ labels, value: read(source) }))) };
    };
    const ofDaemon = ({ name, type, help, read }: Reading): Family => {
      return { name, type, help, series: of(sources[0], (source) => ({ labels: {}, value: read(source) })) };
    };
    const body = await expose([...engineReadings.map(family), ...observedOf(models), ...daemonReadings.map(ofDaemon)]);
    return { type: expositionType, body };
  }
}

/** What the front counted, for all models but the first. */
const noTraffic: Source['traffic'] = { connections: 0, answers: [], errors: new Map() };

function of<T>(source: Source | undefined, make: (source: Source) => T): readonly T[] {
  return source === undefined ? [] : [make(source)];
}

/** The histograms of all groups of all models, a family of each name. */
function observedOf(models: readonly GroupMetrics[]): Family[] {
  const families = new Map<string, Family & { readonly series: Series[] }>();
  for (const { books, labels } of models) {
    for (const { observed, histogram } of books.histograms) {
      const { name, help } = observed;
      const family = families.get(name) ?? { name, type: 'histogram' as const, help, series: [] };
      families.set(name, family);
      family.series.push({ labels, value: histogram });
    }
  }
  return [...families.values()];
}

function groupsOf(metered: MeteredModel): readonly [GroupMetrics, ...GroupMetrics[]] {
  const others = Array.from({ length: metered.config.parallel.data_parallel_size - 1 }, (_, i) => new GroupMetrics(metered, i + 1));
  return [new GroupMetrics(metered, 0), ...others];
}

/** The books of one engine group of a model, and its engine while it has one. */
class GroupMetrics {
  readonly labels: Labels;
  readonly books: Books;
  readonly #promptRate = new Rate(performance.now());
  readonly #generationRate = new Rate(performance.now());
  #engine: EngineClient | null = null;
  #cache: Config['cache'];
  #maxLoras: number;

  readonly #group: number;

  constructor({ model, config }: MeteredModel, group: number) {
    // As vLLM numbers its data-parallel ranks.
    this.labels = { model_name: model.name, engine: String(group) };
    this.#group = group;
    this.books = new Books(model.maxModelLen);
    this.#cache = config.cache;
    this.#maxLoras = config.lora.enabled ? config.lora.max_loras : 0;
  }

  attach({ engine, config }: MeteredModel): void {
    this.#engine = engine;
    this.#cache = config.cache;
    this.#maxLoras = config.lora.enabled ? config.lora.max_loras : 0;
  }

  detach(): void {
    this.#engine = null;
  }

  async source(common: Pick<Source, 'traffic' | 'webSockets'>): Promise<Source> {
    const adapters = this.#engine?.adapters;
    const used = adapters === undefined ? null : this.#ask('adapterUse');
    const [stats, steps, use] = await Promise.all([this.#ask('stats'), this.#ask('steps'), used]);
    const names = (numbers: readonly number[] = []): string[] => numbers.flatMap((number) => adapters?.nameOf(number) ?? []).sort();
    const { books } = this;
    const nowMs = performance.now();
    return {
      ...common,
      books,
      stats,
      steps,
      adapters: { most: this.#maxLoras, running: names(use?.running), waiting: names(use?.waiting) },
      unfinished: this.#engine?.requests().filter(({ group }) => (group ?? 0) === this.#group).length ?? 0,
      model: this.#engine?.model() ?? null,
      cache: this.#cache,
      rates: { prompt: this.#promptRate.of(books.promptTokens, nowMs), generation: this.#generationRate.of(books.generatedTokens, nowMs) },
    };
  }

  #ask<N extends EngineCallName>(name: N): Promise<EngineCalls[N]['reply'] | null> {
    return this.#engine === null ? Promise.resolve(null) : this.#engine.ask(name, null, this.#group).catch(() => null);
  }
}
