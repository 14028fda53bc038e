/** The reporter of the last lines of `npm test`: which tests failed, wherever they stand, and nothing of the others. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { packageRoot } from '../native/index.js';
import { tempFolder } from './helpers/temp-folder.js';

test('each test that failed is named with those around it and why, a file that died too, and no suite besides', () => {
  const folder = tempFolder();
  const head = "import assert from 'node:assert/strict';\nimport { describe, test } from 'node:test';\n";
  const files = {
    'a.test.mjs': `describe('a room', () => {
      test('holds', () => {});
      describe('its corner', () => { test('is three', () => assert.equal(2, 3)); test('holds too', () => {}); });
      test('throws', async () => { await new Promise((end) => setTimeout(end, 500)); throw new Error('no\\nway'); });
    });`,
    'b.test.mjs': "test('dies', () => process.exit(3));",
    'c.test.mjs': "test('holds', () => {}); describe('late', () => { test('fails', async () => assert.fail('so')); });",
  };
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), head + text);
  const reporter = pathToFileURL(join(packageRoot(), 'test', 'failed-reporter.mjs')).href;
  const { NODE_TEST_CONTEXT: _, ...env } = process.env;
  const paths = Object.keys(files).map((name) => join(folder, name));
  const { status, stdout } = spawnSync(process.execPath, ['--test', `--test-reporter=${reporter}`, '--test-concurrency=3', ...paths], {
    encoding: 'utf8',
    env,
  });
  assert.equal(status, 1);
  const lines = stdout.trim().split('\n');
  assert.equal(lines.length, 4, stdout);
  assert.match(lines[0]!, /a\.test\.mjs: a room > its corner > is three: Expected values to be strictly equal: 2 !== 3 *$/);
  assert.match(lines[1]!, /a\.test\.mjs: a room > throws: no way$/);
  assert.match(lines[2]!, /b\.test\.mjs/);
  assert.match(lines[3]!, /c\.test\.mjs: late > fails: so$/);
});
