/** `inferd token` as a user meets it, without a daemon. What a running one makes of it is in front/auth/revocation.test.ts. */
import assert from 'node:assert/strict';
import { chmodSync, existsSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { tokensFolder } from '../../../config/paths.js';
import { tempFolder } from '../../helpers/temp-folder.js';
import { commandLine } from './command-line.js';

interface Shown {
  readonly id: string;
  readonly token: string;
  readonly expires: string | null;
}

describe('inferd token', () => {
  const env = { HOME: tempFolder() };
  const inferd = commandLine(env);
  const create = async (...args: string[]) => JSON.parse((await inferd('token', 'create', '--json', ...args)).stdout) as Shown;

  test('create shows the token once, alone on stdout, and keeps a hash in a private file', async () => {
    const { code, stdout, stderr } = await inferd('token', 'create', '--name', 'laptop');
    assert.equal(code, 0);
    assert.match(stdout, /^inferd_[\w-]{43}\n$/);
    const [, id = ''] = /^Token (\w{8}) may infer and does not expire\. It is shown this once/.exec(stderr) ?? [];
    const folder = tokensFolder(env);
    assert.equal(statSync(folder).mode & 0o777, 0o700);
    assert.equal(statSync(join(folder, `${id}.json`)).mode & 0o777, 0o600);
    assert.ok(!readFileSync(join(folder, `${id}.json`), 'utf8').includes(stdout.trim().slice(8)));
    const list = await inferd('token', 'list');
    assert.match(list.stdout, new RegExp(`^id +name +scopes +created +expires +last used\\n${id} +laptop +infer +\\S+ \\S+ +never +-\\n$`));
    assert.doesNotMatch(list.stdout, new RegExp(stdout.trim()));
  });

  test('scopes and expiry are what was asked for', async () => {
    const before = Date.now();
    const made = await create('--scope', 'admin, metrics', '--expires', '30d', '--name', 'ops');
    assert.ok(Math.abs(Date.parse(made.expires ?? '') - before - 30 * 86_400_000) < 60_000);
    const { stdout } = await inferd('token', 'list', '--json');
    const row = (JSON.parse(stdout) as { tokens: { id: string }[] }).tokens.find(({ id }) => id === made.id);
    const { created: _, expires, ...rest } = row as unknown as Record<string, unknown>;
    assert.deepEqual(
      { ...rest, expires },
      { id: made.id, name: 'ops', scopes: ['metrics', 'admin'], last_used: null, expires: made.expires },
    );
  });

  test('revoke takes one away, and says so when there is none', async () => {
    const { id } = await create();
    assert.equal((await inferd('token', 'revoke', id)).stdout, `Token ${id} is revoked\n`);
    assert.equal(existsSync(join(tokensFolder(env), `${id}.json`)), false);
    const again = await inferd('token', 'revoke', id);
    assert.deepEqual([again.code, again.stderr], [66, `inferd: There is no token "${id}"; "inferd token list" shows all\n`]);
    assert.equal((await inferd('token', 'revoke', '../x')).code, 66);
  });

  test('mistakes are one sentence', async () => {
    const refusals: readonly (readonly [RegExp, ...string[]])[] = [
      [/--scope "all" is not allowed; expected some of infer, metrics, admin/, '--scope', 'all'],
      [/--scope "" is not allowed/, '--scope', 'infer,'],
      [/--expires "soon" is not allowed; write 90m, 12h, 30d, 2w, 1y or never/, '--expires', 'soon'],
      [/--expires "0d"/, '--expires', '0d'],
      [/--expires "101y"/, '--expires', '101y'],
      [/--name takes at most 64 characters/, '--name', 'x'.repeat(65)],
      [/without control characters/, '--name', 'a\nb'],
    ];
    for (const [sentence, ...args] of refusals) {
      const { code, stderr, stdout } = await inferd('token', 'create', ...args);
      assert.deepEqual([code, stdout], [64, ''], args.join(' '));
      assert.match(stderr, sentence);
    }
  });

  test('a record that others can read is named by list', async () => {
    const { id } = await create();
    chmodSync(join(tokensFolder(env), `${id}.json`), 0o644);
    const { stdout, stderr } = await inferd('token', 'list');
    assert.ok(!stdout.includes(id));
    assert.match(stderr, new RegExp(`${id}\\.json is not used: it has mode 0644; others must not be able to read it \\(chmod 600\\)`));
  });
});
