/**
 * `inferd bench forward`: time of one prefill and of one decode step for batches of equal sequences, driven straight through the native
 * engine, with achieved TFLOP/s and GB/s and their share of what the machine's units and memory reach in the same run. Medians over
 * rounds. Each round on a CPU measures its own limits; those of a GPU, which nobody shares, are measured once a shape. Runs on the main
 * thread, which it blocks.
 */
import { existsSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { isGguf } from '../../../config/gguf/files.js';
import { resolveModelFolder } from '../../../config/models/model-folder.js';
import { deviceKinds } from '../../../native/device-kinds.js';
import { type BackendName, type EngineOptions, loadAddon, type NativeModelInfo, quantizations } from '../../../native/index.js';
import { RankEngines } from '../../../native/rank-engines.js';
import { bestBackend, recordedSteps } from '../../life/topology.js';
import { builtEngine } from '../build.js';
import { effectiveConfig } from '../effective.js';
import { formatBytes, table } from '../table.js';
import { CliError, configOptions, EXIT, type ExitCode, jsonOption, printJson, type Verb, type VerbInput } from '../verb.js';
import { withDummyAdapter } from './adapter.js';
import { backendChoice, backendNamed } from './device.js';
import { arithmeticLimits, deviceLimits, giga, median, percent, readLimit, type Setup } from './limits.js';
import { explainingNative } from './native-failure.js';
import { type BatchShape, blocksOf } from './plans.js';
import { StepTimer } from './steps.js';
import { type ExpertSummary, readSizes, type Sizes, workOf } from './work.js';

const blockSize = 16;
const loadBytes = 256 * 2 ** 20;
/** Rounds, decode steps of one, and of these the first ones that only warm up, where nothing else is asked for. */
const usualOf = (backend: BackendName) => (deviceKinds[backend].onHost ? { steps: 8, warmup: 0 } : { steps: 64, warmup: 6 });
/** Tokens of a prefill step on a GPU; a CPU takes a whole batch in one. */
const deviceChunk = 16_384;

export const benchForward: Verb = {
  name: 'forward',
  summary: 'time one prefill and one decode step of a model',
  details:
    'MODEL is a name as in inference.model_name or a folder; the configured model when not given. A folder with only config.json does with ' +
    '--load-dummy. Shares are of the read bandwidth and of the arithmetic peak (on a GPU: the best matrix product) measured in the same run.',
  args: [{ name: '[model]', doc: 'model name or folder' }],
  options: [
    { flags: '--shape <BxL>', doc: 'batch and prompt length, such as 4x512; may be repeated; 1x512 when not given', kind: 'list' },
    { flags: '--device <name>', doc: `${backendChoice}; inference.device when not given`, kind: 'text' },
    { flags: '--repeat <n>', doc: 'rounds; 5 when not given', kind: 'int', range: [1, 1000] },
    { flags: '--steps <n>', doc: 'decode steps a round; 8 on a CPU and 64 on a GPU when not given', kind: 'int', range: [1, 1000] },
    {
      flags: '--chunk <n>',
      doc: `tokens of a prefill step; when not given the whole batch, on a GPU at most ${deviceChunk}`,
      kind: 'int',
      range: [1, 2 ** 20],
    },
    { flags: '--eager', doc: 'no CUDA graphs' },
    { flags: '--threads <n>', doc: 'compute threads; inference.threads when not given', kind: 'int', range: [1, 1024] },
    { flags: '--tp <n>', doc: 'ranks that compute the model together; 1 when not given', kind: 'int', range: [1, 8] },
    { flags: '--ep', doc: 'the ranks of --tp share experts out whole, in place of a part of each' },
    {
      flags: '--tp-shape <n>',
      doc: 'times what one of n ranks computes, alone on this device and without their sums; its answers mean nothing',
      kind: 'int',
      range: [2, 8],
    },
    { flags: '--quantization <q>', doc: `${quantizations.join(', ')}; inference.quantization when not given`, kind: 'text' },
    {
      flags: '--lora <n>',
      doc: 'sequences use n made-up adapters on all linear layers by turns; 0: room for one that none uses',
      kind: 'int',
      range: [0, 256],
    },
    { flags: '--lora-rank <n>', doc: 'their rank; 16 when not given', kind: 'int', range: [1, 512] },
    { flags: '--isa <name>', doc: 'kernel set of the CPU backend; the best one when not given', kind: 'text' },
    { flags: '--load-dummy', doc: 'random weights in the shape of config.json' },
    ...configOptions,
    jsonOption,
  ],
  examples: [
    'inferd bench forward',
    'inferd bench forward ./llama-3.2-1b --load-dummy --quantization int8 --shape 1x512 --shape 8x128',
    'inferd bench forward ./llama-3-8b --load-dummy --device cuda --shape 1x128 --shape 16x1024',
  ],
  async run(input) {
    await builtEngine(input.io);
    return explainingNative(() => bench(input));
  },
};

interface Figure {
  readonly ms: number;
  /** By the engine's own clock: what the device was busy. */
  readonly exec_ms: number;
  readonly tokens_per_s: number;
  /** Operations a second, and their share of the peak of the instructions that the weights use. */
  readonly flops: number;
  readonly of_peak: number | null;
  /** Bytes a second of weights and cache. */
  readonly bytes: number;
  readonly of_read: number | null;
}

interface Measured {
  readonly timer: StepTimer;
  readonly info: NativeModelInfo;
  readonly options: EngineOptions;
  readonly sizes: Sizes;
  readonly rounds: number;
  readonly warmup: number;
}

/** Operations and bytes a second; `flops` of f32 multiply-adds on a CPU and of a 16-bit matrix product on a GPU. */
interface RoundLimits {
  readonly read: number;
  readonly flops: number;
  readonly dot: number | null;
}

interface ShapeReport {
  readonly batch: number;
  readonly length: number;
  readonly prefill: Figure;
  readonly decode: Figure;
  /** Of the last decode step of a round; null of a model without experts. */
  readonly experts: Pick<ExpertSummary, 'layers' | 'experts' | 'chosen' | 'distinct'> | null;
  readonly limits: {
    readonly read_bytes: number;
    readonly fma_flops: number | null;
    readonly dot_ops: number | null;
    readonly gemm_flops: number | null;
  };
}

function bench(input: VerbInput): ExitCode {
  const backend = deviceOf(input);
  const { warmup } = usualOf(backend);
  const shapes = parseShapes(input, (input.number('steps') ?? usualOf(backend).steps) + warmup);
  const { options, sizes } = engineSetup(input, backend, shapes);
  const started = performance.now();
  const ranks = input.number('tp') ?? 1;
  if (input.flag('ep') && ranks === 1) throw new CliError('--ep shares experts out over ranks; give --tp 2, 4 or 8 too', EXIT.usage);
  if (ranks > 1 && options.worldSize > 1) throw new CliError('--tp and --tp-shape do not go together', EXIT.usage);
  const engine = ranks === 1 ? loadAddon().createEngine(options) : new RankEngines(options, ranks);
  const reports: ShapeReport[] = [];
  try {
    while (!engine.load(loadBytes).done);
    engine.allocateKv(Math.max(...shapes.map(blocksOf)));
    const loadMs = performance.now() - started;
    const info = engine.info();
    const timer = new StepTimer(engine, sizes.vocab, options.maxSlots);
    const { adapters } = options;
    if (adapters !== undefined) withDummyAdapter(sizes, adapters.maxRank, (folder) => timer.placeAdapters(folder, adapters.places));
    for (const shape of shapes) {
      const report = measure({ timer, info, options, sizes, rounds: input.number('repeat') ?? 5, warmup }, shape);
      reports.push(report);
      if (shapes.length > 1) input.io.stderr.write(`${progress(report)}\n`);
    }
    print(input, options, { info, loadMs }, reports);
  } finally {
    engine.close();
  }
  return EXIT.ok;
}

const progress = ({ batch, length, prefill, decode }: ShapeReport): string =>
  `${batch}x${length}: prefill ${prefill.ms.toFixed(1)} ms, decode step ${decode.ms.toFixed(3)} ms`;

function deviceOf(input: VerbInput): BackendName {
  const { config } = effectiveConfig(input);
  const asked = input.text('device') ?? config.inference.device;
  return asked === 'auto' ? bestBackend(config) : backendNamed(asked);
}

function parseShapes(input: VerbInput, steps: number): readonly BatchShape[] {
  const texts = input.list('shape');
  return (texts.length > 0 ? texts : ['1x512']).map((text) => {
    const [batch = 0, length = 0] = (/^(\d{1,4})x(\d{1,6})$/.exec(text) ?? []).slice(1).map(Number);
    if (batch < 1 || length < 1)
      throw new CliError(
        `--shape ${JSON.stringify(text.slice(0, 40))} is not allowed; write batch x length, for example 4x512`,
        EXIT.usage,
      );
    return { batch, length, steps, blockSize, adapters: input.number('lora') ?? 0 };
  });
}

function engineSetup(input: VerbInput, backend: BackendName, shapes: readonly BatchShape[]): { options: EngineOptions; sizes: Sizes } {
  const name = input.args[0];
  const { config } = effectiveConfig(input, name === undefined ? [] : [`inference.model_name=${JSON.stringify(name)}`]);
  const { inference } = config;
  const loadDummy = input.flag('load-dummy') || inference.load_dummy;
  // A folder with a config.json and nothing else is enough for random weights.
  const folder = resolve(inference.model_name);
  const bare = loadDummy && existsSync(join(folder, 'config.json'));
  const model = bare
    ? { path: folder, config: JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8')) as Record<string, unknown> }
    : resolveModelFolder(config, input.io.env);
  const asked = input.text('quantization') ?? inference.quantization;
  const quantization = quantizations.find((known) => known === asked);
  if (quantization === undefined)
    throw new CliError(
      `--quantization ${JSON.stringify(asked.slice(0, 40))} is not allowed; expected ${quantizations.join(', ')}`,
      EXIT.usage,
    );
  const lora = input.number('lora');
  const most = Math.max(...shapes.map((s) => s.batch * s.length));
  const chunk = input.number('chunk') ?? (deviceKinds[backend].onHost ? most : deviceChunk);
  return {
    options: {
      modelPath: model.path,
      ...(isGguf(model.path) ? { modelConfig: JSON.stringify(model.config) } : {}),
      backend,
      deviceId: inference.device_ids[0] ?? 0,
      threads: input.number('threads') ?? inference.threads,
      weightDtype: inference.dtype,
      quantization,
      kvDtype: deviceKinds[backend].onHost ? 'bf16' : 'auto',
      blockSize,
      maxSlots: Math.max(...shapes.map((s) => s.batch)),
      // A decode step of the largest batch must fit too.
      maxBatchTokens: Math.max(Math.min(chunk, most), ...shapes.map((s) => s.batch)),
      maxModelLen: Math.max(...shapes.map((s) => s.length + s.steps)) + 1,
      slidingWindow: 0,
      loadDummy,
      rank: 0,
      expertParallel: input.flag('ep'),
      worldSize: input.number('tp-shape') ?? 1,
      alone: input.number('tp-shape') !== undefined,
      allReduce: config.parallel.all_reduce,
      ...(lora === undefined ? {} : { adapters: { places: Math.max(lora, 1), maxRank: input.number('lora-rank') ?? 16 } }),
      isa: input.text('isa') ?? 'auto',
      ...(input.flag('eager') ? { graphSizes: [] } : recordedSteps(config)),
    },
    sizes: readSizes(model.config),
  };
}

/** One round = limits, prefill, limits of reading, decode steps: each figure is divided by what was measured next to it. */
function measure({ timer, info, options, sizes, rounds, warmup }: Measured, shape: BatchShape): ShapeReport {
  const setup: Setup = { isa: options.isa, threads: options.threads };
  const device = options.backend === 'cuda' ? deviceLimits() : null;
  const limits: RoundLimits[] = [];
  const prefills: number[] = [];
  const decodes: number[] = [];
  const exec = { prefill: [] as number[], decode: [] as number[] };
  timer.prefill(shape, options.maxBatchTokens); // pages, tables and threads are in place from here on
  for (let round = 0; round < rounds; round++) {
    const arithmetic = device === null ? arithmeticLimits(setup) : { fmaFlops: device.gemmFlops, dotOps: null };
    const prefill = timer.prefill(shape, options.maxBatchTokens);
    const read = device === null ? readLimit(setup) : device.readBytes;
    const decode = timer.decode(shape, warmup);
    prefills.push(prefill.seconds);
    decodes.push(decode.seconds);
    exec.prefill.push(prefill.execSeconds);
    exec.decode.push(decode.execSeconds);
    limits.push({ read, flops: arithmetic.fmaFlops, dot: arithmetic.dotOps });
  }
  const usesDot = options.quantization !== 'none' && limits.every((l) => l.dot !== null);
  const experts = timer.experts();
  const work = workOf(info, sizes, shape, { warmup, experts, share: options.worldSize });
  const figure = (seconds: readonly number[], execs: readonly number[], tokens: number, flops: number, bytes: number): Figure => {
    const typical = median(seconds);
    const shareOf = (amount: number, limit: (l: RoundLimits) => number): number =>
      median(seconds.map((s, i) => amount / s / limit(limits[i] as RoundLimits))); // one limit a round
    return {
      ms: typical * 1000,
      exec_ms: median(execs) * 1000,
      tokens_per_s: tokens / typical,
      flops: flops / typical,
      of_peak: shareOf(flops, (l) => (usesDot ? (l.dot ?? Number.NaN) : l.flops)),
      bytes: bytes / typical,
      of_read: shareOf(bytes, (l) => l.read),
    };
  };
  const flopsLimit = median(limits.map((l) => l.flops));
  const dots = limits.map((l) => l.dot ?? Number.NaN);
  return {
    batch: shape.batch,
    length: shape.length,
    prefill: figure(prefills, exec.prefill, shape.batch * shape.length, work.prefillFlops, work.weightBytes),
    decode: figure(decodes, exec.decode, shape.batch, work.decodeFlops, work.decodeWeightBytes + work.cacheBytes),
    experts: experts && { layers: experts.layers, experts: experts.experts, chosen: experts.chosen, distinct: experts.distinct },
    limits: {
      read_bytes: median(limits.map((l) => l.read)),
      fma_flops: device === null ? flopsLimit : null,
      dot_ops: dots.every((dot) => !Number.isNaN(dot)) ? median(dots) : null,
      gemm_flops: device === null ? null : flopsLimit,
    },
  };
}

function print(
  input: VerbInput,
  options: EngineOptions,
  { info, loadMs }: { readonly info: NativeModelInfo; readonly loadMs: number },
  reports: readonly ShapeReport[],
): void {
  const { io } = input;
  const { architecture, parameters, dtype, weightBytes, backend } = info;
  if (input.flag('json')) {
    printJson(io, {
      architecture,
      parameters,
      dtype,
      quantization: options.quantization,
      weight_bytes: weightBytes,
      step_bytes: info.stepBytes,
      load_ms: loadMs,
      backend,
      ...(options.adapters === undefined ? {} : { adapters: input.number('lora'), adapter_rank: options.adapters.maxRank }),
      graphs: options.backend === 'cuda' && (options.graphSizes?.length ?? 0) > 0,
      shapes: reports,
    });
    return;
  }
  const kind = options.quantization === 'none' ? dtype : options.quantization;
  const lora = options.adapters === undefined ? '' : `, ${input.number('lora') ?? 0} adapters of rank ${options.adapters.maxRank}`;
  io.stdout.write(
    `${architecture}, ${(parameters / 1e6).toFixed(0)} M parameters in ${formatBytes(weightBytes)}, ${kind}${lora}, ${backend}\n\n`,
  );
  const row = (r: ShapeReport, step: 'prefill' | 'decode'): string[] => {
    const f = r[step];
    const name = `${r.batch}x${r.length}`;
    return [
      name,
      step,
      f.ms.toFixed(f.ms < 20 ? 3 : 1),
      f.tokens_per_s.toFixed(1),
      giga(f.flops),
      percent(f.of_peak),
      giga(f.bytes),
      percent(f.of_read),
    ];
  };
  const heading = ['shape', 'step', 'ms', 'tokens/s', 'GFLOP/s', 'of peak', 'GB/s', 'of read'];
  io.stdout.write(
    table(
      heading,
      reports.flatMap((r) => [row(r, 'prefill'), row(r, 'decode')]),
    ),
  );
  for (const { batch, length, experts } of reports)
    if (experts !== null)
      io.stdout.write(
        `\nexperts at ${batch}x${length}: a decode step read ${experts.distinct.toFixed(1)} of ${experts.experts} in the mean of ${experts.layers} layers, ` +
          `a token goes to ${experts.chosen}\n`,
      );
  for (const { batch, length, limits } of reports)
    io.stdout.write(`\nlimits at ${batch}x${length}: read ${giga(limits.read_bytes)} GB/s, ${arithmeticText(limits)}\n`);
}

const arithmeticText = ({ fma_flops, dot_ops, gemm_flops }: ShapeReport['limits']): string =>
  gemm_flops === null
    ? `f32 multiply-add ${giga(fma_flops)} GFLOP/s, byte dot product ${giga(dot_ops)} GOP/s`
    : `16-bit matrix product ${giga(gemm_flops)} GFLOP/s`;
