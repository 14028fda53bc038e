/** models.pull over a WebSocket of a daemon: events, cancel, errors, and the model on the disk afterwards. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { after, test } from 'node:test';
import { findSnapshot, listUnfinished } from '../../config/models/hub-cache.js';
import { startTestDaemon } from '../helpers/daemon/daemon.js';
import { eventually } from '../helpers/eventually.js';
import { startHub } from '../helpers/hub/stand-in.js';
import { tempFolder } from '../helpers/temp-folder.js';

const MiB = 2 ** 20;
const hub = await startHub({ files: { 'config.json': '{}', 'model.safetensors': randomBytes(MiB) }, bytesPerMs: 100 });
const cache = tempFolder();
const at = await startTestDaemon([`inference.cache_dir=${JSON.stringify(cache)}`], undefined, { HF_ENDPOINT: hub.url });
after(async () => {
  await at.close();
  await hub.close();
});

test('a pull over a WebSocket tells how far it is, is cancelled, and goes on', async () => {
  const socket = await at.open();
  const first = socket.send('models.pull', { model: 'org/model', stream: true });
  await eventually('bytes come', () => hub.sentBytes > 200_000);
  socket.notify('$/cancelRequest', { id: first });
  assert.equal((await socket.reply(first)).error?.code, -32800);
  await eventually('it is kept', () => (listUnfinished(cache)[0]?.receivedBytes ?? 0) > 0);

  const second = socket.send('models.pull', { model: 'org/model', stream: { token: 'p' } });
  const { result } = await socket.reply(second);
  assert.equal(result?.['state'], 'pulled');
  assert.equal(result?.['path'], findSnapshot(cache, 'org/model', 'main'));
  assert.equal(result?.['bytes'], MiB + 2);
  const events = socket.events('p');
  assert.deepEqual(
    events.map(({ params }) => params?.seq),
    events.map((_, i) => i),
    'numbered without gaps',
  );
  const last = events.filter(({ params }) => params?.kind === 'pull').at(-1)?.params;
  assert.deepEqual(
    [last?.['file'], last?.['bytes'], last?.['all_bytes'], last?.['all_total']],
    ['model.safetensors', MiB, MiB + 2, MiB + 2],
  );
  assert.ok(hub.sentBytes < 2 * MiB, `${hub.sentBytes} bytes were sent`);
  await socket.close();
});

test('what cannot be pulled is answered with a sentence', async () => {
  const socket = await at.open();
  const missing = await socket.reply(socket.send('models.pull', { model: 'org/other' }));
  assert.equal(missing.error?.code, -32002);
  const bad = await socket.reply(socket.send('models.pull', { model: '../../etc' }));
  assert.equal(bad.error?.code, -32602);
  const deleted = await socket.reply(socket.send('models.delete', { model: 'org/model' }));
  assert.equal(deleted.result?.['deleted'], true);
  assert.equal(findSnapshot(cache, 'org/model', 'main'), null);
  const loaded = await socket.reply(socket.send('models.delete', { model: 'demo' }));
  assert.equal(loaded.error?.code, -32803);
  await socket.close();
});
