/** The daemon's own token: its file is made, read and refused. */
import assert from 'node:assert/strict';
import { chmodSync, existsSync, mkdirSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { loadOrCreateToken } from '../../../../daemon/front/auth/own-token.js';
import { StartError } from '../../../../daemon/start-error.js';
import { tempFolder } from '../../../helpers/temp-folder.js';

const folder = () => tempFolder();
const refusedWith = (exitCode: number, text: RegExp) => (error: unknown) =>
  error instanceof StartError && error.exitCode === exitCode && text.test(error.message);

test('a token is made once, with 256 random bits and mode 0600, and read again', () => {
  const file = join(folder(), 'token');
  const token = loadOrCreateToken(file);
  assert.equal(Buffer.from(token, 'base64url').length, 32);
  assert.equal(statSync(file).mode & 0o777, 0o600);
  assert.equal(loadOrCreateToken(file), token);
  assert.notEqual(loadOrCreateToken(join(folder(), 'token')), token);
});

test('a token file that group or world can touch stops the start', () => {
  for (const mode of [0o640, 0o604, 0o660, 0o620, 0o610, 0o644, 0o777]) {
    const file = join(folder(), 'token');
    loadOrCreateToken(file);
    chmodSync(file, mode);
    assert.throws(() => loadOrCreateToken(file), refusedWith(77, /chmod 600/), mode.toString(8));
  }
});

test('a symbolic link, a folder and a dangling link are no token files, and nothing is written through them', () => {
  const dir = folder();
  const real = join(dir, 'real');
  loadOrCreateToken(real);
  const link = join(dir, 'link');
  symlinkSync(real, link);
  assert.throws(() => loadOrCreateToken(link), refusedWith(77, /symbolic link/));
  const dangling = join(dir, 'dangling');
  symlinkSync(join(dir, 'elsewhere'), dangling);
  assert.throws(() => loadOrCreateToken(dangling), refusedWith(77, /symbolic link/));
  assert.equal(existsSync(join(dir, 'elsewhere')), false);
  mkdirSync(join(dir, 'sub'));
  assert.throws(() => loadOrCreateToken(join(dir, 'sub')), refusedWith(77, /not a regular file/));
});

test('a file that holds no proper token stops the start', () => {
  for (const text of ['', 'short', 'two words and more of them', 'x'.repeat(2000)]) {
    const file = join(folder(), 'token');
    writeFileSync(file, text, { mode: 0o600 });
    assert.throws(() => loadOrCreateToken(file), refusedWith(78, /must hold one token/));
  }
});
