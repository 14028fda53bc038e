/** What the sentence-transformers files of a model say of pooling, as their authors write them and as strangers might. */
import assert from 'node:assert/strict';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { ConfigError } from '../../../config/error.js';
import { type PoolingChoice, poolingOf } from '../../../config/models/pooling.js';
import { tempFolder } from '../../helpers/temp-folder.js';

const modules = (...others: readonly object[]): readonly object[] => [
  { idx: 0, name: '0', path: '', type: 'sentence_transformers.models.Transformer' },
  ...others,
];
const pools = (path: string): object => ({ idx: 1, name: '1', path, type: 'sentence_transformers.models.Pooling' });
const norm = { idx: 2, name: '2', path: '2_Normalize', type: 'sentence_transformers.models.Normalize' };

/** Of a folder with these files. */
function choice(files: Readonly<Record<string, unknown>>, option: 'last' | 'mean' = 'last'): PoolingChoice {
  const folder = tempFolder();
  for (const [name, content] of Object.entries(files)) {
    mkdirSync(join(folder, name, '..'), { recursive: true });
    writeFileSync(join(folder, name), typeof content === 'string' ? content : JSON.stringify(content));
  }
  return poolingOf(folder, null, option);
}

const refusal = (files: Readonly<Record<string, unknown>>): string => {
  const made = choice(files);
  assert.ok('refusal' in made, JSON.stringify(made));
  return made.refusal;
};

test('a model without such files is pooled as the option says', () => {
  assert.deepEqual(choice({}), { mode: 'last' });
  assert.deepEqual(choice({}, 'mean'), { mode: 'mean' });
});

test('the files of the model come before the option', () => {
  const lastToken = { word_embedding_dimension: 1024, pooling_mode_cls_token: false, pooling_mode_lasttoken: true, include_prompt: true };
  const files = { 'modules.json': modules(pools('1_Pooling'), norm), '1_Pooling/config.json': lastToken };
  assert.deepEqual(choice(files, 'mean'), { mode: 'last' });
  const mean = { pooling_mode_cls_token: false, pooling_mode_mean_tokens: true, pooling_mode_max_tokens: false };
  assert.deepEqual(choice({ ...files, '1_Pooling/config.json': mean }), { mode: 'mean' });
  assert.deepEqual(choice({ '1_Pooling/config.json': mean }), { mode: 'mean' }, 'without the list of modules');
  assert.deepEqual(choice({ ...files, '1_Pooling/config.json': { pooling_mode: 'mean', embedding_dimension: 4 } }), { mode: 'mean' });
  assert.deepEqual(choice({ ...files, '1_Pooling/config.json': { pooling_mode: 'lasttoken' } }, 'mean'), { mode: 'last' });
  const rooted = { pooling_mode_mean_tokens: false, pooling_mode_mean_sqrt_len_tokens: true };
  assert.deepEqual(choice({ ...files, '1_Pooling/config.json': rooted }), { mode: 'mean' }, 'of the same direction');
  const elsewhere = { 'modules.json': modules(pools('pooling.v2')), 'pooling.v2/config.json': {} };
  assert.deepEqual(choice(elsewhere), { mode: 'mean' }, "the files' own default");
});

test('what cannot be done is said in a sentence, and the model can be served', () => {
  const pooling = (config: object): string => refusal({ 'modules.json': modules(pools('1_Pooling')), '1_Pooling/config.json': config });
  assert.match(pooling({ pooling_mode_cls_token: true }), /pools by "cls_token", which is not supported/);
  assert.match(pooling({ pooling_mode_mean_tokens: true, pooling_mode_max_tokens: true }), /"mean_tokens and max_tokens"/);
  assert.match(pooling({ pooling_mode_mean_tokens: false }), /pools by ""/);
  assert.match(pooling({ pooling_mode: 'constructor' }), /pools by "constructor"/);
  const dense = { type: 'sentence_transformers.models.Dense', path: '2_Dense' };
  assert.match(refusal({ 'modules.json': modules(pools('1_Pooling'), dense) }), /a module "Dense", which is not supported/);
  assert.match(refusal({ 'modules.json': modules(norm) }), /names no module that pools/);
  assert.match(refusal({ 'modules.json': {} }), /names no module that pools/);
  assert.match(refusal({ 'modules.json': [null, 1] }), /a module "undefined"/);
  assert.match(refusal({ 'modules.json': modules(pools('1_Pooling')) }), /names 1_Pooling, which has no config\.json/);
  for (const path of ['../outside', '/etc', '..', '', 'a/b']) {
    assert.match(refusal({ 'modules.json': modules(pools(path)) }), /names the folder/, path);
  }
});

test('a file that is no JSON is a damaged model', () => {
  const damaged = (files: Readonly<Record<string, unknown>>) => () => choice(files);
  const bad = (error: unknown): boolean => error instanceof ConfigError && error.exitCode === 65;
  assert.throws(damaged({ 'modules.json': '[' }), bad);
  assert.throws(damaged({ '1_Pooling/config.json': '[]' }), bad);
});
