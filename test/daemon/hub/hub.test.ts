/** models.pull and models.delete of a real daemon, over its WebSocket, from the stand-in of the hub. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { Cancellation } from '../../../actors/runtime/cancellation.js';
import { silentLog } from '../../../actors/runtime/log.js';
import { findSnapshot, listUnfinished } from '../../../config/models/hub-cache.js';
import { createHub } from '../../../daemon/hub/hub.js';
import type { PullNews } from '../../../rpc/schemas/hub.js';
import { eventually } from '../../helpers/eventually.js';
import { startHub } from '../../helpers/hub/stand-in.js';
import { tempFolder } from '../../helpers/temp-folder.js';
import { testConfig } from '../../helpers/test-config.js';

const MiB = 2 ** 20;
const files = { 'config.json': '{}', 'model.safetensors': randomBytes(MiB) };
const total = MiB + 2;
const request = { model: 'org/model', include: [], exclude: [] };

const hubAt = (url: string, cache: string, maxDownloads = 2) => {
  const config = testConfig();
  return createHub(
    { ...config, hub: { ...config.hub, max_downloads: maxDownloads } },
    { HF_ENDPOINT: url, HF_HUB_CACHE: cache, HOME: cache },
    silentLog,
  );
};

const failsWith = (kind: string, message: RegExp) => (error: unknown) => {
  const { failure } = error as { failure?: { kind: string; message: string } };
  assert.equal(failure?.kind, kind, String(error));
  assert.match(failure.message, message);
  return true;
};

describe('pulls of a daemon', () => {
  test('callers of one model share its download, and each hears how far it is', async (t) => {
    const standIn = await startHub({ files, bytesPerMs: 400 });
    t.after(() => standIn.close());
    const cache = tempFolder();
    const hub = hubAt(standIn.url, cache);
    const heard: [PullNews[], PullNews[]] = [[], []];
    const pulled = await Promise.all(heard.map((news) => hub.pull(request, (one) => news.push(one), new Cancellation())));
    assert.deepEqual(pulled[0], pulled[1]);
    assert.equal(pulled[0]?.path, findSnapshot(cache, 'org/model', 'main'));
    assert.equal(standIn.sentBytes, total);
    for (const news of heard) {
      const last = news.filter((one) => one.kind === 'pull').at(-1);
      assert.deepEqual([last?.all_bytes, last?.all_total], [total, total]);
    }
  });

  test('a caller who cancels leaves; with the last one the download ends, and goes on when somebody asks again', async (t) => {
    const standIn = await startHub({ files, bytesPerMs: 60 });
    t.after(() => standIn.close());
    const cache = tempFolder();
    const hub = hubAt(standIn.url, cache);
    const [first, second] = [new Cancellation(), new Cancellation()];
    const both = [first, second].map((cancellation) => hub.pull(request, () => {}, cancellation));
    await eventually('bytes come', () => standIn.sentBytes > 200_000);
    first.cancel();
    await assert.rejects(both[0] ?? Promise.resolve(), failsWith('cancelled', /./));
    const then = standIn.sentBytes;
    await eventually('more bytes come', () => standIn.sentBytes > then + 100_000);
    second.cancel();
    await assert.rejects(both[1] ?? Promise.resolve(), failsWith('cancelled', /./));
    await eventually('it is kept', () => (listUnfinished(cache)[0]?.receivedBytes ?? 0) > 0);
    assert.equal((await hub.pull(request, () => {}, new Cancellation())).bytes, total);
    assert.ok(standIn.sentBytes < 2 * MiB, `${standIn.sentBytes} bytes were sent`);
  });

  test('one more than hub.max_downloads is refused; a daemon that stops ends them', async (t) => {
    const standIn = await startHub({ files, bytesPerMs: 40 });
    t.after(() => standIn.close());
    const cache = tempFolder();
    const hub = hubAt(standIn.url, cache, 1);
    const one = hub.pull(request, () => {}, new Cancellation());
    await assert.rejects(
      hub.pull({ ...request, include: ['*.json'] }, () => {}, new Cancellation()),
      failsWith('rate_limited', /hub\.max_downloads/),
    );
    await eventually('bytes come', () => standIn.sentBytes > 100_000);
    const ended = assert.rejects(one, failsWith('shutting_down', /./));
    await hub.close();
    await ended;
    await assert.rejects(
      hub.pull(request, () => {}, new Cancellation()),
      failsWith('shutting_down', /./),
    );
  });

  test('failures have their kinds, and a reason for programs', async (t) => {
    const standIn = await startHub({ files, token: 'secret' });
    t.after(() => standIn.close());
    const hub = hubAt(standIn.url, tempFolder());
    const pull = (model: string) => hub.pull({ ...request, model }, () => {}, new Cancellation());
    await assert.rejects(pull('../x'), failsWith('invalid_params', /model: .* is no Hugging Face id/));
    await assert.rejects(pull('org/model'), failsWith('request_failed', /is gated/));
    await assert.rejects(pull('org/model'), (error: { failure?: { data?: unknown } }) => {
      assert.deepEqual(error.failure?.data, { reason: 'refused' });
      return true;
    });
  });

  test('a model that was pulled can be deleted, and is deleted once', async (t) => {
    const standIn = await startHub({ files });
    t.after(() => standIn.close());
    const cache = tempFolder();
    const hub = hubAt(standIn.url, cache);
    await hub.pull(request, () => {}, new Cancellation());
    assert.ok(((await hub.remove('org/model', new Cancellation())) ?? 0) >= total);
    assert.ok(!existsSync(join(cache, 'models--org--model')));
    assert.equal(await hub.remove('org/model', new Cancellation()), null);
  });
});
