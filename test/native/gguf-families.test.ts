/**
 * Models of every architecture as GGUF files: the golden packs in the names, metadata and rows that converters of each family write, held to
 * the logits that transformers computed for the packs.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { type GgufSpec, type Meta, openGguf, type TensorSpec, writeGguf } from '../helpers/native/gguf.js';
import { ggufFromPack, hasGgufFamily } from '../helpers/native/gguf-from-pack.js';
import { generate, nmse, packs, readGolden } from '../helpers/native/golden.js';
import { nativeError } from '../helpers/native/native-engine.js';

const folder = mkdtempSync(join(tmpdir(), 'inferd-gguf-families-'));
after(() => rmSync(folder, { recursive: true }));
/** Seen: 1e-13 to 1e-11. */
const sameWeights = 1e-8;

const q8 = { type: 8, values: 32, bytes: 34 };

/** A float32 tensor in blocks of Q8_0 whose scales are powers of two, and the float32 values of these. */
function inQ8({ dims, data }: TensorSpec): { readonly blocks: TensorSpec; readonly values: TensorSpec } {
  const from = new Float32Array(data.buffer, data.byteOffset, data.byteLength / 4);
  const blocks = new DataView(new ArrayBuffer((from.length / q8.values) * q8.bytes));
  const values = from.map((value, i) => {
    const block = Math.floor(i / q8.values);
    const largest = Math.max(...from.subarray(block * q8.values, (block + 1) * q8.values).map(Math.abs));
    const exponent = Math.max(-14, Math.ceil(Math.log2(largest / 127)));
    const code = Math.round(value / 2 ** exponent);
    blocks.setUint16(block * q8.bytes, (exponent + 15) << 10, true);
    blocks.setInt8(block * q8.bytes + 2 + (i % q8.values), code);
    return code * 2 ** exponent;
  });
  return {
    blocks: { dims, type: q8.type, data: new Uint8Array(blocks.buffer) },
    values: { dims, type: 0, data: new Uint8Array(values.buffer) },
  };
}

describe('experts and latent matrices in blocks', () => {
  for (const pack of ['qwen3-moe', 'gpt-oss', 'deepseek-v3-mla']) {
    test(`of ${pack} are the numbers that the blocks hold`, () => {
      const { spec, unsaid } = ggufFromPack(pack);
      const all = Object.entries(spec.tensors as Readonly<Record<string, TensorSpec>>);
      const coded = all.filter(([name]) => /_exps\.weight|attn_[kv]_b\./.test(name)).map(([name, tensor]) => [name, inQ8(tensor)] as const);
      assert.ok(coded.length > 0);
      const logits = (kind: 'blocks' | 'values'): Float32Array[] => {
        const tensors = { ...Object.fromEntries(all), ...Object.fromEntries(coded.map(([name, both]) => [name, both[kind]])) };
        const path = writeGguf(join(folder, `${pack}-${kind}.gguf`), { ...spec, tensors } satisfies GgufSpec);
        const engine = openGguf(path, { weightDtype: 'f32' }, unsaid);
        const run = generate(engine, readGolden(pack).ids, 2, 16);
        engine.close();
        return [...run.logits.values()];
      };
      assert.deepEqual(logits('blocks'), logits('values'));
    });
  }
});

test('latent matrices that do not make one are refused', () => {
  const { spec, unsaid } = ggufFromPack('deepseek-v3-mla');
  const tensors = { ...(spec.tensors as Readonly<Record<string, TensorSpec>>) };
  const keys = tensors['blk.0.attn_k_b.weight'];
  assert.ok(keys !== undefined);
  tensors['blk.0.attn_k_b.weight'] = { ...keys, dims: [...keys.dims.slice(0, 1), ...keys.dims.slice(1).reverse()] };
  const path = writeGguf(join(folder, 'misfit.gguf'), { ...spec, tensors });
  assert.throws(
    () => openGguf(path, {}, unsaid),
    nativeError('bad_model', /attn_kv_b.*attn_k_b \[64, 4, 64\] and attn_v_b \[4, 64, 64\] do not make/),
  );
});

const metadataOf = (spec: GgufSpec): readonly (readonly [string, Meta])[] => spec.metadata as readonly (readonly [string, Meta])[];

function isTheModel(pack: string, path: string): void {
  const golden = readGolden(pack);
  const engine = openGguf(path, { weightDtype: 'f32' });
  const run = generate(engine, golden.ids, 32, 16);
  engine.close();
  assert.ok(nmse(run, golden) <= sameWeights, `nmse ${nmse(run, golden)}`);
  assert.deepEqual(run.tokens, golden.greedyIds);
}

test('the first part of a split file may hold no tensor, and any other the head and the factors of positions', () => {
  const { spec } = ggufFromPack('llama3.1-gqa');
  const tensors = Object.entries(spec.tensors as Readonly<Record<string, TensorSpec>>);
  assert.ok(['output.weight', 'rope_freqs.weight'].every((name) => tensors.some(([other]) => other === name)));
  const parts = [[], tensors.slice(0, 5), tensors.slice(5)];
  const said = [
    ['split.count', parts.length],
    ['split.tensors.count', tensors.length],
  ] as const;
  for (const [no, part] of parts.entries()) {
    const metadata = [...(no === 0 ? metadataOf(spec) : []), ['split.no', no] as const, ...said];
    writeGguf(join(folder, `split-0000${no + 1}-of-00003.gguf`), { metadata, tensors: part });
  }
  isTheModel('llama3.1-gqa', join(folder, 'split-00001-of-00003.gguf'));
});

test('numbers may be said for each layer', () => {
  const { spec } = ggufFromPack('llama2-mha');
  const each = /\.(attention\.head_count(_kv)?|feed_forward_length)$/;
  const metadata = metadataOf(spec)
    .filter(([key]) => !/\.(key|value)_length$/.test(key))
    .map(([key, value]) => [key, each.test(key) && typeof value === 'number' ? [value, value] : value] as const);
  isTheModel('llama2-mha', writeGguf(join(folder, 'listed.gguf'), { ...spec, metadata }));
});

describe('a model as a GGUF file', () => {
  for (const pack of packs.filter(hasGgufFamily)) {
    test(`${pack} has the logits of the model, and its tokens`, (t) => {
      const golden = readGolden(pack);
      const { spec, unsaid } = ggufFromPack(pack);
      const path = writeGguf(join(folder, `${pack}.gguf`), spec);
      const engine = openGguf(path, { weightDtype: 'f32' }, unsaid);
      const run = generate(engine, golden.ids, 32, 16);
      engine.close();
      t.diagnostic(`nmse ${nmse(run, golden).toExponential(2)}`);
      assert.ok(nmse(run, golden) <= sameWeights, `nmse ${nmse(run, golden)}`);
      assert.deepEqual(run.tokens, golden.greedyIds);
    });
  }
});
