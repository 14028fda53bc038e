/**
 * `inferd bench ops`: times each op of the CPU backend alone, on sizes of a small model, with its GFLOP/s and GB/s as shares of the
 * limits measured just before it. Runs on the main thread, which it blocks.
 */
import { loadAddon, type OpCall } from '../../native/index.js';
import { giga, type Limits, measureLimits, median, percent, type Setup } from './bench-limits.js';
import { table } from './table.js';
import { CliError, EXIT, type ExitCode, jsonOption, printJson, type Verb, type VerbInput } from './verb.js';

const hidden = 2048;
const inner = 8192;
const heads = 32;
const kvHeads = 8;
const headDim = 64;
const blockSize = 16;

export const benchOps: Verb = {
  name: 'ops',
  summary: 'time each native op of the CPU backend',
  details:
    'Sizes are those of a model with 2048 features. Shares are of the read bandwidth and the arithmetic peak measured in the same run.',
  options: [
    { flags: '--only <word>', doc: 'only ops whose line holds this word, such as "int8" or "attention"', kind: 'text' },
    { flags: '--repeat <n>', doc: 'timed runs of an op; 7 when not given', kind: 'int', range: [1, 1000] },
    { flags: '--threads <n>', doc: 'compute threads; physical cores when not given', kind: 'int', range: [1, 1024] },
    { flags: '--isa <name>', doc: 'kernel set; the best one when not given', kind: 'text' },
    jsonOption,
  ],
  examples: ['inferd bench ops', 'inferd bench ops --only int8 --threads 2'],
  run,
};

interface Case {
  readonly op: string;
  readonly shape: string;
  readonly attrs: OpCall['attrs'];
  inputs(): OpCall['inputs'];
  readonly flops: number;
  readonly bytes: number;
  /** Whether the op multiplies bytes where the set can. */
  readonly quantized: boolean;
}

interface OpReport {
  readonly op: string;
  readonly shape: string;
  readonly us: number;
  readonly flops: number;
  readonly of_peak: number;
  readonly bytes: number;
  readonly of_read: number;
  readonly limits: Limits;
}

async function run(input: VerbInput): Promise<ExitCode> {
  const setup: Setup = { isa: input.text('isa') ?? 'auto', threads: input.number('threads') ?? 0 };
  const word = input.text('only') ?? '';
  const chosen = cases().filter((c) => `${c.op} ${c.shape}`.includes(word));
  if (chosen.length === 0)
    throw new CliError(`No op has ${JSON.stringify(word.slice(0, 40))} in its line; leave --only out to see all`, EXIT.usage);
  const reports = chosen.map((c) => measure(c, setup, input.number('repeat') ?? 7));
  if (input.flag('json')) {
    printJson(input.io, { ...setup, ops: reports });
    return EXIT.ok;
  }
  const rows = reports.map((r) => [
    ...[r.op, r.shape, r.us.toFixed(0)],
    ...[giga(r.flops), percent(r.of_peak), giga(r.bytes), percent(r.of_read)],
  ]);
  input.io.stdout.write(table(['op', 'sizes', 'us', 'GFLOP/s', 'of peak', 'GB/s', 'of read'], rows));
  const middle = (of: (l: Limits) => number): string => giga(median(reports.map((r) => of(r.limits))));
  const dot = reports.every((r) => r.limits.dotOps === null) ? '-' : middle((l) => l.dotOps ?? 0);
  input.io.stdout.write(
    `\nlimits: read ${middle((l) => l.readBytes)} GB/s, f32 multiply-add ${middle((l) => l.fmaFlops)} GFLOP/s, byte dot product ${dot} GOP/s\n`,
  );
  return EXIT.ok;
}

function measure(c: Case, setup: Setup, repeat: number): OpReport {
  const limits = measureLimits(setup);
  const result = loadAddon().runOp({ op: c.op, backend: 'cpu', ...setup, attrs: c.attrs, inputs: c.inputs(), repeat });
  const us = median([...(result['timings_us'] ?? [])]);
  const flops = (c.flops / us) * 1e6;
  const bytes = (c.bytes / us) * 1e6;
  const peak = c.quantized && limits.dotOps !== null ? limits.dotOps : limits.fmaFlops;
  return { op: c.op, shape: c.shape, us, flops, of_peak: flops / peak, bytes, of_read: bytes / limits.readBytes, limits };
}

function cases(): readonly Case[] {
  const products = (['bf16', 'f16', 'f32', 'int8', 'int4'] as const).flatMap((dtype) =>
    [1, 4, 8, 16, 32, 512].map((rows) => product(dtype, rows)),
  );
  return [...products, ...[1, 512].flatMap(rowOps), decodeAttention(1, 4096), decodeAttention(8, 1024), prefillAttention(512)];
}

const weightBits = { bf16: 16, f16: 16, f32: 32, int8: 8.5, int4: 5 } as const;

function product(dtype: keyof typeof weightBits, rows: number): Case {
  return {
    op: 'linear',
    shape: `${dtype} ${rows} x ${hidden} -> ${inner}`,
    attrs: { rows, cols: hidden, outs: inner, dtype },
    inputs: () => ({ x: noise(rows * hidden), weight: noise(inner * hidden) }),
    flops: 2 * rows * hidden * inner,
    bytes: (hidden * inner * weightBits[dtype]) / 8 + 4 * rows * (hidden + inner),
    quantized: dtype === 'int8' || dtype === 'int4',
  };
}

function rowOps(rows: number): readonly Case[] {
  const floats = rows * hidden;
  const common = { attrs: { rows, cols: hidden, eps: 1e-5 }, shape: `${rows} x ${hidden}`, quantized: false };
  return [
    { ...common, op: 'rms_norm', inputs: () => ({ x: noise(floats), weight: noise(hidden) }), flops: 4 * floats, bytes: 8 * floats },
    {
      ...common,
      op: 'add_rms_norm',
      inputs: () => ({ inout: noise(floats), x: noise(floats), weight: noise(hidden) }),
      flops: 5 * floats,
      bytes: 16 * floats,
    },
    { ...common, op: 'silu_mul', inputs: () => ({ gate_up: noise(2 * floats) }), flops: 20 * floats, bytes: 12 * floats },
  ];
}

const decodeAttention = (rows: number, context: number): Case => attention(rows, 1, context);
const prefillAttention = (tokens: number): Case => attention(1, tokens, tokens);

/** `rows` sequences of `context` tokens of which the last `count` ask. */
function attention(rows: number, count: number, context: number): Case {
  const perSlot = Math.ceil(context / blockSize);
  const cached = rows * perSlot * blockSize * kvHeads * headDim;
  const keys = rows * (count === 1 ? context : (count * (count + 1)) / 2);
  const start = context - count;
  return {
    op: 'attention',
    shape: count === 1 ? `decode ${rows} x ${context} keys` : `prefill ${count} tokens`,
    attrs: {
      ...{ heads, kv_heads: kvHeads, head_dim: headDim, block_size: blockSize, kv_dtype: 'bf16', scale: 0.125, window: 0 },
      ...{ num_blocks: rows * perSlot, max_blocks: perSlot, max_slots: rows, num_rows: rows },
    },
    inputs: () => ({
      rows: Int32Array.from({ length: rows * 4 }, (_, i) => [Math.floor(i / 4), start, count, 0][i % 4] ?? 0),
      blocks: Int32Array.from({ length: rows * perSlot }, (_, i) => i),
      qkv: noise(rows * count * (heads + 2 * kvHeads) * headDim),
      k: noise(cached),
      v: noise(cached),
    }),
    flops: 4 * keys * heads * headDim,
    bytes: 2 * 2 * rows * context * kvHeads * headDim,
    quantized: false,
  };
}

/** Numbers in -0.5..0.5 that no cache of equal pages can compress. */
function noise(count: number): Float32Array {
  let state = 1;
  return Float32Array.from({ length: count }, () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) | 0;
    return state / 2 ** 32;
  });
}
