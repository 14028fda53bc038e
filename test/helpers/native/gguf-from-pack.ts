/**
 * The model of a golden pack as a GGUF file would hold it, in float32: names, metadata and rows as converters of each family write them. What
 * a family's metadata cannot say, though the pack has it, is put into the weights, or returned as keys that its config.json needs besides.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { GgufSpec, Meta, TensorSpec } from './gguf.js';
import { fixture } from './native-engine.js';
import { readSafetensors, widenedBf16 } from './safetensors.js';

interface Family {
  /** general.architecture */
  readonly name: string;
  /** Rows of q and k are stored in pairs of what is rotated together. */
  readonly pairs?: boolean;
  /** What the file calls the norm behind attention that Hugging Face calls post_attention_layernorm. */
  readonly afterAttention?: string;
  /** Norms hold the one that the model adds. */
  readonly normsPlusOne?: boolean;
}

const families: Readonly<Record<string, Family>> = {
  llama: { name: 'llama', pairs: true },
  mistral: { name: 'llama', pairs: true },
  granite: { name: 'granite', pairs: true },
  smollm3: { name: 'smollm3', pairs: true },
  qwen2: { name: 'qwen2' },
  qwen3: { name: 'qwen3' },
  phi3: { name: 'phi3' },
  olmo2: { name: 'olmo2', afterAttention: 'post_attention_norm' },
  mixtral: { name: 'llama', pairs: true },
  qwen3_moe: { name: 'qwen3moe' },
  gpt_oss: { name: 'gpt-oss', afterAttention: 'post_attention_norm' },
  deepseek_v2: { name: 'deepseek2' },
  deepseek_v3: { name: 'deepseek2' },
  gemma2: { name: 'gemma2', afterAttention: 'post_attention_norm', normsPlusOne: true },
  gemma3_text: { name: 'gemma3', afterAttention: 'post_attention_norm', normsPlusOne: true },
};

const layerNames: Readonly<Record<string, string>> = {
  input_layernorm: 'attn_norm',
  pre_feedforward_layernorm: 'ffn_norm',
  post_feedforward_layernorm: 'post_ffw_norm',
  'self_attn.q_proj': 'attn_q',
  'self_attn.k_proj': 'attn_k',
  'self_attn.v_proj': 'attn_v',
  'self_attn.qkv_proj': 'attn_qkv',
  'self_attn.o_proj': 'attn_output',
  'self_attn.q_norm': 'attn_q_norm',
  'self_attn.k_norm': 'attn_k_norm',
  'mlp.gate_proj': 'ffn_gate',
  'mlp.up_proj': 'ffn_up',
  'mlp.gate_up_proj': 'ffn_up',
  'mlp.down_proj': 'ffn_down',
  'mlp.gate': 'ffn_gate_inp',
  'mlp.router': 'ffn_gate_inp',
  'block_sparse_moe.gate': 'ffn_gate_inp',
  'mlp.shared_experts.gate_proj': 'ffn_gate_shexp',
  'mlp.shared_experts.up_proj': 'ffn_up_shexp',
  'mlp.shared_experts.down_proj': 'ffn_down_shexp',
  'self_attn.q_a_proj': 'attn_q_a',
  'self_attn.q_a_layernorm': 'attn_q_a_norm',
  'self_attn.q_b_proj': 'attn_q_b',
  'self_attn.kv_a_proj_with_mqa': 'attn_kv_a_mqa',
  'self_attn.kv_a_layernorm': 'attn_kv_a_norm',
  'self_attn.kv_b_proj': 'attn_kv_b',
};
const bareNames: Readonly<Record<string, string>> = {
  'self_attn.sinks': 'attn_sinks.weight',
  'mlp.gate.e_score_correction_bias': 'exp_probs_b.bias',
};
const otherNames: Readonly<Record<string, string>> = {
  'model.embed_tokens.weight': 'token_embd.weight',
  'model.norm.weight': 'output_norm.weight',
  'lm_head.weight': 'output.weight',
};

function storedName(name: string, family: Family): string {
  const [, layer = '', module = '', part = ''] = /^model\.layers\.(\d+)\.(.+)\.(weight|bias)$/.exec(name) ?? [];
  const [, bareLayer, bare = ''] = /^model\.layers\.(\d+)\.(.+)$/.exec(name) ?? [];
  if (bareNames[bare] !== undefined) return `blk.${bareLayer}.${bareNames[bare]}`;
  const stored = module === 'post_attention_layernorm' ? (family.afterAttention ?? 'ffn_norm') : layerNames[module];
  const found = stored === undefined ? otherNames[name] : `blk.${layer}.${stored}.${part}`;
  if (found === undefined) throw new Error(`${name} has no name in GGUF files`);
  return found;
}

const expertNames: Readonly<Record<string, string>> = {
  gate_proj: 'ffn_gate_exps',
  up_proj: 'ffn_up_exps',
  down_proj: 'ffn_down_exps',
  w1: 'ffn_gate_exps',
  w3: 'ffn_up_exps',
  w2: 'ffn_down_exps',
};

interface Values {
  readonly shape: readonly number[];
  readonly data: Float32Array;
}

/** Experts of their own one after the other, and stacks of both halves taken apart: one tensor for each of three products of a layer. */
class ExpertStacks {
  readonly #found = new Map<string, Values[]>();

  /** Whether it belongs to experts, and was taken. */
  take(name: string, value: Values): boolean {
    const one = /^model\.layers\.(\d+)\..*\.experts\.(\d+)\.(\w+)\.(weight|bias)$/.exec(name);
    if (one !== null) {
      this.#put(`blk.${one[1]}.${expertNames[one[3] ?? '']}.${one[4]}`, Number(one[2]), value);
      return true;
    }
    const stack = /^model\.layers\.(\d+)\..*\.experts\.(gate_up|down)_proj(_bias)?$/.exec(name);
    if (stack === null) return false;
    const [, layer, product, bias] = stack;
    const [count = 0, inputs = 0, outputs = inputs] = value.shape;
    const matrix = bias === undefined;
    const turned = (e: number, first: number, step: number): Values => {
      const rows = outputs / step;
      const cols = matrix ? inputs : 1;
      const at = (row: number, col: number): number => value.data[(e * cols + col) * outputs + first + row * step] ?? 0;
      const data = Float32Array.from({ length: rows * cols }, (_, i) => at(Math.floor(i / cols), i % cols));
      return { shape: matrix ? [rows, cols] : [rows], data };
    };
    for (let e = 0; e < count; e++) {
      const put = (to: string, first: number, step: number): void =>
        this.#put(`blk.${layer}.${to}.${matrix ? 'weight' : 'bias'}`, e, turned(e, first, step));
      if (product === 'down') put('ffn_down_exps', 0, 1);
      else put('ffn_gate_exps', 0, 2);
      if (product !== 'down') put('ffn_up_exps', 1, 2);
    }
    return true;
  }

  #put(stored: string, expert: number, value: Values): void {
    const list = this.#found.get(stored) ?? [];
    list[expert] = value;
    this.#found.set(stored, list);
  }

  *stacks(): Generator<readonly [string, Values]> {
    for (const [name, list] of this.#found) {
      const each = list[0]?.data.length ?? 0;
      const data = new Float32Array(each * list.length);
      for (const [e, one] of list.entries()) data.set(one.data, e * each);
      yield [name, { shape: [list.length, ...(list[0]?.shape ?? [])], data }];
    }
  }
}

/** Row i of a head and row i + d/2, which are rotated together, one after the other. */
function inPairs(data: Float32Array, rowLength: number, headRows: number): Float32Array {
  const out = new Float32Array(data.length);
  for (let row = 0; row < data.length / rowLength; row++) {
    const at = row % headRows;
    const from = row - at + (at % 2) * (headRows / 2) + Math.floor(at / 2);
    out.set(data.subarray(from * rowLength, (from + 1) * rowLength), row * rowLength);
  }
  return out;
}

type Config = Readonly<Record<string, unknown>>;

/** The factors of Llama 3.1, by which frequencies are divided. */
function llama3Factors(config: Config, headDim: number, theta: number): Float32Array | null {
  const rope = (config['rope_scaling'] ?? config['rope_parameters']) as Config | null;
  if ((rope?.['rope_type'] ?? rope?.['type']) !== 'llama3') return null;
  const number = (key: string): number => Number(rope?.[key]);
  const [factor, low, high, old] = [
    number('factor'),
    number('low_freq_factor'),
    number('high_freq_factor'),
    number('original_max_position_embeddings'),
  ];
  return Float32Array.from({ length: headDim / 2 }, (_, i) => {
    const turns = old / (2 * Math.PI * theta ** ((2 * i) / headDim));
    if (turns < low) return factor;
    if (turns > high) return 1;
    const smooth = (turns - low) / (high - low);
    return 1 / ((1 - smooth) / factor + smooth);
  });
}

type Keys = Readonly<Record<string, Meta | undefined>>;
const numberIn = (config: Config, key: string): number | undefined => (typeof config[key] === 'number' ? config[key] : undefined);

function expertKeys(config: Config): Keys {
  const count = numberIn(config, 'num_local_experts') ?? numberIn(config, 'n_routed_experts');
  if (count === undefined) return {};
  return {
    expert_count: count,
    expert_used_count: numberIn(config, 'num_experts_per_tok'),
    expert_feed_forward_length: numberIn(config, 'moe_intermediate_size') ?? numberIn(config, 'intermediate_size'),
  };
}

function yarnKeys(rope: Config): Keys {
  if (rope['rope_type'] !== 'yarn') return {};
  const all = numberIn(rope, 'mscale_all_dim');
  return {
    'rope.scaling.type': 'yarn',
    'rope.scaling.factor': numberIn(rope, 'factor'),
    'rope.scaling.original_context_length': numberIn(rope, 'original_max_position_embeddings'),
    ...(all === undefined ? {} : { 'rope.scaling.yarn_log_multiplier': 0.1 * all }),
  };
}

/** Of DeepSeek: V2 as older files have them, V3 as newer ones, which cache what keys and values are made of and hold the makers of both apart. */
function latentKeys(config: Config): Keys {
  const number = (key: string): number => numberIn(config, key) ?? 0;
  const rank = number('kv_lora_rank');
  if (rank === 0) return {};
  const rotated = number('qk_rope_head_dim');
  const lengths = { key: number('qk_nope_head_dim') + rotated, value: number('v_head_dim') };
  const newer = config['model_type'] === 'deepseek_v3';
  return {
    'attention.key_length': newer ? rank + rotated : lengths.key,
    'attention.value_length': newer ? rank : lengths.value,
    ...(newer
      ? { 'attention.key_length_mla': lengths.key, 'attention.value_length_mla': lengths.value, 'attention.head_count_kv': 1 }
      : {}),
    'attention.kv_lora_rank': rank,
    'attention.q_lora_rank': numberIn(config, 'q_lora_rank'),
    'rope.dimension_count': rotated,
    expert_shared_count: number('n_shared_experts'),
    leading_dense_block_count: number('first_k_dense_replace'),
    expert_weights_scale: number('routed_scaling_factor'),
    expert_weights_norm: config['norm_topk_prob'] === true,
    expert_gating_func: newer ? 2 : 1,
    expert_group_count: numberIn(config, 'n_group'),
    expert_group_used_count: numberIn(config, 'topk_group'),
  };
}

/** What makes keys, transposed in each head, and what makes values, as newer files hold them. */
function latentParts(data: Float32Array, heads: number, keyRows: number, valueRows: number): Readonly<Record<'k_b' | 'v_b', Values>> {
  const rank = data.length / (heads * (keyRows + valueRows));
  const keys = new Float32Array(heads * keyRows * rank);
  const values = new Float32Array(heads * valueRows * rank);
  for (let head = 0; head < heads; head++) {
    const first = head * (keyRows + valueRows) * rank;
    for (let row = 0; row < keyRows; row++)
      for (let col = 0; col < rank; col++) keys[(head * rank + col) * keyRows + row] = data[first + row * rank + col] ?? 0;
    values.set(data.subarray(first + keyRows * rank, first + (keyRows + valueRows) * rank), head * valueRows * rank);
  }
  return { k_b: { shape: [heads, rank, keyRows], data: keys }, v_b: { shape: [heads, valueRows, rank], data: values } };
}

export interface ConvertedPack {
  readonly spec: GgufSpec;
  /** Keys of config.json that no metadata says. */
  readonly unsaid: Config;
}

const configOf = (folder: string): Config => JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8')) as Config;

/** Whether GGUF files of its family are read. */
export const hasGgufFamily = (pack: string): boolean => families[String(configOf(fixture('golden', pack))['model_type'])] !== undefined;

/** @throws Error where there is none */
export const ggufFromPack = (pack: string): ConvertedPack => ggufFromFolder(fixture('golden', pack));

/** The same of any folder with weights in bf16. */
export function ggufFromFolder(folder: string): ConvertedPack {
  const config = configOf(folder);
  const family = families[String(config['model_type'])];
  if (family === undefined) throw new Error(`${String(config['model_type'])} has no architecture of GGUF files`);
  const number = (key: string, fallback = Number.NaN): number => (typeof config[key] === 'number' ? config[key] : fallback);
  const heads = number('num_attention_heads');
  const headDim = number('head_dim', number('hidden_size') / heads);
  const ropes = (config['rope_parameters'] ?? {}) as Readonly<Record<string, unknown>>;
  const full = (ropes['full_attention'] ?? ropes) as Config;
  const theta = Number(full['rope_theta'] ?? config['rope_theta']);
  const scale = Math.sqrt(headDim / number('query_pre_attn_scalar', headDim));

  const tensors: Record<string, TensorSpec> = {};
  const f32 = (shape: readonly number[], data: Float32Array): TensorSpec => ({
    dims: [...shape].reverse(),
    type: 0,
    data: new Uint8Array(data.buffer, data.byteOffset, data.byteLength),
  });
  const newerLatent = config['model_type'] === 'deepseek_v3';
  const stacks = new ExpertStacks();
  for (const [name, { shape, data }] of readSafetensors(join(folder, 'model.safetensors'))) {
    let values = widenedBf16(data);
    if (stacks.take(name, { shape, data: values })) continue;
    const rotated = /self_attn\.[qk]_proj\./.test(name);
    if (family.normsPlusOne === true && name.includes('norm')) values = values.map((v) => v + 1);
    if (name.includes('self_attn.q_proj')) values = values.map((v) => v * scale);
    if (family.pairs === true && rotated) values = inPairs(values, shape[1] ?? 1, headDim);
    if (newerLatent && name.includes('kv_b_proj')) {
      const parts = latentParts(values, heads, number('qk_nope_head_dim'), number('v_head_dim'));
      for (const [part, value] of Object.entries(parts))
        tensors[storedName(name, family).replace('kv_b', part)] = f32(value.shape, value.data);
      continue;
    }
    tensors[storedName(name, family)] = f32(shape, values);
  }
  for (const [name, { shape, data }] of stacks.stacks()) tensors[name] = f32(shape, data);
  const factors = llama3Factors(config, headDim, theta);
  if (factors !== null) tensors['rope_freqs.weight'] = f32([factors.length], factors);

  const keys: Record<string, Meta | undefined> = {
    block_count: number('num_hidden_layers'),
    context_length: number('max_position_embeddings'),
    embedding_length: number('hidden_size'),
    feed_forward_length: number('intermediate_size'),
    ...expertKeys(config),
    ...yarnKeys(full),
    'attention.head_count': heads,
    'attention.head_count_kv': number('num_key_value_heads'),
    'attention.key_length': headDim,
    'attention.value_length': headDim,
    'attention.layer_norm_rms_epsilon': number('rms_norm_eps'),
    'rope.freq_base': theta,
    'rope.dimension_count': headDim,
    'attention.sliding_window': (config['sliding_window'] as number | null | undefined) ?? undefined,
    attn_logit_softcapping: (config['attn_logit_softcapping'] as number | null | undefined) ?? undefined,
    final_logit_softcapping: (config['final_logit_softcapping'] as number | null | undefined) ?? undefined,
    embedding_scale: config['embedding_multiplier'] as number | undefined,
    residual_scale: config['residual_multiplier'] as number | undefined,
    'attention.scale': config['attention_multiplier'] as number | undefined,
    logit_scale: config['logits_scaling'] as number | undefined,
    ...latentKeys(config),
  };
  const metadata: (readonly [string, Meta])[] = [['general.architecture', family.name]];
  for (const [key, value] of Object.entries(keys)) if (value !== undefined) metadata.push([`${family.name}.${key}`, value]);
  const unsaid = {
    ...(config['no_rope_layers'] === undefined ? {} : { no_rope_layers: config['no_rope_layers'] }),
    ...(full['mscale'] === full['mscale_all_dim'] ? {} : { rope_scaling: full }),
  };
  return { spec: { metadata, tensors }, unsaid };
}
