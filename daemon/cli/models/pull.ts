/** `inferd pull`: a model from Hugging Face into its cache, with a bar on a terminal, lines elsewhere, and a JSON line an event for programs. */
import { hubCachePath } from '../../../config/paths.js';
import { PullError, type PullReason } from '../../hub/error.js';
import type { PullEvent } from '../../hub/progress.js';
import { pullModel } from '../../hub/pull.js';
import { parseSpec } from '../../hub/repository/spec.js';
import { hubEndpoint } from '../../hub/web/endpoint.js';
import { effectiveConfig } from '../effective.js';
import { formatBytes } from '../table.js';
import { CliError, configOptions, EXIT, type ExitCode, jsonOption, type Verb, type VerbInput } from '../verb.js';
import { type PullView, pullView } from './pull-view.js';

export const pull: Verb = {
  name: 'pull',
  summary: 'download a model from Hugging Face',
  details:
    'What serving needs, into the Hugging Face cache, where its own tools find it too; :QUANT takes the GGUF file of that quantization. ' +
    'A download that was stopped goes on where it was. HF_HOME, HF_HUB_CACHE, HF_ENDPOINT and HF_TOKEN count.',
  args: [{ name: '<model>', doc: 'HF_ID[@REVISION][:QUANT], such as Qwen/Qwen2.5-0.5B-Instruct' }],
  options: [
    { flags: '--include <pattern>', doc: 'take these files instead, such as "*.json"; may be repeated', kind: 'list' },
    { flags: '--exclude <pattern>', doc: 'leave these files out; may be repeated', kind: 'list' },
    ...configOptions,
    jsonOption,
  ],
  examples: ['inferd pull Qwen/Qwen2.5-0.5B-Instruct', 'inferd pull Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q4_K_M'],
  run,
};

/** The model that inferd brings along. */
const embedded = 'demo';

/** Exit codes of pull and rm. */
const exits: Readonly<Record<PullReason, ExitCode>> = {
  usage: EXIT.usage,
  not_found: EXIT.missing,
  refused: EXIT.noPermission,
  bad_data: EXIT.badData,
  network: EXIT.unavailable,
  no_space: EXIT.unavailable,
  cache: EXIT.noPermission,
  in_use: EXIT.unavailable,
  cancelled: EXIT.interrupted,
};

/** Runs what may throw a PullError, until it ends or the user stops it. */
export async function untilStopped<T>(work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const stop = new AbortController();
  const onSignal = (): void => stop.abort();
  const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
  for (const name of signals) process.on(name, onSignal);
  try {
    return await work(stop.signal);
  } catch (error) {
    if (error instanceof PullError) throw new CliError(error.message, exits[error.reason], error);
    throw error;
  } finally {
    for (const name of signals) process.off(name, onSignal);
  }
}

async function run(input: VerbInput): Promise<ExitCode> {
  const { io } = input;
  const json = input.flag('json');
  const { config } = effectiveConfig(input);
  if (input.args[0] === embedded) throw new CliError('"demo" is part of inferd and needs no download', EXIT.usage);
  const line = (event: object): void => void io.stdout.write(`${JSON.stringify(event)}\n`);
  const view: PullView = json ? { event: (event) => line(jsonEvent(event)), end: () => undefined } : pullView(io);
  const pulled = await untilStopped((signal) =>
    pullModel({
      ...parseSpec(input.args[0] ?? ''),
      include: input.list('include'),
      exclude: input.list('exclude'),
      cache: hubCachePath(config.inference.cache_dir, io.env),
      endpoint: hubEndpoint(config.inference.api_key, io.env),
      limits: config.hub,
      signal,
      onEvent: (event) => view.event(event),
    }),
  ).finally(() => view.end());
  if (json) line({ event: 'done', path: pulled.path, revision: pulled.commit, files: pulled.numFiles, bytes: pulled.bytes });
  else
    io.stdout.write(
      `${pulled.id} is here: ${pulled.numFiles} files, ${formatBytes(pulled.bytes)}, commit ${pulled.commit.slice(0, 12)}\n${pulled.path}\n`,
    );
  return EXIT.ok;
}

/** An event in the words of the command line. */
function jsonEvent(event: PullEvent): object {
  switch (event.kind) {
    case 'progress':
      return {
        event: 'progress',
        file: event.file,
        bytes: event.bytes,
        total: event.total,
        all_bytes: event.allBytes,
        all_total: event.allTotal,
      };
    case 'plan':
      return { event: 'plan', revision: event.commit, files: event.numFiles, bytes: event.bytes };
    case 'retry':
      return { event: 'retry', message: event.message, wait_ms: Math.round(event.waitMs) };
    case 'rotten':
      return { event: 'rotten', file: event.file, message: event.message };
    case 'waiting':
      return { event: 'waiting', pid: event.pid };
    default:
      return event satisfies never;
  }
}
