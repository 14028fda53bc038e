/**
 * Whatever stands in a file, a variable or an argument, the loader answers with a configuration within its ranges or with ConfigError.
 */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import fc from 'fast-check';
import { keyLines, keyPath } from '../../config/key-lines.js';
import { ConfigError, loadConfigText } from '../../config/load.js';
import { acceptValue, optionByName, options, optionValue } from '../../config/options.js';
import { packageRoot } from '../../native/index.js';

const names = [...options.map((o) => o.name), 'scheduler.block_size', 'cache.num_gpu_blocks', 'x.y', '__proto__.x', 'server.constructor'];
const value = fc.oneof(
  fc.string({ maxLength: 12 }),
  fc.constantFrom(
    '1',
    '-1',
    '0.5',
    'true',
    '"cpu"',
    '[]',
    '[0, 0]',
    '{a = 1}',
    'nan',
    'inf',
    '1979-05-27',
    '9007199254740993',
    '"""',
    "''",
    '[[',
    '{',
  ),
);
const line = fc.oneof(
  fc.tuple(fc.constantFrom(...names), value).map(([n, v]) => `${n} = ${v}`),
  fc.constantFrom('[server]', '[cache]', '[[log]]', '[a.b]', '# x', '"quoted" = 1', 'host = "0.0.0.0"', 'port = 1', '\u0000'),
  fc.string({ maxLength: 20 }),
);

function check(text: string, sets: string[], env: NodeJS.ProcessEnv): void {
  try {
    const { config, origins } = loadConfigText({ name: 'f', text }, { sets, env });
    for (const entry of options) {
      const v = optionValue(config, entry);
      assert.ok(v === entry.option.default || acceptValue(entry.option, v) !== undefined, entry.name);
      assert.ok(origins.has(entry.name));
    }
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    assert.ok(error.problems.length > 0 && error.problems.every((p) => p.length > 0 && !p.includes('\n')), error.message);
  }
}

test('any text, arguments and variables give a configuration in range or a ConfigError with one line a problem', () => {
  fc.assert(
    fc.property(
      fc.array(line, { maxLength: 12 }),
      fc.array(
        fc.oneof(
          fc.string(),
          fc.tuple(fc.constantFrom(...names), value).map(([n, v]) => `${n}=${v}`),
        ),
        { maxLength: 4 },
      ),
      fc.dictionary(fc.constantFrom(...names.map((n) => `INFERD_${n.replace('.', '__').toUpperCase()}`)), fc.oneof(fc.string(), value), {
        maxKeys: 3,
      }),
      (lines, sets, env) => check(lines.join('\n'), sets, env),
    ),
    { numRuns: 500 },
  );
});

test('any unicode text gives a configuration or a ConfigError', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary', maxLength: 200 }), (text) => check(text, [text], {})),
    { numRuns: 300 },
  );
});

test('every key of a valid text is found on the line it stands on', () => {
  const entry = fc.constantFrom(...options.filter((o) => o.option.default !== null));
  fc.assert(
    fc.property(
      fc.uniqueArray(entry, { selector: (o) => o.name, maxLength: 20 }),
      fc.array(fc.nat(3), { maxLength: 20 }),
      (entries, gaps) => {
        const out: string[] = [];
        const expected = new Map<string, number>();
        for (const [i, o] of entries.entries()) {
          out.push(...Array.from({ length: gaps[i] ?? 0 }, (_, k) => (k % 2 === 0 ? '' : `# ${o.name} = 1 "`)));
          out.push(`${o.section}.${o.key} = ${JSON.stringify(o.option.default)} # [x]`);
          expected.set(keyPath([o.section, o.key]), out.length);
        }
        const text = out.join('\n');
        const lines = keyLines(text);
        for (const [path, at] of expected) assert.equal(lines.get(path), at);
        const { origins } = loadConfigText({ name: 'f', text }, { env: {} });
        for (const o of entries) assert.equal(origins.get(o.name), `f:${expected.get(keyPath([o.section, o.key]))}`);
      },
    ),
    { numRuns: 100 },
  );
});

test('the table of options is consistent with itself', () => {
  for (const { option, name } of options) {
    assert.ok(option.doc.endsWith('.') && !option.doc.includes('\n'), name);
    assert.ok(option.default === null || acceptValue(option, option.default) !== undefined, `${name}: its own default is not allowed`);
  }
  assert.equal(optionByName.size, options.length);
});

const folder = join(packageRoot(), 'config');
const shipped = readdirSync(folder).flatMap((name) => (name.endsWith('.toml') ? [readFileSync(join(folder, name))] : []));

test('any file made by changing bytes of a shipped one does so too', () => {
  const change = fc.tuple(fc.constantFrom('set', 'cut', 'double', 'drop'), fc.nat(4000), fc.nat(255));
  fc.assert(
    fc.property(fc.constantFrom(...shipped), fc.array(change, { minLength: 1, maxLength: 6 }), (file, changes) => {
      let bytes = Buffer.from(file);
      for (const [kind, place, byte] of changes) {
        const i = place % Math.max(1, bytes.length);
        if (kind === 'set' && bytes.length > 0) bytes[i] = byte;
        else if (kind === 'cut') bytes = bytes.subarray(0, i);
        else if (kind === 'double') bytes = Buffer.concat([bytes.subarray(0, i), bytes.subarray(Math.max(0, i - byte))]);
        else bytes = Buffer.concat([bytes.subarray(0, i), bytes.subarray(i + (byte % 16))]);
      }
      check(bytes.toString('utf8'), [], {});
    }),
    { numRuns: 300, seed: 4 },
  );
});
