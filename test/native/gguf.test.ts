/**
 * GGUF files: each type of block by the examples of its definition, whole models against the logits of their dequantized weights, and files
 * that are broken, which must be refused.
 */
import assert from 'node:assert/strict';
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import { loadAddon } from '../../native/index.js';
import { type GgufSpec, ggufBytes, openGguf, type TensorSpec, writeGguf } from '../helpers/native/gguf.js';
import { generate, nmse, readGolden } from '../helpers/native/golden.js';
import { engineOptions, fixture, nativeError } from '../helpers/native/native-engine.js';
import { floats, roundsActivations, runOp } from '../helpers/native/op-table.js';

const folder = mkdtempSync(join(tmpdir(), 'inferd-gguf-'));
after(() => rmSync(folder, { recursive: true }));

/** Seen: 1e-14 to 1e-12. */
const sameWeights = 1e-8;
/** Codes kept, with scales in f16. */
const keptCodes = 2e-5;
/** Where activations are quantized beside codes; there rounding may turn the greedy tokens of one pack. */
const roundedActivations = 2e-3;
const mostTurned = 1;
const turned = new Set<string>();
const { usableIsas } = loadAddon().systemInfo();

describe('a GGUF model', () => {
  for (const pack of ['quant-gguf-legacy', 'quant-gguf-k', 'quant-gguf-qwen2']) {
    const golden = readGolden(pack);
    for (const isa of [usableIsas[0] ?? 'reference', 'reference']) {
      test(`${pack}, widened to float32 on ${isa}, is the model that was quantized`, (t) => {
        const engine = openGguf(fixture('golden', pack, 'model.gguf'), { isa, weightDtype: 'f32' });
        const run = generate(engine, golden.ids, 32, 16);
        engine.close();
        t.diagnostic(`nmse ${nmse(run, golden).toExponential(2)}`);
        assert.ok(nmse(run, golden) <= sameWeights);
        assert.deepEqual(run.tokens, golden.greedyIds);
      });
    }
    for (const isa of usableIsas.filter((name) => name !== 'avx512')) {
      test(`${pack}, as it is kept on ${isa}, is close to that, and chunks change no bit`, (t) => {
        const engine = openGguf(fixture('golden', pack, 'model.gguf'), { isa });
        const run = generate(engine, golden.ids, 32, 16);
        const chunks = generate(engine, golden.ids, 32, 16, { slot: 1, firstBlock: 16, chunk: 7 });
        const { weightBytes, parameters } = engine.info();
        engine.close();
        const error = nmse(run, golden);
        const same = run.tokens.filter((token, i) => token === golden.greedyIds[i]).length;
        t.diagnostic(`nmse ${error.toExponential(2)}, ${same} of 32 tokens, ${(weightBytes / parameters).toFixed(2)} bytes a weight`);
        assert.ok(error <= (roundsActivations(isa) ? roundedActivations : keptCodes), `nmse ${error}`);
        if (!roundsActivations(isa)) assert.deepEqual(run.tokens, golden.greedyIds);
        else if (!isDeepStrictEqual(run.tokens, golden.greedyIds)) turned.add(pack);
        assert.deepEqual(chunks.tokens, run.tokens);
        for (const [position, values] of chunks.logits) assert.deepEqual(values, run.logits.get(position));
      });
    }
  }
  test('quantized activations turn the greedy tokens of one of these at most', () =>
    assert.ok(turned.size <= mostTurned, [...turned].join()));
});

/** The weights of one row that a file holds. */
function row(type: number, bytes: readonly number[], values: number): Float32Array {
  const path = writeGguf(join(folder, 'row.gguf'), { tensors: { 'a.weight': { dims: [values, 1], type, data: Uint8Array.from(bytes) } } });
  const attributes = { tensor: 'a.weight', rows: 1, cols: values, num_rows: 1, num_cols: 1, folder: path, piece_bytes: 1 << 20 };
  return floats(
    runOp({ isa: 'reference' }, 'load_slices', attributes, { row_cuts: Int32Array.of(0, 1), col_cuts: Int32Array.of(0, values) }),
    'out',
  );
}

const hex = (text: string): number[] => text.split(' ').map((byte) => Number.parseInt(byte, 16));
const repeat = (byte: number, count: number): number[] => Array.from({ length: count }, () => byte);
/** Half floats. */
const one = [0x00, 0x3c];
const two = [0x00, 0x40];

describe('a type of block', () => {
  test('Q4_0 holds the first half in lower and the second in upper bits, around 8', () => {
    const w = row(2, [...hex('00 30 80 91 91 a2'), ...repeat(0xff, 12)], 32);
    assert.deepEqual([w[0], w[1], w[2], w[3], w[16], w[17], w[19], w[31]], [-1, -0.875, -0.875, -0.75, 0, 0.125, 0.25, 0.875]);
  });
  test('Q4_1 has a minimum', () => {
    const w = row(3, [...two, ...one, 0x21, ...repeat(0, 15)], 32);
    assert.deepEqual([w[0], w[1], w[16]], [3, 1, 5]);
  });
  test('Q5_0 and Q5_1 keep a fifth bit apart', () => {
    const w = row(6, [...two, ...hex('01 00 01 80'), 0x21, ...repeat(0, 15)], 32);
    assert.deepEqual([w[0], w[1], w[16], w[31]], [2, -32, 4, 0]);
    const v = row(7, [...two, ...one, ...hex('01 00 00 00'), 0x21, ...repeat(0, 15)], 32);
    assert.deepEqual([v[0], v[1], v[16]], [35, 1, 5]);
  });
  test('Q8_0 holds signed bytes', () => {
    const w = row(8, [...hex('08 20 81 89 91'), ...repeat(0x80, 29)], 32);
    const d = (1 + 8 / 1024) / 128;
    assert.deepEqual([w[0], w[1], w[2], w[31]], [-127 * d, -119 * d, -111 * d, -128 * d]);
  });
  test('IQ4_NL looks up sixteen values', () => {
    const w = row(20, [...one, ...hex('80 90 a1'), ...repeat(0xf7, 13)], 32);
    assert.deepEqual([w[0], w[16], w[2], w[18], w[3], w[19]], [-127, 1, -104, 25, -10, 113]);
  });
  test('MXFP4 has a power of two and lower and upper halves', () => {
    const w = row(39, [0x7f, 0x72, ...hex('0e 1e'), ...repeat(0, 13)], 32);
    assert.deepEqual([w[0], w[16], w[1], w[17], w[2], w[18]], [1, 6, -4, 0, -4, 0.5]);
  });
  test('Q4_K and Q5_K have eight scales and minima of six bits', () => {
    const scales = hex('01 02 03 04 09 0a 0b 8c d5 e6 f7 88');
    const w = row(12, [...one, ...two, ...scales, ...repeat(0x21, 128)], 256);
    const minima = [9, 10, 11, 12, 13, 14, 15, 40];
    for (let j = 0; j < 8; j++) assert.equal(w[32 * j], (j + 1) * (j % 2 === 0 ? 1 : 2) - 2 * (minima[j] ?? 0), `group ${j}`);
    const v = row(13, [...one, ...two, ...scales, ...repeat(0x80, 32), ...repeat(0x21, 128)], 256);
    assert.deepEqual([v[0], v[224]], [1 - 18, 8 * 18 - 80]);
  });
  test('Q2_K has sixteen scales and minima of four bits', () => {
    const w = row(10, [...repeat(0x31, 16), ...repeat(0xe4, 64), ...one, ...two], 256);
    assert.deepEqual([w[0], w[32], w[64], w[96], w[128]], [-6, -5, -4, -3, -6]);
  });
  test('Q3_K has signed scales of six bits', () => {
    const scales = hex('91 a2 b3 c4 d5 e6 f7 08 aa aa aa ea');
    const w = row(11, [...repeat(0x01, 32), ...repeat(0xe4, 64), ...scales, ...one], 256);
    // Scales are 1 .. 16; only the first 32 weights have the high bit.
    assert.deepEqual([w[0], w[16], w[32], w[64], w[255]], [0, 0, 3 * -3, 5 * -2, 16 * -1]);
  });
  test('Q6_K has signed scales of eight bits', () => {
    const w = row(14, [...repeat(0x21, 128), ...repeat(0xe4, 64), ...repeat(1, 8), ...repeat(0xff, 8), ...one], 256);
    assert.deepEqual([w[0], w[32], w[64], w[96], w[128]], [1 - 32, 17 - 32, 34 - 32, 50 - 32, 31]);
  });
  test('F16 and BF16 are plain', () => {
    assert.equal(row(1, [...two, ...repeat(0, 14)], 8)[0], 2);
    assert.equal(row(30, [0x80, 0x3f, ...repeat(0, 14)], 8)[0], 1);
  });
});

const data = (bytes: number): Uint8Array => new Uint8Array(bytes);
const plain: TensorSpec = { dims: [8, 2], type: 0, data: data(64) };
const huge = 2n ** 63n;

/** A broken file by what is wrong, and what the refusal says. */
const broken: readonly (readonly [string, GgufSpec, RegExp])[] = [
  ['claims 2^63 tensors', { tensors: { a: plain }, numTensors: huge }, /more than it has room for/],
  ['claims 2^63 keys', { tensors: { a: plain }, numPairs: huge }, /more than it has room for/],
  ['claims more tensors than bytes', { tensors: { a: plain }, numTensors: 9n }, /more than it has room|bytes are left|are left/],
  ['is of version 1', { version: 1 }, /version 1, and 2 and 3 are known/],
  ['is big-endian', { version: 0x0300_0000 }, /big-endian/],
  [
    'names a key twice',
    {
      metadata: [
        ['a', 1],
        ['a', 2],
      ],
    },
    /"a" is there twice/,
  ],
  [
    'names a tensor twice',
    {
      tensors: [
        ['a', plain],
        ['a', plain],
      ],
    },
    /"a" is there twice/,
  ],
  ['has a tensor without dimensions', { tensors: { a: { ...plain, dims: [] } } }, /has 0 dimensions/],
  ['has a tensor of five dimensions', { tensors: { a: { ...plain, dims: [1, 1, 1, 1, 16] } } }, /has 5 dimensions/],
  ['has an empty tensor', { tensors: { a: { ...plain, dims: [0, 2] } } }, /shape that is not possible/],
  ['has a tensor of 2^63 rows', { tensors: { a: { ...plain, dims: [8, huge] } } }, /shape that is not possible/],
  ['has a shape whose product overflows', { tensors: { a: { ...plain, dims: [2n ** 40n, 2n ** 40n] } } }, /shape that is not possible/],
  ['has a type that nobody knows', { tensors: { a: { ...plain, type: 99 } } }, /of no known name \(99\)/],
  ['has a type that is not read', { tensors: { a: { ...plain, type: 23 } } }, /type IQ4_XS \(23\), which inferd does not read; take/],
  [
    'has rows that are no whole blocks',
    { tensors: { a: { dims: [48, 1], type: 2, data: data(36) } } },
    /rows of 48, which are not whole blocks of 32/,
  ],
  ['has an offset behind its end', { tensors: { a: { ...plain, offset: 1 << 20 } } }, /outside of the file/],
  ['has an offset of 2^63', { tensors: { a: { ...plain, offset: huge } } }, /outside of the file/],
  ['has a tensor that ends behind it', { tensors: { a: { ...plain, dims: [8, 3] } } }, /ends behind the file/],
  ['has an offset that is not aligned', { tensors: { a: { ...plain, offset: 4 } } }, /is not aligned/],
  ['has tensors that overlap', { tensors: { a: plain, b: { ...plain, offset: 32 } } }, /overlap/],
  ['has an alignment of 3', { metadata: { 'general.alignment': 3 }, tensors: { a: plain } }, /alignment is 3/],
  ['has an alignment of 0', { metadata: { 'general.alignment': 0 }, tensors: { a: plain } }, /alignment is 0/],
  ['is one of two parts and not named so', { metadata: { 'split.count': 2 }, tensors: { a: plain } }, /one of 2 parts/],
];

const opening = (path: string) => () =>
  loadAddon().createEngine(engineOptions(path, { modelConfig: readFileSync(fixture('golden', 'llama3.2-tied', 'config.json'), 'utf8') }));

describe('a broken GGUF file', () => {
  for (const [what, spec, message] of broken) {
    test(`that ${what} is refused`, () => {
      const path = writeGguf(join(folder, 'broken.gguf'), spec);
      assert.throws(opening(path), (error: unknown) => message.test((error as Error).message) || Promise.reject(error));
    });
  }

  test('that is cut anywhere is refused, and one with any byte of its head changed is refused or read', () => {
    const tensors = { 'token_embd.weight': { dims: [32, 2], type: 2, data: data(36) } };
    const metadata = { 'general.architecture': 'llama', 'a.list': ['x', 'y'], 'b.list': [1, 2, 3], 'c.u64': { u64: 5n }, 'd.real': 0.5 };
    const whole = ggufBytes({ metadata, tensors });
    const path = join(folder, 'cut.gguf');
    for (let bytes = 0; bytes < whole.length - 28; bytes++) {
      writeFileSync(path, whole.subarray(0, bytes));
      assert.throws(opening(path), (error: unknown) => ['bad_model', 'unsupported'].includes((error as { code: string }).code), `${bytes}`);
    }
    for (let at = 0; at < whole.length; at++) {
      for (const flip of [0x01, 0x80, 0xff]) {
        const changed = Buffer.from(whole);
        changed[at] = (changed[at] ?? 0) ^ flip;
        writeFileSync(path, changed);
        assert.throws(opening(path), (error: unknown) => ['bad_model', 'unsupported'].includes((error as { code: string }).code), `${at}`);
      }
    }
  });

  test('that lacks tensors is told by their names in the file', () => {
    const path = writeGguf(join(folder, 'lacks.gguf'), {
      metadata: { 'general.architecture': 'qwen2' },
      tensors: { 'token_embd.weight': { dims: [64, 320], type: 0, data: data(64 * 320 * 4) } },
    });
    assert.throws(opening(path), nativeError('bad_model', /lacks tensors .*: blk\.0\.attn_norm\.weight, blk\.0\.attn_q\.weight/));
  });

  test('of an architecture that is not known is refused by its name', () => {
    const path = writeGguf(join(folder, 'arch.gguf'), { metadata: { 'general.architecture': 'mamba' } });
    assert.throws(opening(path), nativeError('unsupported', /architecture "mamba" is not supported; inferd knows llama/));
  });
});

describe('a split GGUF file', () => {
  const source = fixture('golden', 'quant-gguf-qwen2', 'model.gguf');

  test('of one part is opened by that', () => {
    copyFileSync(source, join(folder, 'm-00001-of-00001.gguf'));
    openGguf(join(folder, 'm-00001-of-00001.gguf')).close();
  });

  test('is refused without all of its parts', () => {
    copyFileSync(source, join(folder, 'm-00001-of-00002.gguf'));
    assert.throws(() => openGguf(join(folder, 'm-00001-of-00002.gguf')), nativeError('io', /m-00002-of-00002\.gguf/));
  });

  test('is refused where two parts hold a tensor', () => {
    copyFileSync(source, join(folder, 'm-00001-of-00002.gguf'));
    copyFileSync(source, join(folder, 'm-00002-of-00002.gguf'));
    assert.throws(() => openGguf(join(folder, 'm-00001-of-00002.gguf')), nativeError('bad_model', /is in another part too/));
  });
});
