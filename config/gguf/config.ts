/**
 * What a GGUF file says of its model, as the config.json of the same model would say it: the native engine and the rest of inferd read
 * that. A new architecture is an entry of `architectures` (and a line in native/core/checkpoint/gguf_names.cpp). Pure, but for the
 * factors of positions, which are small tensors of the file.
 */
import { ConfigError } from '../error.js';
import { type GgufHead, ggufNumber, ggufText, readSmallTensor } from './read.js';

type Json = Record<string, unknown>;

interface Architecture {
  /** "LlamaForCausalLM" */
  readonly name: string;
  /** "llama" */
  readonly type: string;
  /** Keys that others do not have. */
  readonly extra?: (head: GgufHead, key: (name: string) => string) => Json;
  /** Keys and values may differ in length; `extra` says both. */
  readonly twoLengths?: boolean;
  /** q, k and v have biases, and what attention gives has none. */
  readonly inputBias?: boolean;
}

const window = (head: GgufHead, key: (name: string) => string): Json => {
  const size = ggufNumber(head, key('attention.sliding_window'), 0);
  return { sliding_window: size > 0 ? size : null };
};

/** Gemma's largest models scale scores by the width of the model, the others by that of a head. */
const gemma =
  (wideLayers: number) =>
  (head: GgufHead, key: (name: string) => string): Json => {
    const heads = ggufNumber(head, key('attention.head_count'));
    const hidden = ggufNumber(head, key('embedding_length'));
    const wide = ggufNumber(head, key('block_count')) === wideLayers;
    return {
      hidden_activation: 'gelu_pytorch_tanh',
      query_pre_attn_scalar: wide ? hidden / heads : ggufNumber(head, key('attention.key_length'), hidden / heads),
      sliding_window: ggufNumber(head, key('attention.sliding_window'), 4096),
    };
  };

/** How many experts a layer has, how many a token goes to, and how wide they are. */
const experts = (head: GgufHead, key: (name: string) => string): Json => ({
  num_local_experts: ggufNumber(head, key('expert_count')),
  num_experts_per_tok: ggufNumber(head, key('expert_used_count')),
});

const llama = (head: GgufHead, key: (name: string) => string): Json => {
  const name = (architecture: string, type: string): Json => ({ architectures: [architecture], model_type: type });
  const windowed = ggufNumber(head, key('attention.sliding_window'), 0) > 0;
  if (ggufNumber(head, key('expert_count'), 0) > 0)
    return { ...name('MixtralForCausalLM', 'mixtral'), ...experts(head, key), ...window(head, key) };
  return windowed ? { ...name('MistralForCausalLM', 'mistral'), ...window(head, key) } : {};
};

/**
 * DeepSeek V2, and V3 where the scores are sigmoids. Newer files say the lengths of a head as `..._mla`, for the others are those of what is
 * cached.
 */
const deepseek = (head: GgufHead, key: (name: string) => string): Json => {
  const number = (name: string, fallback?: number): number => ggufNumber(head, key(name), fallback);
  const rotated = number('rope.dimension_count');
  const queryRank = number('attention.q_lora_rank', 0);
  const groups = number('expert_group_count', 1);
  const sigmoid = number('expert_gating_func', softmaxGate) === sigmoidGate;
  const third = { architectures: ['DeepseekV3ForCausalLM'], model_type: 'deepseek_v3' };
  return {
    ...(sigmoid ? third : { topk_method: groups > 1 ? 'group_limited_greedy' : 'greedy' }),
    num_key_value_heads: number('attention.head_count'),
    kv_lora_rank: number('attention.kv_lora_rank'),
    ...(queryRank > 0 ? { q_lora_rank: queryRank } : {}),
    qk_rope_head_dim: rotated,
    qk_nope_head_dim: number('attention.key_length_mla', number('attention.key_length')) - rotated,
    v_head_dim: number('attention.value_length_mla', number('attention.value_length')),
    partial_rotary_factor: 1,
    n_routed_experts: number('expert_count'),
    num_experts_per_tok: number('expert_used_count'),
    n_shared_experts: number('expert_shared_count', 0),
    moe_intermediate_size: number('expert_feed_forward_length'),
    first_k_dense_replace: number('leading_dense_block_count', 0),
    routed_scaling_factor: number('expert_weights_scale', 1),
    norm_topk_prob: head.metadata.get(key('expert_weights_norm')) === true,
    n_group: groups,
    topk_group: number('expert_group_used_count', groups),
  };
};
/** Values of `expert_gating_func`. */
const softmaxGate = 1;
const sigmoidGate = 2;

const architectures: Readonly<Record<string, Architecture>> = {
  llama: { name: 'LlamaForCausalLM', type: 'llama', extra: llama },
  qwen2: { name: 'Qwen2ForCausalLM', type: 'qwen2', inputBias: true },
  qwen3: { name: 'Qwen3ForCausalLM', type: 'qwen3' },
  qwen3moe: {
    name: 'Qwen3MoeForCausalLM',
    type: 'qwen3_moe',
    extra: (head, key) => ({
      ...experts(head, key),
      moe_intermediate_size: ggufNumber(head, key('expert_feed_forward_length')),
      norm_topk_prob: true,
    }),
  },
  'gpt-oss': {
    name: 'GptOssForCausalLM',
    type: 'gpt_oss',
    extra: (head, key) => ({
      ...experts(head, key),
      ...window(head, key),
      intermediate_size: ggufNumber(head, key('expert_feed_forward_length')),
    }),
  },
  deepseek2: { name: 'DeepseekV2ForCausalLM', type: 'deepseek_v2', extra: deepseek, twoLengths: true },
  phi3: { name: 'Phi3ForCausalLM', type: 'phi3', extra: window },
  gemma2: {
    name: 'Gemma2ForCausalLM',
    type: 'gemma2',
    extra: (head, key) => ({
      ...gemma(46)(head, key),
      attn_logit_softcapping: ggufNumber(head, key('attn_logit_softcapping'), 50),
      final_logit_softcapping: ggufNumber(head, key('final_logit_softcapping'), 30),
    }),
  },
  gemma3: {
    name: 'Gemma3ForCausalLM',
    type: 'gemma3_text',
    extra: (head, key) => ({
      ...gemma(62)(head, key),
      rope_theta: ggufNumber(head, key('rope.freq_base'), 1e6),
      rope_local_base_freq: ggufNumber(head, key('rope.freq_base_swa'), 10_000),
      sliding_window_pattern: ggufNumber(head, key('attention.sliding_window_pattern'), 6),
    }),
  },
  olmo2: { name: 'Olmo2ForCausalLM', type: 'olmo2', extra: withoutWindow },
  granite: {
    name: 'GraniteForCausalLM',
    type: 'granite',
    extra: (head, key) => ({
      embedding_multiplier: ggufNumber(head, key('embedding_scale'), 1),
      residual_multiplier: ggufNumber(head, key('residual_scale'), 1),
      attention_multiplier: ggufNumber(head, key('attention.scale'), 1),
      logits_scaling: ggufNumber(head, key('logit_scale'), 1),
    }),
  },
  smollm3: { name: 'SmolLM3ForCausalLM', type: 'smollm3' },
};

/** Converters call OLMo 3 by the name of OLMo 2, and say the window of its layers besides. */
function withoutWindow(head: GgufHead, key: (name: string) => string): Json {
  if (ggufNumber(head, key('attention.sliding_window'), 0) > 0)
    throw new ConfigError(
      `${head.path} is a model of OLMo 3, with a window in some layers, which is not supported; take another model`,
      65,
    );
  return {};
}

/** A number that some files give for each layer. @throws ConfigError 65 where the layers differ. */
function ofEachLayer(head: GgufHead, key: string, fallback?: number): number {
  const value = head.metadata.get(key);
  if (!Array.isArray(value)) return ggufNumber(head, key, fallback);
  const [first] = value as unknown[];
  if (typeof first === 'number' && value.every((other) => other === first)) return first;
  throw new ConfigError(`${head.path}: ${key} is not the same in all layers, which is not supported; take another model`, 65);
}

/** gpt-oss alone does not round where its ramp begins and ends, and no key says so. */
const unroundedRamp = 'gpt-oss';

function yarn(head: GgufHead, key: (name: string) => string, positions: number): Json {
  const logMultiplier = ggufNumber(head, key('rope.scaling.yarn_log_multiplier'), 0);
  const scale = 10 * logMultiplier;
  return {
    original_max_position_embeddings: ggufNumber(head, key('rope.scaling.original_context_length'), positions),
    beta_fast: ggufNumber(head, key('rope.scaling.yarn_beta_fast'), 32),
    beta_slow: ggufNumber(head, key('rope.scaling.yarn_beta_slow'), 1),
    ...(scale > 0 ? { mscale: scale, mscale_all_dim: scale } : {}),
    ...(ggufText(head, 'general.architecture') === unroundedRamp ? { truncate: false } : {}),
  };
}

/** Scaling of positions, which is told by keys, by small tensors or not at all. */
function ropeScaling(head: GgufHead, key: (name: string) => string, positions: number): Json {
  const factors = readSmallTensor(head, 'rope_freqs.weight');
  if (factors !== null) {
    const both = { short_factor: factors, long_factor: factors };
    return { rope_scaling: { rope_type: 'longrope', ...both, attention_factor: 1, original_max_position_embeddings: positions } };
  }
  const long = readSmallTensor(head, 'rope_factors_long.weight');
  const short = readSmallTensor(head, 'rope_factors_short.weight');
  if (long !== null && short !== null) {
    const factor = head.metadata.get(key('rope.scaling.attn_factor'));
    return {
      rope_scaling: {
        rope_type: 'longrope',
        short_factor: short,
        long_factor: long,
        original_max_position_embeddings: ggufNumber(head, key('rope.scaling.original_context_length'), positions),
        ...(typeof factor === 'number' ? { attention_factor: factor } : {}),
      },
    };
  }
  // Older files have another key, and no type.
  const factor = ggufNumber(head, key('rope.scaling.factor'), ggufNumber(head, key('rope.scale_linear'), 1)) || 1;
  const type = ggufText(head, key('rope.scaling.type')) ?? (factor === 1 ? 'none' : 'linear');
  if (type === 'none') return {};
  return { rope_scaling: { rope_type: type, factor, ...(type === 'yarn' ? yarn(head, key, positions) : {}) } };
}

/** Tokens that end an answer wherever they are found, for files that do not name them. */
const endTexts = new Set(['<|eot_id|>', '<|eom_id|>', '<|im_end|>', '<end_of_turn>', '<|end|>', '<|end_of_role|>', '<|endoftext|>']);
/** Control tokens, and those that a user added: converters of Phi-3 made the latter of its ends. */
const addedTypes: readonly unknown[] = [3, 4];

/** Ids that end an answer: end of text, of a turn and of a message. */
function stopIds(head: GgufHead): number[] {
  const { metadata } = head;
  const ids = ['eos_token_id', 'eot_token_id', 'eom_token_id'].map((name) => metadata.get(`tokenizer.ggml.${name}`));
  const tokens = metadata.get('tokenizer.ggml.tokens');
  const types = metadata.get('tokenizer.ggml.token_type');
  if (Array.isArray(tokens) && Array.isArray(types)) {
    // In harmony an answer is several messages, and ends with another token.
    const endsMessages = tokens.includes('<|return|>') ? '<|end|>' : null;
    for (const [id, text] of tokens.entries())
      if (addedTypes.includes(types[id]) && endTexts.has(String(text)) && text !== endsMessages) ids.push(id);
  }
  return [...new Set(ids.filter((id) => typeof id === 'number'))];
}

/** The lists of the metadata that this file reads. */
export const configLists: ReadonlySet<string> = new Set(['tokenizer.ggml.tokens', 'tokenizer.ggml.token_type']);

/** @throws ConfigError 65 for architectures and values that are not supported. */
export function ggufConfig(head: GgufHead): Json {
  const name = ggufText(head, 'general.architecture') ?? '';
  const architecture = Object.hasOwn(architectures, name) ? architectures[name] : undefined;
  if (architecture === undefined)
    throw new ConfigError(
      `${head.path}: the GGUF architecture ${JSON.stringify(name.slice(0, 80))} is not supported; inferd knows ${Object.keys(architectures).join(', ')}`,
      65,
    );
  const key = (of: string): string => `${name}.${of}`;
  const heads = ofEachLayer(head, key('attention.head_count'));
  const hidden = ggufNumber(head, key('embedding_length'));
  const headDim = ggufNumber(head, key('attention.key_length'), hidden / heads);
  if (architecture.twoLengths !== true && ggufNumber(head, key('attention.value_length'), headDim) !== headDim)
    throw new ConfigError(`${head.path}: keys and values of different length are not supported; take another model`, 65);
  const positions = ggufNumber(head, key('context_length'));
  const embedding = head.tensors.get('token_embd.weight');
  if (embedding === undefined || embedding.shape.length !== 2)
    throw new ConfigError(`${head.path} holds no tensor token_embd.weight, so it is no language model`, 65);
  const rotated = ggufNumber(head, key('rope.dimension_count'), headDim);
  const bos = head.metadata.get('tokenizer.ggml.bos_token_id');
  const has = (tensor: string): boolean => head.tensors.has(tensor);
  const outputBias = has('blk.0.attn_output.bias');
  if (architecture.inputBias !== true && has('blk.0.attn_q.bias') && !outputBias)
    throw new ConfigError(`${head.path} has biases of q, k and v alone, which are not supported in ${name}; take another model`, 65);
  return {
    architectures: [architecture.name],
    model_type: architecture.type,
    vocab_size: embedding.shape[0],
    hidden_size: hidden,
    intermediate_size: ofEachLayer(head, key('feed_forward_length')),
    num_hidden_layers: ggufNumber(head, key('block_count')),
    num_attention_heads: heads,
    num_key_value_heads: ofEachLayer(head, key('attention.head_count_kv'), heads),
    head_dim: headDim,
    max_position_embeddings: positions,
    rms_norm_eps: ggufNumber(head, key('attention.layer_norm_rms_epsilon'), 1e-5),
    rope_theta: ggufNumber(head, key('rope.freq_base'), 10_000),
    ...(rotated < headDim ? { partial_rotary_factor: rotated / headDim } : {}),
    ...ropeScaling(head, key, positions),
    tie_word_embeddings: !has('output.weight'),
    attention_bias: outputBias,
    mlp_bias: has('blk.0.ffn_gate.bias'),
    ...(typeof bos === 'number' ? { bos_token_id: bos } : {}),
    eos_token_id: stopIds(head),
    ...architecture.extra?.(head, key),
  };
}
