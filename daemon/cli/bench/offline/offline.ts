/**
 * `inferd bench offline`: the offline benchmark, with the arguments and keys of vLLM's `benchmark_throughput` and the datasets of `bench serve`:
 * all prompts at once to an engine in this process, without a server between.
 *
 *   dataset -> prompts -> createEngine().generate -> usage -> table, JSON
 */
import type { LoadedConfig } from '../../../../config/load.js';
import { resolveModelFolder } from '../../../../config/models/model-folder.js';
import type { Engine } from '../../../library/engine.js';
import { builtEngine } from '../../build.js';
import { effectiveConfig, printWarnings } from '../../effective.js';
import { explain } from '../../failure.js';
import { progressBar } from '../../progress.js';
import { CliError, configOptions, EXIT, type ExitCode, jsonOption, printJson, type Verb, type VerbInput } from '../../verb.js';
import { drawLive } from '../serve/live-line.js';
import { promptOptions } from '../serve/options.js';
import { Random } from '../serve/random.js';
import type { BenchRequest } from '../serve/request.js';
import { type PromptSettings, readPrompts } from '../serve/settings.js';
import { type OfflineRun, resultJson, resultText } from './result.js';

export const benchOffline: Verb = {
  name: 'offline',
  summary: 'time all prompts of a dataset at once, without a server',
  details:
    'Starts an engine in this process and gives it all prompts; answers go on to their full length. Loading and the prompts that warm up are ' +
    'not counted. --input-len and --output-len are those of the random dataset.',
  options: [
    { flags: '--model <name>', doc: 'as inference.model_name; the configured model when not given', kind: 'text' },
    { flags: '--input-len <n>', doc: 'same as --random-input-len', kind: 'int', range: [1, 2 ** 24] },
    { flags: '--output-len <n>', doc: 'same as --random-output-len', kind: 'int', range: [1, 2 ** 24] },
    ...promptOptions,
    { flags: '--n <n>', doc: 'answers to each prompt; 1 when not given', kind: 'int', range: [1, 64] },
    { flags: '--temperature <t>', doc: 'randomness; 0, the default here, always takes the best token', kind: 'float', range: [0, 2] },
    { flags: '--profile', doc: 'record a profile meanwhile' },
    { flags: '--disable-tqdm', doc: 'no progress line' },
    ...configOptions,
    jsonOption,
  ],
  examples: [
    'inferd bench offline --input-len 128 --output-len 32 --num-prompts 100',
    'inferd bench offline --model ./llama-3-8b --dataset-name sharegpt --num-prompts 500 --json',
    'inferd bench offline --set inference.device=cuda --set inference.load_dummy=true --model ./llama-3-8b',
  ],
  run: benchEngine,
};

/** Independent numbers of the one seed, the same as those of `bench serve`: the same prompts. */
const datasetStream = 0;

async function benchEngine(input: VerbInput): Promise<ExitCode> {
  const settings = withLengths(readPrompts(input), input);
  const cancel = new AbortController();
  const interrupt = (): void => {
    if (cancel.signal.aborted) process.exit(EXIT.interrupted);
    cancel.abort();
  };
  process.on('SIGINT', interrupt);
  let engine: Engine | null = null;
  try {
    engine = await startEngine(input, cancel.signal);
    const run = await measure(engine, input, settings, cancel.signal);
    if (input.flag('json')) printJson(input.io, resultJson(run));
    else input.io.stdout.write(resultText(run));
    return EXIT.ok;
  } catch (error) {
    if (cancel.signal.aborted) return EXIT.interrupted;
    throw explain(error);
  } finally {
    await engine?.close();
    process.off('SIGINT', interrupt);
  }
}

/** vLLM's names of the lengths. */
function withLengths(settings: PromptSettings, input: VerbInput): PromptSettings {
  const { datasetOptions: options } = settings;
  const randomInputLen = input.number('input-len') ?? options.randomInputLen;
  const randomOutputLen = input.number('output-len') ?? options.randomOutputLen;
  return { ...settings, datasetOptions: { ...options, randomInputLen, randomOutputLen } };
}

async function startEngine(input: VerbInput, signal: AbortSignal): Promise<Engine> {
  const { openEngine, libraryDefaults } = await import('../../../library/create-engine.js');
  const name = input.text('model');
  const sets = name === undefined ? [] : [`inference.model_name=${JSON.stringify(name)}`];
  const loaded: LoadedConfig = effectiveConfig(input, sets, libraryDefaults);
  const model = resolveModelFolder(loaded.config, input.io.env);
  printWarnings(input, loaded);
  await builtEngine(input.io);
  const bar = progressBar(input.io);
  const { config } = loaded;
  return openEngine({ config, model, env: input.io.env, onProgress: (progress) => bar.update(progress), signal }).finally(() => bar.end());
}

async function measure(engine: Engine, input: VerbInput, settings: PromptSettings, signal: AbortSignal): Promise<OfflineRun> {
  const { numPrompts, numWarmups, dataset, seed } = settings;
  const made = await makePrompts(engine, input, settings);
  const requests = made.slice(0, numPrompts);
  if (requests.length < numPrompts)
    input.io.stderr.write(`inferd: the dataset has only ${requests.length} usable prompts of ${numPrompts}\n`);
  const warmups = made.slice(numPrompts);
  const ask = (of: readonly BenchRequest[], onAnswer: () => void) =>
    engine.generate(
      of.map(({ prompt }) => prompt),
      of.map(({ outputLen }) => ({
        max_tokens: outputLen,
        temperature: input.number('temperature') ?? 0,
        ignore_eos: true,
        n: input.number('n') ?? 1,
      })),
      { signal, onAnswer },
    );
  await ask(warmups.length > 0 ? warmups : requests.slice(0, numWarmups), () => undefined);
  if (input.flag('profile')) await engine.profile.start();
  const counts = { sent: requests.length, done: 0, failed: 0, chunks: 0 };
  const wipe = input.flag('disable-tqdm') ? () => undefined : drawLive(input.io, counts, requests.length);
  try {
    const startMs = performance.now();
    const answers = await ask(requests, () => {
      counts.done++;
      counts.chunks++;
    });
    const elapsedS = (performance.now() - startMs) / 1000;
    wipe();
    const profile = input.flag('profile') ? await engine.profile.stop() : null;
    const usages = answers.map(({ usage }) => usage);
    return { model: engine.model.id, dataset: dataset.name, seed, elapsedS, usages, profile };
  } finally {
    wipe();
  }
}

async function makePrompts(engine: Engine, input: VerbInput, settings: PromptSettings): Promise<readonly BenchRequest[]> {
  const { dataset, datasetOptions, numPrompts, numWarmups, seed } = settings;
  const { client } = engine;
  const made = await dataset.make({
    count: numPrompts + numWarmups,
    random: new Random(seed, datasetStream),
    vocabSize: input.number('vocab-size') ?? engine.model.vocab_size,
    tokenizer: {
      encode: async (text) => (await client.call('tokenize', { text, add_special_tokens: false })).ids,
      decode: async (ids) => (await client.call('detokenize', { ids, skip_special_tokens: false })).text,
    },
    path: input.text('dataset-path') ?? null,
    options: datasetOptions,
  });
  if (made.length === 0) throw new CliError('The dataset has no usable prompt; check --dataset-path', EXIT.badData);
  return made;
}
