/** What the log writes, and what it never writes. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createLog } from '../../daemon/log.js';

function recorder() {
  const lines: string[] = [];
  return { lines, stream: { write: (text: string) => void lines.push(text) } };
}

test('a line is one JSON object with level, time, pid, fields and message', () => {
  const { lines, stream } = recorder();
  createLog({ level: 'info', pretty: 'never' }, stream).info({ actor: 'front', req: 7 }, 'hello');
  assert.equal(lines.length, 1);
  const line = JSON.parse(lines[0] ?? '') as Record<string, unknown>;
  assert.equal(line['level'], 'info');
  assert.equal(line['pid'], process.pid);
  assert.equal(line['actor'], 'front');
  assert.equal(line['req'], 7);
  assert.equal(line['msg'], 'hello');
  assert.ok(Number.isFinite(Date.parse(String(line['time']))));
});

test('the level can be changed', () => {
  const { lines, stream } = recorder();
  const log = createLog({ level: 'warn', pretty: 'never' }, stream);
  log.info({}, 'unseen');
  log.setLevel('debug');
  log.debug({}, 'seen');
  log.setLevel('silent');
  log.error({}, 'unseen');
  log.fatal({}, 'unseen');
  assert.deepEqual(
    lines.map((l) => (JSON.parse(l) as { msg: string }).msg),
    ['seen'],
  );
});

test('tokens in headers are replaced', () => {
  const { lines, stream } = recorder();
  const log = createLog({ level: 'info', pretty: 'never' }, stream);
  log.info({ headers: { authorization: 'Bearer s3cret', 'sec-websocket-protocol': 'bearer.s3cret', host: 'localhost' } }, 'a request');
  log.info({ authorization: 'Bearer s3cret', token: 's3cret' }, 'another');
  assert.equal(lines.join('').includes('s3cret'), false);
  assert.equal(lines.join('').includes('localhost'), true);
});

test('readable lines carry the message and no JSON', () => {
  const { lines, stream } = recorder();
  createLog({ level: 'info', pretty: 'always' }, stream).info({ port: 1 }, 'listening');
  const text = lines.join('');
  assert.match(text, /listening/);
  assert.match(text, /port/);
  assert.doesNotMatch(text, /^\{/);
});
