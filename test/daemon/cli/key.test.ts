/** `inferd key` as a user meets it, without a daemon. */
import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { chmodSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { keysFolder } from '../../../config/paths.js';
import { tempFolder } from '../../helpers/temp-folder.js';
import { commandLine } from './command-line.js';

describe('inferd key', () => {
  const home = tempFolder();
  const env = { HOME: home };
  const inferd = commandLine(env);
  const pair = generateKeyPairSync('ed25519');
  const pem = (name: string, text: string) => {
    writeFileSync(join(home, name), text);
    return join(home, name);
  };
  const file = pem('laptop.pem', String(pair.publicKey.export({ type: 'spki', format: 'pem' })));

  test('add keeps a public key with its scopes, list shows it, remove takes it away', async () => {
    assert.deepEqual(await inferd('key', 'list'), {
      code: 0,
      stdout: 'There are no keys; "inferd key add NAME FILE.pem" adds one\n',
      stderr: '',
    });
    const added = await inferd('key', 'add', 'laptop', file, '--scope', 'infer,admin');
    assert.deepEqual(added, { code: 0, stdout: 'Key laptop may infer, admin, where auth.mode has "ed25519"\n', stderr: '' });
    const kept = join(keysFolder(env), 'laptop.pem');
    assert.equal(statSync(kept).mode & 0o777, 0o600);
    assert.equal(readFileSync(kept, 'utf8'), `# scopes: infer, admin\n${readFileSync(file, 'utf8')}`);
    assert.deepEqual(JSON.parse((await inferd('key', 'list', '--json')).stdout), {
      keys: [{ name: 'laptop', scopes: ['infer', 'admin'] }],
    });
    const twice = await inferd('key', 'add', 'laptop', file);
    assert.deepEqual([twice.code, /already; remove it first/.test(twice.stderr)], [65, true]);
    assert.equal((await inferd('key', 'remove', 'laptop')).stdout, 'Key laptop is removed\n');
    assert.equal((await inferd('key', 'remove', 'laptop')).code, 66);
  });

  test('what is no public Ed25519 key is refused with what to do', async () => {
    const secret = pem('secret.pem', String(pair.privateKey.export({ type: 'pkcs8', format: 'pem' })));
    const other = pem(
      'rsa.pem',
      String(generateKeyPairSync('ec', { namedCurve: 'P-256' }).publicKey.export({ type: 'spki', format: 'pem' })),
    );
    const refusals: readonly (readonly [number, RegExp, ...string[]])[] = [
      [65, /holds a private key; the daemon needs the public one: openssl pkey -pubout/, 'a', secret],
      [65, /a key of type ec; ed25519 is needed/, 'a', other],
      [65, /is not a public key in PEM/, 'a', pem('text.pem', 'text')],
      [66, /none\.pem cannot be read \(ENOENT\); give the path of a public key in PEM$/m, 'a', join(home, 'none.pem')],
      [64, /The name "\.\.\/x" is not allowed/, '../x', file],
      [64, /--scope "all" is not allowed/, 'a', file, '--scope', 'all'],
    ];
    for (const [code, sentence, ...args] of refusals) {
      const result = await inferd('key', 'add', ...args);
      assert.equal(result.code, code, args.join(' '));
      assert.match(result.stderr, sentence);
    }
  });

  test('a key that others can write is named by list and not used', async () => {
    await inferd('key', 'add', 'open', file);
    chmodSync(join(keysFolder(env), 'open.pem'), 0o666);
    const { stdout, stderr } = await inferd('key', 'list');
    assert.doesNotMatch(stdout, /^open/m);
    assert.match(stderr, /open\.pem is not used: it has mode 0666; others must not be able to write it/);
  });
});
