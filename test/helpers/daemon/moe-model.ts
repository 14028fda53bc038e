/** A small model with experts for whole daemons: random weights, the same in every engine, and the demo model's tokenizer. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { dummyModel } from '../native/dummy-model.js';
import { tempFolder } from '../temp-folder.js';

const config = {
  architectures: ['Qwen3MoeForCausalLM'],
  model_type: 'qwen3_moe',
  vocab_size: 4096,
  hidden_size: 64,
  intermediate_size: 96,
  moe_intermediate_size: 32,
  num_hidden_layers: 3,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 32,
  num_experts: 8,
  num_experts_per_tok: 2,
  norm_topk_prob: true,
  max_position_embeddings: 2048,
  rms_norm_eps: 1e-5,
  rope_theta: 10_000,
  tie_word_embeddings: false,
  eos_token_id: 4089,
};

/** Settings for a daemon that serves it in float32, so that what is rounded in another order stays far from what is drawn. */
export function moeModelSets(): string[] {
  const folder = tempFolder();
  writeFileSync(join(folder, 'config.json'), JSON.stringify(config));
  return [`inference.model_name=${dummyModel(folder)}`, 'inference.load_dummy=true', 'inference.dtype=f32', 'cache.cache_dtype=f32'];
}
