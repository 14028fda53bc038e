/**
 * The lists of "How to add" in the READMEs of the folders: what they name exists, and what was added before followed them, so that the next
 * one can.
 */
import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { samplingParams } from '../actors/messages/sampling.js';
import { loadAddon, packageRoot } from '../native/index.js';
import { packs } from './helpers/native/golden.js';

const root = packageRoot();
const read = (path: string): string => readFileSync(join(root, path), 'utf8');
const parts = ['config', 'daemon', 'rpc', 'actors', 'native', 'test'];
const readmes = [
  'README.md',
  ...parts.flatMap((part) =>
    readdirSync(join(root, part), { recursive: true })
      .map((path) => `${part}/${String(path)}`)
      .filter((path) => path.endsWith('/README.md') && !/^(native\/build|test\/fixtures)\//.test(path)),
  ),
];

/** What stands in a list in the place of a name. */
const PLACEHOLDER = /NAME|\*/;
const LONGEST_README = 150;

describe('the READMEs', () => {
  test('the first one is short, and each part has its own', () => {
    assert.ok(read('README.md').split('\n').length <= LONGEST_README + 1);
    for (const part of parts) assert.ok(existsSync(join(root, part, 'README.md')), part);
  });

  test('every file that a list of "How to add" names exists', () => {
    let lists = 0;
    for (const path of readmes) {
      for (const section of read(path)
        .split(/^## /m)
        .filter((s) => s.startsWith('How to add'))) {
        lists++;
        const named = [...section.matchAll(/^- .*$/gm)].flatMap(([line]) => [...line.matchAll(/`([^`]+\/[^`]*)`/g)].map((m) => m[1] ?? ''));
        assert.ok(named.length > 0, `${path}: ${section.split('\n')[0]} names no file`);
        for (const file of named.filter((f) => !PLACEHOLDER.test(f))) assert.ok(existsSync(join(root, file)), `${path} names ${file}`);
      }
    }
    assert.ok(lists >= 9, `${lists} lists`);
  });

  test('links between them lead somewhere', () => {
    for (const path of readmes) {
      for (const [, target = ''] of read(path).matchAll(/\]\(([^)#:]+)\)/g)) {
        assert.ok(existsSync(join(root, path, '..', target)), `${path} links to ${target}`);
      }
    }
  });
});

describe('what was added followed its list', () => {
  test('each model has its file, its line and a golden pack', () => {
    const models = [...read('native/models/registry.cpp').matchAll(/MODEL\((\w+), "\w+", configure_(\w+)\)/g)];
    assert.ok(models.length >= 10);
    const architectures = new Set(
      packs.map((pack) => (JSON.parse(read(`test/fixtures/golden/${pack}/config.json`)) as { architectures: string[] }).architectures[0]),
    );
    for (const [, architecture = '', name] of models) {
      const file = `native/models/families/${name}.cpp`;
      assert.ok(existsSync(join(root, file)), file);
      assert.ok(architectures.has(architecture), `a golden pack of ${architecture}`);
    }
  });

  test('each file of methods is named by the index', () => {
    const index = read('rpc/methods/index.ts');
    for (const file of readdirSync(join(root, 'rpc/methods'))) {
      if (file !== 'index.ts' && read(`rpc/methods/${file}`).includes('defineMethod(')) {
        assert.ok(index.includes(`'./${file.replace('.ts', '.js')}'`), file);
      }
    }
  });

  test('each sampling parameter has its line in the record and a case in the tests', () => {
    const record = read('native/core/plan/sampling_row.h');
    const reference = read('test/helpers/native/reference-sampler.ts');
    const tests = read('test/native/sampler.test.ts');
    const drafted = read('test/native/engine/drafted-work.ts');
    for (const name of Object.keys(samplingParams)) {
      assert.ok(record.includes(` ${name},`), `${name} in sampling_row.h`);
      assert.ok(reference.includes(`p.${name}`), `${name} in the reference of samplers`);
      assert.ok(tests.includes(name), `${name} in the tests of samplers`);
      assert.ok(drafted.includes(`${name}: `), `${name} behind drafts`);
    }
  });

  test('each backend is a folder, an entry and a block of the build', () => {
    const entries = [...read('native/engine/backends.cpp').matchAll(/\{"(\w+)",/g)].map((m) => m[1] ?? '');
    const folders = readdirSync(join(root, 'native')).filter((name) => existsSync(join(root, `native/${name}/${name}_backend.h`)));
    assert.deepEqual(entries.sort(), folders.sort());
    assert.ok(entries.includes('cpu') && entries.includes('cuda'));
    for (const name of entries) {
      assert.match(read(`native/${name}/${name}_backend.h`), /final : public Backend/);
      assert.ok(read('native/CMakeLists.txt').includes(`${name}/`), name);
    }
  });

  test('each op of the table has a case among the tests', () => {
    const tests = readdirSync(join(root, 'test/native'), { recursive: true })
      .map(String)
      .filter((file) => file.endsWith('.ts'))
      .map((file) => read(`test/native/${file}`))
      .concat(read('test/helpers/native/op-table.ts'), read('test/helpers/native/sample-op.ts'), read('daemon/cli/bench/limits.ts'));
    for (const op of loadAddon().opNames()) {
      assert.ok(
        tests.some((text) => text.includes(`'${op}'`)),
        op,
      );
    }
  });

  test('each kernel for products has a test program', () => {
    const programs = read('test/gpu/programs.mjs');
    for (const [, name = ''] of read('native/cuda/gemm/gemm_kernels.cpp').matchAll(/^ {4}\{"(\w+)", /gm)) {
      assert.ok(programs.includes(`${name}_gemm`), name);
    }
  });

  test('each verb of the command line is a file', () => {
    const files = [...read('daemon/cli/verbs.ts').matchAll(/import\('\.\/([\w/-]+)\.js'\)/g)].map(([, file = '']) => file);
    assert.ok(files.length > 0);
    for (const file of files) assert.ok(existsSync(join(root, `daemon/cli/${file}.ts`)), file);
  });
});
