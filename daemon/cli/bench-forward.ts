/**
 * `inferd bench forward`: time of one prefill step and of one decode step for batches of equal sequences, driven straight through the
 * native engine, with achieved TFLOP/s and GB/s and, on the CPU, their share of what the machine's units and memory reach in the same
 * moments. Medians over rounds; each round measures its own limits. Runs on the main thread, which it blocks.
 */
import { existsSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { RESULT } from '../../actors/messages/step.js';
import { resolveModelFolder } from '../../config/model-folder.js';
import { type EngineOptions, loadAddon, type NativeEngine, type NativeModelInfo } from '../../native/index.js';
import { arithmeticLimits, giga, median, percent, readLimit, type Setup } from './bench-limits.js';
import { type BatchShape, blocksOf, decodePlan, prefillPlan } from './bench-plan.js';
import { effectiveConfig } from './effective.js';
import { table } from './table.js';
import { CliError, configOptions, EXIT, type ExitCode, jsonOption, printJson, type Verb, type VerbInput } from './verb.js';

const blockSize = 16;
const stepTimeoutMs = 600_000;
const loadBytes = 64 * 2 ** 20;

export const benchForward: Verb = {
  name: 'forward',
  summary: 'time one prefill and one decode step of a model',
  details:
    'MODEL is a name as in inference.model_name or a folder; the configured model when not given. A folder with only config.json does with ' +
    '--load-dummy. On the CPU, shares are of the read bandwidth and the arithmetic peak measured between the steps.',
  args: [{ name: '[model]', doc: 'model name or folder' }],
  options: [
    { flags: '--shape <BxL>', doc: 'batch and prompt length, such as 4x512; may be repeated; 1x512 when not given', kind: 'list' },
    { flags: '--repeat <n>', doc: 'rounds; 5 when not given', kind: 'int', range: [1, 1000] },
    { flags: '--steps <n>', doc: 'decode steps a round; 8 when not given', kind: 'int', range: [1, 1000] },
    { flags: '--threads <n>', doc: 'compute threads; inference.threads when not given', kind: 'int', range: [1, 1024] },
    { flags: '--quantization <q>', doc: 'none, int8 or int4; inference.quantization when not given', kind: 'text' },
    { flags: '--isa <name>', doc: 'kernel set of the CPU backend; the best one when not given', kind: 'text' },
    { flags: '--load-dummy', doc: 'random weights in the shape of config.json' },
    ...configOptions,
    jsonOption,
  ],
  examples: ['inferd bench forward', 'inferd bench forward ./llama-3.2-1b --load-dummy --quantization int8 --shape 1x512 --shape 8x128'],
  run,
};

/** Sizes of config.json that the counts of operations need. */
interface Sizes {
  readonly hidden: number;
  readonly vocab: number;
  readonly layers: number;
  /** Query heads times their size. */
  readonly queries: number;
  readonly tied: boolean;
}

interface Figure {
  readonly ms: number;
  readonly tokens_per_s: number;
  /** Operations a second, and their share of the peak of the instructions that the weights use. */
  readonly flops: number;
  readonly of_peak: number | null;
  /** Bytes a second of weights and cache. */
  readonly bytes: number;
  readonly of_read: number | null;
}

interface Bench {
  readonly engine: NativeEngine;
  readonly options: EngineOptions;
  readonly sizes: Sizes;
  readonly rounds: number;
  /** Slots that the shape before has filled. */
  readonly inUse: number;
}

interface ShapeReport {
  readonly batch: number;
  readonly length: number;
  readonly prefill: Figure;
  readonly decode: Figure;
  readonly limits: { readonly read_bytes: number | null; readonly fma_flops: number | null; readonly dot_ops: number | null };
}

async function run(input: VerbInput): Promise<ExitCode> {
  const shapes = parseShapes(input);
  const { options, sizes } = engineSetup(input, shapes);
  const engine = loadAddon().createEngine(options);
  const reports: ShapeReport[] = [];
  try {
    while (!engine.load(loadBytes).done);
    engine.allocateKv(Math.max(...shapes.map(blocksOf)));
    for (const [i, shape] of shapes.entries())
      reports.push(measure({ engine, options, sizes, rounds: input.number('repeat') ?? 5, inUse: shapes[i - 1]?.batch ?? 0 }, shape));
    print(input, options, engine.info(), reports);
  } finally {
    engine.close();
  }
  return EXIT.ok;
}

function parseShapes(input: VerbInput): readonly BatchShape[] {
  const steps = input.number('steps') ?? 8;
  const texts = input.list('shape');
  return (texts.length > 0 ? texts : ['1x512']).map((text) => {
    const [batch = 0, length = 0] = (/^(\d{1,4})x(\d{1,6})$/.exec(text) ?? []).slice(1).map(Number);
    if (batch < 1 || length < 1)
      throw new CliError(
        `--shape ${JSON.stringify(text.slice(0, 40))} is not allowed; write batch x length, for example 4x512`,
        EXIT.usage,
      );
    return { batch, length, steps, blockSize };
  });
}

function engineSetup(input: VerbInput, shapes: readonly BatchShape[]): { options: EngineOptions; sizes: Sizes } {
  const name = input.args[0];
  const { config } = effectiveConfig(input, name === undefined ? [] : [`inference.model_name=${JSON.stringify(name)}`]);
  const { inference } = config;
  const loadDummy = input.flag('load-dummy') || inference.load_dummy;
  // A folder with a config.json and nothing else is enough for random weights.
  const folder = resolve(inference.model_name);
  const modelPath = loadDummy && existsSync(join(folder, 'config.json')) ? folder : resolveModelFolder(config, input.io.env).path;
  const quantization = input.text('quantization') ?? inference.quantization;
  if (quantization !== 'none' && quantization !== 'int8' && quantization !== 'int4')
    throw new CliError(
      `--quantization ${JSON.stringify(quantization.slice(0, 40))} is not allowed; expected none, int8 or int4`,
      EXIT.usage,
    );
  return {
    options: {
      modelPath,
      backend: inference.device === 'cuda' ? 'cuda' : 'cpu',
      deviceId: inference.device_ids[0] ?? 0,
      threads: input.number('threads') ?? inference.threads,
      weightDtype: inference.dtype,
      quantization,
      kvDtype: 'bf16',
      blockSize,
      maxSlots: Math.max(...shapes.map((s) => s.batch)),
      maxBatchTokens: Math.max(...shapes.map((s) => s.batch * s.length)),
      maxModelLen: Math.max(...shapes.map((s) => s.length + s.steps)) + 1,
      slidingWindow: 0,
      loadDummy,
      rank: 0,
      worldSize: 1,
      isa: input.text('isa') ?? 'auto',
    },
    sizes: readSizes(join(modelPath, 'config.json')),
  };
}

function readSizes(file: string): Sizes {
  const config = JSON.parse(readFileSync(file, 'utf8')) as Record<string, unknown>;
  const count = (name: string): number => Number(config[name] ?? 0);
  const hidden = count('hidden_size');
  const heads = count('num_attention_heads');
  return {
    hidden,
    vocab: count('vocab_size'),
    layers: count('num_hidden_layers'),
    queries: heads * (count('head_dim') || hidden / heads),
    tied: config['tie_word_embeddings'] === true,
  };
}

/** One round = limits, prefill, limits of reading, decode steps: each figure is divided by what was measured next to it. */
function measure({ engine, options, sizes, rounds, inUse }: Bench, shape: BatchShape): ShapeReport {
  const info = engine.info();
  const setup: Setup = { isa: options.isa, threads: options.threads };
  const onCpu = options.backend === 'cpu';
  const limits: { read: number; fma: number; dot: number | null }[] = [];
  const prefills: number[] = [];
  const decodes: number[] = [];
  const result = new Uint8Array(2 ** 20 + shape.batch * 1024);
  timed(engine, prefillPlan(shape, sizes.vocab, inUse), result); // pages, tables and threads are in place from here on
  for (let round = 0; round < rounds; round++) {
    const arithmetic = onCpu ? arithmeticLimits(setup) : { fmaFlops: Number.NaN, dotOps: null };
    prefills.push(timed(engine, prefillPlan(shape, sizes.vocab, shape.batch), result));
    const read = onCpu ? readLimit(setup) : Number.NaN;
    const steps = Array.from({ length: shape.steps }, (_, i) => timed(engine, decodePlan(shape, shape.length + i), result));
    decodes.push(median(steps));
    limits.push({ read, fma: arithmetic.fmaFlops, dot: arithmetic.dotOps });
  }
  const usesDot = options.quantization !== 'none' && limits.every((l) => l.dot !== null);
  const work = workOf(info, sizes, shape);
  const figure = (seconds: readonly number[], tokens: number, flops: number, bytes: number): Figure => {
    const typical = median(seconds);
    const shareOf = (amount: number, limit: (l: (typeof limits)[number]) => number): number | null =>
      onCpu ? median(seconds.map((s, i) => amount / s / limit(limits[i] as (typeof limits)[number]))) : null; // one limit a round
    return {
      ms: typical * 1000,
      tokens_per_s: tokens / typical,
      flops: flops / typical,
      of_peak: shareOf(flops, (l) => (usesDot ? (l.dot ?? Number.NaN) : l.fma)),
      bytes: bytes / typical,
      of_read: shareOf(bytes, (l) => l.read),
    };
  };
  return {
    batch: shape.batch,
    length: shape.length,
    prefill: figure(prefills, shape.batch * shape.length, work.prefillFlops, work.weightBytes),
    decode: figure(decodes, shape.batch, work.decodeFlops, work.weightBytes + work.cacheBytes),
    limits: {
      read_bytes: onCpu ? median(limits.map((l) => l.read)) : null,
      fma_flops: onCpu ? median(limits.map((l) => l.fma)) : null,
      dot_ops: limits.every((l) => l.dot !== null) && onCpu ? median(limits.map((l) => l.dot ?? Number.NaN)) : null,
    },
  };
}

/** Operations and bytes of the two steps: products and attention; norms and samples are left out. */
function workOf(info: NativeModelInfo, sizes: Sizes, shape: BatchShape) {
  const table = sizes.vocab * sizes.hidden;
  const layers = info.parameters - table * (sizes.tied ? 1 : 2);
  const perPosition = 4 * sizes.layers * sizes.queries;
  const context = shape.length + shape.steps / 2;
  const tokens = shape.batch * shape.length;
  return {
    prefillFlops: 2 * layers * tokens + 2 * table * shape.batch + (perPosition * tokens * (shape.length + 1)) / 2,
    decodeFlops: 2 * (layers + table) * shape.batch + perPosition * context * shape.batch,
    // The embedding table is looked up by rows; it is kept in 16 bits, or in 32 when the weights are.
    weightBytes: info.weightBytes - table * (info.dtype === 'f32' ? 4 : 2),
    cacheBytes: (shape.batch * context * info.blockBytes) / blockSize,
  };
}

/** Seconds of one step. @throws CliError when it fails. */
function timed(engine: NativeEngine, plan: Uint8Array, result: Uint8Array): number {
  const start = process.hrtime.bigint();
  engine.submit(plan);
  const bytes = engine.wait(result, stepTimeoutMs);
  const seconds = Number(process.hrtime.bigint() - start) / 1e9;
  const code = new Int32Array(result.buffer, 0, RESULT.headerWords)[RESULT.errorCode];
  if (bytes === 0 || code !== 0) throw new CliError(`A step failed: ${engine.lastError?.() || 'it took too long'}`, EXIT.internal);
  return seconds;
}

function print(input: VerbInput, options: EngineOptions, info: NativeModelInfo, reports: readonly ShapeReport[]): void {
  const { io } = input;
  const { architecture, parameters, dtype, weightBytes, backend } = info;
  if (input.flag('json')) {
    printJson(io, {
      architecture,
      parameters,
      dtype,
      quantization: options.quantization,
      weight_bytes: weightBytes,
      backend,
      shapes: reports,
    });
    return;
  }
  const kind = options.quantization === 'none' ? dtype : options.quantization;
  io.stdout.write(`${architecture}, ${(parameters / 1e6).toFixed(0)} M parameters, ${kind}, ${backend}\n\n`);
  const row = (r: ShapeReport, step: 'prefill' | 'decode'): string[] => {
    const f = r[step];
    const name = `${r.batch}x${r.length}`;
    return [name, step, f.ms.toFixed(1), f.tokens_per_s.toFixed(1), giga(f.flops), percent(f.of_peak), giga(f.bytes), percent(f.of_read)];
  };
  const heading = ['shape', 'step', 'ms', 'tokens/s', 'GFLOP/s', 'of peak', 'GB/s', 'of read'];
  io.stdout.write(
    table(
      heading,
      reports.flatMap((r) => [row(r, 'prefill'), row(r, 'decode')]),
    ),
  );
  for (const { batch, length, limits } of reports)
    io.stdout.write(
      `\nlimits at ${batch}x${length}: read ${giga(limits.read_bytes)} GB/s, f32 multiply-add ${giga(limits.fma_flops)} GFLOP/s, ` +
        `byte dot product ${giga(limits.dot_ops)} GOP/s\n`,
    );
}
