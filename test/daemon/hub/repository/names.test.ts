/** Patterns, names of files and names of models: what strangers and users write, before it becomes a path. */
import assert from 'node:assert/strict';
import { join, normalize } from 'node:path';
import { test } from 'node:test';
import fc from 'fast-check';
import { collision, hostileName, unwritableName } from '../../../../daemon/hub/repository/file-names.js';
import { glob } from '../../../../daemon/hub/repository/glob.js';
import { parseSpec } from '../../../../daemon/hub/repository/spec.js';

const asRegExp: ReadonlyMap<string, string> = new Map([
  ['*', '.*'],
  ['?', '.'],
  ['.', '\\.'],
  ['[!a]', '[^a]'],
]);

test('a pattern takes what the same regular expression takes', () => {
  const piece = fc.constantFrom('a', 'b', '/', '.', '*', '?', '[ab]', '[!a]');
  fc.assert(
    fc.property(
      fc.array(piece, { maxLength: 8 }),
      fc.string({ unit: fc.constantFrom('a', 'b', '/', '.'), maxLength: 8 }),
      (pieces, name) => {
        const source = pieces.map((p) => asRegExp.get(p) ?? p).join('');
        const all = pieces.at(-1) === '/' ? `${source}.*` : source;
        assert.equal(glob(pieces.join(''))(name), new RegExp(`^${all}$`, 's').test(name));
      },
    ),
  );
});

test('no pattern takes long', () => {
  assert.equal(glob('*a'.repeat(100))(`${'a'.repeat(4000)}b`), false);
});

test('a name that is not hostile stays in its folder, whatever it is', () => {
  const part = fc.constantFrom('..', '.', 'a', '', '\\', 'C:', '...', ' ', '%2e%2e');
  fc.assert(
    fc.property(fc.array(part, { minLength: 1, maxLength: 6 }), (parts) => {
      const path = parts.join('/');
      if (hostileName(path) === null) assert.equal(normalize(join('/root', path)), `/root/${path}`);
    }),
  );
});

test('names that some system cannot write', () => {
  for (const name of [
    'CON',
    'con.json',
    'a/aux',
    'LPT1.txt',
    'a.',
    'a ',
    'b/c. ',
    'x'.repeat(256),
    'é'.repeat(128),
    'a:b',
    'a*',
    `${'x/'.repeat(40)}y`,
  ])
    assert.notEqual(unwritableName(name), null, name);
  for (const name of ['config.json', 'a/b/c.txt', '.gitattributes', 'console.txt', 'x'.repeat(255), '日本.json', 'com.json', 'a b'])
    assert.equal(unwritableName(name), null, name);
});

test('files that would be one another', () => {
  assert.deepEqual(collision(['a', 'b', 'A']), ['a', 'A']);
  assert.deepEqual(collision(['é', 'e\u0301']), ['é', 'e\u0301']);
  assert.deepEqual(collision(['A/b', 'a']), ['a', 'A/b']);
  assert.equal(collision(['a/b', 'a/c', 'ab']), null);
});

test('a model is named as HF_ID[@REV][:QUANT], also with the address of the hub before it', () => {
  const main = { revision: 'main', quant: null };
  assert.deepEqual(parseSpec('org/name'), { id: 'org/name', ...main });
  assert.deepEqual(parseSpec('gpt2'), { id: 'gpt2', ...main });
  assert.deepEqual(parseSpec('org/name@v1.0:Q4_K_M'), { id: 'org/name', revision: 'v1.0', quant: 'Q4_K_M' });
  assert.deepEqual(parseSpec('hf.co/org/name:Q8_0'), { id: 'org/name', revision: 'main', quant: 'Q8_0' });
  assert.deepEqual(parseSpec('https://huggingface.co/org/name@refs/pr/1'), { id: 'org/name', revision: 'refs/pr/1', quant: null });
});

test('what could become another path or address is no name of a model', () => {
  const names = [
    '',
    '..',
    '../a',
    'a/../b',
    'a/b/c',
    '/a',
    'a--b',
    'a/b.git',
    'a b',
    'a/b?x',
    'a/b#x',
    'a\0',
    'a/b@',
    'a/b@../x',
    'a/b@/x',
    'a/b@x/..',
    'a/b@x//y',
    'a/b@-x',
    'a/b@x.lock',
    'a/b@.x',
    'a/b:',
    'a/b:../x',
    'a/b:Q/4',
    'x'.repeat(300),
  ];
  for (const name of names) assert.throws(() => parseSpec(name), { name: 'PullError', reason: 'usage' }, name);
});
