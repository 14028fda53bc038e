/**
 * The ops that `inferd bench ops` times: on the CPU those of a model with 2048 features, on CUDA those of Llama-3-8B, whose inputs the
 * device makes itself. Each with the operations it does and the bytes it must move at least. Pure.
 */
import type { BackendName, OpCall } from '../../../native/index.js';

export interface Case {
  readonly op: string;
  readonly shape: string;
  readonly attrs: OpCall['attrs'];
  inputs(): OpCall['inputs'];
  readonly flops: number;
  readonly bytes: number;
  /** Whether the op multiplies bytes where the CPU can. */
  readonly quantized: boolean;
}

/** Sizes of a model, and how inputs come to the op. */
interface Model {
  readonly hidden: number;
  readonly inner: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly vocab: number;
  readonly blockSize: number;
  /** Bytes of an activation, and attributes of every op. */
  readonly activationBytes: number;
  readonly attrs: OpCall['attrs'];
  /** Float inputs of these sizes. */
  floats(sizes: Readonly<Record<string, number>>): Record<string, Float32Array>;
}

const cpuModel: Model = {
  ...{ hidden: 2048, inner: 8192, heads: 32, kvHeads: 8, headDim: 64, vocab: 32_000, blockSize: 16 },
  activationBytes: 4,
  attrs: {},
  floats: (sizes) => Object.fromEntries(Object.entries(sizes).map(([name, count]) => [name, noise(count)])),
};

const cudaModel: Model = {
  ...{ hidden: 4096, inner: 14_336, heads: 32, kvHeads: 8, headDim: 128, vocab: 128_256, blockSize: 16 },
  activationBytes: 2,
  attrs: { noise: 1 },
  floats: () => ({}),
};

const weightBits = { bf16: 16, f16: 16, f32: 32, int8: 8.5, int4: 5 } as const;
type WeightType = keyof typeof weightBits;

/** All of them, in the order of the table; of every backend but the CPU those of CUDA. */
export function opCases(device: BackendName): readonly Case[] {
  if (device === 'cpu') {
    const m = cpuModel;
    const products = (['bf16', 'f16', 'f32', 'int8', 'int4'] as const).flatMap((dtype) =>
      [1, 4, 8, 16, 32, 512].map((rows) => product(m, dtype, [rows, m.hidden, m.inner])),
    );
    return [...products, ...[1, 512].flatMap((rows) => rowOps(m, rows)), decode(m, 1, 4096), decode(m, 8, 1024), prefill(m, 1, 512)];
  }
  const m = cudaModel;
  const weights = [
    [m.hidden, (m.heads + 2 * m.kvHeads) * m.headDim],
    [m.heads * m.headDim, m.hidden],
    [m.hidden, 2 * m.inner],
    [m.inner, m.hidden],
  ] as const;
  const products = weights.flatMap(([cols, outs]) =>
    [1, 8, 16, 32, 64, 128, 256, 512, 4096, 16_384].map((rows) => product(m, 'bf16', [rows, cols, outs])),
  );
  const heads = [1, 16, 128, 256].map((rows) => product(m, 'bf16', [rows, m.hidden, m.vocab], true));
  const fused = [1, 16, 128, 256, 16_384].flatMap((rows) => [adding(m, rows), gated(m, rows)]);
  const rows = [1, 128, 256, 16_384].flatMap((count) => [...rowOps(m, count), rope(m, count)]);
  const decodes = [
    [1, 128],
    [16, 1024],
    [128, 128],
    [256, 128],
    [128, 1024],
    [8, 8192],
    [32, 8192],
    [1, 16_384],
    [1, 65_536],
  ] as const;
  const prefills = [
    [128, 128],
    [16, 1024],
    [4, 4096],
    [1, 16_384],
  ] as const;
  return [
    ...[...products, ...heads, ...fused, ...rows],
    ...decodes.flatMap(([batch, context]) => [decode(m, batch, context), ropeAndDecode(m, batch, context)]),
    ...prefills.map(([batch, tokens]) => prefill(m, batch, tokens)),
    ...[1, 128, 256].map((count) => scoring(m, count)),
  ];
}

/** [rows, inputs, outputs]. */
type ProductSize = readonly [rows: number, cols: number, outs: number];

function product(m: Model, dtype: WeightType, [rows, cols, outs]: ProductSize, toFloat = false): Case {
  const outBytes = toFloat ? 4 : m.activationBytes;
  return {
    op: 'linear',
    shape: `${dtype} ${rows} x ${cols} -> ${outs}`,
    attrs: { ...m.attrs, rows, cols, outs, dtype, ...(toFloat ? { out_f32: 1 } : {}) },
    inputs: () => m.floats({ x: rows * cols, weight: outs * cols }),
    flops: 2 * rows * cols * outs,
    bytes: (cols * outs * weightBits[dtype]) / 8 + rows * (m.activationBytes * cols + outBytes * outs),
    quantized: dtype === 'int8' || dtype === 'int4',
  };
}

/** The down projection with the residual. */
function adding(m: Model, rows: number): Case {
  const plain = product(m, 'bf16', [rows, m.inner, m.hidden]);
  return { ...plain, op: 'linear_add', bytes: plain.bytes + rows * m.hidden * m.activationBytes };
}

/** The gate and up projections with their activation. */
function gated(m: Model, rows: number): Case {
  const plain = product(m, 'bf16', [rows, m.hidden, m.inner]);
  return {
    ...plain,
    op: 'linear_gated',
    flops: 2 * plain.flops,
    bytes: 2 * m.hidden * m.inner * 2 + rows * (m.hidden + m.inner) * m.activationBytes,
  };
}

function rowOps(m: Model, rows: number): readonly Case[] {
  const values = rows * m.hidden;
  const bytes = m.activationBytes;
  const common = { attrs: { ...m.attrs, rows, cols: m.hidden, eps: 1e-5 }, shape: `${rows} x ${m.hidden}`, quantized: false };
  const gate = { attrs: { ...m.attrs, rows, cols: m.inner }, shape: `${rows} x ${m.inner}`, quantized: false };
  const gateValues = rows * m.inner;
  return [
    { ...common, op: 'rms_norm', inputs: () => m.floats({ x: values, weight: m.hidden }), flops: 4 * values, bytes: 2 * bytes * values },
    {
      ...common,
      op: 'add_rms_norm',
      inputs: () => m.floats({ inout: values, x: values, weight: m.hidden }),
      flops: 5 * values,
      bytes: 4 * bytes * values,
    },
    {
      ...gate,
      op: 'gated_mul',
      inputs: () => m.floats({ gate_up: 2 * gateValues }),
      flops: 20 * gateValues,
      bytes: 3 * bytes * gateValues,
    },
  ];
}

/** Rotation and cache writes of one token a sequence. */
function rope(m: Model, rows: number): Case {
  const per = (m.heads + 2 * m.kvHeads) * m.headDim;
  return {
    op: 'rope_and_cache',
    shape: `${rows} x ${m.heads}+${m.kvHeads} heads`,
    attrs: { ...m.attrs, ...cacheAttrs(m, rows, 1), rotary_dim: m.headDim, factor: 1, norm_eps: 1e-6 },
    inputs: () => ({
      ...cacheTables(m, rows, 1, 1),
      ...m.floats({ qkv: rows * per, ...cacheSizes(m, rows, 1), inv_freq: m.headDim / 2 }),
    }),
    flops: 3 * rows * per,
    // The q part goes back where it was, k and v to the cache.
    bytes: 2 * rows * per * m.activationBytes,
    quantized: false,
  };
}

const decode = (m: Model, rows: number, context: number): Case => attention(m, rows, 1, context);
const prefill = (m: Model, rows: number, tokens: number): Case => attention(m, rows, tokens, tokens);

/** What a layer of a decode step has between its two products: rope() and decode(). */
function ropeAndDecode(m: Model, rows: number, context: number): Case {
  const [rotation, plain] = [rope(m, rows), decode(m, rows, context)];
  return {
    ...plain,
    op: 'rope_and_attend',
    attrs: { ...rotation.attrs, ...plain.attrs },
    inputs: () => ({ ...plain.inputs(), ...m.floats({ inv_freq: m.headDim / 2 }) }),
    flops: plain.flops + rotation.flops,
    bytes: plain.bytes + rotation.bytes,
  };
}

/** `rows` sequences of `context` tokens of which the last `count` ask. */
function attention(m: Model, rows: number, count: number, context: number): Case {
  const keys = rows * (count === 1 ? context : (count * (count + 1)) / 2);
  const tokens = rows * count;
  return {
    op: 'attention',
    shape: count === 1 ? `decode ${rows} x ${context} keys` : `prefill ${rows} x ${count} tokens`,
    attrs: { ...m.attrs, ...cacheAttrs(m, rows, context), scale: 1 / Math.sqrt(m.headDim), window: 0 },
    inputs: () => ({
      ...cacheTables(m, rows, count, context),
      ...m.floats({ qkv: tokens * (m.heads + 2 * m.kvHeads) * m.headDim, ...cacheSizes(m, rows, context) }),
    }),
    flops: 4 * keys * m.heads * m.headDim,
    bytes: 2 * 2 * rows * context * m.kvHeads * m.headDim + 2 * tokens * m.heads * m.headDim * m.activationBytes,
    quantized: false,
  };
}

/** Greedy choice and log-probabilities over a vocabulary. */
function scoring(m: Model, rows: number): Case {
  return {
    op: 'score',
    shape: `${rows} x ${m.vocab}`,
    attrs: { ...m.attrs, rows, vocab: m.vocab, top: 1 },
    inputs: () => ({ ...m.floats({ logits: rows * m.vocab }), targets: new Int32Array(rows) }),
    flops: 4 * rows * m.vocab,
    bytes: 4 * rows * m.vocab,
    quantized: false,
  };
}

const blocksOf = (m: Model, context: number): number => Math.ceil(context / m.blockSize);

function cacheAttrs(m: Model, rows: number, context: number): Record<string, number | string> {
  const perSlot = blocksOf(m, context);
  return {
    ...{ heads: m.heads, kv_heads: m.kvHeads, head_dim: m.headDim, block_size: m.blockSize, kv_dtype: 'bf16' },
    ...{ num_blocks: rows * perSlot, max_blocks: perSlot, max_slots: rows, num_rows: rows },
  };
}

function cacheSizes(m: Model, rows: number, context: number): { k: number; v: number } {
  const elements = rows * blocksOf(m, context) * m.blockSize * m.kvHeads * m.headDim;
  return { k: elements, v: elements };
}

/** Rows of which the last `count` of `context` tokens ask, and their blocks in an order like that of a pool in use. */
function cacheTables(m: Model, rows: number, count: number, context: number): { rows: Int32Array; blocks: Int32Array } {
  const blocks = Int32Array.from({ length: rows * blocksOf(m, context) }, (_, i) => i);
  let state = 7;
  for (let i = blocks.length - 1; i > 0; i--) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    const j = state % (i + 1);
    [blocks[i], blocks[j]] = [blocks[j] ?? 0, blocks[i] ?? 0];
  }
  const words = Int32Array.from({ length: rows * 4 }, (_, i) => [Math.floor(i / 4), context - count, count, 0][i % 4] ?? 0);
  return { rows: words, blocks };
}

/** Numbers in -0.5..0.5 that no cache of equal pages can compress. */
function noise(count: number): Float32Array {
  let state = 1;
  return Float32Array.from({ length: count }, () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) | 0;
    return state / 2 ** 32;
  });
}
