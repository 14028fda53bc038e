/** The configuration of one model among several: its file stands between the main file and the environment. */
import assert from 'node:assert/strict';
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { ConfigError } from '../../config/error.js';
import { loadConfigText } from '../../config/load.js';
import { configOfDefault, configOfModel, modelFile } from '../../config/model-file.js';
import { tempFolder } from '../helpers/temp-folder.js';

function file(text: string): string {
  const path = join(tempFolder(), 'small.toml');
  writeFileSync(path, text);
  return path;
}

const mainText = `
[inference]
model_name = "big"
served_model_name = "default"
revision = "v2"
threads = 3
[cache]
num_gpu_blocks_override = 77
block_size = 32
[scheduler]
max_queue = 5
max_num_sequences = 7
`;
const main = (sets: readonly string[] = [], env: NodeJS.ProcessEnv = {}) =>
  loadConfigText({ name: 'main.toml', text: mainText }, { sets, env });

test('a model without a file has the main configuration, but for what is of the default model alone', () => {
  const config = configOfModel(main(), { name: 'small', model: '/models/small' }, null);
  assert.deepEqual(
    [config.inference.model_name, config.inference.served_model_name, config.inference.revision, config.inference.threads],
    ['/models/small', 'small', 'main', 3],
  );
  assert.deepEqual([config.cache.num_gpu_blocks_override, config.cache.block_size, config.scheduler.max_queue], [77, 32, 5]);
});

test('blocks that the built-in profile cuts to its own model are not for others, unless somebody says them', () => {
  const blocks = (sets: readonly string[], profile: string) =>
    configOfModel({ ...main(sets), profile }, { name: 'small', model: '/models/small' }, null).cache.num_gpu_blocks_override;
  assert.deepEqual([blocks([], 'main.toml'), blocks([], 'other.toml')], [null, 77]);
  assert.equal(blocks(['cache.num_gpu_blocks_override=78'], 'main.toml'), 78);
});

test('its file wins over the main file, and --set and the environment win over both', () => {
  const own = file('[scheduler]\nmax_queue = 9\nmax_num_sequences = 11\n[cache]\nnum_gpu_blocks_override = 12\nblock_size = 16\n');
  const loaded = main(['scheduler.max_queue=6'], { INFERD_CACHE__BLOCK_SIZE: '64' });
  const config = configOfModel(loaded, { name: 'small', model: 'demo' }, own);
  assert.deepEqual([config.scheduler.max_queue, config.scheduler.max_num_sequences], [6, 11]);
  assert.deepEqual([config.cache.block_size, config.cache.num_gpu_blocks_override], [64, 12]);
  const ofDefault = configOfDefault(loaded, own);
  assert.deepEqual([ofDefault.inference.model_name, ofDefault.scheduler.max_num_sequences], ['big', 11]);
});

test('what is not of one model, unknown or out of range is refused with file and line', () => {
  const cases: readonly (readonly [string, RegExp])[] = [
    ['[server]\nport = 1\n', /small\.toml:2: server\.port is not of one model/],
    ['[inference]\nmodel_name = "x"\n', /small\.toml:2: inference\.model_name is said by the name of the file/],
    ['[cache]\nblock_sise = 1\n', /small\.toml:2: unknown key cache\.block_sise = 1; nearest known key: cache\.block_size/],
    ['[validation]\nmax_n = 0\n', /small\.toml:2: validation\.max_n = 0 is not allowed/],
  ];
  for (const [text, message] of cases) {
    assert.throws(
      () => configOfModel(main(), { name: 'small', model: 'demo' }, file(text)),
      (error) => error instanceof ConfigError && message.test(error.message),
    );
  }
});

test("the user's file is found before the one beside the model, and no name leads out of the folder", () => {
  const home = tempFolder();
  const env = { HOME: home, XDG_CONFIG_HOME: join(home, 'config') };
  const own = join(home, 'config', 'inferd', 'models', 'org', 'small.toml');
  const folder = join(home, 'models', 'small');
  assert.equal(modelFile('org/small', folder, env), null);
  for (const path of [`${folder}.toml`, own]) {
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, '');
    assert.equal(modelFile('org/small', folder, env), path);
  }
  writeFileSync(join(home, 'config', 'inferd', 'secret.toml'), '');
  for (const name of ['../secret', 'a/../../secret', '', 'x\0', '..\\secret']) assert.equal(modelFile(name, null, env), null);
});
