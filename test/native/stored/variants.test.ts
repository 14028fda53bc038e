/**
 * Golden packs of quantized checkpoints as other exporters write the same weights: other keys of the configuration, other tensors beside the
 * codes. Each must be the model of the pack, or be refused.
 */
import assert from 'node:assert/strict';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { generate, nmse, readGolden } from '../../helpers/native/golden.js';
import { fixture, nativeError, openEngine } from '../../helpers/native/native-engine.js';
import { floats, runOp } from '../../helpers/native/op-table.js';
import { type RawTensor, readRawTensors, writeRawTensors } from '../../helpers/native/safetensors.js';
import { withModelFolder } from '../../helpers/native/tiny-model.js';

type Config = Record<string, unknown>;
type Tensors = Map<string, RawTensor>;

/** Seen: 1e-14 to 4e-12. */
const sameWeights = 1e-8;
/** Codes kept, and activations quantized beside them where the processor multiplies those faster. */
const keptCodes = 2e-3;
const kept = [
  ['f32', sameWeights],
  ['auto', keptCodes],
] as const;

const configOf = (pack: string): Config => JSON.parse(readFileSync(fixture('golden', pack, 'config.json'), 'utf8')) as Config;
const quantizationOf = (pack: string): Config => configOf(pack)['quantization_config'] as Config;

interface Variant {
  readonly pack: string;
  /** Of config.json; undefined takes a key away. */
  readonly config?: Config;
  readonly change?: (tensors: Tensors) => void;
  /** Other files, and the name of the weights. */
  readonly files?: Readonly<Record<string, Config>>;
  readonly weights?: string;
}

function inFolder<T>({ pack, config = {}, change, files = {}, weights = 'model.safetensors' }: Variant, body: (folder: string) => T): T {
  return withModelFolder({ ...configOf(pack), ...config }, (folder) => {
    const tensors = readRawTensors(fixture('golden', pack, 'model.safetensors'));
    change?.(tensors);
    writeRawTensors(join(folder, weights), tensors);
    for (const [name, said] of Object.entries(files)) writeFileSync(join(folder, name), JSON.stringify(said));
    return body(folder);
  });
}

function isTheModel(variant: Variant): void {
  const golden = readGolden(variant.pack);
  inFolder(variant, (folder) => {
    for (const [weightDtype, bound] of kept) {
      const engine = openEngine(folder, { weightDtype }, 32);
      const run = generate(engine, golden.ids, 32, 16);
      engine.close();
      assert.ok(nmse(run, golden) <= bound, `${weightDtype}: nmse ${nmse(run, golden)}`);
      if (weightDtype === 'f32') assert.deepEqual(run.tokens, golden.greedyIds);
    }
  });
}

const isRefused = (variant: Variant, code: 'bad_model' | 'unsupported', message: RegExp): void =>
  inFolder(variant, (folder) => assert.throws(() => openEngine(folder), nativeError(code, message)));

/** Calls `body` for every tensor with this ending, by the name of its module. */
function each(tensors: Tensors, ending: string, body: (module: string, tensor: RawTensor) => void): void {
  for (const [name, tensor] of [...tensors]) if (name.endsWith(`.${ending}`)) body(name.slice(0, -ending.length - 1), tensor);
}

const int32 = (values: readonly number[]): RawTensor => ({
  dtype: 'I32',
  shape: [values.length],
  data: new Uint8Array(Int32Array.from(values).buffer),
});
const wordsOf = ({ data }: RawTensor): Int32Array => new Int32Array(data.slice().buffer);
const filled = (count: number, value: number): readonly number[] => Array.from({ length: count }, () => value);

/** Fields of 4 bits, at most 7, in runs of words `down` columns or along rows, as fields of `bits`, whose runs go on from word to word. */
function repacked(t: RawTensor, down: boolean, bits: number): RawTensor {
  const words = wordsOf(t);
  const [rows = 0, cols = 0] = t.shape;
  const [run, runs] = down ? [rows, cols] : [cols, rows];
  const length = (run * bits) / 4;
  const data = new Int32Array(length * runs);
  const place = (of: number, word: number, words: number): number => (down ? word * runs + of : of * words + word);
  for (let of = 0; of < runs; of++)
    for (let i = 0; i < 8 * run; i++) {
      const code = Math.min(7, ((words[place(of, i >> 3, run)] ?? 0) >>> (4 * (i % 8))) & 15);
      for (let at = bits * i; at < bits * (i + 1); at++) data[place(of, at >> 5, length)]! |= ((code >> (at - bits * i)) & 1) << (at % 32); // there is one
    }
  return { ...t, shape: down ? [length, runs] : [runs, length], data: new Uint8Array(data.buffer) };
}

describe('a GPTQ checkpoint', () => {
  test('may say its version by the newer key', () => {
    const { checkpoint_format: format, ...others } = quantizationOf('quant-gptq-int4-v2');
    isTheModel({ pack: 'quant-gptq-int4-v2', config: { quantization_config: { ...others, format } } });
    isRefused(
      { pack: 'quant-gptq-int4-v2', config: { quantization_config: { ...others, format: 'marlin' } } },
      'unsupported',
      /GPTQ layout "marlin"/,
    );
  });

  test('may say all of it in a file of its own, beside weights of another name', () =>
    isTheModel({
      pack: 'quant-gptq-int4-v2',
      config: { quantization_config: undefined },
      files: { 'quantize_config.json': { bits: 4, group_size: 64, checkpoint_format: 'gptq_v2' } },
      weights: 'gptq_model-4bit-64g.safetensors',
    }));

  test('may name group 0 for all columns where they are in place', () =>
    isTheModel({
      pack: 'quant-gptq-int4-sym',
      change: (tensors) => each(tensors, 'g_idx', (module, t) => tensors.set(`${module}.g_idx`, int32(filled(t.shape[0] ?? 0, 0)))),
    }));

  test('may have three bits, whose codes and zeros cross words', () => {
    // Of four bits, those above 7 cut to that, so that three hold them too. The zero is 8, stored as 7.
    const inBits = (bits: number) => (tensors: Tensors) => {
      for (const [end, down] of [
        ['qweight', true],
        ['qzeros', false],
      ] as const)
        each(tensors, end, (module, t) => tensors.set(`${module}.${end}`, repacked(t, down, bits)));
    };
    const { ids } = readGolden('quant-gptq-int4-sym');
    for (const [weightDtype] of kept) {
      const [four, three] = [4, 3].map((bits) => {
        const config = { quantization_config: { ...quantizationOf('quant-gptq-int4-sym'), bits } };
        return inFolder({ pack: 'quant-gptq-int4-sym', config, change: inBits(bits) }, (folder) => {
          const engine = openEngine(folder, { weightDtype }, 32);
          const { logits } = generate(engine, ids, 1, 16);
          engine.close();
          return logits;
        });
      });
      assert.ok((four?.size ?? 0) > 0);
      assert.deepEqual(three, four, weightDtype);
    }
  });

  test('may leave the groups of its columns away where all are whole', () => {
    const change = (tensors: Tensors): void => each(tensors, 'g_idx', (module) => tensors.delete(`${module}.g_idx`));
    isTheModel({ pack: 'quant-gptq-int4-sym', change });
    const quantization_config = { ...quantizationOf('quant-gptq-int4-sym'), group_size: 127 };
    isRefused(
      { pack: 'quant-gptq-int4-sym', change, config: { quantization_config } },
      'bad_model',
      /its 128 columns are not whole groups of 127, and it has no g_idx/,
    );
  });
});

describe('a checkpoint of compressed-tensors', () => {
  test('may name no group for any column', () =>
    isTheModel({
      pack: 'quant-ct-w4a16',
      change: (tensors) =>
        each(tensors, 'weight_packed', (module, { shape }) =>
          tensors.set(`${module}.weight_g_idx`, int32(filled(8 * (shape[1] ?? 0), -1))),
        ),
    }));

  test('may hold zero points one by one', () =>
    isTheModel({
      pack: 'quant-ct-w4a16-asym',
      change: (tensors) =>
        each(tensors, 'weight_zero_point', (module, t) => {
          const [words = 0, groups = 0] = t.shape;
          const packed = wordsOf(t);
          const data = Uint8Array.from({ length: 8 * words * groups }, (_, i) => {
            const row = Math.floor(i / groups);
            return (((packed[Math.floor(row / 8) * groups + (i % groups)] ?? 0) >> (4 * (row % 8))) & 15) - 8;
          });
          tensors.set(`${module}.weight_zero_point`, { dtype: 'I8', shape: [8 * words, groups], data });
        }),
    }));

  test('may have a scale of all of a weight that is no list, and has one', () => {
    const reshape = (tensors: Tensors): void =>
      each(tensors, 'weight_global_scale', (module, t) => tensors.set(`${module}.weight_global_scale`, { ...t, shape: [] }));
    isTheModel({ pack: 'quant-ct-nvfp4', change: reshape });
    const drop = (tensors: Tensors): void =>
      each(tensors, 'weight_global_scale', (module) => tensors.delete(`${module}.weight_global_scale`));
    isRefused({ pack: 'quant-ct-nvfp4', change: drop }, 'bad_model', /weight_global_scale is missing/);
  });

  test('may have zero points that are 0, and scales for groups of columns', () => {
    const groups = 4;
    isTheModel({
      pack: 'quant-ct-w8a8-int8',
      change: (tensors) =>
        each(tensors, 'weight_scale', (module, t) => {
          const [rows = 0] = t.shape;
          const halves = new Uint16Array(t.data.slice().buffer);
          const data = new Uint8Array(Uint16Array.from({ length: rows * groups }, (_, i) => halves[Math.floor(i / groups)] ?? 0).buffer);
          tensors.set(`${module}.weight_scale`, { ...t, shape: [rows, groups], data });
          tensors.set(`${module}.weight_zero_point`, { dtype: 'I8', shape: [rows, groups], data: new Uint8Array(rows * groups) });
        }),
    });
  });

  test('may have zero points of int8', () =>
    isTheModel({
      pack: 'quant-ct-w8a8-int8',
      change: (tensors) =>
        each(tensors, 'weight_scale', (module) => {
          const weight = tensors.get(`${module}.weight`);
          assert.ok(weight !== undefined);
          const [rows = 0, cols = 0] = weight.shape;
          const codes = new Int8Array(weight.data.slice().buffer);
          // Codes are moved to where there is room in their row.
          const zeros = Int8Array.from({ length: rows }, (_, row) => {
            const of = codes.subarray(row * cols, (row + 1) * cols);
            return Math.min(...of) > -128 ? -128 - Math.min(...of) : 127 - Math.max(...of);
          });
          assert.ok(zeros.some((zero) => zero !== 0));
          const moved = codes.map((code, i) => code + (zeros[Math.floor(i / cols)] ?? 0));
          tensors.set(`${module}.weight`, { ...weight, data: new Uint8Array(moved.buffer) });
          tensors.set(`${module}.weight_zero_point`, { dtype: 'I8', shape: [rows, 1], data: new Uint8Array(zeros.buffer) });
        }),
    }));

  test('may spell blocks as text, under the key of its first files', () => {
    const { weight_block_size: _, ...rest } = quantizationOf('quant-fp8-block');
    assert.equal(rest['quant_method'], 'fp8');
    const compression_config = { format: 'float-quantized', config_groups: { group_0: { weights: { block_structure: '128x128' } } } };
    const change = (tensors: Tensors): void =>
      each(tensors, 'weight_scale_inv', (module, t) => {
        tensors.delete(`${module}.weight_scale_inv`);
        tensors.set(`${module}.weight_scale`, t);
      });
    isTheModel({ pack: 'quant-fp8-block', change, config: { quantization_config: undefined, compression_config } });
  });

  test('is refused where activations are to be rotated, and not where weights were', () => {
    const rotated = (location: string): Config => ({
      quantization_config: {
        ...quantizationOf('quant-ct-w4a16'),
        transform_config: { config_groups: { v: { type: 'hadamard', apply: [{ targets: ['Linear'], location }] } } },
      },
    });
    isTheModel({ pack: 'quant-ct-w4a16', config: rotated('weight_input') });
    isRefused({ pack: 'quant-ct-w4a16', config: rotated('input') }, 'unsupported', /rotations of activations \("v"\)/);
  });
});

describe('a weight of int8 with zero points', () => {
  const [rows, cols] = [2, 32];
  const codes = Int8Array.from({ length: rows * cols }, (_, i) => (i * 37) % 256);
  const scales = Float32Array.of(0.5, 2);
  const bytes = (array: Int8Array | Float32Array): Uint8Array => new Uint8Array(array.slice().buffer);
  const read = (zero: RawTensor, weight: RawTensor = { dtype: 'I8', shape: [rows, cols], data: bytes(codes) }): Float32Array =>
    withModelFolder({}, (folder) => {
      const scale = { dtype: 'F32', shape: [rows, 1], data: bytes(scales) };
      const tensors = { 'a.weight': weight, 'a.weight_scale': scale, 'a.weight_zero_point': zero };
      writeRawTensors(join(folder, 'model.safetensors'), new Map(Object.entries(tensors)));
      const attributes = { tensor: 'a.weight', rows, cols, num_rows: 1, num_cols: 1, folder, piece_bytes: 1 << 20 };
      const cuts = { row_cuts: Int32Array.of(0, rows), col_cuts: Int32Array.of(0, cols) };
      return floats(runOp({ isa: 'reference' }, 'load_slices', attributes, cuts), 'out');
    });

  test('is its codes less those', () => {
    const zeros = Int8Array.of(-128, 5);
    const wanted = codes.map((code) => code);
    const out = read({ dtype: 'I8', shape: [rows, 1], data: bytes(zeros) });
    for (const [i, code] of wanted.entries()) {
      const row = Math.floor(i / cols);
      assert.equal(out[i], (code - (zeros[row] ?? 0)) * (scales[row] ?? 0));
    }
  });

  test('is refused where they are fewer than scales, or the codes are floats', () => {
    const zero = { dtype: 'I8', shape: [1], data: Uint8Array.of(3) };
    assert.throws(() => read(zero), nativeError('bad_model', /its zero points have the shape \[1\], and its scales \[2, 1\]/));
    const floating = { dtype: 'F8_E4M3', shape: [rows, cols], data: bytes(codes) };
    assert.throws(() => read(zero, floating), nativeError('bad_model', /its zero points are not 0, and floats have none/));
  });
});

test('a folder with several files of weights and no list of them is refused', () =>
  inFolder({ pack: 'quant-ct-w4a16', weights: 'a.safetensors' }, (folder) => {
    openEngine(folder).close();
    writeFileSync(join(folder, 'b.safetensors'), '');
    assert.throws(() => openEngine(folder), nativeError('io', /neither model.safetensors nor/));
    rmSync(join(folder, 'b.safetensors'));
  }));
