import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { InferdError } from '../../../../actors/messages/errors.js';
import { type ApartTokenizer, EncodeApart } from '../../../../actors/tokenizer/encode/encode-apart.js';
import { eventually } from '../../../helpers/eventually.js';
import { demoPath, oracle, oracleIds, root, writeModel } from '../harness.js';
import { split, tokenizerWith } from '../kinds.js';

function tokenizer(model: string): ApartTokenizer {
  const text = readFileSync(join(model, 'tokenizer.json'), 'utf8');
  return { model, digest: createHash('sha256').update(text).digest('hex'), nonce: 'x', keepNormalizer: true };
}

const backtracking = () => writeModel({ 'tokenizer.json': tokenizerWith([split('(x+x+)+y|.')]) });
const quadratic = () => writeModel({ 'tokenizer.json': tokenizerWith([split('a+b|.')]) });

const yes = (): boolean => true;
const ids = async (apart: EncodeApart, text: string): Promise<number[]> => (await apart.encode(text, yes)).flatMap((part) => [...part]);
const failing = (kind: string) => (error: unknown) => error instanceof InferdError && error.failure.kind === kind;

/** Processes that were started by this one and encode. */
function processes(): number[] {
  const all = readFileSync(`/proc/${process.pid}/task/${process.pid}/children`, 'utf8').trim().split(' ').filter(Boolean).map(Number);
  return all.filter((pid) => readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('encode-apart-process'));
}

test('text that is encoded apart has the ids that the library gives it, however many there are', async (t) => {
  const apart = new EncodeApart(tokenizer(demoPath), false);
  t.after(() => apart.close());
  const library = oracle(demoPath);
  for (const text of ['', 'Hello, world', '日本 e\u0301 \u{10fffd}', 'one two 3 '.repeat(30_000)]) {
    assert.deepEqual(await ids(apart, text), await oracleIds(library, text));
  }
});

test('a text that kills the library fails alone, and the next one is encoded', async (t) => {
  const apart = new EncodeApart(tokenizer(backtracking()), true);
  t.after(() => apart.close());
  const all = await Promise.allSettled([ids(apart, 'x'.repeat(40)), ids(apart, 'x'), ids(apart, 'x'.repeat(40)), ids(apart, 'xy')]);
  assert.deepEqual(
    all.map((one) => one.status),
    ['rejected', 'fulfilled', 'rejected', 'fulfilled'],
  );
  assert.ok(all[0]?.status === 'rejected' && failing('invalid_params')(all[0].reason));
});

test('where every text is encoded apart, a text that does not end holds up no other', async (t) => {
  const apart = new EncodeApart(tokenizer(quadratic()), true);
  t.after(() => apart.close());
  let wanted = true;
  const endless = apart.encode('a'.repeat(400_000), () => wanted);
  for (let i = 0; i < 3; i++) assert.equal((await ids(apart, 'aab')).length > 0, true);
  wanted = false;
  await assert.rejects(endless, failing('cancelled'));
});

test('a text that takes too long fails at its deadline, and the next one is encoded', async (t) => {
  const apart = new EncodeApart(tokenizer(quadratic()), false, 1000);
  t.after(() => apart.close());
  await assert.rejects(ids(apart, 'a'.repeat(400_000)), failing('invalid_params'));
  assert.equal((await ids(apart, 'aab')).length > 0, true);
});

test('a text that nobody wants any more is dropped at once, and one that waits is not begun', async (t) => {
  const apart = new EncodeApart(tokenizer(quadratic()), false);
  t.after(() => apart.close());
  let wanted = true;
  const running = apart.encode('a'.repeat(400_000), () => wanted);
  const waiting = apart.encode('a'.repeat(400_000), () => wanted);
  await eventually('a process runs', () => processes().length === 1);
  wanted = false;
  await assert.rejects(running, failing('cancelled'));
  await assert.rejects(waiting, failing('cancelled'));
  await eventually('no process runs', () => processes().length === 0);
});

test('a file that has changed since it was read is not used', async (t) => {
  const apart = new EncodeApart({ ...tokenizer(demoPath), digest: '' }, false);
  t.after(() => apart.close());
  await assert.rejects(ids(apart, 'x'), failing('engine_failure'));
});

test('closing ends the processes, and what it had at hand', async () => {
  const apart = new EncodeApart(tokenizer(quadratic()), true);
  const running = apart.encode('a'.repeat(400_000), yes);
  await eventually('both processes run', () => processes().length === 2);
  apart.close();
  await assert.rejects(running, failing('cancelled'));
  await assert.rejects(apart.encode('a', yes), failing('cancelled'));
  await eventually('no process runs', () => processes().length === 0);
});

test('the process does not outlive the one that started it, whatever it is doing', async () => {
  const code = `
    import { EncodeApart } from ${JSON.stringify(join(root, 'dist/actors/tokenizer/encode/encode-apart.js'))};
    const apart = new EncodeApart(${JSON.stringify(tokenizer(quadratic()))}, false);
    await apart.encode('a', () => true);
    void apart.encode('a'.repeat(400_000), () => true);
    process.stdout.write('begun');
  `;
  const parent = spawn(process.execPath, ['--input-type=module', '-e', code], { stdio: ['ignore', 'pipe', 'inherit'] });
  await once(parent.stdout, 'data');
  const [pid] = readFileSync(`/proc/${parent.pid}/task/${parent.pid}/children`, 'utf8').trim().split(' ');
  assert.ok(pid !== undefined && existsSync(`/proc/${pid}`));
  parent.kill('SIGKILL');
  await once(parent, 'exit');
  await eventually(
    'the process has ended',
    () => !existsSync(`/proc/${pid}`) || readFileSync(`/proc/${pid}/stat`, 'utf8').includes(') Z '),
  );
});
