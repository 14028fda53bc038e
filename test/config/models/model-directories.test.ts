/** Models of a directory by name: folders, GGUF files, split ones once; and names that lead elsewhere. */
import assert from 'node:assert/strict';
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { loadConfig } from '../../../config/load.js';
import { findInDirectory, modelNames } from '../../../config/models/model-directories.js';
import { listModels, resolveModelFolder } from '../../../config/models/model-folder.js';
import { packageRoot } from '../../../native/index.js';
import { tempFolder } from '../../helpers/temp-folder.js';

function directoryOf(...files: readonly string[]): string {
  const directory = tempFolder();
  for (const file of files) {
    mkdirSync(dirname(join(directory, file)), { recursive: true });
    writeFileSync(join(directory, file), '');
  }
  return directory;
}

test('folders and GGUF files are models by name, a split file under the name that its parts share', () => {
  const directory = directoryOf(
    ...['folder/config.json', 'packed/a-Q4_K_M.gguf', 'empty/README.md', 'one-Q8_0.gguf', 'mmproj-one.gguf', 'notes.txt'],
    ...['two-00001-of-00002.gguf', 'two-00002-of-00002.gguf', 'both.gguf', 'both/config.json', '.hidden.gguf'],
  );
  assert.deepEqual(modelNames(directory), ['both', 'folder', 'one-Q8_0', 'packed', 'two']);
  const path = (name: string) => findInDirectory(directory, name)?.slice(directory.length + 1) ?? null;
  assert.deepEqual(['both', 'folder', 'one-Q8_0', 'packed', 'two'].map(path), [
    ...['both', 'folder', 'one-Q8_0.gguf', 'packed', 'two-00001-of-00002.gguf'],
  ]);
  for (const name of ['', '.', '..', '../x', 'folder/..', 'two-00002-of-00002', 'mmproj-one', 'one', 'empty', 'a\0'])
    assert.equal(path(name), null, name);
  assert.deepEqual(modelNames(join(directory, 'none')), []);
});

test('the configuration finds them by name, and they are listed', () => {
  const directory = dirname(join(packageRoot(), 'test', 'fixtures', 'golden', 'quant-demo-q4k', 'model.gguf'));
  const env = { HOME: tempFolder() };
  const { config } = loadConfig({ env, sets: [`models.directories=["${directory}"]`, 'inference.model_name=model'] });
  assert.equal(resolveModelFolder(config, env).path, join(directory, 'model.gguf'));
  assert.deepEqual(
    listModels(config, env).map(({ name, problem }) => [name, problem]),
    [
      ['demo', null],
      ['model', null],
    ],
  );
});
