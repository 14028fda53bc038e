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
};
const otherNames: Readonly<Record<string, string>> = {
  'model.embed_tokens.weight': 'token_embd.weight',
  'model.norm.weight': 'output_norm.weight',
  'lm_head.weight': 'output.weight',
};

function storedName(name: string, family: Family): string {
  const [, layer = '', module = '', part = ''] = /^model\.layers\.(\d+)\.(.+)\.(weight|bias)$/.exec(name) ?? [];
  const stored = module === 'post_attention_layernorm' ? (family.afterAttention ?? 'ffn_norm') : layerNames[module];
  const found = stored === undefined ? otherNames[name] : `blk.${layer}.${stored}.${part}`;
  if (found === undefined) throw new Error(`${name} has no name in GGUF files`);
  return found;
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

export interface ConvertedPack {
  readonly spec: GgufSpec;
  /** Keys of config.json that no metadata says. */
  readonly unsaid: Config;
}

const configOf = (pack: string): Config => JSON.parse(readFileSync(join(fixture('golden'), pack, 'config.json'), 'utf8')) as Config;

/** Whether GGUF files of its family are read. */
export const hasGgufFamily = (pack: string): boolean => families[String(configOf(pack)['model_type'])] !== undefined;

/** @throws Error where there is none */
export function ggufFromPack(pack: string): ConvertedPack {
  const folder = join(fixture('golden'), pack);
  const config = configOf(pack);
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
  for (const [name, { shape, data }] of readSafetensors(join(folder, 'model.safetensors'))) {
    let values = widenedBf16(data);
    const rotated = /self_attn\.[qk]_proj\./.test(name);
    if (family.normsPlusOne === true && name.includes('norm')) values = values.map((v) => v + 1);
    if (name.includes('self_attn.q_proj')) values = values.map((v) => v * scale);
    if (family.pairs === true && rotated) values = inPairs(values, shape[1] ?? 1, headDim);
    tensors[storedName(name, family)] = f32(shape, values);
  }
  const factors = llama3Factors(config, headDim, theta);
  if (factors !== null) tensors['rope_freqs.weight'] = f32([factors.length], factors);

  const keys: Record<string, number | undefined> = {
    block_count: number('num_hidden_layers'),
    context_length: number('max_position_embeddings'),
    embedding_length: number('hidden_size'),
    feed_forward_length: number('intermediate_size'),
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
  };
  const metadata: (readonly [string, Meta])[] = [['general.architecture', family.name]];
  for (const [key, value] of Object.entries(keys)) if (value !== undefined) metadata.push([`${family.name}.${key}`, value]);
  const unsaid = config['no_rope_layers'] === undefined ? {} : { no_rope_layers: config['no_rope_layers'] };
  return { spec: { metadata, tensors }, unsaid };
}
