/** Writes tiny random Llama-shaped models into temporary folders, whole or spoilt, for tests of loading. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { writeSafetensors } from './safetensors.js';

export const tinyConfig = {
  architectures: ['LlamaForCausalLM'],
  model_type: 'llama',
  vocab_size: 32,
  hidden_size: 32,
  intermediate_size: 48,
  num_hidden_layers: 2,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  head_dim: 16,
  max_position_embeddings: 256,
  rms_norm_eps: 1e-5,
  rope_theta: 10000,
  tie_word_embeddings: false,
} as const;

export type Tensors = Map<string, { shape: number[]; data: Float32Array }>;

/** The tensors that `tinyConfig` asks for, with deterministic values. */
export function tinyTensors(): Tensors {
  const tensors: Tensors = new Map();
  let state = 1;
  const next = (): number => {
    state = (Math.imul(state, 1103515245) + 12345) >>> 0;
    return state / 2 ** 32 - 0.5;
  };
  const add = (name: string, ...shape: number[]): void => {
    const count = shape.reduce((a, b) => a * b, 1);
    tensors.set(name, { shape, data: Float32Array.from({ length: count }, () => (shape.length === 1 ? 1 : next())) });
  };
  add('model.embed_tokens.weight', 32, 32);
  for (const layer of [0, 1]) {
    const at = `model.layers.${layer}`;
    add(`${at}.input_layernorm.weight`, 32);
    add(`${at}.self_attn.q_proj.weight`, 32, 32);
    add(`${at}.self_attn.k_proj.weight`, 16, 32);
    add(`${at}.self_attn.v_proj.weight`, 16, 32);
    add(`${at}.self_attn.o_proj.weight`, 32, 32);
    add(`${at}.post_attention_layernorm.weight`, 32);
    add(`${at}.mlp.gate_proj.weight`, 48, 32);
    add(`${at}.mlp.up_proj.weight`, 48, 32);
    add(`${at}.mlp.down_proj.weight`, 32, 48);
  }
  add('model.norm.weight', 32);
  add('lm_head.weight', 32, 32);
  return tensors;
}

/** Calls `body` with a fresh folder that holds config.json (`config` null: none) and is removed afterwards. */
export function withModelFolder<T>(config: Record<string, unknown> | null, body: (folder: string) => T): T {
  const folder = mkdtempSync(join(tmpdir(), 'inferd-model-'));
  try {
    if (config !== null) writeFileSync(join(folder, 'config.json'), JSON.stringify(config));
    return body(folder);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** The same with model.safetensors. */
export function withModel<T>(tensors: Tensors, body: (folder: string) => T, config: Record<string, unknown> = tinyConfig): T {
  return withModelFolder(config, (folder) => {
    writeSafetensors(join(folder, 'model.safetensors'), tensors);
    return body(folder);
  });
}
