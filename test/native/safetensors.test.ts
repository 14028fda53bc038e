/** Model files from strangers: every malformed file is one clear error, and nothing crashes. Also the good cases beside them. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { type EngineOptions, loadAddon, type NativeError } from '../../native/index.js';
import { engineOptions, nativeError, openEngine, runStep } from '../helpers/native/native-engine.js';
import { safetensorsBytes, writeSafetensors } from '../helpers/native/safetensors.js';
import { type Tensors, tinyConfig, tinyTensors, withModel, withModelFolder } from '../helpers/native/tiny-model.js';

const addon = loadAddon();
const open = (folder: string, options: Partial<EngineOptions> = {}): void => {
  addon.createEngine(engineOptions(folder, options)).close();
};

/** Opens a model whose model.safetensors has these bytes. */
function openBytes(bytes: Uint8Array): void {
  withModelFolder(tinyConfig, (folder) => {
    writeFileSync(join(folder, 'model.safetensors'), bytes);
    open(folder);
  });
}

const data = new Uint8Array(64);
const entry = (dtype: unknown, shape: unknown, offsets: unknown): string => JSON.stringify({ dtype, shape, data_offsets: offsets });
const one = (tensor: string): Uint8Array => safetensorsBytes(`{"a":${tensor}}`, data);
const full = entry('F32', [16], [0, 64]);

const malformed: readonly (readonly [name: string, bytes: Uint8Array, message: RegExp])[] = [
  ['an empty file', new Uint8Array(), /no header/],
  ['seven bytes', new Uint8Array(7), /no header/],
  ['a header of zero bytes', safetensorsBytes('', data), /start with a brace/],
  ['a header longer than the file', safetensorsBytes(`{"a":${full}}`, data, 1000n), /claims 1000 bytes/],
  ['a header length of 2^64 - 1', safetensorsBytes(`{"a":${full}}`, data, 2n ** 64n - 1n), /claims 18446744073709551615/],
  ['a header length of 2^63', safetensorsBytes(`{"a":${full}}`, data, 2n ** 63n), /claims/],
  ['a header length one short', safetensorsBytes(`{"a":${full}}`, data, BigInt(`{"a":${full}}`.length - 1)), /brace is missing/],
  ['a header length one long', safetensorsBytes(`{"a":${full}}`, data, BigInt(`{"a":${full}}`.length + 1)), /follows the end/],
  ['a header that is a list', safetensorsBytes('[]', data), /start with a brace/],
  ['a header that is text', safetensorsBytes('hello', data), /start with a brace/],
  ['a pickle', Buffer.from('8002637472656164', 'hex'), /claims|brace/],
  ['an unfinished header', safetensorsBytes('{"a":', data), /value is missing/],
  ['a header without a closing brace', safetensorsBytes(`{"a":${full}`, data), /closing brace/],
  ['a trailing comma', safetensorsBytes(`{"a":${full},}`, data), /key is missing/],
  ['an unfinished string', safetensorsBytes('{"a', data), /string does not end/],
  ['a lone surrogate', safetensorsBytes('{"\\ud800":1}', data), /surrogate/],
  ['a bad escape', safetensorsBytes('{"\\x":1}', data), /escape/],
  ['a control character in a name', safetensorsBytes('{"\n":1}', data), /control character/],
  ['nesting 100 levels deep', safetensorsBytes(`{"a":${'['.repeat(100)}${']'.repeat(100)}}`, data), /too deep/],
  ['nesting a million levels deep', safetensorsBytes(`{"a":${'['.repeat(1_000_000)}`, data), /too deep/],
  ['five million values', safetensorsBytes(`{"a":[${'0,'.repeat(5_000_000)}0]}`, data), /too many values/],
  ['a dimension that is NaN', one('{"dtype":"F32","shape":[NaN],"data_offsets":[0,64]}'), /value is missing/],
  ['a dimension that is Infinity', one('{"dtype":"F32","shape":[Infinity],"data_offsets":[0,64]}'), /value is missing/],
  ['a dimension with an exponent', one('{"dtype":"F32","shape":[1.6e1],"data_offsets":[0,64]}'), /dimension/],
  ['a dimension beyond any number', one('{"dtype":"F32","shape":[1e999],"data_offsets":[0,64]}'), /out of range/],
  ['a dimension with a leading zero', one('{"dtype":"F32","shape":[016],"data_offsets":[0,64]}'), /closing bracket/],
  ['offsets with a fraction', one('{"dtype":"F32","shape":[16],"data_offsets":[0.0,64.0]}'), /begin offset/],
  ['a byte order mark', safetensorsBytes(`\ufeff{"a":${full}}`, data), /start with a brace/],
  ['a header of two objects', safetensorsBytes(`{"a":${full}}{"a":${full}}`, data), /follows the end/],
  ['a header with a NUL behind it', safetensorsBytes(`{"a":${full}}\u0000`, data), /follows the end/],
  ['200,002 tensors', safetensorsBytes(`{${Array.from({ length: 200_002 }, (_, i) => `"t${i}":0`).join()}}`, data), /names 200002 tensors/],
  ['a tensor named twice, once with an escape', safetensorsBytes(`{"a":${full},"\\u0061":${full}}`, data), /names the key "a" twice/],
  ['data cut short', safetensorsBytes(`{"a":${full}}`, data.subarray(0, 63)), /byte range/],
  ['a tensor named twice', safetensorsBytes(`{"a":${full},"a":${full}}`, data), /names the key "a" twice/],
  ['a key of an entry twice', one('{"dtype":"F32","dtype":"F16","shape":[16],"data_offsets":[0,64]}'), /twice/],
  ['an entry that is a number', one('7'), /lacks a proper/],
  ['an entry that is null', one('null'), /lacks a proper/],
  ['an entry without a dtype', one('{"shape":[16],"data_offsets":[0,64]}'), /lacks a proper/],
  ['an entry without a shape', one('{"dtype":"F32","data_offsets":[0,64]}'), /lacks a proper/],
  ['an entry without offsets', one('{"dtype":"F32","shape":[16]}'), /lacks a proper/],
  ['an entry with a further key', one('{"dtype":"F32","shape":[16],"data_offsets":[0,64],"x":1}'), /keys other than/],
  ['an unknown dtype', one(entry('F33', [16], [0, 64])), /unknown dtype "F33"/],
  ['a numeric dtype', one(entry(32, [16], [0, 64])), /lacks a proper/],
  ['a shape that is a number', one(entry('F32', 16, [0, 64])), /lacks a proper/],
  ['nine dimensions', one(entry('F32', [1, 1, 1, 1, 1, 1, 1, 1, 16], [0, 64])), /9 dimensions/],
  ['a negative dimension', one(entry('F32', [-16], [0, 64])), /dimension of tensor "a"/],
  ['a fractional dimension', one('{"dtype":"F32","shape":[16.5],"data_offsets":[0,64]}'), /dimension/],
  ['a dimension beyond 64 bits', one('{"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,64]}'), /dimension/],
  ['a product that overflows to 64', one(entry('F32', [4294967296, 4294967296, 4294967296, 16], [0, 64])), /more elements/],
  [
    'two dimensions of 2^62',
    one('{"dtype":"F32","shape":[4611686018427387904,4611686018427387904],"data_offsets":[0,64]}'),
    /more elements/,
  ],
  ['a range shorter than the shape', one(entry('F32', [17], [0, 64])), /needs 68 bytes and has 64/],
  ['a range longer than the shape', one(entry('F32', [15], [0, 64])), /needs 60 bytes and has 64/],
  ['a range of the wrong dtype', one(entry('BF16', [16], [0, 64])), /needs 32 bytes/],
  ['one offset', one(entry('F32', [16], [64])), /lacks a proper/],
  ['three offsets', one(entry('F32', [16], [0, 64, 64])), /lacks a proper/],
  ['offsets as text', one(entry('F32', [16], ['0', '64'])), /begin offset/],
  ['negative offsets', one(entry('F32', [16], [-64, 0])), /begin offset/],
  ['offsets in the wrong order', one(entry('F32', [16], [64, 0])), /byte range/],
  ['an end beyond the file', one(entry('F32', [32], [0, 128])), /byte range/],
  ['an end near 2^63', one('{"dtype":"U8","shape":[16],"data_offsets":[9223372036854775791,9223372036854775807]}'), /byte range/],
  ['a gap at the start', one(entry('F32', [8], [32, 64])), /leave a gap/],
  ['data after the last tensor', one(entry('F32', [8], [0, 32])), /end 32 bytes before/],
  ['no tensor and data', safetensorsBytes('{}', data), /end 64 bytes before/],
  ['two tensors on the same bytes', safetensorsBytes(`{"a":${full},"b":${full}}`, data), /overlap/],
  ['two tensors that overlap', safetensorsBytes(`{"a":${entry('F32', [9], [0, 36])},"b":${entry('F32', [8], [32, 64])}}`, data), /overlap/],
  [
    'a gap between tensors',
    safetensorsBytes(`{"a":${entry('F32', [7], [0, 28])},"b":${entry('F32', [8], [32, 64])}}`, data),
    /leave a gap/,
  ],
  ['metadata that is a list', safetensorsBytes(`{"__metadata__":[],"a":${full}}`, data), /__metadata__/],
  ['a tensor without a name', safetensorsBytes(`{"":${full}}`, data), /name of no/],
  ['a name of 1000 bytes', safetensorsBytes(`{"${'n'.repeat(1000)}":${full}}`, data), /more than 512/],
];

describe('a malformed safetensors file is one clear error:', () => {
  for (const [name, bytes, message] of malformed) {
    test(name, () => assert.throws(() => openBytes(bytes), nativeError('bad_model', message)));
  }

  test('any file made by changing bytes of a good one', () => {
    withModel(tinyTensors(), (folder) => open(folder));
    const header = `{"a":${full},"b":${entry('U8', [0, 3], [64, 64])}}`;
    const good = Buffer.from(safetensorsBytes(header, data));
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.nat(8 + header.length), fc.nat(255)), { minLength: 1, maxLength: 4 }),
        fc.nat(good.length),
        (changes, cut) => {
          const bytes = Buffer.from(cut % 3 === 0 ? good.subarray(0, cut) : good);
          for (const [at, value] of changes) if (at < bytes.length) bytes[at] = value;
          assert.throws(
            () => openBytes(bytes),
            (e: NativeError) => e.code === 'bad_model' && e.message.length < 2000 && !e.fatal,
          );
        },
      ),
      { numRuns: 300, seed: 4 },
    );
  });
});

describe('a model folder', () => {
  test('without weights names what was looked for', () => {
    assert.throws(() => withModelFolder(tinyConfig, open), nativeError('io', /neither model.safetensors nor model.safetensors.index.json/));
  });

  test('with weights in another format only says which format is read', () => {
    withModelFolder(tinyConfig, (folder) => {
      for (const name of ['pytorch_model.bin', 'model.gguf', 'consolidated.00.pth']) writeFileSync(join(folder, name), 'weights');
      assert.throws(() => open(folder), nativeError('io', /reads no other weight format/));
    });
  });

  test('with a fifo or a folder in place of the file fails instead of hanging', () => {
    withModelFolder(tinyConfig, (folder) => {
      execFileSync('mkfifo', [join(folder, 'model.safetensors')]);
      assert.throws(() => open(folder), nativeError('io', /not a regular file/));
    });
    withModelFolder(tinyConfig, (folder) => {
      mkdirSync(join(folder, 'model.safetensors'));
      assert.throws(() => open(folder), nativeError('io', /not a regular file/));
    });
  });

  test('with tensors missing names them and how many', () => {
    const tensors = tinyTensors();
    for (const name of [...tensors.keys()].filter((n) => n.includes('layers.1.'))) tensors.delete(name);
    assert.throws(
      () => withModel(tensors, open),
      nativeError('bad_model', /lacks tensors .* model\.layers\.1\.input_layernorm\.weight, .* and 5 more/),
    );
  });

  test('with a tensor of another shape names found and wanted shape', () => {
    const tensors = tinyTensors();
    tensors.set('model.layers.1.mlp.up_proj.weight', { shape: [32, 48], data: new Float32Array(32 * 48) });
    assert.throws(
      () => withModel(tensors, open),
      nativeError('bad_model', /up_proj\.weight has the shape \[32, 48\], .* asks for \[48, 32\]/),
    );
  });

  test('with an integer weight names its dtype', () => {
    withModelFolder(tinyConfig, (folder) => {
      const shapes = [...tinyTensors()].map(([name, t]) => [name, t.shape, t.data.length] as const);
      let at = 0;
      const header = shapes.map(([name, shape, count]) => {
        const begin = at;
        at += count;
        return `${JSON.stringify(name)}:${entry('U8', shape, [begin, at])}`;
      });
      writeFileSync(join(folder, 'model.safetensors'), safetensorsBytes(`{${header.join()}}`, new Uint8Array(at)));
      assert.throws(() => open(folder), nativeError('bad_model', /has the dtype U8; F32, F16 and BF16/));
    });
  });
});

/** Writes the tiny model as two shards and an index. */
function writeShards(folder: string, tensors: Tensors, change: (map: Record<string, unknown>) => void = () => {}): void {
  const names = [...tensors.keys()];
  const map: Record<string, unknown> = {};
  for (const [file, from, to] of [
    ['model-00001-of-00002.safetensors', 0, 9],
    ['model-00002-of-00002.safetensors', 9, names.length],
  ] as const) {
    const part: Tensors = new Map([...tensors].slice(from, to));
    for (const name of part.keys()) map[name] = file;
    writeSafetensors(join(folder, file), part);
  }
  change(map);
  writeFileSync(join(folder, 'model.safetensors.index.json'), JSON.stringify({ metadata: {}, weight_map: map }));
}

describe('a sharded checkpoint', () => {
  const plan = {
    newSlots: [{ slot: 0, tokens: [1, 2, 3], sampling: { topLogprobs: 5 } }],
    blockSets: [{ slot: 0, index: 0, block: 0 }],
    rows: [{ slot: 0, start: 0, count: 3 }],
    samples: [{ row: 0, slot: 0 }],
  };

  test('gives the same answer as one file', () => {
    const answer = (folder: string): unknown => {
      const engine = openEngine(folder, {}, 4);
      const { samples } = runStep(engine, plan);
      engine.close();
      return samples;
    };
    const single = withModel(tinyTensors(), answer);
    const sharded = withModelFolder(tinyConfig, (folder) => {
      writeShards(folder, tinyTensors());
      return answer(folder);
    });
    assert.deepEqual(sharded, single);
  });

  const spoilt: readonly (readonly [name: string, value: unknown, message: RegExp])[] = [
    ['a path upwards', '../model-00001-of-00002.safetensors', /not a plain \*\.safetensors file name/],
    ['an absolute path', '/etc/passwd.safetensors', /not a plain/],
    ['a backslash', 'a\\b.safetensors', /not a plain/],
    ['a NUL', 'a\u0000b.safetensors', /not a plain/],
    ['two dots', 'a..safetensors', /not a plain/],
    ['another ending', 'model.bin', /not a plain/],
    ['a number', 3, /not a plain/],
    ['the wrong shard', 'model-00001-of-00002.safetensors', /does not hold it/],
  ];
  for (const [name, value, message] of spoilt) {
    test(`refuses ${name} in its index`, () => {
      withModelFolder(tinyConfig, (folder) => {
        writeShards(folder, tinyTensors(), (map) => {
          map['lm_head.weight'] = value;
        });
        assert.throws(() => open(folder), nativeError('bad_model', message));
      });
    });
  }

  test('names a shard that is missing, and an index without a map', () => {
    withModelFolder(tinyConfig, (folder) => {
      writeShards(folder, tinyTensors(), (map) => {
        map['lm_head.weight'] = 'model-00003-of-00002.safetensors';
      });
      assert.throws(() => open(folder), nativeError('io', /Cannot open .*model-00003/));
      writeFileSync(join(folder, 'model.safetensors.index.json'), '{"weight_map":[]}');
      assert.throws(() => open(folder), nativeError('bad_model', /no weight_map/));
    });
  });
});
