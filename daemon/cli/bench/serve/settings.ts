/** The command line of `inferd bench serve` as checked values. What is wrong is one sentence and exit code 64, before anything is sent. */
import { CliError, EXIT, type VerbInput } from '../../verb.js';
import type { Load, Ramp } from './arrivals.js';
import type { Backend } from './backends/backend.js';
import { backends } from './backends/table.js';
import type { Dataset, DatasetOptions } from './datasets/dataset.js';
import { datasets } from './datasets/table.js';
import { type Goodput, goodputNames, type MetricName, metricNames } from './metrics.js';

/** Which prompts a run has. */
export interface PromptSettings {
  readonly dataset: Dataset;
  readonly datasetOptions: DatasetOptions;
  readonly numPrompts: number;
  readonly numWarmups: number;
  readonly seed: number;
}

export interface Settings extends PromptSettings {
  readonly backend: Backend;
  readonly base: string | null;
  readonly endpoint: string | null;
  readonly headers: Readonly<Record<string, string>>;
  readonly load: Load;
  /** Null: no limit. */
  readonly maxConcurrency: number | null;
  readonly bestOf: number;
  readonly metrics: readonly MetricName[];
  readonly percentiles: readonly number[];
  readonly goodput: Goodput | null;
  readonly metadata: Readonly<Record<string, string>>;
}

const wrong = (sentence: string): CliError => new CliError(sentence, EXIT.usage);
const quoted = (text: string): string => JSON.stringify(text.slice(0, 40));

export const defaults = {
  backend: 'inferd-ws',
  dataset: 'random',
  numPrompts: 1000,
  warmups: 1,
  seed: 0,
  rate: 'inf',
  metrics: 'ttft,tpot,itl',
  percentiles: '99',
  randomInputLen: 1024,
  randomOutputLen: 128,
  randomRangeRatio: 1,
  sonnetInputLen: 550,
  sonnetOutputLen: 150,
  sonnetPrefixLen: 200,
} as const;

/** Prompts that one run may have. */
export const mostPrompts = 2 ** 20;

/** @throws CliError */
export function readSettings(input: VerbInput): Settings {
  const backend = named(backends, '--backend', input.text('backend') ?? defaults.backend);
  return {
    backend,
    base: baseOf(input, backend),
    endpoint: endpointOf(input, backend),
    headers: pairs(input, 'header'),
    ...readPrompts(input),
    load: loadOf(input),
    maxConcurrency: input.number('max-concurrency') ?? null,
    bestOf: input.number('best-of') ?? 1,
    metrics: metricsOf(input),
    percentiles: percentilesOf(input),
    goodput: goodputOf(input),
    metadata: pairs(input, 'metadata'),
  };
}

/** @throws CliError */
export function readPrompts(input: VerbInput): PromptSettings {
  return {
    dataset: named(datasets, '--dataset-name', input.text('dataset-name') ?? defaults.dataset),
    datasetOptions: {
      randomInputLen: input.number('random-input-len') ?? defaults.randomInputLen,
      randomOutputLen: input.number('random-output-len') ?? defaults.randomOutputLen,
      randomRangeRatio: input.number('random-range-ratio') ?? defaults.randomRangeRatio,
      randomPrefixLen: input.number('random-prefix-len') ?? 0,
      sharegptOutputLen: input.number('sharegpt-output-len') ?? null,
      sonnetInputLen: input.number('sonnet-input-len') ?? defaults.sonnetInputLen,
      sonnetOutputLen: input.number('sonnet-output-len') ?? defaults.sonnetOutputLen,
      sonnetPrefixLen: input.number('sonnet-prefix-len') ?? defaults.sonnetPrefixLen,
    },
    numPrompts: input.number('num-prompts') ?? defaults.numPrompts,
    numWarmups: input.number('num-warmups') ?? defaults.warmups,
    seed: input.number('seed') ?? defaults.seed,
  };
}

function named<T extends { readonly name: string }>(table: readonly T[], option: string, name: string): T {
  const found = table.find((entry) => entry.name === name);
  if (found === undefined) throw wrong(`${option} ${quoted(name)} is not known; expected one of ${table.map((e) => e.name).join(', ')}`);
  return found;
}

/** --base-url wins over --host and --port, as in ATOM's. */
function baseOf(input: VerbInput, { port: usual }: Backend): string | null {
  const url = input.text('base-url');
  if (url !== undefined) {
    const schemes = usual === null ? /^(http|ws)s?(\+unix)?:$/ : /^https?:$/;
    if (!URL.canParse(url) || !schemes.test(new URL(url).protocol))
      throw wrong(`--base-url ${quoted(url)} is not an address; write it like http://127.0.0.1:8765`);
    return url.replace(/\/+$/, '');
  }
  const [host, port] = [input.text('host'), input.number('port')];
  if (host === undefined && port === undefined) return null;
  const at = `${host?.includes(':') ? `[${host}]` : (host ?? '127.0.0.1')}:${port ?? usual ?? daemonPort}`;
  const base = `${usual === null ? 'ws' : 'http'}://${at}`;
  if (!URL.canParse(base)) throw wrong(`--host ${quoted(host ?? '')} is not a host`);
  return base;
}

/** server.port when nothing is configured. */
const daemonPort = 8765;

function endpointOf(input: VerbInput, backend: Backend): string | null {
  const endpoint = input.text('endpoint');
  if (endpoint === undefined) return null;
  if (backend.endpoint === null) throw wrong(`--backend ${backend.name} has no --endpoint: it calls methods over WebSocket`);
  const isChat = (path: string): boolean => path.endsWith('chat/completions');
  if (!endpoint.startsWith('/') || !endpoint.endsWith('completions') || isChat(endpoint) !== isChat(backend.endpoint))
    throw wrong(`--endpoint ${quoted(endpoint)} does not fit --backend ${backend.name}; expected a path like ${backend.endpoint}`);
  return endpoint;
}

function loadOf(input: VerbInput): Load {
  const text = input.text('request-rate') ?? defaults.rate;
  const rate = text === 'inf' ? Number.POSITIVE_INFINITY : Number(text);
  if (text.trim() === '' || !(rate > 0))
    throw wrong(`--request-rate ${quoted(text)} is not allowed; expected requests a second above 0, or inf`);
  const burstiness = input.number('burstiness') ?? 1;
  const ramp = rampOf(input);
  if (ramp !== null && text !== 'inf') throw wrong('--ramp-up-strategy sets the rate itself; leave --request-rate away');
  return { rate, burstiness, ramp };
}

function rampOf(input: VerbInput): Ramp | null {
  const [strategy, from, to] = [input.text('ramp-up-strategy'), input.number('ramp-up-start-rps'), input.number('ramp-up-end-rps')];
  if (strategy === undefined && from === undefined && to === undefined) return null;
  if (strategy !== 'linear' && strategy !== 'exponential')
    throw wrong(`--ramp-up-strategy ${quoted(strategy ?? '')} is not allowed; expected linear or exponential`);
  if (from === undefined || to === undefined) throw wrong('--ramp-up-strategy needs --ramp-up-start-rps and --ramp-up-end-rps');
  return { strategy, from, to };
}

function metricsOf(input: VerbInput): readonly MetricName[] {
  const names = (input.text('percentile-metrics') ?? defaults.metrics).split(',').map((name) => name.trim());
  for (const name of names)
    if (!metricNames.some((m) => m === name))
      throw wrong(`--percentile-metrics ${quoted(name)} is not known; expected some of ${metricNames.join(',')}`);
  return metricNames.filter((m) => names.includes(m));
}

function percentilesOf(input: VerbInput): readonly number[] {
  return (input.text('metric-percentiles') ?? defaults.percentiles).split(',').map((text) => {
    const value = Number(text);
    if (text.trim() === '' || !(value >= 0 && value <= 100))
      throw wrong(`--metric-percentiles ${quoted(text)} is not allowed; expected numbers from 0 to 100 with commas between`);
    return value;
  });
}

function goodputOf(input: VerbInput): Goodput | null {
  const given = input.list('goodput');
  if (given.length === 0) return null;
  const limits: Record<string, number> = {};
  for (const text of given) {
    const [, name = '', value = ''] = /^([^:]+):(.+)$/.exec(text) ?? [];
    if (name === '') throw wrong(`--goodput ${quoted(text)} is not allowed; write a metric and its limit in ms, for example ttft:500`);
    if (!goodputNames.some((n) => n === name)) throw wrong(`--goodput ${quoted(name)} is not known; expected ${goodputNames.join(', ')}`);
    if (!(Number(value) >= 0)) throw wrong(`--goodput ${quoted(text)} is not allowed; expected milliseconds from 0 up`);
    limits[name] = Number(value);
  }
  return limits;
}

function pairs(input: VerbInput, option: string): Readonly<Record<string, string>> {
  return Object.fromEntries(
    input.list(option).map((text) => {
      const at = text.indexOf('=');
      if (at < 1) throw wrong(`--${option} ${quoted(text)} is not allowed; write NAME=VALUE`);
      return [text.slice(0, at), text.slice(at + 1)];
    }),
  );
}
