/**
 * The rules of who may import whom, read from the sources themselves: one direction only, each package behind one file. And of how full a
 * folder may be.
 */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize, relative, sep } from 'node:path';
import { test } from 'node:test';
import { packageRoot } from '../native/index.js';

const root = packageRoot();
const sourceRoots = ['daemon', 'actors', 'rpc', 'native', 'config'];

interface Import {
  readonly from: string;
  /** Path relative to the root for own files, else the bare specifier. */
  readonly to: string;
  readonly own: boolean;
  readonly typeOnly: boolean;
}

function files(dir: string, ending: string): string[] {
  return readdirSync(join(root, dir), { recursive: true, withFileTypes: true })
    .filter((e) => e.isFile() && e.name.endsWith(ending) && !e.parentPath.includes(`${sep}build`))
    .map((e) => relative(root, join(e.parentPath, e.name)).split(sep).join('/'));
}

function importsOf(file: string): Import[] {
  const text = readFileSync(join(root, file), 'utf8');
  const found: Import[] = [];
  for (const m of text.matchAll(
    /^\s*(?:import|export)\s+(type\s+)?[^'";]*?from\s+'([^']+)'|^\s*import\s+'([^']+)'|import\('([^']+)'\)/gms,
  )) {
    const spec = m[2] ?? m[3] ?? m[4];
    if (spec === undefined || spec.startsWith('node:')) continue;
    const own = spec.startsWith('.');
    const to = own
      ? normalize(join(dirname(file), spec))
          .split(sep)
          .join('/')
          .replace(/\.js$/, '.ts')
      : spec;
    found.push({ from: file, to, own, typeOnly: m[1] !== undefined });
  }
  return found;
}

const all = sourceRoots.flatMap((dir) => files(dir, '.ts')).flatMap(importsOf);
const kinds = ['tokenizer', 'scheduler', 'executor'];

/** For each part, what it may import of ours: path prefixes, or folders without their rooms (`config/*`). The first matching rule decides. */
const allowed: readonly (readonly [string, readonly string[]])[] = [
  ['config/models/', ['config/models/', 'config/gguf/', 'config/*']],
  ['config/gguf/', ['config/gguf/', 'config/error', 'config/file-kind']],
  ['config/', ['config/*']],
  ['native/', ['native/']],
  ['actors/messages/', ['actors/messages/', 'config/']],
  [
    'actors/runtime/',
    ['actors/runtime/', 'actors/messages/', 'config/', 'actors/tokenizer/host', 'actors/scheduler/actor', 'actors/executor/actor'],
  ],
  ['actors/routing/', ['actors/routing/']],
  ['actors/grammar/', ['actors/grammar/', 'actors/messages/constraint']],
  ['actors/tokenizer/model/', ['actors/tokenizer/model/', 'actors/messages/', 'config/gguf/']],
  ['actors/tokenizer/work/', ['actors/tokenizer/work/', 'actors/runtime/', 'actors/messages/']],
  [
    'actors/tokenizer/template/',
    ['actors/tokenizer/template/', 'actors/tokenizer/work/', 'actors/tokenizer/model/', 'actors/runtime/', 'actors/messages/'],
  ],
  ['actors/tokenizer/answer/', ['actors/tokenizer/answer/', 'actors/tokenizer/model/', 'actors/messages/']],
  ['actors/tokenizer/groups/', ['actors/tokenizer/groups/', 'actors/routing/', 'actors/runtime/', 'actors/messages/']],
  [
    'actors/tokenizer/decode/',
    ['actors/tokenizer/decode/', 'actors/tokenizer/groups/', 'actors/tokenizer/answer/', 'actors/tokenizer/model/', 'actors/messages/'],
  ],
  [
    'actors/tokenizer/encode/',
    [
      'actors/tokenizer/encode/',
      'actors/tokenizer/template/',
      'actors/tokenizer/work/',
      'actors/tokenizer/model/',
      'actors/runtime/',
      'actors/messages/',
      'config/gguf/files',
    ],
  ],
  [
    'actors/tokenizer/constrain/',
    [
      'actors/tokenizer/constrain/',
      'actors/tokenizer/answer/',
      'actors/tokenizer/work/',
      'actors/tokenizer/model/',
      'actors/grammar/index',
      'actors/runtime/cpu-time',
      'actors/messages/',
      'config/',
      'native/',
    ],
  ],
  ['actors/tokenizer/', ['actors/tokenizer/', 'actors/routing/', 'actors/runtime/', 'actors/messages/', 'config/']],
  ['actors/scheduler/', ['actors/scheduler/', 'actors/routing/', 'actors/runtime/', 'actors/messages/', 'config/']],
  ['actors/executor/', ['actors/executor/', 'actors/runtime/', 'actors/messages/', 'config/', 'native/']],
  ['actors/client', ['actors/client', 'actors/runtime/', 'actors/messages/', 'config/']],
  ['rpc/', ['rpc/', 'actors/client-types', 'actors/messages/', 'actors/runtime/log', 'actors/runtime/cancellation', 'config/']],
  ['daemon/front/', ['daemon/front/', 'daemon/life/', 'daemon/exit-code', 'daemon/start-error', 'rpc/', 'actors/', 'config/']],
  [
    'daemon/life/',
    [
      'daemon/life/',
      'daemon/profile/',
      'daemon/exit-code',
      'daemon/start-error',
      'daemon/make-folder',
      'daemon/private-folder',
      'actors/',
      'native/',
      'config/',
    ],
  ],
  ['daemon/hub/web/', ['daemon/hub/web/', 'daemon/hub/error', 'daemon/version', 'config/']],
  ['daemon/hub/repository/', ['daemon/hub/repository/', 'daemon/hub/web/', 'daemon/hub/error', 'config/']],
  ['daemon/hub/cache/', ['daemon/hub/cache/', 'daemon/hub/repository/', 'daemon/hub/error', 'daemon/make-folder', 'config/']],
  [
    'daemon/hub/transfer/',
    ['daemon/hub/transfer/', 'daemon/hub/cache/', 'daemon/hub/repository/', 'daemon/hub/web/', 'daemon/hub/error', 'config/'],
  ],
  [
    'daemon/hub/',
    [
      'daemon/hub/',
      'daemon/make-folder',
      'daemon/version',
      'actors/messages/',
      'actors/runtime/log',
      'actors/runtime/cancellation',
      'rpc/schemas/hub',
      'config/',
    ],
  ],
  ['daemon/', ['daemon/', 'rpc/', 'actors/', 'native/', 'config/']],
];

/** `place`: a path prefix, or a folder without its rooms. */
const isAt = (place: string, file: string): boolean =>
  place.endsWith('/*') ? dirname(file) === place.slice(0, -2) : file.startsWith(place);

test('every import goes in the allowed direction', () => {
  const breaches = all
    .filter((i) => i.own)
    .filter((i) => {
      const rule = allowed.find(([prefix]) => i.from.startsWith(prefix));
      return rule === undefined || !rule[1].some((place) => isAt(place, i.to));
    })
    .map((i) => `${i.from} -> ${i.to}`);
  assert.deepEqual(breaches, []);
});

/** Each circle among files and what they name, as a sentence. */
function circlesOf(next: ReadonlyMap<string, readonly string[]>): string[] {
  const circles: string[] = [];
  const finished = new Set<string>();
  const walk = (file: string, path: readonly string[]): void => {
    if (path.includes(file)) circles.push([...path.slice(path.indexOf(file)), file].join(' -> '));
    else if (!finished.has(file)) for (const to of next.get(file) ?? []) walk(to, [...path, file]);
    finished.add(file);
  };
  for (const file of next.keys()) walk(file, []);
  return circles;
}

test('no file imports itself by way of others, not even for types', () => {
  const next = new Map<string, string[]>();
  for (const { from, to } of all.filter((i) => i.own)) next.set(from, [...(next.get(from) ?? []), to]);
  assert.deepEqual(circlesOf(next), []);
});

test('only the worker entry names all actor kinds; the kinds never import each other', () => {
  const breaches = all.filter((i) => {
    const from = kinds.find((k) => i.from.startsWith(`actors/${k}/`));
    const to = kinds.find((k) => i.to.startsWith(`actors/${k}/`));
    if (to === undefined || from === to) return false;
    return from !== undefined || (i.from.startsWith('actors/') && i.from !== 'actors/runtime/entry.ts');
  });
  assert.deepEqual(
    breaches.map((i) => `${i.from} -> ${i.to}`),
    [],
  );
});

test('a room of a page imports what its page has for all rooms, never another room', () => {
  const pages = 'daemon/front/pages/';
  const imports = files(pages, '.js').flatMap(importsOf);
  const breaches = imports.filter(({ from, to, own }) => {
    const [page = '', room] = dirname(from).slice(pages.length).split('/');
    const mayImport = [dirname(from), `${pages}${page}`, `${pages}shared`];
    const joins = room === undefined && from.endsWith('/main.js') && to.startsWith(`${pages}${page}/`);
    return !own || !(joins || mayImport.includes(dirname(to)));
  });
  assert.ok(imports.length > 50);
  assert.deepEqual(
    breaches.map((i) => `${i.from} -> ${i.to}`),
    [],
  );
});

/** Packages that may stand in more than one file, and where. */
const shared: Readonly<Record<string, RegExp>> = {
  zod: /^rpc\//,
  ws: /^(daemon\/front\/websocket|rpc\/client\/node)\.ts$/,
  'json-rpc-2.0': /^rpc\//,
};

test('each third-party package is imported in one file', () => {
  const users = new Map<string, Set<string>>();
  for (const i of all.filter((x) => !x.own)) {
    const name = i.to.startsWith('@') ? i.to.split('/').slice(0, 2).join('/') : (i.to.split('/')[0] ?? i.to);
    users.set(name, (users.get(name) ?? new Set()).add(i.from));
  }
  for (const [name, at] of users) {
    const rule = shared[name];
    if (rule)
      assert.deepEqual(
        [...at].filter((f) => !rule.test(f)),
        [],
        `${name} is imported outside its place`,
      );
    else assert.equal(at.size, 1, `${name} is imported by ${[...at].join(', ')}`);
  }
});

test('declared dependencies are used and used packages are declared', () => {
  const pkg = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as Record<
    'dependencies' | 'peerDependencies' | 'peerDependenciesMeta',
    Record<string, unknown>
  >;
  const used = new Set(
    all.filter((i) => !i.own).map((i) => (i.to.startsWith('@') ? i.to.split('/').slice(0, 2).join('/') : i.to.split('/')[0])),
  );
  const native = new Set(['node-addon-api', 'node-api-headers', 'pino-pretty']);
  assert.deepEqual(
    [...used].filter((name) => name !== undefined && !(name in pkg.dependencies) && !(name in pkg.peerDependencies)),
    [],
  );
  for (const name of Object.keys(pkg.peerDependencies)) {
    assert.deepEqual(pkg.peerDependenciesMeta[name], { optional: true });
    const users = [...new Set(all.filter((i) => i.to === name).map((i) => i.from))];
    assert.equal(users.length, 1, `${name} is used in one file`);
    const text = readFileSync(join(root, users[0] ?? ''), 'utf8');
    assert.doesNotMatch(text, new RegExp(`from '${name}'`), `${name} is loaded only when it is asked for`);
  }
  assert.deepEqual(
    Object.keys(pkg.dependencies).filter((name) => !used.has(name) && !native.has(name)),
    [],
  );
});

const cuda = [
  'cuda/device',
  'cuda/runtime',
  'cuda/rows',
  'cuda/adapters',
  'cuda/gemm',
  'cuda/gemm/batch',
  'cuda/gemm/codes',
  'cuda/gemm/few',
  'cuda/gemm/tiles',
  'cuda/attention',
  'cuda/latent',
  'cuda/experts',
  'cuda/sampler',
  'cuda/ranks',
  'cuda/ranks/nccl',
];

/** The rooms of the C++ code, and those whose headers each may include beside its own: only rooms above it, so that there is no circle. */
const rooms: readonly (readonly [string, readonly string[]])[] = [
  ['core/plan', []],
  ['core', ['core/plan']],
  ['core/memory', ['core']],
  ['core/checkpoint', ['core']],
  ['core/formats', ['core', 'core/checkpoint']],
  ['grammar/syntax', ['core']],
  ['grammar/compile', ['core', 'grammar/syntax']],
  ['grammar/match', ['core', 'grammar/compile']],
  ['grammar', ['core', 'grammar/syntax', 'grammar/compile', 'grammar/match']],
  ['cpu/simd', []],
  ['cpu/isa', ['core', 'cpu/simd']],
  ['cpu/runtime', ['core']],
  ['cpu/sampler', ['core', 'core/plan', 'cpu/isa']],
  ['cpu', ['core', 'core/plan', 'core/memory', 'cpu/isa', 'cpu/runtime', 'cpu/sampler']],
  ['cuda/device', []],
  ['cuda/runtime', ['core', 'core/plan', 'cuda/device']],
  ['cuda/rows', ['core', 'cuda/device', 'cuda/runtime']],
  ['cuda/adapters', ['core', 'core/plan', 'cuda/device', 'cuda/runtime', 'cuda/rows']],
  ['cuda/gemm', ['core', 'cuda/device', 'cuda/runtime', 'cuda/rows']],
  ['cuda/gemm/batch', ['core', 'cuda/device', 'cuda/gemm']],
  ['cuda/gemm/codes', ['core', 'cuda/device', 'cuda/rows', 'cuda/gemm']],
  ['cuda/gemm/few', ['core', 'cuda/device', 'cuda/rows', 'cuda/gemm']],
  ['cuda/gemm/tiles', ['core', 'cuda/device', 'cuda/rows', 'cuda/gemm']],
  ['cuda/attention', ['core', 'core/plan', 'cuda/device']],
  ['cuda/latent', ['core', 'cuda/device', 'cuda/attention']],
  ['cuda/experts', ['core', 'cuda/device', 'cuda/gemm', 'cuda/rows']],
  ['cuda/sampler', ['core', 'core/plan', 'cuda/device']],
  ['cuda/ranks', ['core', 'cuda/device', 'cuda/runtime', 'cuda/sampler']],
  ['cuda/ranks/nccl', ['core', 'cuda/device', 'cuda/runtime', 'cuda/ranks']],
  ['cuda', ['core', 'core/plan', ...cuda]],
  ['models/config', ['core', 'core/checkpoint', 'core/formats']],
  ['models/blocks', ['core', 'core/memory', 'core/checkpoint', 'models/config']],
  ['models/families', ['core', 'models/config']],
  ['models', ['core', 'core/memory', 'core/checkpoint', 'models/config', 'models/blocks']],
  ['models/draft', ['core', 'core/checkpoint', 'models', 'models/config', 'models/blocks']],
  ['engine/adapters', ['core', 'core/plan', 'core/checkpoint', 'models', 'models/config', 'models/blocks']],
  ['engine/loading', ['core', 'core/checkpoint', 'core/formats', 'models/config', 'models/blocks']],
  [
    'engine',
    [
      ...['core', 'core/plan', 'core/memory', 'core/checkpoint', 'core/formats', 'grammar'],
      ...['models', 'models/config', 'models/blocks', 'models/draft', 'engine/adapters', 'engine/loading'],
    ],
  ],
  ['addon/op_table', ['core', 'core/memory', 'core/checkpoint', 'cpu/isa', 'cpu/runtime', 'engine', 'engine/loading']],
  ['addon', ['core', 'core/plan', 'core/memory', 'cpu/isa', 'cpu/runtime', 'grammar', 'engine', 'addon/op_table']],
];
const exceptions: readonly (readonly [RegExp, string])[] = [
  [/^native\/engine\/backends\.cpp$/, 'cpu'],
  [/^native\/engine\/cuda_library\.h$/, 'cuda'],
];
/** Written by the build (native/cuda_interface.cmake). */
const GENERATED = 'cuda_interface.h';

const cppFiles = ['.h', '.cpp', '.cu', '.cuh'].flatMap((ending) => files('native', ending));
const roomOf = (file: string): string => dirname(file).replace(/^native\//, '');

/** The own headers that a C++ file includes, as they are named: by their path in native/. */
function includesOf(file: string): string[] {
  return [...readFileSync(join(root, file), 'utf8').matchAll(/^\s*#\s*include\s+"([^"]+)"/gm)].map((m) => m[1] ?? '');
}

test('C++ includes go in the allowed direction and napi stays in the addon', () => {
  const breaches: string[] = [];
  for (const file of cppFiles) {
    const room = roomOf(file);
    const rule = rooms.find(([name]) => name === room);
    if (rule === undefined) {
      breaches.push(`${file} is in no known room`);
      continue;
    }
    for (const target of includesOf(file).filter((name) => name !== GENERATED)) {
      const other = dirname(target);
      const allowedHere = [room, ...rule[1]].includes(other) || exceptions.some(([from, to]) => from.test(file) && to === other);
      if (!allowedHere) breaches.push(`${file} includes ${target}`);
    }
    const napi = /^\s*#\s*include\s+<(napi\.h|node_api\.h)>/m.exec(readFileSync(join(root, file), 'utf8'));
    if (napi !== null && !room.startsWith('addon')) breaches.push(`${file} includes ${napi[1]}`);
  }
  assert.deepEqual(breaches, []);
});

test('a room of the C++ code includes only rooms above it in the list, and each of them has files', () => {
  const names = rooms.map(([name]) => name);
  const breaches = rooms.flatMap(([name, others], i) =>
    others.filter((other) => !names.slice(0, i).includes(other)).map((o) => `${name}: ${o}`),
  );
  assert.deepEqual(breaches, []);
  assert.deepEqual(
    names.filter((name) => !cppFiles.some((file) => roomOf(file) === name)),
    [],
  );
});

test('no C++ file includes itself by way of others', () => {
  const next = new Map(cppFiles.map((file) => [file, includesOf(file).map((name) => `native/${name}`)]));
  assert.deepEqual(circlesOf(next), []);
});

test('no folder holds more files than one can take in', () => {
  const MAX_FILES = 25;
  const held = [...sourceRoots, 'test'].flatMap((dir) => files(dir, '')).filter((file) => !file.startsWith('test/fixtures/'));
  const count = new Map<string, number>();
  for (const file of held) count.set(dirname(file), (count.get(dirname(file)) ?? 0) + 1);
  assert.deepEqual(
    [...count]
      .filter(([, n]) => n > MAX_FILES)
      .map(([dir, n]) => `${dir} holds ${n} files, more than ${MAX_FILES}: give those of one subject a folder of their own`),
    [],
  );
});
