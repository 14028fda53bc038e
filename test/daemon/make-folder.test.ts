import assert from 'node:assert/strict';
import { mkdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { makeFolder } from '../../daemon/make-folder.js';
import { tempFolder } from '../helpers/temp-folder.js';

const failsWith = (code: string) => (error: NodeJS.ErrnoException) => error.code === code;

test('missing folders are made with the mode, and existing ones are left as they are', () => {
  const root = tempFolder();
  const path = join(root, 'a', 'b', 'c');
  makeFolder(path, 0o700);
  for (const dir of [path, join(root, 'a')]) assert.equal(statSync(dir).mode & 0o777, 0o700);
  mkdirSync(join(root, 'open'), { mode: 0o755 });
  makeFolder(join(root, 'open'), 0o700);
  assert.equal(statSync(join(root, 'open')).mode & 0o777, 0o755);
  makeFolder('/');
});

test('what cannot be made ends with the error of the system, at once', () => {
  assert.throws(() => makeFolder('/proc/inferd/profiles'), failsWith('ENOENT'));
  const file = join(tempFolder(), 'file');
  writeFileSync(file, '');
  assert.throws(() => makeFolder(file), failsWith('EEXIST'));
  assert.throws(() => makeFolder(join(file, 'below')), failsWith('ENOTDIR'));
});
