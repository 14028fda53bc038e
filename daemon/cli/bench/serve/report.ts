/** The figures of a run for people. Pure. */
import { table } from '../../table.js';
import type { Load } from './arrivals.js';
import type { MetricName, Metrics } from './metrics.js';
import type { BenchRequest } from './request.js';

export interface Heading {
  readonly backend: string;
  readonly url: string;
  readonly model: string;
  readonly dataset: string;
  readonly requests: readonly BenchRequest[];
  readonly load: Load;
  readonly maxConcurrency: number | null;
  readonly seed: number;
}

/** What is measured; printed before, so that nobody waits for the wrong thing. */
export function headingText({ backend, url, model, dataset, requests, load, maxConcurrency, seed }: Heading): string {
  const mean = (of: (r: BenchRequest) => number): number => Math.round(requests.reduce((sum, r) => sum + of(r), 0) / requests.length);
  const lengths = `${mean((r) => r.inputLen)} tokens in and at most ${mean((r) => r.outputLen)} out on average`;
  const limit = maxConcurrency === null ? '' : `, at most ${maxConcurrency} in flight`;
  return `${backend} at ${url}, model ${model}\n${dataset}: ${requests.length} prompts, ${lengths}, seed ${seed}; ${loadText(load)}${limit}\n`;
}

function loadText({ rate, burstiness, ramp }: Load): string {
  const arrivals = burstiness === 1 ? 'Poisson' : `burstiness ${burstiness}`;
  if (ramp !== null) return `${ramp.from} to ${ramp.to} requests a second, ${ramp.strategy} (${arrivals})`;
  return rate === Number.POSITIVE_INFINITY ? 'all at once' : `${rate} requests a second (${arrivals})`;
}

const titles: Readonly<Record<MetricName, string>> = { ttft: 'TTFT', tpot: 'TPOT', itl: 'ITL', e2el: 'E2EL' };

export function reportText(m: Metrics, metrics: readonly MetricName[], percentiles: readonly number[]): string {
  const failed = m.failed > 0 ? `, ${m.failed} failed` : '';
  const perChunk = m.chunks > 0 ? `, ${(m.totalOutput / m.chunks).toFixed(2)} a chunk` : '';
  const lines = [
    `requests  ${m.completed} answered${failed} in ${m.durationS.toFixed(2)} s, ${m.requestThroughput.toFixed(2)} a second, ${m.concurrency.toFixed(1)} in flight on average`,
    ...(m.goodput === null ? [] : [`goodput   ${m.goodput.toFixed(2)} a second within the limits`]),
    `tokens    ${m.totalInput} in, ${m.totalOutput} out${perChunk}; ${m.outputThroughput.toFixed(1)} a second out, ${m.totalThroughput.toFixed(1)} in and out`,
  ];
  const ms = (value: number): string => value.toFixed(2);
  const rows = metrics.map((name) => {
    const { mean, median, std, percentiles: values } = m.spreads[name];
    return [titles[name], ...[mean, median, std, ...values].map(ms)];
  });
  const heading = ['ms', 'mean', 'median', 'std', ...percentiles.map((p) => `p${p}`)];
  return `${lines.join('\n')}\n\n${table(heading, rows)}${itlNote(m, metrics)}`;
}

/** Servers that put several tokens into a chunk have a larger ITL than TPOT; only the latter compares. */
function itlNote({ spreads: { itl, tpot } }: Metrics, metrics: readonly MetricName[]): string {
  if (!metrics.includes('itl') || tpot.mean === 0) return '';
  const ratio = (itl.mean / tpot.mean).toFixed(2);
  return `\nITL is the time between two chunks, however many tokens they hold (ITL/TPOT ${ratio}); to compare servers, compare TPOT.\n`;
}

/** What inferd says of a recording; other servers say nothing. */
export function profileText(profile: unknown): string {
  const { files, summary } = (profile ?? {}) as { files?: unknown; summary?: unknown };
  if (!Array.isArray(files)) return 'profile   recorded; the server says where\n';
  const [rank] = Array.isArray(summary) ? (summary as { idle_share?: number | null }[]) : [];
  const idle = typeof rank?.idle_share === 'number' ? `; the device was idle for ${(100 * rank.idle_share).toFixed(1)} % of decoding` : '';
  return `profile   ${files.join(', ')}${idle}\n`;
}
