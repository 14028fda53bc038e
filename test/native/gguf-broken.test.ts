/**
 * GGUF files from strangers: whatever is wrong with one, it is one clear error of the engine, and of the reader that the rest of inferd has;
 * nothing crashes, hangs or reads beyond the file.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { ConfigError } from '../../config/error.js';
import { ggufConfig } from '../../config/gguf/config.js';
import { readGguf } from '../../config/gguf/read.js';
import { loadAddon, type NativeError } from '../../native/index.js';
import { type GgufSpec, ggufBytes, type TensorSpec, text, u32, u64, writeGguf } from '../helpers/native/gguf.js';
import { engineOptions, fixture, nativeError } from '../helpers/native/native-engine.js';

const folder = mkdtempSync(join(tmpdir(), 'inferd-gguf-broken-'));
after(() => rmSync(folder, { recursive: true }));

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
  ['has two tensors at one place', { tensors: { a: plain, b: { ...plain, offset: 0 } } }, /overlap/],
  [
    'has a last tensor within the first',
    { tensors: { a: { ...plain, dims: [8, 4], data: data(128) }, b: plain, c: { ...plain, offset: 32 } } },
    /overlap/,
  ],
  ['has an alignment of 2^21', { metadata: { 'general.alignment': 2 ** 21 }, tensors: { a: plain } }, /alignment is 2097152/],
  ['has an alignment of 2^63', { metadata: { 'general.alignment': { u64: huge } }, tensors: { a: plain } }, /alignment is -/],
  ['has rows of half a block of 256', { tensors: { a: { dims: [128, 2], type: 12, data: data(144) } } }, /rows of 128, .* blocks of 256/],
  ['has a block that ends behind it', { tensors: { a: { dims: [256, 1], type: 12, data: data(96) } } }, /ends behind the file/],
];

/** Bytes of a head: the file's first words, then what is given. */
const head = (numTensors: number | bigint, numPairs: number | bigint, ...rest: Uint8Array[]): Buffer =>
  Buffer.concat([Buffer.from('GGUF'), u32(3), u64(numTensors), u64(numPairs), ...rest, Buffer.alloc(64)]);
const [u8Type, boolType, stringType, listType, f64Type] = [0, 7, 8, 9, 12];
const pair = (type: number, ...value: Uint8Array[]): Buffer => head(0, 1, text('key'), u32(type), ...value);
const tensor = (...entry: Uint8Array[]): Buffer => head(1, 0, ...entry);
const nested = (depth: number): Buffer => Buffer.concat(Array.from({ length: depth }, () => Buffer.concat([u32(listType), u64(1)])));
const all64 = 2n ** 64n - 1n;

/** The same of files that no writer would make. */
const brokenBytes: readonly (readonly [string, Uint8Array, RegExp])[] = [
  ['is empty', Buffer.alloc(0), /needs 4 bytes, and 0 are left/],
  ['is four bytes', Buffer.from('GGUF'), /its version .* needs 4 bytes, and 0 are left/],
  ['begins with another word', Buffer.from('GGUG\u0003\0\0\0'), /does not begin with GGUF/],
  ['begins with an older word', Buffer.from('ggjt\u0003\0\0\0'), /does not begin with GGUF/],
  ['begins with its word reversed', Buffer.from('FUGG\u0003\0\0\0'), /does not begin with GGUF/],
  ['is of version 4', Buffer.concat([Buffer.from('GGUF'), u32(4), Buffer.alloc(16)]), /version 4/],
  ['is of version 0', Buffer.concat([Buffer.from('GGUF'), u32(0), Buffer.alloc(16)]), /big-endian/],
  ['ends between its counts', Buffer.concat([Buffer.from('GGUF'), u32(3), u64(0)]), /its counts .* 0 are left/],
  ['claims 2^64 - 1 tensors', head(all64, 0), /more than it has room for/],
  ['claims 2^64 - 1 keys', head(0, all64), /more than it has room for/],
  ['claims 200,001 tensors in as many bytes', head(200_001, 0, Buffer.alloc(32 * 200_001)), /more than it has room for/],
  ['claims 100,001 keys in as many bytes', head(0, 100_001, Buffer.alloc(13 * 100_001)), /more than it has room for/],
  ['has a key of 2^63 bytes', head(0, 1, u64(huge)), /a key claims 9223372036854775808 bytes/],
  ['has a key of 2^64 - 1 bytes', head(0, 1, u64(all64)), /a key claims 18446744073709551615 bytes/],
  ['has a key of 65,536 bytes', head(0, 1, u64(65_536), Buffer.alloc(65_536)), /a key claims 65536 bytes/],
  ['has a key that ends behind it', head(0, 1, u64(1000)), /a key at byte .* needs 1000 bytes/],
  ['has a string of 2^63 bytes', pair(stringType, u64(huge)), /a string at byte .* needs 9223372036854775808 bytes/],
  ['has a string of 2^64 - 1 bytes', pair(stringType, u64(all64)), /a string at byte .* needs 18446744073709551615 bytes/],
  ['has a string that ends behind it', pair(stringType, u64(65)), /a string at byte .* needs 65 bytes, and 64 are left/],
  [
    'has an architecture of 2^63 bytes',
    head(0, 1, text('general.architecture'), u32(stringType), u64(huge)),
    /the architecture claims 9223372036854775808 bytes/,
  ],
  ['has a value of type 13', pair(13), /the unknown type 13/],
  ['has a value of type 2^32 - 1', pair(2 ** 32 - 1), /the unknown type 4294967295/],
  ['has a list of type 13', pair(listType, u32(13), u64(1)), /the unknown type 13/],
  ['has a list of 2^63 bytes', pair(listType, u32(u8Type), u64(huge)), /a list claims 9223372036854775808 entries/],
  ['has a list whose bytes are 2^64', pair(listType, u32(f64Type), u64(2n ** 61n)), /a list claims 2305843009213693952 entries/],
  ['has a list of 2^63 strings', pair(listType, u32(stringType), u64(huge)), /a list claims 9223372036854775808 entries/],
  ['has a list with a string of 2^63 bytes', pair(listType, u32(stringType), u64(1), u64(huge)), /a string at byte .* needs/],
  ['has a list of 2^63 lists', pair(listType, u32(listType), u64(huge)), /a list claims 9223372036854775808 entries/],
  ['has lists nested five deep', pair(listType, u32(listType), u64(1), nested(5), u32(u8Type), u64(0)), /the unknown type 9/],
  ['has a list of truths that ends behind it', pair(listType, u32(boolType), u64(65)), /a list claims 65 entries/],
  ['names a tensor with 2^63 bytes', tensor(u64(huge)), /the name of a tensor claims 9223372036854775808 bytes/],
  ['names a tensor with 64 bytes', tensor(text('n'.repeat(64))), /the name of a tensor claims 64 bytes/],
  ['has a tensor of 2^32 - 1 dimensions', tensor(text('a'), u32(2 ** 32 - 1)), /has 4294967295 dimensions/],
  ['has a tensor of 2^64 - 1 values', tensor(text('a'), u32(1), u64(all64)), /shape that is not possible/],
  ['has a tensor of 2^40 + 1 values', tensor(text('a'), u32(1), u64(2n ** 40n + 1n)), /shape that is not possible/],
  ['has four sizes of 2^16', tensor(text('a'), u32(4), ...Array.from({ length: 4 }, () => u64(65_536))), /shape that is not possible/],
  ['has a type of 2^32 - 1', tensor(text('a'), u32(1), u64(32), u32(2 ** 32 - 1)), /of no known name \(4294967295\)/],
  ['has a type that was taken back', tensor(text('a'), u32(1), u64(32), u32(4)), /of no known name \(4\)/],
  ['has a tensor of 64-bit floats', tensor(text('a'), u32(1), u64(32), u32(28)), /type F64 \(28\)/],
  ['has a tensor of bytes', tensor(text('a'), u32(1), u64(32), u32(24)), /type I8 \(24\)/],
  ['has an offset of 2^64 - 32', tensor(text('a'), u32(1), u64(32), u32(0), u64(all64 - 31n)), /outside of the file/],
  ['ends within an offset', head(1, 0, text('a'), u32(1), u64(32), u32(0)).subarray(0, -60), /the offset of a tensor|room for/],
];

/** What the reader of the metadata makes of the file: something, or one error of its own. */
function readHead(path: string): void {
  try {
    ggufConfig(readGguf(path, () => true));
  } catch (error) {
    assert.ok(error instanceof ConfigError, String(error));
    assert.ok(error.message.length < 1000);
  }
}

const opening = (path: string) => () =>
  loadAddon().createEngine(engineOptions(path, { modelConfig: readFileSync(fixture('golden', 'llama3.2-tied', 'config.json'), 'utf8') }));

function refused(path: string, message: RegExp): void {
  assert.throws(opening(path), (error: NativeError) => {
    assert.ok(['bad_model', 'unsupported'].includes(error.code) && !error.fatal && error.message.length < 2000, String(error));
    assert.match(error.message, message);
    return true;
  });
}

describe('a broken GGUF file', () => {
  for (const [what, spec, message] of broken) {
    test(`that ${what} is refused`, () => {
      const path = writeGguf(join(folder, 'broken.gguf'), spec);
      refused(path, message);
      readHead(path);
    });
  }

  for (const [what, bytes, message] of brokenBytes) {
    test(`that ${what} is refused`, () => {
      const path = join(folder, 'broken.gguf');
      writeFileSync(path, bytes);
      refused(path, message);
      readHead(path);
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

  test('with more experts than any model is refused', () => {
    const stack: TensorSpec = { dims: [1, 16_384], type: 0, data: data(65_536) };
    const tensors = Array.from({ length: 17 }, (_, i): readonly [string, TensorSpec] => [`blk.${i}.ffn_up_exps.weight`, stack]);
    const path = writeGguf(join(folder, 'experts.gguf'), { metadata: { 'general.architecture': 'qwen3moe' }, tensors });
    assert.throws(opening(path), nativeError('bad_model', /more experts than any model/));
  });

  test('of an architecture that is not known is refused by its name', () => {
    const path = writeGguf(join(folder, 'arch.gguf'), { metadata: { 'general.architecture': 'mamba' } });
    assert.throws(opening(path), nativeError('unsupported', /architecture "mamba" is not supported; inferd knows llama/));
  });
});
