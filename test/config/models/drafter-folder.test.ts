/** Where a configuration's drafter is found, and what is refused before any weight is read. */
import assert from 'node:assert/strict';
import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { ConfigError } from '../../../config/error.js';
import { loadConfig } from '../../../config/load.js';
import { type ModelFolder, resolveModelFolder } from '../../../config/models/model-folder.js';
import { fixture } from '../../helpers/native/native-engine.js';
import { tempFolder } from '../../helpers/temp-folder.js';

function resolved(...sets: readonly string[]): ModelFolder {
  const env = { HOME: tempFolder() };
  return resolveModelFolder(loadConfig({ sets, env }).config, env);
}

function refuses(exitCode: number, message: RegExp, ...sets: readonly string[]): void {
  assert.throws(
    () => resolved(...sets),
    (error) => error instanceof ConfigError && error.exitCode === exitCode && message.test(error.message),
  );
}

test('a network of its own has a folder, and n-grams and layers of the model have none', () => {
  const { drafter } = resolved('speculative.method=draft', `speculative.model=${fixture('draft-model')}`);
  assert.equal(drafter?.path, fixture('draft-model'));
  assert.ok(drafter.sizeBytes > 1e6);
  assert.equal(
    resolved('speculative.method=eagle3', `speculative.model=${fixture('eagle3-model')}`).drafter?.path,
    fixture('eagle3-model'),
  );
  for (const method of ['none', 'ngram', 'mtp']) assert.equal(resolved(`speculative.method=${method}`).drafter, undefined);
});

test('one that is not named, not there, or of another tokenizer is refused', () => {
  refuses(78, /needs speculative\.model, the folder or Hugging Face id of a small model/, 'speculative.method=draft');
  refuses(66, /no folder/, 'speculative.method=eagle3', 'speculative.model=/nowhere/at/all');
  const folder = tempFolder();
  cpSync(fixture('draft-model'), folder, { recursive: true });
  const path = join(folder, 'tokenizer.json');
  writeFileSync(path, readFileSync(path, 'utf8').replace(/"vocab":\s*\{\s*"([^"]+)":/, '"vocab": {"another $1":'));
  refuses(78, /has another tokenizer/, 'speculative.method=draft', `speculative.model=${folder}`);
});
