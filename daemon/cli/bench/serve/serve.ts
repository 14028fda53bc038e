/**
 * `inferd bench serve`: the online benchmark, with the arguments, datasets, metrics and result file of ATOM's and vLLM's, against inferd over
 * WebSocket and HTTP and against any OpenAI-like server.
 *
 *   dataset -> requests ─┐
 *   arrivals ────────────┴-> load -> backend -> samples -> metrics -> table, JSON, file
 *
 * Runs on the main thread of the client's process, which should have a core of its own.
 */
import { explain, rpcCode } from '../../failure.js';
import { CliError, EXIT, type ExitCode, type Verb, type VerbInput } from '../../verb.js';
import { arrivalTimes } from './arrivals.js';
import type { BenchServer } from './backends/backend.js';
import { HttpError } from './backends/http-call.js';
import { asTexts } from './datasets/text-prompts.js';
import { drawLive } from './live-line.js';
import { type LoadCounts, type LoadResult, runLoad, tryOut } from './load.js';
import { serveOptions } from './options.js';
import { report, resultFolder } from './outcome.js';
import { Random } from './random.js';
import { headingText } from './report.js';
import type { BenchRequest } from './request.js';
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
    if (input.flag('profile')) await startProfile(server);
    measuring = true;
    const result = await measure(server, requests, input, settings, cancel.signal);
    const profile = input.flag('profile') ? await stopProfile(server, input) : null;
    return report({ input, settings, server, result, profile, folder, interrupted: cancel.signal.aborted });
  } finally {
    await server?.close();
    process.off('SIGINT', interrupt);
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
  const count = numPrompts + numWarmups;
  const path = input.text('dataset-path') ?? null;
  const make = async (): Promise<readonly BenchRequest[]> => {
    const made = await dataset.make({
      count,
      random: new Random(seed, streams.dataset),
      vocabSize,
      tokenizer,
      path,
      options: datasetOptions,
    });
    return backend.takesIds ? made : asTexts(made, { tokenizer, random: new Random(seed, streams.texts), vocabSize });
  };
  const all = await make().catch((error: unknown) => {
    if (error instanceof CliError) throw error;
    throw new CliError(`The server counts no tokens any more (${sentence(error)}), so the prompts cannot be made`, EXIT.unavailable, error);
  });
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
  return new CliError(`The request that tries the server out failed: ${sentence(error)}; nothing was measured`, trialExit(error), error);
}

const sentence = (error: unknown): string =>
  error instanceof Error && error.message !== '' ? error.message.replace(/\.$/, '') : String(error);

/** Ours to mend, or the server's. */
function trialExit(error: unknown): ExitCode {
  const known = rpcCode(error) === null ? null : explain(error);
  if (known instanceof CliError) return known.exitCode;
  const ours = error instanceof HttpError && error.status < 500 && ![401, 403, 408, 429].includes(error.status);
  return ours ? EXIT.usage : EXIT.unavailable;
}

async function startProfile(server: BenchServer): Promise<void> {
  try {
    await server.startProfile();
  } catch (error) {
    throw new CliError(`The server records no profile (${sentence(error)}); leave --profile away`, EXIT.unavailable, error);
  }
}

/** The figures are there by now, so that a profile that is lost is only told. */
async function stopProfile(server: BenchServer, { io }: VerbInput): Promise<unknown> {
  try {
    return await server.stopProfile();
  } catch (error) {
    io.stderr.write(`inferd: the profile is lost: ${sentence(error)}\n`);
    return null;
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
