/**
 * GGUF files: each type of block by the examples of its definition, and whole models against the logits of their dequantized weights.
 * Broken ones are in gguf-broken.test.ts.
 */
import assert from 'node:assert/strict';
import { copyFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import { loadAddon } from '../../native/index.js';
import { ggufModelConfig, openGguf, writeGguf } from '../helpers/native/gguf.js';
import { generate, ggufPacks, nmse, readGolden } from '../helpers/native/golden.js';
import { fixture, nativeError } from '../helpers/native/native-engine.js';
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
/** Bytes that a weight takes in each of `ggufPacks`, the embedding among them, which the head shares where it is tied. */
const weightBytesMost: Readonly<Record<string, number>> = { 'quant-gguf-legacy': 1.2, 'quant-gguf-k': 1.01, 'quant-gguf-qwen2': 0.91 };
const { usableIsas } = loadAddon().systemInfo();

describe('a GGUF model', () => {
  for (const pack of ggufPacks) {
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
    for (const isa of usableIsas) {
      test(`${pack}, as it is kept on ${isa}, is close to that, and chunks change no bit`, (t) => {
        const engine = openGguf(fixture('golden', pack, 'model.gguf'), { isa });
        const run = generate(engine, golden.ids, 32, 16);
        const chunks = generate(engine, golden.ids, 32, 16, { slot: 1, firstBlock: 16, chunk: 7 });
        const { weightBytes, parameters } = engine.info();
        engine.close();
        const error = nmse(run, golden);
        const same = run.tokens.filter((token, i) => token === golden.greedyIds[i]).length;
        t.diagnostic(`nmse ${error.toExponential(2)}, ${same} of 32 tokens, ${(weightBytes / parameters).toFixed(2)} bytes a weight`);
        assert.ok(weightBytes / parameters <= (weightBytesMost[pack] ?? 0));
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

describe('a split GGUF file', () => {
  const source = fixture('golden', 'quant-gguf-qwen2', 'model.gguf');

  test('of one part is opened by that', () => {
    copyFileSync(source, join(folder, 'm-00001-of-00001.gguf'));
    openGguf(join(folder, 'm-00001-of-00001.gguf')).close();
  });

  test('is refused without all of its parts', () => {
    copyFileSync(source, join(folder, 'm-00001-of-00002.gguf'));
    const modelConfig = ggufModelConfig(source);
    assert.throws(() => openGguf(join(folder, 'm-00001-of-00002.gguf'), { modelConfig }), nativeError('io', /m-00002-of-00002\.gguf/));
  });

  test('is refused where two parts hold a tensor', () => {
    copyFileSync(source, join(folder, 'm-00001-of-00002.gguf'));
    copyFileSync(source, join(folder, 'm-00002-of-00002.gguf'));
    assert.throws(() => openGguf(join(folder, 'm-00001-of-00002.gguf')), nativeError('bad_model', /is in another part too/));
  });
});
