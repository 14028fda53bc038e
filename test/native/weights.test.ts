/** Loading: slices of stored tensors, names that a checkpoint has of its own, random numbers, formats that a backend does not keep. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { loadAddon, type NativeError } from '../../native/index.js';
import { openPack } from '../helpers/native/golden.js';
import { engineOptions, nativeError } from '../helpers/native/native-engine.js';
import { floats, isas, runOp } from '../helpers/native/op-table.js';
import { randomFloats, randomSource } from '../helpers/native/reference-ops.js';
import { writeSafetensors } from '../helpers/native/safetensors.js';
import { type Tensors, tinyConfig, withModelFolder } from '../helpers/native/tiny-model.js';

const setup = { isa: 'reference' };

interface Whole {
  readonly tensor: string;
  readonly rows: number;
  readonly cols: number;
  readonly vector?: 1;
}

/** Loads a tensor as the parts between the cuts, and puts them together. */
function load(whole: Whole, source: Record<string, string | number>, rowCuts: readonly number[] = [], colCuts: readonly number[] = []) {
  const attrs = { ...whole, piece_bytes: 1, ...source, num_rows: rowCuts.length + 1, num_cols: colCuts.length + 1 };
  const inputs = {
    row_cuts: Int32Array.from([0, ...rowCuts, whole.rows]),
    col_cuts: Int32Array.from([0, ...colCuts, whole.cols]),
  };
  return floats(runOp(setup, 'load_slices', attrs, inputs), 'out');
}

function withTensors<T>(tensors: Tensors, body: (folder: string) => T): T {
  return withModelFolder({}, (folder) => {
    writeSafetensors(join(folder, 'model.safetensors'), tensors);
    return body(folder);
  });
}

const cutsBelow = (end: number) => fc.array(fc.nat(end), { maxLength: 4 }).map((cuts) => cuts.sort((a, b) => a - b));
const cutMatrix = fc.tuple(fc.integer({ min: 1, max: 200 }), fc.integer({ min: 1, max: 40 }), fc.nat(4000)).chain(([rows, cols, piece]) =>
  fc.record({
    rows: fc.constant(rows),
    cols: fc.constant(cols),
    piece: fc.constant(piece),
    rowCuts: cutsBelow(rows),
    colCuts: cutsBelow(cols),
  }),
);

describe('a tensor that is loaded in slices', () => {
  const random = randomSource(11);

  it('is the whole, however its rows and columns are cut and its rows are read in pieces', () => {
    fc.assert(
      fc.property(cutMatrix, ({ rows, cols, piece, rowCuts, colCuts }) => {
        const data = randomFloats(random, rows * cols);
        // What stands before it moves it to an odd multiple of four bytes.
        const tensors: Tensors = new Map([
          ['a', { shape: [1], data: new Float32Array(1) }],
          ['t', { shape: [rows, cols], data }],
        ]);
        const got = withTensors(tensors, (folder) => load({ tensor: 't', rows, cols }, { folder, piece_bytes: piece }, rowCuts, colCuts));
        assert.deepEqual(got, data);
      }),
      { numRuns: 60, seed: 3 },
    );
  });

  it('may be a vector, whose elements are columns', () => {
    const data = randomFloats(random, 50);
    const tensors: Tensors = new Map([['v', { shape: [50], data }]]);
    const whole = { tensor: 'v', rows: 1, cols: 50, vector: 1 } as const;
    assert.deepEqual(
      withTensors(tensors, (folder) => load(whole, { folder }, [], [1, 20, 49])),
      data,
    );
  });

  it('has the random numbers of the whole, also one that is a part of another tensor', () => {
    fc.assert(
      fc.property(cutMatrix, fc.constantFrom('f32', 'bf16'), ({ rows, cols, piece, rowCuts, colCuts }, dtype) => {
        const whole = { tensor: 'model.layers.0.self_attn.qkv_proj.weight', rows, cols };
        const at = { dtype, piece_bytes: piece };
        assert.deepEqual(load(whole, at, rowCuts, colCuts), load(whole, at));
      }),
      { numRuns: 60, seed: 4 },
    );
  });

  it('must have the shape that is asked for as a whole', () => {
    const tensors: Tensors = new Map([['t', { shape: [4, 6], data: new Float32Array(24) }]]);
    withTensors(tensors, (folder) => {
      assert.throws(
        () => load({ tensor: 't', rows: 3, cols: 6 }, { folder }, [1]),
        nativeError('bad_model', /tensor t has the shape \[4, 6\], .* asks for \[3, 6\]/),
      );
      assert.throws(
        () => load({ tensor: 'u', rows: 4, cols: 6 }, { folder }, [1, 2]),
        (e: NativeError) => e.code === 'bad_model' && /lacks tensors .*: u\.$/.test(e.message),
      );
    });
  });
});

describe('the names of a checkpoint', () => {
  const canonical = 'model.layers.12.self_attn.q_proj.weight';
  const data = Float32Array.from([1, 2, 3, 4, 5, 6]);
  const loadAs = (stored: string, names: string, name = canonical): Float32Array =>
    withTensors(new Map([[stored, { shape: [2, 3], data }]]), (folder) => load({ tensor: name, rows: 2, cols: 3 }, { folder, names }));

  for (const [what, stored, names] of [
    ['none of its own', canonical, ''],
    ['a prefix before all names', `language_model.${canonical}`, '*=language_model.*'],
    ['a prefix before some names', `language_model.${canonical}`, 'lm_head.*=language_model.head.*\nmodel.*=language_model.model.*'],
    ['other names for each layer', 'blk.12.attn_q.weight', 'model.layers.{}.self_attn.q_proj.weight=blk.{}.attn_q.weight'],
    ['another name for one tensor', 'q', `${canonical}=q`],
    [
      'rules of which the first that fits decides',
      'first.12',
      `model.layers.{}.self_attn.k_proj.weight=zeroth.{}\nmodel.layers.{}.self_attn.q_proj.weight=first.{}\n*=second.*`,
    ],
    ['rules that do not fit', canonical, 'model.layers.{}.mlp.up_proj.weight=blk.{}.ffn_up.weight\nq*=p*\nmodel.{}.weight=m.{}'],
  ] as const)
    it(`may be ${what}`, () => assert.deepEqual(loadAs(stored, names), data));

  it('stand in the message when one is missing', () => {
    assert.throws(
      () => loadAs(canonical, 'model.*=language_model.model.*'),
      /: language_model\.model\.layers\.12\.self_attn\.q_proj\.weight\./,
    );
  });

  it('have a number where {} stands, and nothing else', () => {
    const rule = 'model.layers.{}.weight=blk.{}.weight';
    for (const name of ['model.layers..weight', 'model.layers.1x.weight', 'model.layers.-1.weight', 'model.layers.weight'])
      assert.deepEqual(loadAs(name, rule, name), data, name);
    assert.deepEqual(loadAs('blk.007.weight', rule, 'model.layers.007.weight'), data);
  });
});

describe('the bytes of a model', () => {
  // 32 values a norm, of which there are five; of a layer 192 output features of 32 inputs and 32 of 48. The head keeps 8 bits.
  const others = 4 * (32 * 32 + 5 * 32);
  for (const [quantization, head, layer] of [
    ['none', 32 * 32 * 4, (192 * 32 + 32 * 48) * 4],
    ['int8', 32 * 34, 192 * 34 + 32 * 2 * 34],
    ['int4', 32 * 34, 192 * 20 + 32 * 2 * 20],
  ] as const)
    it(`are those of the format of each weight: ${quantization}`, () => {
      for (const architecture of ['LlamaForCausalLM', 'Phi3ForCausalLM']) {
        const bytes = withModelFolder({ ...tinyConfig, architectures: [architecture] }, (folder) => {
          const engine = loadAddon().createEngine(engineOptions(folder, { loadDummy: true, weightDtype: 'f32', quantization }));
          const { weightBytes } = engine.info();
          engine.close();
          return weightBytes;
        });
        assert.equal(bytes, others + head + 2 * layer, architecture);
      }
    });
});

describe('an embedding that is the output head too', () => {
  for (const [pack, norms] of [
    ['llama3.2-tied', 0.01],
    ['gemma3', 0.02],
  ] as const) {
    it(`is in memory once: ${pack}`, () => {
      const engine = openPack(pack);
      const { weightBytes, tableBytes, parameters, dtype } = engine.info();
      engine.close();
      assert.equal(tableBytes, 0);
      assert.ok(weightBytes <= parameters * (dtype === 'f32' ? 4 : 2) * (1 + norms), `${weightBytes} bytes of ${parameters} weights`);
    });
  }

  it('is there twice where only the head is quantized while loading, as rows of it would be other numbers', () => {
    const engine = openPack('llama3.2-tied', { quantization: 'int8' });
    const { tableBytes, vocabSize, hiddenSize, dtype } = engine.info();
    engine.close();
    assert.equal(tableBytes, vocabSize * hiddenSize * (dtype === 'f32' ? 4 : 2));
  });
});

describe('a format that is described, but that no kernel multiplies', () => {
  it('is refused in one sentence that names it and what there is', () => {
    const inputs = { x: new Float32Array(8), weight: new Float32Array(32) };
    for (const isa of isas)
      assert.throws(
        () => runOp({ isa }, 'linear', { rows: 1, cols: 8, outs: 4, dtype: 'int8_rows' }, inputs),
        nativeError(
          'unsupported',
          /weights are int8 with f32 scales of 1 x all weights, and it keeps f32, f16, bf16, int8, int4, .* and int4 with f16 scales and minima of 1 x 128 weights\.$/,
        ),
      );
  });
});
