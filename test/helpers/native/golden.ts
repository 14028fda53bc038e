/**
 * Golden packs: tiny checkpoints of each architecture with the logits and greedy tokens that transformers computed for them in
 * float32, and ways of putting a prompt through a native engine.
 */
import assert from 'node:assert/strict';
import { copyFileSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROW_FLAG } from '../../../actors/messages/step.js';
import type { EngineOptions, NativeEngine } from '../../../native/index.js';
import type { RankEngines } from '../../../native/rank-engines.js';
import { ggufModelConfig } from './gguf.js';
import { answer, blockSets, fixture, openEngine, openRanks, runStep } from './native-engine.js';
import { buildPlan, type StepAnswer } from './plan.js';
import { readSafetensors } from './safetensors.js';
import { withModelFolder } from './tiny-model.js';

/** A line each. That of qwen2-moe is by a reference in float64 which is within 5e-5 of transformers in two others, qwen3-moe and qwen2-bias. */
// biome-ignore format: one line a pack
export const packs = [
  'llama2-mha',
  'llama3.1-gqa',
  'llama3.2-tied',
  'mistral-sliding',
  'qwen2-bias',
  'qwen3-qknorm',
  'phi3-fused',
  'gemma2',
  'gemma3',
  'olmo2',
  'granite',
  'smollm3',
  'mixtral-moe',
  'qwen2-moe',
  'qwen3-moe',
  'deepseek-v2',
  'deepseek-v3-mla',
  'deepseek-v3-yarn',
  'gpt-oss',
];

/** Quantized in safetensors, and as GGUF files. */
// biome-ignore format: one line a pack
export const storedPacks = [
  'quant-fp8-ct-tensor',
  'quant-fp8-ct-channel',
  'quant-fp8-static',
  'quant-fp8-block',
  'quant-fp8-fbgemm',
  'quant-gptq-int4-sym',
  'quant-gptq-int4-act',
  'quant-gptq-int4-v2',
  'quant-gptq-int8',
  'quant-awq-int4',
  'quant-ct-w4a16',
  'quant-ct-w4a16-asym',
  'quant-ct-w8a8-int8',
  'quant-ct-mxfp4',
  'quant-ct-nvfp4',
  'quant-ct-mixed',
  'gpt-oss-mxfp4',
];
export const ggufPacks = ['quant-gguf-legacy', 'quant-gguf-k', 'quant-gguf-qwen2'];

export interface Golden {
  readonly ids: number[];
  readonly logits: Float32Array;
  readonly greedyIds: number[];
  readonly greedyLogprobs: number[];
}

export function readGolden(pack: string): Golden {
  const tensors = readSafetensors(fixture('golden', pack, 'golden.safetensors'));
  const get = (name: string): Float32Array | Int32Array => tensors.get(name)?.data ?? new Float32Array();
  return {
    ids: [...get('input_ids')],
    logits: get('logits') as Float32Array,
    greedyIds: [...get('greedy_ids')],
    greedyLogprobs: [...get('greedy_logprobs')],
  };
}

export function openPack(pack: string, options: Partial<EngineOptions> = {}): NativeEngine {
  const numBlocks = Math.ceil(512 / (options.blockSize ?? 16));
  return openEngine(join(fixture('golden'), pack), options, numBlocks, numBlocks);
}

/** Calls `body` with a copy of a pack whose config.json says `more`. */
export function withPackConfig<T>(pack: string, more: Record<string, unknown>, body: (folder: string) => T): T {
  const config = JSON.parse(readFileSync(fixture('golden', pack, 'config.json'), 'utf8')) as Record<string, unknown>;
  return withModelFolder({ ...config, ...more }, (folder) => {
    for (const file of ['model.safetensors', 'tokenizer.json']) copyFileSync(fixture('golden', pack, file), join(folder, file));
    return body(folder);
  });
}

/** What a model says that was tried with keys and values in fp8. */
export const float8CacheScheme = {
  quantization_config: { kv_cache_scheme: { num_bits: 8, type: 'float', strategy: 'tensor', dynamic: false } },
};

/** The same as so many ranks. */
export function openPackRanks(pack: string, numRanks: number, options: Partial<EngineOptions> = {}): RankEngines {
  const numBlocks = Math.ceil(512 / (options.blockSize ?? 16));
  return openRanks(join(fixture('golden'), pack), numRanks, options, numBlocks, numBlocks);
}

export interface Run {
  /** Raw logits of the prompt positions that were computed, by position. */
  readonly logits: Map<number, Float32Array>;
  readonly tokens: number[];
  readonly logprobs: number[];
}

export interface Way {
  readonly slot?: number;
  readonly firstBlock?: number;
  readonly chunk?: number;
  /** Blocks of another slot that already hold the first tokens. */
  readonly cachedBlocks?: number;
  /** Submit step N + 1 before the answer of step N is read. */
  readonly runAhead?: boolean;
  /** After so many tokens the sequence is swapped to the host, another one takes half of its blocks, and it comes back. */
  readonly swapAt?: number;
  /** false: no logits are read back. */
  readonly rawLogits?: boolean;
}

interface Swapped {
  readonly slot: number;
  /** Its block table. */
  readonly blocks: readonly number[];
  readonly history: readonly number[];
  readonly promptLen: number;
}

/** Both ways in two steps that are in flight together; the blocks come back in another order. */
function swapThereAndBack(engine: NativeEngine, { slot, blocks, history, promptLen }: Swapped, blockSize: number): void {
  const host = blocks.map((_, i) => (i + 3) % blocks.length);
  const taken = blocks.slice(0, Math.ceil(blocks.length / 2));
  const other = { slot: 7, tokens: history.map((id) => (id * 7 + 1) % 100).slice(0, taken.length * blockSize) };
  const table = (of: number, list: readonly number[]) => list.map((block, index) => ({ slot: of, index, block }));
  const back = [...blocks].reverse();
  engine.submit(
    buildPlan({
      freed: [slot],
      newSlots: [other],
      blockSets: table(other.slot, taken),
      swapOuts: blocks.map((src, i) => ({ src, dst: host[i] ?? -1 })),
      rows: [{ slot: other.slot, start: 0, count: other.tokens.length }],
    }),
  );
  engine.submit(
    buildPlan({
      freed: [other.slot],
      newSlots: [{ slot, tokens: history, promptLen, sampling: { topLogprobs: 0 } }],
      blockSets: table(slot, back),
      swapIns: back.map((dst, i) => ({ src: host[i] ?? -1, dst })),
    }),
  );
  for (let i = 0; i < 2; i++) assert.equal(answer(engine).errorCode, 0);
}

function collect(run: Run, a: StepAnswer): void {
  assert.equal(a.errorCode, 0);
  for (const row of a.logits) run.logits.set(row.position, row.values);
  for (const s of a.samples) {
    run.tokens.push(s.token);
    run.logprobs.push(s.logprob);
  }
}

/** Prefills the prompt in one of the ways, then decodes greedily. */
export function generate(engine: NativeEngine, ids: readonly number[], count: number, blockSize: number, way: Way = {}): Run {
  const { slot = 0, firstBlock = 0, chunk = ids.length, cachedBlocks = 0, runAhead = false, swapAt = -1, rawLogits = true } = way;
  const flags = rawLogits ? ROW_FLAG.rawLogits : 0;
  const run: Run = { logits: new Map(), tokens: [], logprobs: [] };
  const sets = [
    ...blockSets(slot, 0, cachedBlocks),
    ...blockSets(slot, firstBlock, Math.ceil((ids.length + count) / blockSize) - cachedBlocks, cachedBlocks),
  ];
  runStep(engine, { newSlots: [{ slot, tokens: ids, sampling: { topLogprobs: 0 } }], blockSets: sets });
  let at = cachedBlocks * blockSize;
  for (; ids.length - at > chunk; at += chunk) {
    collect(run, runStep(engine, { rows: [{ slot, start: at, count: chunk, flags }] }));
  }
  const samples = [{ row: 0, slot }];
  engine.submit(buildPlan({ rows: [{ slot, start: at, count: ids.length - at, flags }], samples }));
  for (let i = 1; i < count; i++) {
    if (!runAhead) collect(run, answer(engine));
    if (i === swapAt) {
      const blocks = sets.map(({ block }) => block);
      swapThereAndBack(engine, { slot, blocks, history: [...ids, ...run.tokens], promptLen: ids.length }, blockSize);
    }
    engine.submit(buildPlan({ step: i, rows: [{ slot, start: ids.length + i - 1, count: 1 }], samples }));
    if (runAhead) collect(run, answer(engine));
  }
  collect(run, answer(engine));
  return run;
}

/** The largest error, and the root mean square of all errors as a share of that of the golden logits. */
export function errors(run: Run, golden: Golden): { max: number; relativeRms: number } {
  let max = 0;
  let squares = 0;
  let total = 0;
  for (const [position, values] of run.logits) {
    const base = position * values.length;
    for (const [i, value] of values.entries()) {
      const wanted = golden.logits[base + i] ?? Number.NaN;
      max = Math.max(max, Math.abs(value - wanted));
      squares += (value - wanted) ** 2;
      total += wanted ** 2;
    }
  }
  return { max, relativeRms: Math.sqrt(squares / total) };
}

/** Whether routers choose the experts of each token: rounding then turns near ties, and with them all logits of a position. */
export function hasExperts(pack: string): boolean {
  const config = ggufPacks.includes(pack)
    ? ggufModelConfig(fixture('golden', pack, 'model.gguf'))
    : readFileSync(fixture('golden', pack, 'config.json'), 'utf8');
  return config.includes('"num_experts_per_tok"');
}

/**
 * The relative root mean square error of the position in the middle, of all by their errors: what is judged of packs with experts where
 * something is rounded, as the positions whose router turned have other logits altogether.
 */
export function medianError(run: Run, golden: Golden): number {
  const each = byError(run, golden);
  return each[Math.floor(each.length / 2)]?.off ?? Number.NaN;
}

/** Each position, and its relative root mean square error; the closest first. */
function byError(run: Run, golden: Golden) {
  const off = (entry: readonly [number, Float32Array]) => errors({ ...run, logits: new Map([entry]) }, golden).relativeRms;
  return [...run.logits].map((entry) => ({ entry, off: off(entry) })).sort((a, b) => a.off - b.off);
}

/** As `errors`, without the positions that are the farthest off: at most `most` of them. */
export function errorsWithout(run: Run, golden: Golden, most: number): { max: number; relativeRms: number } {
  const each = byError(run, golden);
  const kept = each.slice(0, Math.max(each.length - most, 1)).map(({ entry }) => entry);
  return errors({ ...run, logits: new Map(kept) }, golden);
}

/** What the pack's own scheme of quantizing activations costs, by the pack itself. */
export function schemeError(pack: string, golden: Golden): number {
  const quantized = readSafetensors(fixture('golden', pack, 'golden.safetensors')).get('logits_aq')?.data;
  assert.ok(quantized instanceof Float32Array);
  const width = golden.logits.length / golden.ids.length;
  const logits = new Map(golden.ids.map((_, position) => [position, quantized.subarray(position * width, (position + 1) * width)]));
  return nmse({ logits, tokens: [], logprobs: [] }, golden);
}

/** Squared errors of all logits as a share of their squared distances from the mean of their position. */
export function nmse(run: Run, golden: Golden): number {
  let squares = 0;
  let spread = 0;
  for (const [position, values] of run.logits) {
    const wanted = golden.logits.subarray(position * values.length, (position + 1) * values.length);
    const mean = wanted.reduce((sum, value) => sum + value, 0) / values.length;
    for (const [i, value] of values.entries()) {
      const want = wanted[i] ?? Number.NaN;
      squares += (value - want) ** 2;
      spread += (want - mean) ** 2;
    }
  }
  return squares / spread;
}
