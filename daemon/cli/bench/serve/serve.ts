/**
 * `inferd bench serve`: the online benchmark, with the arguments, datasets, metrics and result file of ATOM's and vLLM's, against inferd over
 * WebSocket and HTTP and against any OpenAI-like server.
 *
 *   dataset -> requests ─┐
 *   arrivals ────────────┴-> load -> backend -> samples -> metrics -> table, JSON, file
 *
 * Runs on the main thread of the client's process, which should have a core of its own.
 */
import { accessSync, constants, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { explain, rpcCode } from '../../failure.js';
import { CliError, EXIT, type ExitCode, printJson, type Verb, type VerbInput } from '../../verb.js';
import { arrivalTimes } from './arrivals.js';
import type { BenchServer } from './backends/backend.js';
import { HttpError } from './backends/http-call.js';
import { asTexts } from './datasets/text-prompts.js';
import { drawLive } from './live-line.js';
import { type LoadCounts, type LoadResult, runLoad, tryOut } from './load.js';
import { computeMetrics, type Metrics } from './metrics.js';
import { serveOptions } from './options.js';
import { Random } from './random.js';
import { headingText, profileText, reportText } from './report.js';
import type { BenchRequest } from './request.js';
import { type RunFacts, resultArrays, resultDetails, resultFileName, resultSummary } from './result.js';
import { readSettings, type Settings } from './settings.js';

export const benchServe: Verb = {
  name: 'serve',
  summary: 'time a server under load: first tokens, tokens a second, goodput',
  details:
    'Against the running daemon over WebSocket when nothing else is said. One request tries the server out first and is not counted. TTFT is ' +
    'the time to the first chunk, E2EL to the last one, TPOT = (E2EL - TTFT) / (output tokens - 1); ITL is the time between two chunks, ' +
    'whatever number of tokens they hold, as vLLM counts it. A key for the server is read from OPENAI_API_KEY.',
  options: serveOptions,
  examples: [
    'inferd bench serve --random-input-len 128 --random-output-len 32 --num-prompts 100 --max-concurrency 16 --ignore-eos',
    'inferd bench serve --backend openai-chat --base-url http://127.0.0.1:8765 --dataset-name sharegpt --request-rate 4',
    'inferd bench serve --backend vllm --port 8000 --goodput ttft:500 tpot:50 --save-result',
  ],
  run: benchServer,
};

/** Independent numbers of the one seed. */
const streams = { dataset: 0, arrivals: 1, texts: 2 } as const;
/** Token ids below this are in the vocabulary of nearly every model that is served. */
const usualVocab = 32_000;

async function benchServer(input: VerbInput): Promise<ExitCode> {
  const settings = readSettings(input);
  const folder = resultFolder(input);
  const cancel = new AbortController();
  let measuring = false;
  const interrupt = (): void => {
    // Before there is a figure to print, and the second time, nothing is waited for.
    if (!measuring || cancel.signal.aborted) process.exit(EXIT.interrupted);
    cancel.abort();
  };
  process.on('SIGINT', interrupt);
  let server: BenchServer | null = null;
  try {
    server = await openServer(input, settings);
    const { requests, warmups } = await makeRequests(input, settings, server);
    if (!input.flag('json')) input.io.stdout.write(`${heading(settings, server, requests)}\n`);
    await warmUp(server, warmups, settings, cancel.signal);
    if (input.flag('profile')) await recording(() => server?.startProfile());
    measuring = true;
    const result = await measure(server, requests, input, settings, cancel.signal);
    const profile = input.flag('profile') ? await recording(() => server?.stopProfile()) : null;
    return report({ input, settings, server, result, profile, folder, interrupted: cancel.signal.aborted });
  } finally {
    await server?.close();
    process.off('SIGINT', interrupt);
  }
}

/** Where the result goes, made before the run so that none is lost; null when it is not kept. */
function resultFolder(input: VerbInput): string | null {
  const wanted = ['save-result', 'save-detailed'].some((name) => input.flag(name)) || input.text('result-filename') !== undefined;
  if (!wanted) return null;
  const folder = input.text('result-dir') ?? '.';
  try {
    mkdirSync(folder, { recursive: true });
    accessSync(folder, constants.W_OK);
    return folder;
  } catch (error) {
    const why = (error as NodeJS.ErrnoException).code ?? 'unknown reason';
    throw new CliError(`Nothing can be written to the folder ${folder} (${why}); check --result-dir`, EXIT.noPermission, error);
  }
}

function openServer(input: VerbInput, settings: Settings): Promise<BenchServer> {
  const { backend, base, endpoint, headers, numPrompts, maxConcurrency, bestOf } = settings;
  const key = input.io.env['OPENAI_API_KEY'];
  return backend.open(
    {
      base,
      endpoint,
      headers,
      apiKey: key === undefined || key === '' ? null : key,
      connections: Math.min(numPrompts, maxConcurrency ?? numPrompts),
    },
    {
      model: input.text('served-model-name') ?? input.text('model') ?? null,
      ignoreEos: input.flag('ignore-eos'),
      bestOf,
      logprobs: input.number('logprobs') ?? null,
    },
    input.io,
  );
}

interface Requests {
  readonly requests: readonly BenchRequest[];
  /** Others than those that are measured, where the dataset has enough: theirs would be in the prefix cache. */
  readonly warmups: readonly BenchRequest[];
}

async function makeRequests(input: VerbInput, settings: Settings, server: BenchServer): Promise<Requests> {
  const { backend, dataset, datasetOptions, numPrompts, numWarmups, seed } = settings;
  const vocabSize = input.number('vocab-size') ?? server.model.vocabSize ?? usualVocab;
  const { tokenizer } = server;
  const made = await dataset.make({
    count: numPrompts + numWarmups,
    random: new Random(seed, streams.dataset),
    vocabSize,
    tokenizer,
    path: input.text('dataset-path') ?? null,
    options: datasetOptions,
  });
  const all = backend.takesIds ? made : await asTexts(made, { tokenizer, random: new Random(seed, streams.texts), vocabSize });
  const requests = all.slice(0, numPrompts);
  if (requests.length < numPrompts)
    input.io.stderr.write(`inferd: the dataset has only ${requests.length} usable prompts of ${numPrompts}\n`);
  const spare = all.length > numPrompts ? all.slice(numPrompts) : requests;
  return { requests, warmups: Array.from({ length: numWarmups }, (_, i) => spare[i % spare.length] as BenchRequest) }; // proof: a dataset is not empty
}

function heading(settings: Settings, server: BenchServer, requests: readonly BenchRequest[]): string {
  return headingText({
    backend: settings.backend.name,
    url: server.url,
    model: server.model.name,
    dataset: settings.dataset.name,
    requests,
    load: settings.load,
    maxConcurrency: settings.maxConcurrency,
    seed: settings.seed,
  });
}

/** One request alone, so that what is wrong with all of them is said once; then the other warm-ups together. @throws CliError */
async function warmUp(
  server: BenchServer,
  warmups: readonly BenchRequest[],
  { maxConcurrency }: Settings,
  signal: AbortSignal,
): Promise<void> {
  const [first, ...others] = warmups;
  if (first === undefined) return;
  try {
    await tryOut(server.generate, first, signal);
  } catch (error) {
    throw trialFailure(error);
  }
  await runLoad(server, {
    requests: others,
    arrivals: new Float64Array(others.length),
    maxConcurrency,
    signal,
    counts: { sent: 0, done: 0, failed: 0, chunks: 0 },
  });
}

function trialFailure(error: unknown): Error {
  const message = error instanceof Error && error.message !== '' ? error.message.replace(/\.$/, '') : String(error);
  return new CliError(`The request that tries the server out failed: ${message}; nothing was measured`, trialExit(error), error);
}

/** Ours to mend, or the server's. */
function trialExit(error: unknown): ExitCode {
  const known = rpcCode(error) === null ? null : explain(error);
  if (known instanceof CliError) return known.exitCode;
  const ours = error instanceof HttpError && error.status < 500 && ![401, 403, 408, 429].includes(error.status);
  return ours ? EXIT.usage : EXIT.unavailable;
}

async function recording<T>(act: () => Promise<T> | undefined): Promise<T | undefined> {
  try {
    return await act();
  } catch (error) {
    throw new CliError(
      `The server records no profile (${(error as Error).message.replace(/\.$/, '')}); leave --profile away`,
      EXIT.unavailable,
      error,
    );
  }
}

async function measure(
  server: BenchServer,
  requests: readonly BenchRequest[],
  input: VerbInput,
  { load, seed, maxConcurrency }: Settings,
  signal: AbortSignal,
): Promise<LoadResult> {
  const counts: LoadCounts = { sent: 0, done: 0, failed: 0, chunks: 0 };
  const arrivals = arrivalTimes(requests.length, load, new Random(seed, streams.arrivals));
  const wipe = input.flag('disable-tqdm') ? () => undefined : drawLive(input.io, counts, requests.length);
  try {
    return await runLoad(server, { requests, arrivals, maxConcurrency, signal, counts });
  } finally {
    wipe();
  }
}

interface Outcome {
  readonly input: VerbInput;
  readonly settings: Settings;
  readonly server: BenchServer;
  readonly result: LoadResult;
  readonly profile: unknown;
  readonly folder: string | null;
  readonly interrupted: boolean;
}

function report(outcome: Outcome): ExitCode {
  const { input, settings, result, profile, interrupted } = outcome;
  const { io } = input;
  const { samples, startMs } = result;
  const metrics = computeMetrics(samples, result.durationS, settings);
  const facts = factsOf(outcome);
  const summary = { ...resultSummary(facts, metrics), ...rampKeys(settings) };
  const detailed = input.flag('save-detailed');
  const arrays = { ...resultArrays(samples), ...(detailed ? resultDetails(samples, startMs) : {}) };
  const file = save(outcome, facts, { ...summary, ...arrays });
  if (input.flag('json'))
    printJson(io, { ...summary, ...(detailed ? arrays : {}), ...extras(outcome, metrics), ...(file === null ? {} : { file }) });
  else {
    if (interrupted) io.stdout.write(`interrupted; of ${metrics.completed + metrics.failed} requests that ended before:\n`);
    io.stdout.write(reportText(metrics, settings.metrics, settings.percentiles));
    if (profile !== null) io.stdout.write(`\n${profileText(profile)}`);
    if (file !== null) io.stdout.write(`\nresult    ${file}\n`);
  }
  if (interrupted) return EXIT.interrupted;
  const failure = samples.find((s) => s.error !== null);
  if (failure === undefined) return EXIT.ok;
  io.stderr.write(`inferd: ${metrics.failed} of ${samples.length} requests failed; the first: ${failure.error}\n`);
  return EXIT.unavailable;
}

function factsOf({ input, settings, server }: Outcome): RunFacts {
  const model = input.text('model') ?? server.model.name;
  return {
    date: new Date(),
    backend: settings.backend.name,
    model,
    tokenizer: input.text('tokenizer') ?? model,
    bestOf: settings.bestOf,
    numPrompts: settings.numPrompts,
    metadata: settings.metadata,
    requestRate: settings.load.rate,
    burstiness: settings.load.burstiness,
    maxConcurrency: settings.maxConcurrency,
    metrics: settings.metrics,
    percentiles: settings.percentiles,
  };
}

/** As vLLM's newer files have them; only where a ramp was asked for. */
function rampKeys({ load: { ramp } }: Settings): object {
  return ramp === null ? {} : { ramp_up_strategy: ramp.strategy, ramp_up_start_rps: ramp.from, ramp_up_end_rps: ramp.to };
}

/** What --json tells beside the keys of the file. */
function extras({ settings, server, profile, interrupted }: Outcome, { failed, concurrency, chunks }: Metrics): object {
  return {
    ...{ url: server.url, dataset: settings.dataset.name, seed: settings.seed },
    ...{ failed, concurrency, chunks, interrupted },
    ...(profile === null ? {} : { profile }),
  };
}

function save({ input, folder }: Outcome, facts: RunFacts, result: object): string | null {
  if (folder === null) return null;
  const file = join(folder, input.text('result-filename') ?? resultFileName(facts));
  try {
    writeFileSync(file, JSON.stringify(result));
    return file;
  } catch (error) {
    const why = (error as NodeJS.ErrnoException).code ?? 'unknown reason';
    input.io.stderr.write(`inferd: the result could not be written to ${file} (${why})\n`);
    return null;
  }
}
