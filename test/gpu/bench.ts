/**
 * Steps of a Llama-3-8B shape with random weights on CUDA, driven through the native engine: prefill of whole prompts in chunks of
 * `maxBatchTokens`, and decode steps with two in flight. Beside them the card's own limits, measured in the same run. Prints one line
 * a measurement and a table last.
 *
 *   node dist/test/gpu/bench.js [eager] [decode | prefill] [1x128 ...]    all shapes when none is named
 */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { loadAddon, type NativeEngine, packageRoot } from '../../native/index.js';
import { answer, engineOptions, fixture } from '../helpers/native-engine.js';
import { buildPlan } from '../helpers/plan.js';

interface Shape {
  readonly batch: number;
  readonly length: number;
  /** Milliseconds that must hold. */
  readonly gate: number;
}

const prefills: readonly Shape[] = [
  { batch: 128, length: 128, gate: 350 },
  { batch: 16, length: 1024, gate: 356 },
  { batch: 4, length: 4096, gate: 385 },
  { batch: 1, length: 16384, gate: 490 },
  { batch: 1, length: 65536, gate: 3600 },
];
const decodes: readonly Shape[] = [
  { batch: 1, length: 128, gate: 4.2 },
  { batch: 16, length: 1024, gate: 5 },
  { batch: 128, length: 128, gate: 5.6 },
  { batch: 256, length: 128, gate: 8 },
  { batch: 1, length: 16384, gate: 5 },
  { batch: 1, length: 65536, gate: 7 },
];

const chunkTokens = 16384;
const blockSize = 16;
const vocabSize = 128256;
const decodeSteps = 64;
const warmSteps = 6;
const words = process.argv.slice(2);
const eager = words.includes('eager');
const named = words.filter((word) => /^\d+x\d+$/.test(word));
const wanted = (kind: string, shape: Shape): boolean =>
  !words.includes(kind === 'decode' ? 'prefill' : 'decode') && (named.length === 0 || named.includes(`${shape.batch}x${shape.length}`));
const graphSizes = eager ? [] : [1, 2, 4, 8, 16, 32, 48, 64, 128, 256];
const numBlocks = 6400;

const median = (values: readonly number[]): number => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN;
const blocksOf = (length: number): number => Math.ceil((length + decodeSteps + warmSteps + 2) / blockSize);

/** Frees slots [0, count) of before and fills slots with prompts of random tokens and blocks of their own. */
function admission(shape: Shape, freed: number): Parameters<typeof buildPlan>[0] {
  const per = blocksOf(shape.length);
  let state = 12345;
  const random = (): number => {
    state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff;
    return state % vocabSize;
  };
  const slots = Array.from({ length: shape.batch }, (_, i) => i);
  return {
    freed: Array.from({ length: freed }, (_, i) => i),
    newSlots: slots.map((slot) => ({ slot, tokens: Array.from({ length: shape.length }, random) })),
    blockSets: slots.flatMap((slot) => Array.from({ length: per }, (_, index) => ({ slot, index, block: slot * per + index }))),
  };
}

/** Rows of the next chunk of all prompts, from token `from` of the concatenated batch. */
function chunk(shape: Shape, from: number): Pick<Parameters<typeof buildPlan>[0], 'rows' | 'samples'> {
  const rows: { slot: number; start: number; count: number }[] = [];
  const samples: { row: number; slot: number }[] = [];
  for (let at = from; at < Math.min(from + chunkTokens, shape.batch * shape.length); ) {
    const slot = Math.floor(at / shape.length);
    const start = at % shape.length;
    const count = Math.min(shape.length - start, from + chunkTokens - at);
    if (start + count === shape.length) samples.push({ row: rows.length, slot });
    rows.push({ slot, start, count });
    at += count;
  }
  return { rows, samples };
}

function prefill(engine: NativeEngine, shape: Shape, freed: number): { deviceMs: number; wallMs: number } {
  engine.submit(buildPlan(admission(shape, freed)));
  check(answer(engine).errorCode, engine);
  const total = shape.batch * shape.length;
  const plans: Uint8Array[] = [];
  for (let at = 0; at < total; at += chunkTokens) plans.push(buildPlan(chunk(shape, at)));
  let deviceMs = 0;
  const started = performance.now();
  for (const [i, plan] of plans.entries()) {
    engine.submit(plan);
    if (i > 0) deviceMs += collect(engine);
  }
  deviceMs += collect(engine);
  return { deviceMs, wallMs: performance.now() - started };
}

function decode(engine: NativeEngine, shape: Shape): { deviceMs: number; wallMs: number } {
  const samples = Array.from({ length: shape.batch }, (_, i) => ({ row: i, slot: i }));
  const plans = Array.from({ length: warmSteps + decodeSteps }, (_, step) =>
    buildPlan({ rows: samples.map(({ slot }) => ({ slot, start: shape.length + step, count: 1 })), samples }),
  );
  const device: number[] = [];
  let started = 0;
  for (const [i, plan] of plans.entries()) {
    engine.submit(plan);
    if (i > 0) device.push(collect(engine));
    if (i === warmSteps) started = performance.now();
  }
  const wallMs = (performance.now() - started) / (decodeSteps - 1);
  device.push(collect(engine));
  return { deviceMs: median(device.slice(warmSteps)), wallMs };
}

function collect(engine: NativeEngine): number {
  const a = answer(engine);
  check(a.errorCode, engine);
  return a.execUs / 1000;
}

function check(errorCode: number, engine: NativeEngine): void {
  if (errorCode !== 0) throw new Error(`a step failed: ${engine.lastError?.()}`);
}

/** Read bandwidth and product rate of the card, from a program of its own. */
function limits(): { readGbs: number; gemmTflops: number } {
  const root = packageRoot();
  const program = join(mkdtempSync(join(tmpdir(), 'inferd-limits-')), 'limits');
  const include = process.env['INFERD_CUBLAS_INCLUDE'] ?? '/usr/local/cuda/include';
  const folder = join(include, '..', 'lib');
  const library = existsSync(join(folder, 'libcublasLt.so.13')) ? ['-Xlinker', join(folder, 'libcublasLt.so.13')] : ['-lcublasLt'];
  execFileSync('nvcc', [
    ...[
      '-std=c++20',
      '-O3',
      '-arch=native',
      `-I${join(root, 'native', 'cuda')}`,
      `-I${join(root, 'native')}`,
      `-I${include}`,
      '-o',
      program,
    ],
    ...[
      'test/gpu/limits.cu',
      'native/cuda/small_gemm.cu',
      'native/cuda/gemm_lt.cpp',
      'native/cuda/gemm_kernels.cpp',
      'native/cuda/activation.cu',
    ].map((file) => join(root, file)),
    ...[...library, `-Xlinker=-rpath,${folder}`],
  ]);
  const out = execFileSync(program, { encoding: 'utf8' });
  const number = (name: string): number => Number(new RegExp(`${name} (\\d+)`).exec(out)?.[1] ?? Number.NaN);
  return { readGbs: number('read_gbs'), gemmTflops: number('gemm_tflops') };
}

const started = performance.now();
const engine = loadAddon().createEngine(
  engineOptions(fixture('shapes', 'llama-3-8b'), {
    ...{ backend: 'cuda', loadDummy: true, kvDtype: 'auto', blockSize, maxSlots: 256, maxBatchTokens: chunkTokens },
    ...{ maxModelLen: 66_048, graphSizes },
  }),
);
while (!engine.load(256 << 20).done);
const loadedMs = performance.now() - started;
engine.allocateKv(numBlocks);
const info = engine.info();
console.log(`${info.backend}, ${(info.weightBytes / 1e9).toFixed(2)} GB of ${info.dtype} weights, loaded in ${loadedMs.toFixed(0)} ms,`);
console.log(`step memory ${(info.stepBytes / 2 ** 20).toFixed(0)} MiB, graphs ${eager ? 'off' : 'on'}`);

const table: string[] = [];
const show = (line: string): void => {
  console.log(line);
  table.push(line);
};
let used = 0;
for (const shape of prefills.filter((p) => wanted('prefill', p))) {
  const times = [];
  const rounds = shape.length > chunkTokens ? 2 : 4;
  for (let i = 0; i < rounds; i++) {
    times.push(prefill(engine, shape, used));
    used = shape.batch;
  }
  const kept = times.slice(1);
  const [device, wall] = [median(kept.map((t) => t.deviceMs)), median(kept.map((t) => t.wallMs))];
  show(`prefill ${shape.batch}x${shape.length}: ${device.toFixed(1)} ms (wall ${wall.toFixed(1)}), gate ${shape.gate}`);
}
for (const shape of decodes.filter((d) => wanted('decode', d))) {
  prefill(engine, shape, used);
  used = shape.batch;
  showDecode(shape);
}
function showDecode(shape: Shape): void {
  const { deviceMs, wallMs } = decode(engine, shape);
  show(`decode ${shape.batch}x${shape.length}: ${wallMs.toFixed(3)} ms a step (device ${deviceMs.toFixed(3)}), gate ${shape.gate}`);
}
engine.close();
const { readGbs, gemmTflops } = limits();
console.log(`\nread bandwidth ${readGbs} GB/s, products ${gemmTflops} TFLOP/s`);
console.log(table.join('\n'));
