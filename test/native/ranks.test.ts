/**
 * A model split over ranks (tensor and expert parallelism) on the CPU: golden packs, what each rank holds, and what does not divide. Every step of
 * every test also compares the answers of all ranks, which must have the same bits.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, it } from 'node:test';
import { RESULT, ROW_FLAG } from '../../actors/messages/step.js';
import { type EngineOptions, loadAddon, type NativeEngine } from '../../native/index.js';
import { errors, generate, hasExperts, openPack, openPackRanks, packs, readGolden } from '../helpers/native/golden.js';
import { blockSets, engineOptions, fixture, nativeError, openEngine, openRanks, runStep } from '../helpers/native/native-engine.js';
import { buildPlan, type PlanSpec, type SamplingWords } from '../helpers/native/plan.js';
import { tinyConfig, tinyTensors, withModel, withModelFolder } from '../helpers/native/tiny-model.js';

/** Inner features are shared out in steps of so many. */
const FEATURE_STEP = 8;
/** As of whole models. */
const maxLogitError = 2e-3;

interface PackConfig {
  readonly num_attention_heads: number;
  readonly vocab_size: number;
  readonly hidden_size: number;
  readonly num_key_value_heads: number;
  readonly head_dim?: number;
  readonly kv_lora_rank?: number;
  readonly qk_rope_head_dim?: number;
  readonly q_lora_rank?: number | null;
  readonly num_local_experts?: number;
  readonly num_experts?: number;
  readonly n_routed_experts?: number;
}
const configOf = (pack: string): PackConfig => JSON.parse(readFileSync(fixture('golden', pack, 'config.json'), 'utf8')) as PackConfig;

for (const pack of packs) {
  describe(pack, () => {
    const golden = readGolden(pack);
    for (const ranks of [2, 4]) {
      if (configOf(pack).num_attention_heads % ranks !== 0) {
        it(`is refused by ${ranks} ranks with the number that they do not divide`, () => {
          const message = new RegExp(`cannot be split over ${ranks} ranks: its num_attention_heads is 2, which ${ranks} does not divide`);
          assert.throws(() => openPackRanks(pack, ranks), nativeError('unsupported', message));
        });
        continue;
      }

      for (const expertParallel of hasExperts(pack) ? [false, true] : [false]) {
        const how = expertParallel ? ', which share its experts whole' : '';
        it(`gives the golden logits and greedy tokens on ${ranks} ranks${how}, in chunks and swapped too`, (t) => {
          const engine = openPackRanks(pack, ranks, { threads: 2, expertParallel });
          const run = generate(engine, golden.ids, 32, 16);
          assert.equal(run.logits.size, golden.ids.length);
          const { max } = errors(run, golden);
          t.diagnostic(`max |logit - golden| = ${max.toExponential(2)}`);
          assert.ok(max <= maxLogitError, `max |logit - golden| = ${max}`);
          assert.deepEqual(run.tokens, golden.greedyIds);
          const other = generate(engine, golden.ids, 32, 16, { slot: 1, firstBlock: 16, chunk: 7, swapAt: 9 });
          assert.deepEqual(other.tokens, run.tokens);
          assert.deepEqual(other.logprobs, run.logprobs);
          engine.close();
        });
      }
    }
  });
}

describe('what a rank holds', () => {
  it('is its share of the weights and no more, but for norms, a step of features and what fills up a vocabulary', () => {
    for (const pack of packs) {
      for (const ranks of [2, 4]) {
        const {
          num_attention_heads: heads,
          num_key_value_heads: kvHeads,
          vocab_size: vocab,
          hidden_size: hidden,
          ...rest
        } = configOf(pack);
        if (heads % ranks !== 0) continue;
        const whole = openPack(pack);
        const total = whole.info();
        const split = openPackRanks(pack, ranks);
        // Embedding and head, of which the first ranks have more; heads of keys and values, or latents, that several ranks hold; norms.
        const width = Math.ceil(vocab / (64 * ranks)) * 64;
        const elementBytes = total.dtype === 'f32' ? 4 : 2;
        const filling = 2 * (width - vocab / ranks) * hidden * elementBytes;
        const norms = total.numLayers * 6 * 4 * hidden * 4;
        const latent = rest.kv_lora_rank === undefined ? 0 : rest.kv_lora_rank + (rest.qk_rope_head_dim ?? 0);
        const repeatedRows =
          latent > 0
            ? (1 - 1 / ranks) * (latent + (rest.q_lora_rank ?? 0))
            : 2 * (Math.max(1, kvHeads / ranks) - kvHeads / ranks) * (rest.head_dim ?? hidden / heads);
        const repeated = total.numLayers * repeatedRows * hidden * elementBytes;
        // Of the three matrices of an MLP or an expert; a shared expert counts as one.
        const experts = 1 + (rest.num_local_experts ?? rest.num_experts ?? rest.n_routed_experts ?? 0);
        const lessThanAStep = total.numLayers * 3 * experts * FEATURE_STEP * hidden * elementBytes;
        for (const rank of split.ranks) {
          const { weightBytes, parameters } = rank.info();
          assert.ok(
            weightBytes <= total.weightBytes / ranks + filling + norms + repeated + lessThanAStep,
            `${pack}, ${ranks} ranks: ${weightBytes}`,
          );
          if (rank === split.ranks[0]) assert.equal(parameters, total.parameters);
        }
        assert.equal(split.info().blockBytes, latent > 0 ? total.blockBytes : total.blockBytes / Math.min(ranks, kvHeads));
        split.close();
        whole.close();
      }
    }
  });

  it('can be a share of the vocabulary without a single id', () => {
    const split = openPackRanks('olmo2', 4);
    const bytes = split.ranks.map((rank) => rank.info().weightBytes);
    const idBytes = 2 * configOf('olmo2').hidden_size * (split.info().dtype === 'f32' ? 4 : 2);
    // 320 ids in shares of 128.
    assert.deepEqual(
      bytes.map((b) => (b - (bytes[3] ?? 0)) / idBytes),
      [128, 128, 64, 0],
    );
    split.close();
  });
});

/** Logits of each position of a prompt, and some greedy tokens. */
function probe(engine: NativeEngine, vocab: number): { logits: number[]; tokens: number[] } {
  const prompt = Array.from({ length: 12 }, (_, i) => (i * 7 + 3) % vocab);
  runStep(engine, { newSlots: [{ slot: 0, tokens: prompt }], blockSets: blockSets(0, 0, 4) });
  const first = runStep(engine, {
    rows: [{ slot: 0, start: 0, count: prompt.length, flags: ROW_FLAG.rawLogits }],
    samples: [{ row: 0, slot: 0 }],
  });
  const tokens = first.samples.map((s) => s.token);
  for (let i = 0; i < 8; i++) {
    const step = runStep(engine, { rows: [{ slot: 0, start: prompt.length + i, count: 1 }], samples: [{ row: 0, slot: 0 }] });
    tokens.push(...step.samples.map((s) => s.token));
  }
  return { logits: first.logits.flatMap(({ values }) => [...values]), tokens };
}

function sameAnswers(folder: string, vocab: number, ranks: number, options: Partial<EngineOptions>, bound: number): void {
  const whole = openEngine(folder, options);
  const split = openRanks(folder, ranks, options);
  const [one, several] = [probe(whole, vocab), probe(split, vocab)];
  assert.equal(several.logits.length, one.logits.length);
  for (const [i, value] of several.logits.entries())
    assert.ok(Math.abs(value - (one.logits[i] ?? Number.NaN)) <= bound, `logit ${i}: ${value}, ${one.logits[i]}`);
  assert.deepEqual(several.tokens, one.tokens);
  whole.close();
  split.close();
}

describe('a split model answers as the whole one', () => {
  it('with random weights, which are the same numbers however it is split', () => {
    const config = {
      ...tinyConfig,
      vocab_size: 200,
      hidden_size: 64,
      num_attention_heads: 4,
      num_key_value_heads: 2,
      intermediate_size: 96,
    };
    for (const architecture of ['LlamaForCausalLM', 'Phi3ForCausalLM', 'Olmo2ForCausalLM']) {
      for (const tie_word_embeddings of [false, true]) {
        withModelFolder({ ...config, architectures: [architecture], tie_word_embeddings }, (folder) => {
          for (const ranks of [2, 4]) sameAnswers(folder, 200, ranks, { loadDummy: true, weightDtype: 'f32' }, 1e-5);
        });
      }
    }
  });

  it('on eight ranks, of which several have the same keys where there are fewer heads of them', () => {
    const config = { ...tinyConfig, vocab_size: 320, hidden_size: 128, num_attention_heads: 8, intermediate_size: 176 };
    for (const num_key_value_heads of [1, 2, 8]) {
      withModelFolder({ ...config, num_key_value_heads }, (folder) =>
        sameAnswers(folder, 320, 8, { loadDummy: true, weightDtype: 'f32' }, 1e-5),
      );
    }
  });

  it('with inner features that ranks do not divide, of which some have eight more', () => {
    const config = { ...tinyConfig, vocab_size: 200, hidden_size: 64, num_attention_heads: 4, num_key_value_heads: 2 };
    for (const intermediate_size of [40, 104, 176]) {
      withModelFolder({ ...config, intermediate_size }, (folder) =>
        sameAnswers(folder, 200, 4, { loadDummy: true, weightDtype: 'f32' }, 1e-5),
      );
    }
    const moe = { ...config, architectures: ['MixtralForCausalLM'], num_local_experts: 4, num_experts_per_tok: 2, intermediate_size: 104 };
    withModelFolder(moe, (folder) => sameAnswers(folder, 200, 4, { loadDummy: true, weightDtype: 'f32' }, 1e-5));
  });

  it('with biases behind attention and MLP, which are added once', () => {
    const tensors = tinyTensors();
    const bias = (name: string, size: number): void => {
      tensors.set(`${name}.bias`, { shape: [size], data: Float32Array.from({ length: size }, (_, i) => Math.sin(i + size) / 2) });
    };
    for (const layer of [0, 1]) {
      const at = `model.layers.${layer}`;
      bias(`${at}.self_attn.q_proj`, 32);
      bias(`${at}.self_attn.k_proj`, 16);
      bias(`${at}.self_attn.v_proj`, 16);
      bias(`${at}.self_attn.o_proj`, 32);
      bias(`${at}.mlp.gate_proj`, 48);
      bias(`${at}.mlp.up_proj`, 48);
      bias(`${at}.mlp.down_proj`, 32);
    }
    withModel(tensors, (folder) => sameAnswers(folder, 32, 2, {}, 1e-4), { ...tinyConfig, attention_bias: true, mlp_bias: true });
  });

  it('with quantized weights, cut between blocks', () => {
    const config = { ...tinyConfig, hidden_size: 64, num_attention_heads: 4, head_dim: 32, intermediate_size: 128, num_key_value_heads: 2 };
    withModelFolder(config, (folder) => {
      for (const quantization of ['int8', 'int4'] as const) sameAnswers(folder, 32, 2, { loadDummy: true, quantization }, 1e-2);
    });
    withModelFolder({ ...config, intermediate_size: 96 }, (folder) => {
      assert.throws(
        () => openRanks(folder, 2, { loadDummy: true, quantization: 'int8' }),
        nativeError('unsupported', /down_proj cannot be int8 and split over ranks: each would have 48 of its 96 columns/),
      );
    });
  });
});

describe('ranks that share experts whole', () => {
  const moe = {
    ...tinyConfig,
    architectures: ['Qwen3MoeForCausalLM'],
    num_attention_heads: 4,
    num_key_value_heads: 2,
    num_experts: 7,
    num_experts_per_tok: 3,
    norm_topk_prob: true,
    moe_intermediate_size: 20,
  };
  const dummy = { loadDummy: true, weightDtype: 'f32', expertParallel: true } as const;

  it('answer as the whole model, also where they do not divide the experts', () => {
    withModelFolder(moe, (folder) => {
      for (const ranks of [2, 4]) sameAnswers(folder, 32, ranks, dummy, 1e-5);
    });
  });

  it('stay in step when most of them have nothing to compute', () => {
    withModelFolder({ ...moe, num_experts: 4, num_experts_per_tok: 1 }, (folder) => sameAnswers(folder, 32, 4, dummy, 1e-5));
  });

  it('tell how many tokens each expert got, as one rank does', () => {
    withModelFolder(moe, (folder) => {
      const tokensOf = (engine: NativeEngine): number[][] => {
        runStep(engine, { newSlots: [{ slot: 0, tokens: [3, 9, 27, 17] }], blockSets: blockSets(0, 0, 1) });
        runStep(engine, { rows: [{ slot: 0, start: 0, count: 4 }], samples: [{ row: 0, slot: 0 }] });
        const work = engine.expertWork?.() ?? [];
        engine.close();
        return work.map(({ tokens }) => [...tokens]);
      };
      const { expertParallel, ...alone } = dummy;
      const [first = [], last = []] = tokensOf(openEngine(folder, alone));
      assert.deepEqual([first.length, last.length], [7, 7]);
      const sum = (counts: readonly number[]) => counts.reduce((a, b) => a + b, 0);
      assert.deepEqual([sum(first), sum(last)], [4 * 3, 1 * 3], 'the last layer computes the token that is sampled behind');
      assert.deepEqual(tokensOf(openRanks(folder, 2, dummy)), [first, last]);
      assert.deepEqual(tokensOf(openRanks(folder, 2, alone)), [first, last], 'of experts split by features');
    });
  });

  for (const pack of packs.filter(hasExperts)) {
    it(`count the parameters of the whole model, as one rank does: ${pack}`, () => {
      const whole = openPack(pack);
      const split = openPackRanks(pack, 2, { expertParallel: true });
      assert.equal(split.info().parameters, whole.info().parameters);
      split.close();
      whole.close();
    });
  }

  it('hold all of their own experts and nothing of the others', () => {
    const expertBytes = 2 * 3 * 20 * 32 * 4; // in two layers
    withModelFolder({ ...moe, vocab_size: 128 }, (folder) => {
      const bytesOf = (ranks: number): number[] => {
        const split = openRanks(folder, ranks, dummy);
        const bytes = split.ranks.map((rank) => rank.info().weightBytes);
        split.close();
        return bytes;
      };
      const [first = 0, second = 0] = bytesOf(2);
      assert.ok(second - first >= expertBytes && second - first < 1.6 * expertBytes, `4 of 7 against 3: ${[first, second]}`);
    });
  });

  it('need no blocks of quantized weights to lie within a share of an expert', () => {
    withModelFolder({ ...moe, hidden_size: 128, head_dim: 32, moe_intermediate_size: 32 }, (folder) => {
      const options = { loadDummy: true, quantization: 'int8' } as const;
      assert.throws(() => openRanks(folder, 2, options), nativeError('unsupported', /down_proj cannot be int8 and split over ranks/));
      sameAnswers(folder, 32, 2, { ...options, expertParallel: true }, 1e-2);
    });
  });

  it('refuse a model with fewer experts than ranks', () => {
    withModelFolder({ ...moe, num_experts: 3 }, (folder) => {
      assert.throws(
        () => openRanks(folder, 4, dummy),
        nativeError('unsupported', /cannot be shared by 4 ranks: it has 3; set parallel\.expert_parallel to false/),
      );
    });
  });

  it('change nothing of a model without experts', () => {
    withModelFolder(tinyConfig, (folder) => sameAnswers(folder, 32, 2, dummy, 1e-5));
  });
});

describe('a step', () => {
  it('meets the other ranks for the embedding, twice a layer, and once for its tokens', () => {
    const engine = openPackRanks('llama3.1-gqa', 2);
    const { numLayers } = engine.info();
    const ops = (spec: PlanSpec): Map<string, number> => {
      const [rank] = engine.ranks;
      rank?.profileStart?.(10_000);
      runStep(engine, spec);
      const trace = rank?.profileStop?.();
      const counts = new Map<string, number>();
      for (const name of trace?.name ?? []) counts.set(trace?.names[name] ?? '', (counts.get(trace?.names[name] ?? '') ?? 0) + 1);
      return counts;
    };
    const slot = (n: number, sampling: SamplingWords) => ({ slot: n, tokens: [1, 2, 3, 4], sampling });
    runStep(engine, {
      newSlots: [slot(0, { temperature: 0 }), slot(1, { temperature: 1 })],
      blockSets: [...blockSets(0, 0, 1), ...blockSets(1, 1, 1)],
    });
    for (const [n, gathers] of [
      [0, { sample_greedy: 1, sample: undefined }],
      [1, { sample_greedy: undefined, sample: 1 }],
    ] as const) {
      const counts = ops({ rows: [{ slot: n, start: 0, count: 4 }], samples: [{ row: 0, slot: n }] });
      assert.equal(counts.get('all_reduce'), 2 * numLayers + 1);
      assert.equal(counts.get('all_gather'), 1);
      for (const [name, count] of Object.entries(gathers)) assert.equal(counts.get(name), count, name);
    }
    engine.close();
  });
});

describe('ranks that part', () => {
  const plan = buildPlan({
    newSlots: [{ slot: 0, tokens: [1, 2, 3] }],
    blockSets: blockSets(0, 0, 1),
    rows: [{ slot: 0, start: 0, count: 3 }],
  });
  /** The error code of the step and what the engine says of it. */
  const outcome = (rank: NativeEngine | undefined): [number | undefined, string | undefined] => {
    const result = new Uint8Array(1 << 16);
    assert.ok((rank?.wait(result, 30_000) ?? 0) > 0, 'the step ends');
    return [new Int32Array(result.buffer)[RESULT.errorCode], rank?.lastError?.()];
  };

  it('fail with the reason of the one that failed, all alike', () => {
    const engine = openPackRanks('llama3.1-gqa', 2, { commFault: { at: 3, sleepMs: 0 } });
    engine.submit(plan);
    const said = engine.ranks.map((rank) => outcome(rank));
    for (const [code, text] of said) {
      assert.equal(code, 1);
      assert.match(text ?? '', /a fault made by a test/);
    }
    engine.close();
  });

  it('wait for a rank that takes no part as long as they may, and are told of a group that is ended', () => {
    for (const ended of [false, true]) {
      const engine = openPackRanks('llama3.1-gqa', 2, { commTimeoutMs: ended ? 3_600_000 : 200 });
      engine.ranks[0]?.submit(plan);
      if (ended) engine.ranks[1]?.close();
      const [code, text] = outcome(engine.ranks[0]);
      assert.equal(code, 1);
      assert.match(text ?? '', ended ? /parted: rank 1 was closed/ : /parted: rank 0 waited 200 ms for 1 of 1 others/);
      engine.close();
    }
  });

  it('can be ended before all have come, and then none comes in', () => {
    const addon = loadAddon();
    const options = {
      ...engineOptions(fixture('golden', 'llama3.1-gqa')),
      worldSize: 2,
      group: addon.newRankGroup(),
      commTimeoutMs: 100_000,
    };
    addon.endRankGroup(options.group, 'a test says so');
    assert.throws(() => addon.createEngine(options), nativeError('device', /parted: a test says so/));
    const alone = { ...options, group: addon.newRankGroup() };
    const engine = addon.createEngine(alone);
    assert.throws(() => addon.createEngine(alone), nativeError('usage', /Rank 0 of 2 cannot join this group/));
    while (!engine.load(1 << 24).done);
    addon.endRankGroup(alone.group, 'rank 1 does not come');
    assert.throws(() => engine.agree?.([1]), nativeError('device', /rank 1 does not come/));
    engine.close();
  });
});

describe('a model that does not divide', () => {
  const cases: readonly (readonly [Record<string, number>, number, RegExp])[] = [
    [{ num_attention_heads: 6, num_key_value_heads: 3 }, 2, /num_key_value_heads is 3, which 2 does not divide/],
    [{ num_attention_heads: 6, num_key_value_heads: 6 }, 4, /num_attention_heads is 6, which 4 does not divide/],
    [{ num_attention_heads: 4, intermediate_size: 50 }, 4, /intermediate_size is 50, which 4 does not divide/],
  ];
  for (const [sizes, ranks, message] of cases) {
    it(`is refused: ${message.source}`, () => {
      withModelFolder({ ...tinyConfig, ...sizes }, (folder) => {
        assert.throws(() => openRanks(folder, ranks, { loadDummy: true }), nativeError('unsupported', message));
      });
    });
  }
});
