/**
 * What is written about the options: the default file, the table, the JSON Schema, and the shipped profiles.
 */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { loadConfig, loadConfigText } from '../../config/load.js';
import { defaultToml, jsonSchema, optionTable } from '../../config/option-docs.js';
import { options, optionValue } from '../../config/options.js';
import { packageRoot } from '../../native/index.js';

const folder = join(packageRoot(), 'config');

test('config/default.toml is what the schema says (write it again with "inferd config init")', () => {
  assert.equal(readFileSync(join(folder, 'default.toml'), 'utf8'), defaultToml());
});

test('the default file as it is changes nothing, and with every line switched on it still says the defaults', () => {
  const asIs = loadConfigText({ name: 'd', text: defaultToml() }, { env: {} });
  assert.ok([...asIs.origins.values()].every((origin) => origin === 'default'));
  const text = defaultToml().replaceAll(/^#(?=\w+ = (?! ))/gm, '');
  const { config, origins } = loadConfigText({ name: 'd', text }, { env: {} });
  for (const entry of options) {
    assert.deepEqual(optionValue(config, entry), entry.option.default, entry.name);
    if (entry.option.default !== null) assert.match(origins.get(entry.name) ?? '', /^d:\d+$/, entry.name);
  }
});

test('the default file has no line longer than 140 characters and names every option', () => {
  const lines = defaultToml().split('\n');
  assert.deepEqual(
    lines.filter((line) => line.length > 140),
    [],
  );
  for (const { key } of options)
    assert.ok(
      lines.some((line) => line.startsWith(`#${key} = `)),
      key,
    );
});

test('the table has one row for each option', () => {
  const rows = optionTable().trimEnd().split('\n');
  assert.equal(rows.length, options.length + 2);
  for (const [i, { name }] of options.entries()) assert.ok(rows[i + 2]?.startsWith(`| \`${name}\` | `), name);
});

test('the JSON Schema knows every option and nothing else', () => {
  const schema = jsonSchema() as { properties: Record<string, { additionalProperties: boolean; properties: Record<string, unknown> }> };
  const names = Object.entries(schema.properties).flatMap(([section, s]) => Object.keys(s.properties).map((key) => `${section}.${key}`));
  assert.deepEqual(
    names,
    options.map((o) => o.name),
  );
  assert.ok(Object.values(schema.properties).every((s) => s.additionalProperties === false));
});

test('every shipped profile is a good configuration without warnings', () => {
  const profiles = readdirSync(folder).filter((name) => name.endsWith('.toml'));
  assert.deepEqual(profiles.sort(), ['cpu-small.toml', 'default.toml', 'demo.toml', 'llama-3.1-70b-tp4.toml', 'llama-3.1-8b.toml']);
  for (const name of profiles) assert.deepEqual(loadConfig({ file: join(folder, name), env: {} }).warnings, [], name);
});
