/** What is done with a finished run: the table or JSON on stdout, the file of --save-result, and the exit code. */
import { accessSync, constants, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { CliError, EXIT, type ExitCode, printJson, type VerbInput } from '../../verb.js';
import type { BenchServer } from './backends/backend.js';
import type { LoadResult } from './load.js';
import { computeMetrics, type Metrics } from './metrics.js';
import { profileText, reportText } from './report.js';
import { type RunFacts, resultArrays, resultDetails, resultFileName, resultSummary } from './result.js';
import type { Settings } from './settings.js';

export interface Outcome {
  readonly input: VerbInput;
  readonly settings: Settings;
  readonly server: BenchServer;
  readonly result: LoadResult;
  readonly profile: unknown;
  readonly folder: string | null;
  readonly interrupted: boolean;
}

/** Where the result goes, made before the run so that none is lost; null when it is not kept. */
export function resultFolder(input: VerbInput): string | null {
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

/** Prints and keeps the result; the exit code of the command. */
export function report(outcome: Outcome): ExitCode {
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
