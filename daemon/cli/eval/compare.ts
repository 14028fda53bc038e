/**
 * `inferd eval TEXT --compare MODEL`: what a quantized model has lost. Both models read the same windows of a text, in this process, and
 * their distributions are compared at every token: mean Kullback-Leibler divergence from the other one, and how often the likeliest token
 * is the same. The other model is taken as it is stored, whatever is asked of the first. Blocks the main thread.
 */
import { readFileSync, statSync } from 'node:fs';
import { loadVocabulary } from '../../../actors/tokenizer/encode/vocab.js';
import { type ModelFolder, resolveModelFolder } from '../../../config/models/model-folder.js';
import type { Config } from '../../../config/schema.js';
import { explainingNative } from '../bench/native-failure.js';
import { builtEngine } from '../build.js';
import { effectiveConfig } from '../effective.js';
import { formatDuration, table } from '../table.js';
import { CliError, EXIT, type ExitCode, printJson, type VerbInput } from '../verb.js';
import { Divergence, type DivergenceReport } from './divergence.js';
import { WindowLogits } from './window-logits.js';

const usualWindow = 512;
const maxTextBytes = 64 * 2 ** 20;

interface Side {
  readonly config: Config;
  readonly model: ModelFolder;
}

/** @throws CliError, ConfigError */
export async function compare(input: VerbInput, otherName: string): Promise<ExitCode> {
  await builtEngine(input.io);
  const file = input.args[0] ?? '';
  const text = readText(file);
  const name = input.text('model');
  const side = (sets: readonly string[]): Side => {
    const { config } = effectiveConfig(input, sets);
    return { config, model: resolveModelFolder(config, input.io.env) };
  };
  const own = side(name === undefined ? [] : [modelSet(name)]);
  const other = side([modelSet(otherName), 'inference.quantization=none', 'inference.dtype=auto']);
  if (own.model.vocabSize !== other.model.vocabSize)
    throw new CliError(
      `${own.model.name} has ${own.model.vocabSize} tokens and ${other.model.name} ${other.model.vocabSize}; compare models of one vocabulary`,
      EXIT.usage,
    );
  const size = Math.min(input.number('window') ?? usualWindow, own.model.maxModelLen, other.model.maxModelLen);
  const windows = (await textWindows(own.model, text, size)).slice(0, input.number('n'));
  const startedAt = performance.now();
  const report = await explainingNative(() => divergence(input, [own, other], windows, size));
  print(input, file, [own, other], report, performance.now() - startedAt);
  return EXIT.ok;
}

const modelSet = (name: string): string => `inference.model_name=${JSON.stringify(name)}`;

function readText(file: string): string {
  try {
    if (statSync(file).size > maxTextBytes)
      throw new CliError(`${file} is larger than ${maxTextBytes} bytes; take a part of it`, EXIT.badData);
    return readFileSync(file, 'utf8');
  } catch (error) {
    if (error instanceof CliError) throw error;
    throw new CliError(`${file} cannot be read (${(error as NodeJS.ErrnoException).code}); give the path of a text`, EXIT.missing, error);
  }
}

/** The text in windows of `size` tokens, each with what the tokenizer puts in front of a prompt. @throws CliError where it has none */
async function textWindows(model: ModelFolder, text: string, size: number): Promise<readonly Int32Array[]> {
  const vocabulary = await loadVocabulary(model.path, model.vocabSize);
  try {
    const ids = await vocabulary.encode([{ id: null, text: text.toWellFormed() }]);
    const { prefix } = vocabulary;
    const each = size - prefix.length;
    if (each < 2) throw new CliError(`Windows of ${size} tokens are too short; give more with --window`, EXIT.usage);
    const windows: Int32Array[] = [];
    for (let at = 0; at < ids.length; at += each) windows.push(Int32Array.from([...prefix, ...ids.slice(at, at + each)]));
    if (windows.length === 0) throw new CliError('The text is empty; give one of some thousand words', EXIT.badData);
    return windows;
  } finally {
    vocabulary.close();
  }
}

function divergence(input: VerbInput, sides: readonly [Side, Side], windows: readonly Int32Array[], size: number): DivergenceReport {
  const { io } = input;
  const engines: WindowLogits[] = [];
  const load = ({ config, model }: Side): WindowLogits => {
    const engine = new WindowLogits(config, model, size);
    engines.push(engine);
    return engine;
  };
  const sum = new Divergence();
  try {
    const [own, other] = [load(sides[0]), load(sides[1])];
    for (const [i, tokens] of windows.entries()) {
      if (io.stderr.isTTY === true) io.stderr.write(`\r\u001b[Kwindow ${i + 1} of ${windows.length}`);
      // Token by token: the logits of a long window are larger than memory.
      const others = other.run(tokens);
      let position = 0;
      for (const logits of own.run(tokens)) {
        const { value } = others.next();
        if (value !== undefined) sum.add(logits, value, tokens[++position] ?? null);
      }
    }
  } finally {
    for (const engine of engines) engine.close();
    if (io.stderr.isTTY === true) io.stderr.write('\r\u001b[K');
  }
  return sum.report();
}

function print(input: VerbInput, file: string, [own, other]: readonly [Side, Side], report: DivergenceReport, ms: number): void {
  if (input.flag('json')) {
    const named = ({ model: { name, format, path } }: Side) => ({ name, format, path });
    printJson(input.io, { file, seconds: ms / 1000, model: named(own), other: named(other), ...report });
    return;
  }
  const { kl, tokens, same_top: same } = report;
  const figures = [kl.mean, kl.median, kl.p99, kl.max].map((nats) => nats.toExponential(2));
  const row = [`${tokens}`, `${(100 * same).toFixed(2)} %`, ...figures, report.perplexity.toFixed(3), report.other_perplexity.toFixed(3)];
  const head = ['tokens', 'same top', 'KL mean', 'median', '99 %', 'largest', 'perplexity', 'of the other'];
  input.io.stdout.write(table(head, [row]));
  const name = ({ model, config: { inference } }: Side): string =>
    `${model.name} (${model.format}${inference.quantization === 'none' ? '' : ` as ${inference.quantization}`})`;
  input.io.stdout.write(`\n${name(own)} against ${name(other)}, nats a token, in ${formatDuration(ms)}\n`);
}
