/**
 * What is DeepSeek's own: the bytes of a cache of latents, answers that do not depend on how tokens came to it, and what config.json says.
 * Its golden packs are among those of ../golden.test.ts.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import type { NativeError } from '../../../native/index.js';
import { errors, generate, openPack, type Run, readGolden } from '../../helpers/native/golden.js';
import { blockSets, fixture, nativeError, openEngine, openRanks, runStep } from '../../helpers/native/native-engine.js';
import { withModelFolder } from '../../helpers/native/tiny-model.js';

type Config = Record<string, unknown>;
const configOf = (pack: string): Config => JSON.parse(readFileSync(fixture('golden', pack, 'config.json'), 'utf8')) as Config;

/** The pack with another config.json. */
function withVariant<T>(pack: string, change: Config, use: (folder: string) => T): T {
  const folder = mkdtempSync(join(tmpdir(), 'inferd-deepseek-'));
  try {
    for (const file of readdirSync(fixture('golden', pack)))
      if (file !== 'config.json') symlinkSync(join(fixture('golden', pack), file), join(folder, file));
    writeFileSync(join(folder, 'config.json'), JSON.stringify({ ...configOf(pack), ...change }));
    return use(folder);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Of a variant: the largest error of a logit against those of the pack itself. */
function errorOf(pack: string, change: Config): number {
  const golden = readGolden(pack);
  return withVariant(pack, change, (folder) => {
    const engine = openEngine(folder, {}, 32);
    const run: Run = generate(engine, golden.ids, 1, 16);
    engine.close();
    return errors(run, golden).max;
  });
}

describe('the cache', () => {
  test('has rank + rope values a token and layer: 1,152 bytes in 16 bits with DeepSeek V3 sizes, on each rank too', () => {
    const config = {
      ...configOf('deepseek-v3-mla'),
      ...{ num_hidden_layers: 5, num_attention_heads: 16, kv_lora_rank: 512, qk_rope_head_dim: 64, qk_nope_head_dim: 128, v_head_dim: 128 },
    };
    withModelFolder(config, (folder) => {
      for (const [kvDtype, bytes] of [
        ['bf16', 1152],
        ['f16', 1152],
        ['f32', 2304],
      ] as const) {
        const engine = openEngine(folder, { loadDummy: true, kvDtype, blockSize: 16 }, 4);
        assert.equal(engine.info().blockBytes / 16, 5 * bytes);
        engine.close();
      }
      const ranks = openRanks(folder, 4, { loadDummy: true, kvDtype: 'bf16', blockSize: 16 }, 4);
      for (const rank of ranks.ranks) assert.equal(rank.info().blockBytes / 16, 5 * 1152);
      ranks.close();
    });
  });

  for (const pack of ['deepseek-v2', 'deepseek-v3-mla', 'deepseek-v3-yarn']) {
    test(`${pack}: a fork, and a sequence that is computed again from its tokens, go on with the same bits`, () => {
      const { ids } = readGolden(pack);
      const engine = openPack(pack);
      const whole = generate(engine, ids, 24, 16);
      const half = [...ids, ...whole.tokens.slice(0, 12)];

      const again = generate(engine, half, 12, 16, { slot: 1, firstBlock: 10 });
      assert.deepEqual(again.tokens, whole.tokens.slice(12));
      assert.deepEqual(again.logprobs, whole.logprobs.slice(12));

      // The fork shares whole blocks with slot 2 and gets a copy of the block that both write to.
      const shared = Math.floor((half.length - 1) / 16);
      runStep(engine, {
        newSlots: [{ slot: 2, tokens: half, sampling: { topLogprobs: 0 } }],
        blockSets: blockSets(2, 10, 10),
        rows: [{ slot: 2, start: 0, count: half.length - 1 }],
      });
      runStep(engine, {
        newSlots: [{ slot: 3, forkOf: 2, promptLen: ids.length, sampling: { topLogprobs: 0 } }],
        blockSets: [...blockSets(3, 10, shared), ...blockSets(3, 20, 10 - shared, shared)],
        copies: [{ src: 10 + shared, dst: 20 }],
      });
      const tokens: number[] = [];
      const logprobs: number[] = [];
      for (let i = 0; i < 12; i++) {
        const { samples } = runStep(engine, { rows: [{ slot: 3, start: half.length - 1 + i, count: 1 }], samples: [{ row: 0, slot: 3 }] });
        tokens.push(...samples.map((s) => s.token));
        logprobs.push(...samples.map((s) => s.logprob));
      }
      assert.deepEqual(tokens, whole.tokens.slice(12));
      assert.deepEqual(logprobs, whole.logprobs.slice(12));
      engine.close();
    });
  }
});

describe('config.json', () => {
  test('how rows are paired, the scale of yarn, groups and weights of experts each count', () => {
    const rope = configOf('deepseek-v3-yarn')['rope_parameters'] as Config;
    assert.ok(errorOf('deepseek-v3-mla', {}) < 2e-3);
    assert.ok(errorOf('deepseek-v3-mla', { rope_interleave: false }) > 1);
    assert.ok(errorOf('deepseek-v3-mla', { routed_scaling_factor: 1 }) > 0.1);
    assert.ok(errorOf('deepseek-v3-mla', { n_group: 1, topk_group: 1 }) > 0.1);
    assert.ok(errorOf('deepseek-v3-mla', { norm_topk_prob: false }) > 0.1);
    assert.ok(errorOf('deepseek-v3-yarn', { rope_parameters: { ...rope, mscale_all_dim: 0.75 } }) > 0.1, 'scores times its square');
    assert.ok(errorOf('deepseek-v3-yarn', { rope_parameters: { ...rope, factor: 8 } }) > 0.1);
    assert.ok(errorOf('deepseek-v3-yarn', { rms_norm_eps: 1e-6 }) > 2e-3);
  });

  test('layers for multi-token prediction are no part of the model', () => {
    const count = (layers: number): number =>
      withModelFolder({ ...configOf('deepseek-v3-mla'), num_nextn_predict_layers: layers }, (folder) => {
        const engine = openEngine(folder, { loadDummy: true }, 4);
        const { parameters, numLayers } = engine.info();
        engine.close();
        assert.equal(numLayers, 3);
        return parameters;
      });
    assert.equal(count(1), count(0));
  });

  const refused: readonly (readonly [pack: string, change: Config, code: NativeError['code'], message: RegExp])[] = [
    [
      'deepseek-v2',
      { topk_method: 'noaux_tc' },
      'unsupported',
      /topk_method "noaux_tc" is not supported; greedy and group_limited_greedy are/,
    ],
    ['deepseek-v2', { scoring_func: 'sigmoid' }, 'unsupported', /scoring_func "sigmoid" is not supported, only softmax is/],
    ['deepseek-v3-mla', { scoring_func: 'softmax' }, 'unsupported', /scoring_func "softmax" is not supported, only sigmoid is/],
    ['deepseek-v3-mla', { attention_bias: true }, 'unsupported', /attention_bias is not supported/],
    ['deepseek-v3-mla', { kv_lora_rank: undefined }, 'bad_model', /kv_lora_rank is missing/],
    [
      'deepseek-v3-mla',
      { kv_lora_rank: 20 },
      'unsupported',
      /kv_lora_rank and qk_rope_head_dim together are 52, not a multiple of 8 up to 640/,
    ],
    ['deepseek-v3-mla', { n_group: 3 }, 'bad_model', /8 experts are not 3 groups of equal size/],
    [
      'deepseek-v3-mla',
      { num_experts_per_tok: 6, topk_group: 1 },
      'bad_model',
      /1 groups of experts have fewer than num_experts_per_tok \(6\)/,
    ],
  ];
  test('what is not computed is refused in one sentence', () => {
    for (const [pack, change, code, message] of refused) {
      withModelFolder({ ...configOf(pack), ...change }, (folder) => {
        assert.throws(() => openEngine(folder, { loadDummy: true }, 4), nativeError(code, message), JSON.stringify(change));
      });
    }
  });
});
