/** config.json of every architecture: what is read, what is refused and in which words; tied heads, biases, rope types, windows. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { ROW_FLAG } from '../../actors/messages/step.js';
import { type EngineOptions, loadAddon, type NativeError } from '../../native/index.js';
import { blockSets, engineOptions, fixture, nativeError, openEngine, runStep } from '../helpers/native/native-engine.js';
import { tinyConfig, tinyTensors, withModel, withModelFolder } from '../helpers/native/tiny-model.js';

type Config = Record<string, unknown>;
const dummy = { loadDummy: true, weightDtype: 'f32' } as const;
const tokens = Array.from({ length: 24 }, (_, i) => (i * 7) % 32);

/** Logits of all 24 positions with random weights. */
function logits(change: Config, options: Partial<EngineOptions> = {}): number[][] {
  return withModelFolder({ ...tinyConfig, ...change }, (folder) => {
    const engine = openEngine(folder, { ...dummy, maxModelLen: 64, ...options }, 4);
    const flags = ROW_FLAG.rawLogits;
    const a = runStep(engine, {
      newSlots: [{ slot: 0, tokens }],
      blockSets: blockSets(0, 0, 2),
      rows: [{ slot: 0, start: 0, count: 24, flags }],
    });
    engine.close();
    return a.logits.map((row) => [...row.values]);
  });
}

/** Size in parameters of a model with this config. */
function parameters(change: Config): number {
  return withModelFolder({ ...tinyConfig, ...change }, (folder) => {
    const engine = loadAddon().createEngine(engineOptions(folder, dummy));
    const count = engine.info().parameters;
    engine.close();
    return count;
  });
}

describe('config.json', () => {
  const base = parameters({});

  test('tied embeddings, biases, norms of q and k and fused tensors are counted as what they are', () => {
    assert.equal(parameters({ tie_word_embeddings: true }), base - 32 * 32);
    assert.equal(parameters({ attention_bias: true }), base + 2 * (64 + 32));
    assert.equal(parameters({ mlp_bias: true }), base + 2 * (2 * 48 + 32));
    assert.equal(parameters({ architectures: ['MistralForCausalLM'] }), base);
    assert.equal(parameters({ architectures: ['Qwen2ForCausalLM'] }), base + 2 * 64);
    assert.equal(parameters({ architectures: ['Qwen3ForCausalLM'] }), base + 2 * 2 * 16);
    assert.equal(parameters({ architectures: ['Phi3ForCausalLM'] }), base);
  });

  test('layers have experts where the config says, by step and but for those that it lists', () => {
    const moe = { architectures: ['Qwen3MoeForCausalLM'], num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 16 };
    const dense = base + 2 * 2 * 16; // with norms of q and k
    const more = 4 * 32 + 4 * 3 * 16 * 32 - 3 * 48 * 32; // experts and their router in place of the MLP of a layer
    const [listed, sparse] = [{ mlp_only_layers: [1] }, { decoder_sparse_step: 2 }];
    assert.equal(parameters(moe), dense + 2 * more);
    assert.equal(parameters({ ...moe, ...listed }), dense + more);
    assert.equal(parameters({ ...moe, ...sparse }), dense + more);
    assert.equal(parameters({ ...moe, ...listed, ...sparse }), dense, 'the second layer is the one of the step');
  });

  test('absent keys mean what they mean to the tools that wrote the file', () => {
    assert.equal(parameters({ head_dim: null }), base, '32 / 2 heads = 16');
    assert.equal(parameters({ num_key_value_heads: undefined }), base + 2 * 2 * 16 * 32, 'as many as heads');
    assert.equal(parameters({ architectures: undefined }), base, 'model_type decides');
  });

  const refused: readonly (readonly [change: Config, code: NativeError['code'], message: RegExp])[] = [
    [
      { architectures: ['Qwen3MoeForCausalLM'], num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 16, mlp_only_layers: ['1'] },
      'bad_model',
      /mlp_only_layers must hold numbers of layers/,
    ],
    [
      { architectures: ['GPT2LMHeadModel'] },
      'unsupported',
      /"GPT2LMHeadModel" is not supported; inferd knows LlamaForCausalLM, .*Phi3ForCausalLM/,
    ],
    [{ architectures: [], model_type: 'rwkv' }, 'unsupported', /"rwkv" is not supported/],
    [{ hidden_act: 'gelu' }, 'unsupported', /activation "gelu"/],
    [{ quantization_config: { bits: 4 } }, 'unsupported', /quantized by "" are not supported; inferd reads gptq, awq, fp8, /],
    ...['bitsandbytes', 'hqq', 'exl2', 'exl3', 'quip', 'aqlm', 'spqr', 'torchao', 'modelopt'].map(
      (method) =>
        [{ quantization_config: { quant_method: method } }, 'unsupported', new RegExp(`quantized by "${method}" are not`)] as const,
    ),
    ...['marlin', 'bitblas', 'gptq_p'].map(
      (layout) =>
        [
          { quantization_config: { quant_method: 'gptq', checkpoint_format: layout } },
          'unsupported',
          new RegExp(`GPTQ layout "${layout}" is not supported; take`),
        ] as const,
    ),
    [{ quantization_config: { quant_method: 'gptq', is_marlin_format: true } }, 'unsupported', /GPTQ layout "marlin"/],
    ...['gemv', 'gemv_fast', 'marlin', 'llm-awq'].map(
      (layout) =>
        [{ quantization_config: { quant_method: 'awq', version: layout } }, 'unsupported', new RegExp(`AWQ layout "${layout}"`)] as const,
    ),
    [
      { quantization_config: { quant_method: 'compressed-tensors', sparsity_config: { format: 'sparse-24-bitmask' } } },
      'unsupported',
      /sparse weights \("sparse-24-bitmask"\) are not supported/,
    ],
    [{ quantization_config: { quant_method: 'compressed-tensors', format: 'marlin-24' } }, 'unsupported', /format "marlin-24"/],
    [{ quantization_config: { quant_method: 'fp8', weight_block_size: [0, 1] } }, 'bad_model', /must be two whole numbers/],
    [
      { rope_scaling: { rope_type: 'dynamic', factor: 4 } },
      'unsupported',
      /rope type "dynamic" is not supported; default, linear, llama3, longrope and yarn/,
    ],
    [{ head_dim: 512 }, 'unsupported', /backend cpu .* cannot run this model: its head_dim is 512, not a multiple of 8 up to 256/],
    [{ head_dim: 20 }, 'unsupported', /its head_dim is 20, not a multiple of 8 up to 256/],
    [{ vocab_size: undefined }, 'bad_model', /vocab_size is missing/],
    [{ vocab_size: -1 }, 'bad_model', /vocab_size must be a whole number from 1/],
    [{ hidden_size: 1e30 }, 'bad_model', /hidden_size must be a whole number/],
    [{ num_hidden_layers: 2000 }, 'bad_model', /num_hidden_layers must be .* to 1024/],
    [{ num_key_value_heads: 3 }, 'bad_model', /\(2\) is not a multiple of num_key_value_heads \(3\)/],
    [{ num_attention_heads: 3, num_key_value_heads: 1, head_dim: null }, 'bad_model', /hidden_size \(32\) is not a multiple/],
    [{ head_dim: 15 }, 'bad_model', /head_dim \(15\) is odd/],
    [{ rms_norm_eps: 'small' }, 'bad_model', /rms_norm_eps must be a number/],
    [{ attention_bias: 1 }, 'bad_model', /attention_bias must be true or false/],
    [{ rope_scaling: 'linear' }, 'bad_model', /rope_scaling must be an object/],
    [{ rope_scaling: { rope_type: 'linear' } }, 'bad_model', /rope_scaling: the key factor is missing/],
    [
      { rope_scaling: { rope_type: 'llama3', factor: 8, low_freq_factor: 4, high_freq_factor: 1, original_max_position_embeddings: 8 } },
      'bad_model',
      /must be above/,
    ],
    [
      { rope_scaling: { rope_type: 'yarn', factor: 8, beta_fast: 1, beta_slow: 2, original_max_position_embeddings: 8 } },
      'bad_model',
      /beta_fast must not be below beta_slow/,
    ],
    [
      { rope_parameters: { rope_type: 'longrope', short_factor: [1], long_factor: [1] } },
      'bad_model',
      /must hold 8 numbers each, and hold 1 and 1/,
    ],
    [{ partial_rotary_factor: 0.2 }, 'bad_model', /rotary dimension 3/],
    [
      { architectures: ['Qwen2ForCausalLM'], use_sliding_window: true, layer_types: ['full_attention'] },
      'bad_model',
      /layer_types must be a list/,
    ],
  ];
  for (const [change, code, message] of refused) {
    test(`with ${JSON.stringify(change)} is refused`, () => {
      withModelFolder({ ...tinyConfig, ...change }, (folder) => {
        assert.throws(() => loadAddon().createEngine(engineOptions(folder, dummy)), nativeError(code, message));
      });
    });
  }

  test('that is no JSON, no object or missing is refused', () => {
    withModelFolder(null, (folder) =>
      assert.throws(() => loadAddon().createEngine(engineOptions(folder)), nativeError('io', /config.json: No such file/)),
    );
    for (const value of [[], 'text', 7]) {
      withModelFolder(value as unknown as Config, (folder) => {
        assert.throws(() => loadAddon().createEngine(engineOptions(folder)), nativeError('bad_model', /not a JSON object/));
      });
    }
  });
});

describe('rope', () => {
  const plain = logits({});

  test('both layouts of the keys say the same', () => {
    const scaling = { rope_type: 'llama3', factor: 8, low_freq_factor: 1, high_freq_factor: 4, original_max_position_embeddings: 16 };
    const older = logits({ rope_theta: 5000, rope_scaling: scaling });
    assert.deepEqual(logits({ rope_theta: undefined, rope_parameters: { rope_theta: 5000, ...scaling } }), older);
    assert.notDeepEqual(older, logits({ rope_theta: 5000 }));
    assert.deepEqual(logits({ rope_scaling: null }), plain);
    assert.deepEqual(logits({ rope_scaling: { type: 'linear', factor: 1 } }), plain, 'the legacy name of the key');
    assert.notDeepEqual(logits({ rope_scaling: { type: 'linear', factor: 2 } }), plain);
  });

  test('longrope takes the short factors up to the original length and the long ones beyond', () => {
    const ones = new Array<number>(8).fill(1);
    const fours = new Array<number>(8).fill(4);
    const phi = { architectures: ['Phi3ForCausalLM'], max_position_embeddings: 256, original_max_position_embeddings: 256 };
    const longrope = (options: Partial<EngineOptions>, original: number): number[][] =>
      logits(
        {
          ...phi,
          original_max_position_embeddings: original,
          rope_scaling: { type: 'longrope', short_factor: ones, long_factor: fours, attention_factor: 1 },
        },
        options,
      );
    assert.deepEqual(longrope({ maxModelLen: 64 }, 64), logits(phi), 'short factors of 1 change nothing');
    assert.deepEqual(
      longrope({ maxModelLen: 65 }, 64),
      logits({ ...phi, rope_scaling: { type: 'linear', factor: 4 } }),
      'long factors of 4 divide by 4',
    );
  });

  test('yarn keeps fast frequencies, divides slow ones, goes from one to the other in between, and makes scores larger', () => {
    const [theta, factor, original, pairs] = [5000, 16, 1024, 8];
    const yarn = { rope_type: 'yarn', factor, original_max_position_embeddings: original };
    /** The same as one divisor a frequency. */
    const divided = (betaFast: number, betaSlow: number, whole: boolean, attentionFactor: number): number[][] => {
      const at = (turns: number): number => (pairs * Math.log(original / (turns * 2 * Math.PI))) / Math.log(theta);
      const [first, last] = whole ? [Math.floor(at(betaFast)), Math.ceil(at(betaSlow))] : [at(betaFast), at(betaSlow)];
      const factors = Array.from({ length: pairs }, (_, i) => {
        const share = Math.min(1, Math.max(0, (i - Math.max(0, first)) / (last - Math.max(0, first))));
        return 1 / (share / factor + 1 - share);
      });
      assert.ok(factors[0] === 1 && factors[pairs - 1] === factor, `${factors}`);
      assert.equal(
        factors.some((f) => f > 1 && f < factor),
        betaFast > betaSlow,
        `${factors}`,
      );
      return logits({
        architectures: ['Phi3ForCausalLM'],
        rope_theta: theta,
        rope_scaling: { type: 'longrope', short_factor: factors, long_factor: factors, attention_factor: attentionFactor },
      });
    };
    const close = (got: number[][], want: number[][], name: string): void => {
      const plainLogits = logits({ architectures: ['Phi3ForCausalLM'], rope_theta: theta });
      const far = (a: number[][], b: number[][]): number =>
        Math.max(...a.flatMap((row, i) => row.map((v, j) => Math.abs(v - (b[i]?.[j] ?? NaN)))));
      assert.ok(far(got, want) < 1e-3 * far(got, plainLogits), `${name}: ${far(got, want)} of ${far(got, plainLogits)}`);
    };
    const of = (rope: Config): number[][] =>
      logits({ architectures: ['Phi3ForCausalLM'], rope_theta: theta, rope_scaling: { ...yarn, ...rope } });
    const scale = (weight: number): number => 0.1 * weight * Math.log(factor) + 1;
    close(of({}), divided(32, 1, true, scale(1)), 'defaults');
    close(of({ truncate: false, beta_fast: 16, beta_slow: 2 }), divided(16, 2, false, scale(1)), 'a ramp as it is');
    close(of({ beta_fast: 1, beta_slow: 1 }), divided(1, 1, true, scale(1)), 'a ramp that is a step');
    close(of({ mscale: 0.75, mscale_all_dim: 1 }), divided(32, 1, true, scale(0.75) / scale(1)), 'both scales');
    close(of({ mscale: 0.75 }), divided(32, 1, true, scale(1)), 'one scale counts for nothing');
    close(of({ attention_factor: 1.5, mscale: 1, mscale_all_dim: 1 }), divided(32, 1, true, 1.5), 'a factor that is given');
  });

  test('a partial rotation leaves position 0 alone and changes the others', () => {
    const half = logits({ architectures: ['Phi3ForCausalLM'], partial_rotary_factor: 0.5 });
    const whole = logits({ architectures: ['Phi3ForCausalLM'] });
    assert.deepEqual(half[0], whole[0]);
    assert.notDeepEqual(half[5], whole[5]);
  });
});

describe('sliding windows', () => {
  const last = (config: Config, slidingWindow = 0): number[] | undefined => logits(config, { slidingWindow })[23];
  const mistral = { architectures: ['MistralForCausalLM'] };
  const qwen = { architectures: ['Qwen3ForCausalLM'], sliding_window: 4 };

  test('mistral and phi3 use one in every layer unless it is null', () => {
    for (const architectures of [['MistralForCausalLM'], ['Phi3ForCausalLM']]) {
      const full = last({ architectures, sliding_window: null });
      assert.notDeepEqual(last({ architectures, sliding_window: 4 }), full);
      assert.deepEqual(last({ architectures, sliding_window: 24 }), full, 'a window of all 24 tokens hides none');
      assert.deepEqual(last({ architectures }), full, 'none given, and 4096 is longer than this text');
    }
    assert.deepEqual(last({ ...mistral, sliding_window: 4 }), last({ ...mistral, sliding_window: 4, use_sliding_window: false }));
  });

  test('qwen2 and qwen3 use one only where they say so', () => {
    const full = last({ ...qwen, use_sliding_window: false });
    assert.deepEqual(last({ ...qwen, sliding_window: null }), full);
    assert.deepEqual(last({ ...qwen, use_sliding_window: true, max_window_layers: 2 }), full, 'both layers are below max_window_layers');
    const second = last({ ...qwen, use_sliding_window: true, max_window_layers: 1 });
    assert.notDeepEqual(second, full);
    const types = ['full_attention', 'sliding_attention'];
    assert.deepEqual(last({ ...qwen, use_sliding_window: true, layer_types: types }), second, 'layer_types name the same layer');
    assert.notDeepEqual(last({ ...qwen, use_sliding_window: true, layer_types: types.reverse() }), second);
  });

  test('the option takes the place of the windows that a model has, and its full layers stay full', () => {
    assert.deepEqual(last({ ...mistral, sliding_window: 9 }, 4), last({ ...mistral, sliding_window: 4 }));
    for (const architectures of [['Qwen2ForCausalLM'], ['Qwen3ForCausalLM']]) {
      const mixed = { architectures, use_sliding_window: true, max_window_layers: 1 };
      assert.deepEqual(last({ ...mixed, sliding_window: 9 }, 4), last({ ...mixed, sliding_window: 4 }));
      assert.notDeepEqual(last({ ...mixed, sliding_window: 9 }, 4), last({ ...mixed, max_window_layers: 0, sliding_window: 4 }));
    }
  });

  test('the option gives one to every layer of a model that has none', () => {
    const all = last({ ...mistral, sliding_window: 4 });
    for (const config of [{}, { ...mistral, sliding_window: null }]) assert.deepEqual(last(config, 4), all);
    assert.deepEqual(last({ ...qwen, use_sliding_window: false }, 4), last({ ...qwen, use_sliding_window: true, max_window_layers: 0 }));
  });
});

test('a checkpoint of the bare model, saved without its head, gives the same as the whole one', () => {
  const tied = { ...tinyConfig, tie_word_embeddings: true };
  const run = (rename: (name: string) => string): Float32Array | undefined => {
    const tensors = new Map(
      [...tinyTensors()].filter(([name]) => name !== 'lm_head.weight').map(([name, tensor]) => [rename(name), tensor]),
    );
    return withModel(
      tensors,
      (folder) => {
        const engine = openEngine(folder, {}, 4);
        const rows = [{ slot: 0, start: 0, count: 24, flags: ROW_FLAG.rawLogits }];
        const answer = runStep(engine, { newSlots: [{ slot: 0, tokens }], blockSets: blockSets(0, 0, 2), rows });
        engine.close();
        return answer.logits[23]?.values;
      },
      tied,
    );
  };
  const whole = run((name) => name);
  assert.ok(whole !== undefined);
  assert.deepEqual(
    run((name) => name.replace(/^model\./, '')),
    whole,
  );
  assert.throws(
    () => run((name) => name.replace(/^model\./, 'other.')),
    (error) => /lacks tensors .* model\.embed_tokens\.weight/.test((error as Error).message),
  );
});

test('weights can be held in another dtype than the checkpoint has', () => {
  const run = (weightDtype: EngineOptions['weightDtype']): { dtype: string; logits: Float32Array | undefined } =>
    withModel(tinyTensors(), (folder) => {
      const engine = openEngine(folder, { weightDtype }, 4);
      const flags = ROW_FLAG.rawLogits;
      const a = runStep(engine, {
        newSlots: [{ slot: 0, tokens }],
        blockSets: blockSets(0, 0, 2),
        rows: [{ slot: 0, start: 0, count: 24, flags }],
      });
      const { dtype } = engine.info();
      engine.close();
      return { dtype, logits: a.logits[23]?.values };
    });
  const exact = run('auto');
  assert.equal(exact.dtype, 'f32');
  assert.deepEqual(run('f32'), exact);
  for (const [weightDtype, bound] of [
    ['f16', 0.01],
    ['bf16', 0.08],
  ] as const) {
    const rounded = run(weightDtype);
    assert.equal(rounded.dtype, weightDtype);
    const error = Math.max(...[...(rounded.logits ?? [])].map((v, i) => Math.abs(v - (exact.logits?.[i] ?? Number.NaN))));
    assert.ok(error > 0 && error < bound, `${weightDtype} moved a logit by ${error}`);
  }
});

describe('configs as the hub has them, with random weights', () => {
  const models: readonly (readonly [folder: string, architecture: string, parameters: number])[] = [
    ['gemma-2-2b-it', 'Gemma2ForCausalLM', 2_614_341_888],
    ['gemma-3-1b-it', 'Gemma3ForCausalLM', 999_885_952],
    ['olmo-2-7b', 'Olmo2ForCausalLM', 7_298_617_344],
    ['granite-3.3-2b', 'GraniteForCausalLM', 2_533_539_840],
    ['smollm3-3b', 'SmolLM3ForCausalLM', 3_075_098_624],
  ];
  for (const [folder, architecture, count] of models) {
    test(`${folder} has the parameters that its authors count`, () => {
      const engine = loadAddon().createEngine(engineOptions(fixture('shapes', folder), { loadDummy: true, maxModelLen: 4096 }));
      const info = engine.info();
      assert.deepEqual([info.architecture, info.parameters, info.dtype], [architecture, count, 'bf16']);
      engine.close();
    });
  }
});
