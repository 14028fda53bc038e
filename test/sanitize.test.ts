/** The runs under sanitizers (test/sanitize.mjs): which files they take, and how they read what a sanitizer found. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { packageRoot } from '../native/index.js';
import { tempFolder } from './helpers/temp-folder.js';

const here = join(packageRoot(), 'test');
const listed = (...words: string[]): string[] => {
  const { stdout, status } = spawnSync(process.execPath, [join(here, 'sanitize.mjs'), 'address', '--list', ...words], { encoding: 'utf8' });
  return status === 0 ? stdout.trim().split('\n') : [`exit ${status}`];
};

test('a run without words takes every test of test/native, those of its folders too, but two that it says', () => {
  const all = readdirSync(join(here, 'native'), { recursive: true }).map(String);
  const wanted = all
    .filter((file) => file.endsWith('.test.ts') && !['build.test.ts', 'engine/out-of-memory.test.ts'].includes(file))
    .sort();
  assert.ok(wanted.some((file) => file.includes('/')));
  assert.deepEqual(listed(), wanted);
});

test('words choose by the path, and one that fits nothing is refused', () => {
  assert.deepEqual(listed('grammar/store', 'process-end'), ['grammar/store.test.ts', 'process-end.test.ts']);
  assert.deepEqual(listed('no-such-file'), ['exit 64']);
});

test('each report counts once, whichever process wrote it, and one that was broken off counts too', async () => {
  const { findingsIn } = (await import(pathToFileURL(join(here, 'sanitizers', 'findings.mjs')).href)) as {
    findingsIn(folder: string): { summary: string; file: string }[];
  };
  const folder = join(tempFolder(), 'reports');
  mkdirSync(folder);
  const write = (name: string, text: string): void => writeFileSync(join(folder, name), text);
  write('report.1', '=====\nWARNING: data race (pid=1)\n  frames\nSUMMARY: ThreadSanitizer: data race a.cpp:1 in f\n');
  write(
    'report.2',
    'a.cpp:2:3: runtime error: shift exponent 64 is too large\n    #0 f\na.cpp:2:3: runtime error: shift exponent 64 is too large\n',
  );
  write('report.3', '==3==ERROR: AddressSanitizer: heap-use-after-free\n');
  write('report.4', '');
  assert.deepEqual(
    findingsIn(folder).map(({ summary }) => summary),
    [
      'ThreadSanitizer: data race a.cpp:1 in f',
      'a.cpp:2:3: runtime error: shift exponent 64 is too large',
      '==3==ERROR: AddressSanitizer: heap-use-after-free',
    ],
  );
});
