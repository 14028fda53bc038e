/** Tokens of clients: their records on disk, and what a running daemon makes of changes there. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import crypto from 'node:crypto';
import { chmodSync, mkdirSync, readdirSync, readFileSync, renameSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { silentLog } from '../../../../actors/runtime/log.js';
import { createRecord, lastUse, readRecords, removeRecord } from '../../../../daemon/front/auth/token-records.js';
import { Tokens } from '../../../../daemon/front/auth/tokens.js';
import { eventually } from '../../../helpers/eventually.js';
import { tempFolder } from '../../../helpers/temp-folder.js';
import { wrongTokens } from './wrong-tokens.js';

const own = 'the-own-token-of-the-daemon';
const wish = { name: 'laptop', scopes: ['infer'], expiresMs: null } as const;

test('a record holds the hash and never the token, in a file of mode 0600', () => {
  const folder = tempFolder();
  const { record, token } = createRecord(folder, { ...wish, scopes: ['infer', 'admin'], expiresMs: 2e12 }, 1e12);
  assert.match(token, /^inferd_[\w-]{43}$/);
  const file = join(folder, `${record.id}.json`);
  assert.deepEqual(readdirSync(folder), [`${record.id}.json`], 'nothing is left over');
  assert.equal(statSync(file).mode & 0o777, 0o600);
  const text = readFileSync(file, 'utf8');
  assert.ok(!text.includes(token) && !text.includes(token.slice(8)));
  assert.match(text, new RegExp(crypto.createHash('sha256').update(token).digest('hex')));
  assert.deepEqual(readRecords(folder), { records: [record], bad: [] });
});

test('records are listed by age, and taken away by their id alone', () => {
  const folder = join(tempFolder(), 'none');
  assert.deepEqual(readRecords(folder).records, []);
  mkdirSync(folder);
  const ids = [3, 1, 2].map((age) => createRecord(folder, wish, age * 1000).record.id);
  assert.deepEqual(
    readRecords(folder).records.map(({ id }) => id),
    [ids[1], ids[2], ids[0]],
  );
  for (const wrong of ['', '..', '../tokens', 'zzzzzzzz', `${ids[0]}.json`]) assert.equal(removeRecord(folder, wrong), false, wrong);
  assert.equal(removeRecord(folder, ids[0]!), true);
  assert.equal(removeRecord(folder, ids[0]!), false);
  assert.equal(readRecords(folder).records.length, 2);
});

test('a record that others may read, a link, and what is no record are not used', () => {
  const folder = tempFolder();
  const file = (id: string) => join(folder, `${id}.json`);
  const open = createRecord(folder, wish, 1).record.id;
  chmodSync(file(open), 0o640);
  const real = createRecord(folder, wish, 2).record.id;
  renameSync(file(real), join(folder, '..', 'elsewhere.json'));
  symlinkSync(join(folder, '..', 'elsewhere.json'), file(real));
  const good = createRecord(folder, wish, 3).record;
  const text = readFileSync(file(good.id), 'utf8');
  const bad = [
    '{',
    '[]',
    'null',
    '{}',
    text,
    text.replace('"infer"', '"all"'),
    text.replace(/"sha256": "../, '"sha256": "'),
    'x'.repeat(5000),
  ];
  for (const [i, content] of bad.entries())
    writeFileSync(file(`0000000${i}`), content.replace(good.id, i === 4 ? 'other' : `0000000${i}`), { mode: 0o600 });
  writeFileSync(join(folder, '.half'), text, { mode: 0o600 });
  const read = readRecords(folder);
  assert.deepEqual(read.records, [good]);
  assert.equal(read.bad.length, 2 + bad.length);
  assert.match(read.bad.map(({ reason }) => reason).join(), /chmod 600.*symbolic link|symbolic link.*chmod 600/s);
});

test('a token is judged by nothing but one constant-time comparison of two digests, however many there are', (t) => {
  const digest = (text: string) => crypto.createHash('sha256').update(text).digest('hex');
  const timingSafeEqual = crypto.timingSafeEqual;
  for (const count of [0, 1, 50]) {
    const folder = tempFolder();
    const made = Array.from({ length: count }, () => createRecord(folder, wish, 1).token);
    const tokens = new Tokens({ own, folder, log: silentLog });
    const compared: string[][] = [];
    // Timing itself is no test: what it would tell apart lies far below the noise of any machine. So what is compared is watched.
    t.mock.method(crypto, 'timingSafeEqual', (a: Buffer, b: Buffer) => {
      compared.push([a.toString('hex'), b.toString('hex')]);
      return timingSafeEqual(a, b);
    });
    syncBuiltinESMExports();
    try {
      for (const shown of [own, ...made, ...wrongTokens(own), ...wrongTokens(made[0] ?? 'x')]) {
        compared.length = 0;
        const right = shown === own || made.includes(shown);
        assert.equal(tokens.find(shown) !== null, right, shown);
        assert.deepEqual(compared, [[digest(shown), right ? digest(shown) : '00'.repeat(32)]]);
      }
    } finally {
      t.mock.restoreAll();
      syncBuiltinESMExports();
      tokens.close();
    }
  }
});

test('a running daemon takes a token as soon as it is made and ends it as soon as it is revoked, and nothing else', async () => {
  const folder = tempFolder();
  const tokens = new Tokens({ own, folder, log: silentLog });
  const [kept, gone] = [createRecord(folder, wish, 1), createRecord(folder, { ...wish, scopes: ['metrics'] }, 1)];
  await eventually('the tokens are known', () => tokens.find(kept.token) !== null && tokens.find(gone.token) !== null);
  assert.deepEqual([...(tokens.find(gone.token)?.scopes ?? [])], ['metrics']);
  const ended: string[] = [];
  for (const [name, token] of [
    ['kept', kept.token],
    ['gone', gone.token],
    ['own', own],
  ] as const)
    tokens.find(token)?.onEnd(() => ended.push(name));
  const forget = tokens.find(gone.token)?.onEnd(() => ended.push('forgotten'));
  forget?.();
  removeRecord(folder, gone.record.id);
  await eventually('it is told', () => ended.length > 0);
  assert.deepEqual(ended, ['gone']);
  assert.equal(tokens.find(gone.token), null);
  assert.ok(tokens.find(kept.token) && tokens.find(own));
  tokens.close();
});

test('a record that says something else now ends what came in by the old one', async () => {
  const folder = tempFolder();
  const { record, token } = createRecord(folder, { ...wish, scopes: ['infer', 'admin'] }, 1);
  const tokens = new Tokens({ own, folder, log: silentLog });
  const before = tokens.find(token);
  assert.ok(before);
  const file = join(folder, `${record.id}.json`);
  const changed = readFileSync(file, 'utf8').replace(/"infer",\s*"admin"/, '"infer"');
  writeFileSync(join(folder, '.new'), changed, { mode: 0o600 });
  renameSync(join(folder, '.new'), file);
  await eventually('the old one has ended', () => before.ended);
  assert.deepEqual([...(tokens.find(token)?.scopes ?? [])], ['infer']);
  tokens.close();
});

test('an expired token is refused and ends what it opened, by itself', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const folder = tempFolder();
  let now = 1000;
  const month = 30 * 86_400_000;
  const [soon, late] = [month + 1000, 2 * month].map((expiresMs) => createRecord(folder, { ...wish, expiresMs }, now));
  const tokens = new Tokens({ own, folder, log: silentLog, now: () => now });
  const ended: string[] = [];
  tokens.find(soon!.token)?.onEnd(() => ended.push('soon'));
  tokens.find(late!.token)?.onEnd(() => ended.push('late'));
  const pass = (ms: number) => {
    now += ms;
    t.mock.timers.tick(ms);
  };
  pass(2 ** 31 - 1); // the longest wait of a timer
  assert.deepEqual(ended, []);
  pass(month - (2 ** 31 - 1));
  assert.deepEqual(ended, ['soon']);
  assert.equal(tokens.find(soon!.token), null);
  now = 2 * month;
  assert.equal(tokens.find(late!.token), null, 'also before the clock of the daemon noticed');
  assert.deepEqual(ended, ['soon', 'late']);
  tokens.close();
});

test('when a token was last used is noted, at most once a minute', () => {
  const folder = tempFolder();
  let now = Date.now() + 3_600_000;
  const { record, token } = createRecord(folder, wish, Date.now());
  const tokens = new Tokens({ own, folder, log: silentLog, now: () => now });
  assert.equal(lastUse(folder, record), null);
  tokens.find('inferd_wrong');
  assert.equal(lastUse(folder, record), null);
  tokens.find(token);
  const first = now;
  now += 59_000;
  tokens.find(token);
  assert.equal(lastUse(folder, record), first);
  now += 2000;
  tokens.find(token);
  assert.equal(lastUse(folder, record), now);
  assert.deepEqual(readRecords(folder).records, [record], 'the record itself stays');
  tokens.close();
});

test('commands that run at the same time lose no token', async () => {
  const folder = tempFolder();
  const module = new URL('../../../../daemon/front/auth/token-records.js', import.meta.url).href;
  const script = `const { createRecord, removeRecord } = await import(${JSON.stringify(module)});
    for (let i = 0; i < 20; i++) { const { record } = createRecord(${JSON.stringify(folder)}, { name: '', scopes: ['infer'], expiresMs: null }, i);
      if (i % 2) removeRecord(${JSON.stringify(folder)}, record.id); }`;
  const run = promisify(execFile);
  await Promise.all(Array.from({ length: 4 }, () => run(process.execPath, ['--input-type=module', '-e', script])));
  const { records, bad } = readRecords(folder);
  assert.deepEqual([records.length, bad, readdirSync(folder).length], [40, [], 40]);
});
