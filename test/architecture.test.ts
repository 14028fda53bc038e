/**
 * The rules of who may import whom, read from the sources themselves: one direction only, each package behind one file.
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

/** For each part, what it may import of ours (path prefixes). The first matching rule decides. */
const allowed: readonly (readonly [string, readonly string[]])[] = [
  ['config/', ['config/']],
  ['native/', ['native/']],
  ['actors/messages/', ['actors/messages/', 'config/']],
  [
    'actors/runtime/',
    ['actors/runtime/', 'actors/messages/', 'config/', 'actors/tokenizer/host', 'actors/scheduler/actor', 'actors/executor/actor'],
  ],
  ['actors/tokenizer/model/', ['actors/tokenizer/model/', 'actors/messages/']],
  ['actors/tokenizer/work/', ['actors/tokenizer/work/', 'actors/runtime/', 'actors/messages/']],
  [
    'actors/tokenizer/template/',
    ['actors/tokenizer/template/', 'actors/tokenizer/work/', 'actors/tokenizer/model/', 'actors/runtime/', 'actors/messages/'],
  ],
  ['actors/tokenizer/decode/', ['actors/tokenizer/decode/', 'actors/tokenizer/model/', 'actors/messages/']],
  [
    'actors/tokenizer/encode/',
    [
      'actors/tokenizer/encode/',
      'actors/tokenizer/template/',
      'actors/tokenizer/work/',
      'actors/tokenizer/model/',
      'actors/runtime/',
      'actors/messages/',
    ],
  ],
  ['actors/tokenizer/', ['actors/tokenizer/', 'actors/runtime/', 'actors/messages/', 'config/']],
  ['actors/scheduler/', ['actors/scheduler/', 'actors/runtime/', 'actors/messages/', 'config/']],
  ['actors/executor/', ['actors/executor/', 'actors/runtime/', 'actors/messages/', 'config/', 'native/']],
  ['actors/client', ['actors/client', 'actors/runtime/', 'actors/messages/', 'config/']],
  ['rpc/', ['rpc/', 'actors/client-types', 'actors/messages/', 'actors/runtime/log', 'actors/runtime/cancellation', 'config/']],
  ['daemon/front/', ['daemon/front/', 'daemon/life/', 'daemon/exit-code', 'daemon/start-error', 'rpc/', 'actors/', 'config/']],
  [
    'daemon/life/',
    ['daemon/life/', 'daemon/profile/', 'daemon/exit-code', 'daemon/start-error', 'daemon/make-folder', 'actors/', 'native/', 'config/'],
  ],
  ['daemon/', ['daemon/', 'rpc/', 'actors/', 'native/', 'config/']],
];

test('every import goes in the allowed direction', () => {
  const breaches = all
    .filter((i) => i.own)
    .filter((i) => {
      const rule = allowed.find(([prefix]) => i.from.startsWith(prefix));
      return rule === undefined || !rule[1].some((prefix) => i.to.startsWith(prefix));
    })
    .map((i) => `${i.from} -> ${i.to}`);
  assert.deepEqual(breaches, []);
});

test('no file imports itself by way of others, not even for types', () => {
  const next = new Map<string, string[]>();
  for (const { from, to } of all.filter((i) => i.own)) next.set(from, [...(next.get(from) ?? []), to]);
  const circles: string[] = [];
  const finished = new Set<string>();
  const walk = (file: string, path: readonly string[]): void => {
    if (path.includes(file)) circles.push([...path.slice(path.indexOf(file)), file].join(' -> '));
    else if (!finished.has(file)) for (const to of next.get(file) ?? []) walk(to, [...path, file]);
    finished.add(file);
  };
  for (const file of next.keys()) walk(file, []);
  assert.deepEqual(circles, []);
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
  const pkg = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { dependencies: Record<string, string> };
  const used = new Set(
    all.filter((i) => !i.own).map((i) => (i.to.startsWith('@') ? i.to.split('/').slice(0, 2).join('/') : i.to.split('/')[0])),
  );
  const native = new Set(['node-addon-api', 'node-api-headers', 'pino-pretty']);
  assert.deepEqual(
    [...used].filter((name) => name !== undefined && !(name in pkg.dependencies)),
    [],
  );
  assert.deepEqual(
    Object.keys(pkg.dependencies).filter((name) => !used.has(name) && !native.has(name)),
    [],
  );
});

/** C++ parts and the folders whose headers they may include. */
const native: Readonly<Record<string, readonly string[]>> = {
  core: ['core'],
  cpu: ['core', 'cpu'],
  cuda: ['core', 'cuda'],
  models: ['core', 'models'],
  engine: ['core', 'models', 'engine'],
  addon: ['core', 'cpu', 'engine', 'addon'],
};

test('C++ includes go in the allowed direction and napi stays in the addon', () => {
  const breaches: string[] = [];
  for (const file of [...files('native', '.h'), ...files('native', '.cpp'), ...files('native', '.cu'), ...files('native', '.cuh')]) {
    const part = file.split('/')[1] ?? '';
    const rules = native[part];
    if (rules === undefined) {
      breaches.push(`${file} is in no known part`);
      continue;
    }
    for (const m of readFileSync(join(root, file), 'utf8').matchAll(/^#include\s+(?:"([^"]+)"|<(napi\.h|node_api\.h)>)/gm)) {
      const target = m[1];
      if (m[2] !== undefined && part !== 'addon') breaches.push(`${file} includes ${m[2]}`);
      if (target === undefined || !target.includes('/')) continue;
      const folder = target.split('/')[0] ?? '';
      const viaBackends = /^native\/engine\/(backends|cuda_library)\.(cpp|h)$/.test(file) && ['cpu', 'cuda'].includes(folder);
      if (!rules.includes(folder) && !viaBackends) breaches.push(`${file} includes ${target}`);
    }
  }
  assert.deepEqual(breaches, []);
});
