/** Families of figures as Prometheus' text, and those of the process; the only file that knows prom-client. Main thread. */
import { collectDefaultMetrics, type Metric, Registry } from 'prom-client';
import type { HistogramCounts } from '../../actors/messages/calls.js';

export type Labels = Readonly<Record<string, string>>;

export interface Sample {
  readonly labels?: Labels;
  readonly value: number;
}

/** What one source says under one name. */
export interface Series {
  /** Of every sample. */
  readonly labels: Labels;
  readonly value: number | readonly Sample[] | HistogramCounts;
}

/** All that has one name. */
export interface Family {
  readonly name: string;
  readonly type: 'counter' | 'gauge' | 'histogram';
  readonly help: string;
  readonly series: readonly Series[];
}

export const expositionType = 'text/plain; version=0.0.4';

let ofProcess: Registry | null = null;

/** Memory, processor time, files, event loop; once for all daemons of a process. Counts from the first call on. */
export function processFigures(): Registry {
  if (ofProcess === null) {
    ofProcess = new Registry();
    collectDefaultMetrics({ register: ofProcess });
  }
  return ofProcess;
}

export async function expose(families: readonly Family[]): Promise<string> {
  const registry = new Registry();
  for (const family of families) registry.registerMetric(asMetric(family));
  return Registry.merge([registry, processFigures()]).metrics();
}

/** In the place of prom-client's own metrics, which look every observation up by its labels. */
function asMetric({ name, type, help, series }: Family): Metric {
  const values = series.flatMap(({ labels, value }): readonly object[] =>
    'counts' in Object(value) ? buckets(name, labels, value as HistogramCounts) : samples(labels, value as number | Sample[]),
  );
  const metric = { name, get: async () => ({ name, help, type, values, aggregator: 'sum' }) };
  return metric as unknown as Metric; // proof: a registry reads `name` and calls `get`, nothing else
}

function samples(labels: Labels, value: number | readonly Sample[]) {
  const all = typeof value === 'number' ? [{ value }] : value;
  return all.map((sample: Sample) => ({ labels: { ...labels, ...sample.labels }, value: sample.value }));
}

function buckets(name: string, labels: Labels, { edges, counts, sum }: HistogramCounts) {
  let total = 0;
  const below = counts.map((count, i) => {
    total += count;
    return { metricName: `${name}_bucket`, labels: { ...labels, le: edgeText(edges[i]) }, value: total };
  });
  return [...below, { metricName: `${name}_sum`, labels, value: sum }, { metricName: `${name}_count`, labels, value: total }];
}

/** An edge as Python's client writes it, and so vLLM: dashboards name some of them as text. */
export function edgeText(edge: number | undefined): string {
  if (edge === undefined) return '+Inf';
  if (!Number.isInteger(edge)) return String(edge);
  return edge < 1e6 ? `${edge}.0` : edge.toExponential().replace(/e\+(\d)$/, 'e+0$1');
}
