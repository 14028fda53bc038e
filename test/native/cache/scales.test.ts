/**
 * The scales that a checkpoint holds for keys and values in fp8: a pack made with some against its reference, every spelling and shape, ranks,
 * and what is refused.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { loadAddon, type NativeEngine } from '../../../native/index.js';
import type { RankEngines } from '../../../native/rank-engines.js';
import { generate, nmse, openPack, type Run, readGolden } from '../../helpers/native/golden.js';
import { engineOptions, fixture, nativeError, openEngine, openRanks } from '../../helpers/native/native-engine.js';
import { readSafetensors, widenedBf16, writeSafetensors } from '../../helpers/native/safetensors.js';
import { type Tensors, withModelFolder } from '../../helpers/native/tiny-model.js';

/** Numbers of a scale, or those of each head. */
type Scales = Readonly<Record<string, readonly number[]>>;

/** Two heads of keys and values in each of three layers. */
const PACK = 'llama3.1-gqa';
const NUM_LAYERS = 3;
const golden = readGolden(PACK);

/** Of float32 arithmetic over the same 8-bit numbers. Seen: 4e-13; without scales, or without 8 bits, 3e-3. */
const sameNumbers = 1e-8;

function packTensors(): Tensors {
  const entries = readSafetensors(fixture('golden', PACK, 'model.safetensors'));
  return new Map([...entries].map(([name, { shape, data }]) => [name, { shape: [...shape], data: widenedBf16(data) }]));
}

/** The pack with these tensors beside those of each attention, "k_scale" for example. */
function withScales<T>(scales: Scales, body: (folder: string) => T, shape: readonly number[] | null = null): T {
  const config = JSON.parse(readFileSync(fixture('golden', PACK, 'config.json'), 'utf8')) as Record<string, unknown>;
  return withModelFolder(config, (folder) => {
    const tensors = packTensors();
    for (let layer = 0; layer < NUM_LAYERS; layer++) {
      for (const [name, numbers] of Object.entries(scales)) {
        const data = Float32Array.from(numbers);
        tensors.set(`model.layers.${layer}.self_attn.${name}`, { shape: [...(shape ?? [data.length])], data });
      }
    }
    writeSafetensors(join(folder, 'model.safetensors'), tensors);
    return body(folder);
  });
}

const run = (engine: NativeEngine | RankEngines): Run => {
  const result = generate(engine as NativeEngine, golden.ids, 16, 16);
  engine.close();
  return result;
};
const runScaled = (scales: Scales): Run => withScales(scales, (folder) => run(openEngine(folder, { kvDtype: 'fp8' }, 32)));

describe('a pack with scales of keys and values', () => {
  const pack = 'quant-fp8-ct-tensor';
  const exact = readGolden(pack);
  const kv8 = readSafetensors(fixture('golden', pack, 'golden.safetensors')).get('logits_kv8')?.data as Float32Array;

  for (const isa of loadAddon().systemInfo().usableIsas) {
    test(`gives the logits of its reference with such keys and values on ${isa}, and chunks and hits change no bit`, (t) => {
      const engine = openPack(pack, { isa, weightDtype: 'f32', kvDtype: 'fp8' });
      assert.deepEqual([engine.info().kvDtype, engine.info().kvScaledLayers], ['fp8', engine.info().numLayers]);
      const whole = generate(engine, exact.ids, 16, 16);
      const error = nmse(whole, { ...exact, logits: kv8 });
      const own = nmse(whole, exact);
      t.diagnostic(`nmse ${error.toExponential(2)} of the reference with 8 bits, ${own.toExponential(2)} of the one without`);
      assert.ok(error <= sameNumbers, `nmse ${error}`);
      assert.ok(own > 100 * sameNumbers);
      for (const way of [
        { slot: 1, firstBlock: 16, chunk: 7 },
        { slot: 2, firstBlock: 16, cachedBlocks: 1 },
        { slot: 3, firstBlock: 16, swapAt: 5 },
      ]) {
        const other = generate(engine, exact.ids, 16, 16, way);
        assert.deepEqual([other.tokens, other.logprobs], [whole.tokens, whole.logprobs]);
        for (const [position, values] of other.logits) assert.deepEqual(values, whole.logits.get(position));
      }
      engine.close();
    });
  }

  test('has no use for them in other types', () => {
    const engine = openPack(pack, { kvDtype: 'bf16' });
    assert.equal(engine.info().kvScaledLayers, 0);
    engine.close();
  });
});

describe('scales of keys and values', () => {
  const plain = withScales({}, (folder) => run(openEngine(folder, { kvDtype: 'fp8' }, 32)));
  const [k, v] = [[0.03], [0.0125]];
  const canonical = runScaled({ k_scale: k, v_scale: v });

  test('of 1 are as none, and others give other numbers', () => {
    assert.deepEqual(runScaled({ k_scale: [1], v_scale: [1] }), plain);
    assert.notDeepEqual(canonical.logits, plain.logits);
    assert.ok(nmse(canonical, golden) < 0.05 && nmse(plain, golden) < 0.05);
  });

  const spellings: Record<string, Scales> = {
    'of ModelOpt': { 'k_proj.k_scale': k, 'v_proj.v_scale': v },
    'of an attention': { 'attn.k_scale': k, 'attn.v_scale': v },
    'of the output of projections': { 'k_proj.output_scale': k, 'v_proj.output_scale': v },
    'beside scales of queries and probabilities': { k_scale: k, v_scale: v, q_scale: [0.5], prob_scale: [0.25] },
    'one a head, both alike': { k_scale: [...k, ...k], v_scale: [...v, ...v] },
  };
  for (const [name, scales] of Object.entries(spellings)) {
    test(`are found in the spelling ${name}`, () => assert.deepEqual(runScaled(scales), canonical));
  }

  test('may be one for both', () => assert.deepEqual(runScaled({ kv_scale: k }), runScaled({ k_scale: k, v_scale: k })));

  test('may differ by head, and ranks take those of their heads', () => {
    const scales = { k_scale: [0.03, 0.5], v_scale: [0.0125, 2] };
    const whole = runScaled(scales);
    assert.notDeepEqual(whole.logits, canonical.logits);
    const logits = new Float32Array(golden.logits.length);
    for (const [position, values] of whole.logits) logits.set(values, position * values.length);
    const ranks = withScales(scales, (folder) => run(openRanks(folder, 2, { kvDtype: 'fp8' }, 32)));
    // Sums over ranks are rounded otherwise, and may so turn a number of 8 bits.
    assert.ok(nmse(ranks, { ...golden, logits }) <= 1e-3);
    const swapped = { k_scale: [0.5, 0.03], v_scale: [2, 0.0125] };
    const others = withScales(swapped, (folder) => run(openRanks(folder, 2, { kvDtype: 'fp8' }, 32)));
    assert.ok(nmse(others, { ...golden, logits }) > nmse(ranks, { ...golden, logits }));
  });

  const refused: readonly (readonly [scales: Scales, message: RegExp, shape?: readonly number[]])[] = [
    [{ k_scale: [0], v_scale: v }, /The tensor model\.layers\.0\.self_attn\.k_scale holds a scale of 0, /],
    [{ k_scale: k, v_scale: [-1] }, /The tensor model\.layers\.0\.self_attn\.v_scale holds a scale of -1, /],
    [{ kv_scale: [Number.NaN] }, /self_attn\.kv_scale holds a scale of -?nan, /],
    [{ 'k_proj.k_scale': [Number.POSITIVE_INFINITY], 'v_proj.v_scale': v }, /self_attn\.k_proj\.k_scale holds a scale of inf, /],
    [{ k_scale: [0.5, 0], v_scale: v }, /self_attn\.k_scale holds a scale of 0, /],
    [
      { k_scale: [1, 1, 1], v_scale: v },
      /k_scale has the shape \[3\], and a scale of keys and values is one number, or one for each of 2 heads/,
    ],
    [{ k_scale: [], v_scale: v }, /k_scale has the shape \[0\]/],
    [{ k_scale: k }, /k_scale is there without model\.layers\.0\.self_attn\.v_scale; set cache\.cache_dtype to bf16 to do without it/],
    [{ 'attn.v_scale': v }, /attn\.v_scale is there without model\.layers\.0\.self_attn\.attn\.k_scale/],
  ];
  for (const [scales, message] of refused) {
    test(`${JSON.stringify(scales)} are refused`, () =>
      withScales(scales, (folder) => {
        assert.throws(() => loadAddon().createEngine(engineOptions(folder, { kvDtype: 'fp8' })), nativeError('bad_model', message));
        loadAddon()
          .createEngine(engineOptions(folder, { kvDtype: 'bf16' }))
          .close();
      }));
  }
});
