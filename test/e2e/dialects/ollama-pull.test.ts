/** Ollama's own client, unmodified, pulls a model from a stand-in of the hub, aborts, goes on, and deletes it. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { after, test } from 'node:test';
import { Ollama } from 'ollama';
import { findSnapshot, listUnfinished } from '../../../config/models/hub-cache.js';
import { startTestDaemon } from '../../helpers/daemon/daemon.js';
import { eventually } from '../../helpers/eventually.js';
import { startHub } from '../../helpers/hub/stand-in.js';
import { tempFolder } from '../../helpers/temp-folder.js';

const MiB = 2 ** 20;
const hub = await startHub({ files: { 'config.json': '{}', 'model.safetensors': randomBytes(MiB) }, bytesPerMs: 100 });
const cache = tempFolder();
const at = await startTestDaemon([`inference.cache_dir=${JSON.stringify(cache)}`], undefined, { HF_ENDPOINT: hub.url });
const client = new Ollama({ host: at.http });
after(async () => {
  await at.close();
  await hub.close();
});

test('a pull that its client leaves ends, and the next one goes on to success', async () => {
  const first = await client.pull({ model: 'hf.co/org/model', stream: true });
  await assert.rejects(async () => {
    for await (const { completed = 0 } of first) if (completed > 200_000) first.abort();
  });
  await eventually('it is kept', () => (listUnfinished(cache)[0]?.receivedBytes ?? 0) > 0);
  const told: { status: string; digest?: string; total?: number; completed?: number }[] = [];
  for await (const part of await client.pull({ model: 'org/model:latest', stream: true })) told.push(part);
  assert.equal(told.at(-1)?.status, 'success');
  const last = told.filter(({ digest }) => digest === 'model.safetensors').at(-1);
  assert.deepEqual([last?.status, last?.total, last?.completed], ['pulling model.safetensors', MiB, MiB]);
  assert.notEqual(findSnapshot(cache, 'org/model', 'main'), null);
  assert.ok(hub.sentBytes < 2 * MiB, `${hub.sentBytes} bytes were sent`);
  assert.deepEqual(await client.pull({ model: 'org/model' }), { status: 'success' });
});

test('what is not there is 404, before the first line', async () => {
  await assert.rejects(client.pull({ model: 'org/other', stream: true }), { name: 'ResponseError', status_code: 404 });
  await assert.rejects(client.pull({ model: '../../etc' }), { name: 'ResponseError', status_code: 400 });
});

test('a model is deleted once', async () => {
  assert.deepEqual(await client.delete({ model: 'org/model' }), { status: 'success' });
  assert.equal(findSnapshot(cache, 'org/model', 'main'), null);
  await assert.rejects(client.delete({ model: 'org/model' }), { name: 'ResponseError', status_code: 404 });
  await assert.rejects(client.delete({ model: 'demo' }), { name: 'ResponseError', status_code: 409 });
});
