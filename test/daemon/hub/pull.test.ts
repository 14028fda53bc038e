/** A model comes from the hub into the cache, in the layout of Hugging Face's tools, whatever the network does meanwhile. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, type TestContext, test } from 'node:test';
import { findSnapshot, listUnfinished } from '../../../config/models/hub-cache.js';
import type { PullReason } from '../../../daemon/hub/error.js';
import type { PullEvent } from '../../../daemon/hub/progress.js';
import { pullFrom, tree } from '../../helpers/hub/pull.js';
import { gitSha1, type HubOptions, type StandInHub, sha256, standInCommit, startHub } from '../../helpers/hub/stand-in.js';
import { tempFolder } from '../../helpers/temp-folder.js';

const MiB = 2 ** 20;
const weights = randomBytes(1.5 * MiB + 12_345);
const config = '{"architectures":["X"]}';
const files = { 'config.json': config, 'tokenizer.json': '{}', 'model.safetensors': weights };

async function hubWith(t: TestContext, options: Partial<HubOptions> = {}): Promise<StandInHub> {
  const hub = await startHub({ files, ...options });
  t.after(() => hub.close());
  return hub;
}

function assertWhole(cache: string): void {
  const snapshot = findSnapshot(cache, 'org/model', 'main');
  assert.ok(snapshot !== null, 'the model is found under its revision');
  assert.ok(readFileSync(join(snapshot, 'model.safetensors')).equals(weights));
  assert.equal(readFileSync(join(snapshot, 'config.json'), 'utf8'), config);
  assert.deepEqual(
    readdirSync(join(cache, 'models--org--model', 'blobs')).filter((name) => name.includes('inferd')),
    [],
  );
  assert.deepEqual(listUnfinished(cache), []);
}

const because = (reason: PullReason, message: RegExp) => (error: unknown) => {
  assert.equal((error as { reason?: unknown }).reason, reason, String(error));
  assert.match((error as Error).message, message);
  assert.doesNotMatch((error as Error).message, /\.$|\n/, 'one sentence, whose end the command line adds');
  return true;
};

test('a pull writes blobs, links and the ref as the tools of the hub do', async (t) => {
  const hub = await hubWith(t);
  const cache = tempFolder();
  const pulled = await pullFrom(hub.url, cache);
  assert.deepEqual(tree(join(cache, 'models--org--model')), {
    [`blobs/${gitSha1(Buffer.from(config))}`]: config,
    [`blobs/${gitSha1(Buffer.from('{}'))}`]: '{}',
    [`blobs/${sha256(weights)}`]: weights.toString('latin1'),
    'refs/main': standInCommit,
    [`snapshots/${standInCommit}/config.json`]: `-> ../../blobs/${gitSha1(Buffer.from(config))}`,
    [`snapshots/${standInCommit}/model.safetensors`]: `-> ../../blobs/${sha256(weights)}`,
    [`snapshots/${standInCommit}/tokenizer.json`]: `-> ../../blobs/${gitSha1(Buffer.from('{}'))}`,
  });
  assert.equal(pulled.commit, standInCommit);
  assert.ok(pulled.path.endsWith(`snapshots/${standInCommit}`));
  assert.deepEqual(readdirSync(join(cache, '.locks', 'models--org--model')), [], 'no claim is left');
});

test('a large file comes in parts over several connections, each byte once, and a second pull fetches nothing', async (t) => {
  const hub = await hubWith(t);
  const cache = tempFolder();
  await pullFrom(hub.url, cache);
  assert.ok(hub.requests.filter(({ path }) => path === 'model.safetensors').length >= 12);
  const total = weights.length + config.length + 2;
  assert.equal(hub.sentBytes, total);
  const events: PullEvent[] = [];
  await pullFrom(hub.url, cache, { events });
  assert.equal(hub.sentBytes, total);
  assert.equal(events.at(-1)?.kind, 'progress');
});

test('the journal of a pull that was killed at its very end goes with the next one', async (t) => {
  const hub = await hubWith(t);
  const cache = tempFolder();
  await pullFrom(hub.url, cache);
  writeFileSync(join(cache, 'models--org--model', 'blobs', `${sha256(weights)}.inferd-journal`), 'all blocks');
  await pullFrom(hub.url, cache);
  assertWhole(cache);
});

test('a revision with slashes becomes a ref in folders; a commit has none', async (t) => {
  const hub = await hubWith(t);
  const cache = tempFolder();
  await pullFrom(hub.url, cache, { revision: 'refs/pr/1' });
  assert.equal(readFileSync(join(cache, 'models--org--model', 'refs', 'refs', 'pr', '1'), 'utf8'), standInCommit);
  const other = tempFolder();
  await pullFrom(hub.url, other, { revision: standInCommit });
  assert.deepEqual(readdirSync(join(other, 'models--org--model', 'refs')), []);
  assert.ok(findSnapshot(other, 'org/model', standInCommit) !== null);
});

test('a list of files in several pages is read to its end, and no longer than hub.max_files', async (t) => {
  const hub = await hubWith(t, { pageSize: 1 });
  const cache = tempFolder();
  await pullFrom(hub.url, cache);
  assertWhole(cache);
  await assert.rejects(
    pullFrom(hub.url, tempFolder(), { limits: { max_files: 2 } }),
    because('bad_data', /has more than 2 files; raise hub\.max_files/),
  );
});

describe('what a network does', () => {
  test('connections that drop in the middle of a file are made again, and no byte is fetched twice', async (t) => {
    let drops = 0;
    const hub = await hubWith(t, { fault: ({ number }) => (number % 3 === 1 && ++drops < 20 ? { kind: 'drop', after: 30_000 } : null) });
    const cache = tempFolder();
    await pullFrom(hub.url, cache);
    assertWhole(cache);
    assert.ok(drops > 3);
    assert.ok(hub.sentBytes <= weights.length + config.length + 2 + 1024, `${hub.sentBytes} bytes were sent`);
  });

  test('429 is waited out as Retry-After says, 503 with growing waits', async (t) => {
    const answers = [429, 503, 503];
    const hub = await hubWith(t, {
      apiFault: (number) => (number === 0 ? { kind: 'status', status: 429, headers: { 'retry-after': '0.2' } } : null),
      fault: ({ number }) => {
        const status = number < 0 ? undefined : answers.shift();
        return status === undefined ? null : { kind: 'status', status, headers: status === 429 ? { 'retry-after': '0.3' } : {} };
      },
    });
    const cache = tempFolder();
    const events: PullEvent[] = [];
    await pullFrom(hub.url, cache, { events });
    assertWhole(cache);
    const waits = events.flatMap((event) => (event.kind === 'retry' ? [event.waitMs] : []));
    assert.ok(waits.includes(200) && waits.includes(300), `waited ${waits}`);
    assert.equal(waits.length, 4);
  });

  test('a hub that asks to come back later than we wait ends the pull with a sentence', async (t) => {
    const hub = await hubWith(t, { apiFault: () => ({ kind: 'status', status: 429, headers: { 'retry-after': '4000' } }) });
    await assert.rejects(pullFrom(hub.url, tempFolder()), because('network', /answers 429 and asks to come back in 4000 s/));
  });

  test('tries end after hub.max_retries in a row, and what came is kept', async (t) => {
    const hub = await hubWith(t, {
      fault: ({ start, path }) => (path === 'model.safetensors' && start >= MiB ? { kind: 'drop', after: 0 } : null),
    });
    const cache = tempFolder();
    await assert.rejects(pullFrom(hub.url, cache, { limits: { max_retries: 1 } }), because('network', /broke.*what came is kept/));
    const [pull] = listUnfinished(cache);
    assert.equal(pull?.totalBytes, weights.length + config.length + 2);
    assert.ok((pull?.receivedBytes ?? 0) >= 128 * 1024, `${pull?.receivedBytes} bytes are kept`);
    assert.equal(findSnapshot(cache, 'org/model', 'main'), null, 'what is not whole is not found');
  });

  test('nobody at the endpoint is said soon', async () => {
    const hub = await startHub({ files });
    await hub.close();
    await assert.rejects(pullFrom(hub.url, tempFolder()), because('network', /ECONNREFUSED.*HF_ENDPOINT/));
  });

  test('a connection on which nothing comes is given up and made again', async (t) => {
    const hub = await hubWith(t, { fault: ({ number }) => (number === 1 ? { kind: 'silence' } : null) });
    const cache = tempFolder();
    await pullFrom(hub.url, cache, { limits: { timeout_s: 0.3 } });
    assertWhole(cache);
  });

  test('a hub without ranges sends whole files, also after one was cut', async (t) => {
    let cut = false;
    const hub = await hubWith(t, {
      fault: ({ path, number }) => {
        if (path !== 'model.safetensors' || number < 0) return null;
        if (cut) return { kind: 'ignore range' };
        cut = true;
        return { kind: 'drop', after: 70_000 };
      },
    });
    const cache = tempFolder();
    await pullFrom(hub.url, cache);
    assertWhole(cache);
  });

  test('an address that the hub gave out and that is no longer good is asked for anew', async (t) => {
    const hub = await hubWith(t, { fault: ({ atCdn, number }) => (atCdn && number === 5 ? { kind: 'status', status: 403 } : null) });
    const cache = tempFolder();
    await pullFrom(hub.url, cache);
    assertWhole(cache);
  });
});

describe('what is not what was promised', () => {
  test('a flipped byte is found, and the file is fetched once more', async (t) => {
    let flipped = 0;
    const hub = await hubWith(t, {
      fault: ({ path, start, end }) =>
        path === 'model.safetensors' && start <= 700_000 && end > 700_000 && flipped++ === 0 ? { kind: 'flip', at: 700_000 } : null,
    });
    const cache = tempFolder();
    const events: PullEvent[] = [];
    await pullFrom(hub.url, cache, { events });
    assertWhole(cache);
    assert.equal(events.filter(({ kind }) => kind === 'rotten').length, 1);
  });

  test('a file that is rotten twice ends the pull and is thrown away', async (t) => {
    const hub = await hubWith(t, { fault: ({ path }) => (path === 'model.safetensors' ? { kind: 'flip', at: 0 } : null) });
    const cache = tempFolder();
    await assert.rejects(
      pullFrom(hub.url, cache),
      because('bad_data', /"model\.safetensors" .*2 times with other content than the hub promises/),
    );
    assert.ok(!existsSync(join(cache, 'models--org--model', 'blobs', sha256(weights))));
    assert.equal(listUnfinished(cache)[0]?.receivedBytes, config.length + 2);
  });

  test('a flipped byte of a small file is found by the hash of git', async (t) => {
    const hub = await hubWith(t, { fault: ({ path }) => (path === 'config.json' ? { kind: 'flip', at: 3 } : null) });
    await assert.rejects(pullFrom(hub.url, tempFolder()), because('bad_data', /"config\.json"/));
  });

  test('a file that changes between its parts is fetched anew', async (t) => {
    let changed = 0;
    const hub = await hubWith(t, {
      fault: ({ atCdn, path, number }) =>
        atCdn && path === 'model.safetensors' && number >= 6 && changed++ < 1 ? { kind: 'headers', headers: { etag: '"another"' } } : null,
    });
    const cache = tempFolder();
    const events: PullEvent[] = [];
    await pullFrom(hub.url, cache, { events });
    assertWhole(cache);
    assert.ok(events.some((event) => event.kind === 'rotten' && /changed while/.test(event.message)));
  });

  test('a hub that names another content by now is believed at once', async (t) => {
    const hub = await hubWith(t, {
      fault: ({ atCdn, path }) =>
        !atCdn && path === 'model.safetensors' ? { kind: 'headers', headers: { 'x-linked-etag': `"${'a'.repeat(64)}"` } } : null,
    });
    await assert.rejects(pullFrom(hub.url, tempFolder()), because('bad_data', /another file there by now/));
    assert.ok(hub.sentBytes < weights.length / 2, 'the rest of it is not asked for');
  });

  test('more bytes than were promised are cut off', async (t) => {
    const hub = await hubWith(t, { fault: ({ path }) => (path === 'model.safetensors' ? { kind: 'excess', bytes: 5000 } : null) });
    const cache = tempFolder();
    await pullFrom(hub.url, cache);
    assertWhole(cache);
  });

  test('a length in the list that is not that of the file is found', async (t) => {
    for (const size of [weights.length - 1000, weights.length + 1000]) {
      const hub = await hubWith(t, {
        list: (entries) => entries.map((e) => (e.lfs === undefined ? e : { ...e, size, lfs: { ...e.lfs, size } })),
      });
      await assert.rejects(pullFrom(hub.url, tempFolder()), because('bad_data', /another length/));
    }
  });

  test('a file of impossible length is refused before anything is fetched', async (t) => {
    const hub = await hubWith(t, {
      list: (entries) => entries.map((e) => ({ ...e, ...(e.lfs ? { lfs: { ...e.lfs, size: 2 ** 52 } } : {}) })),
    });
    await assert.rejects(pullFrom(hub.url, tempFolder()), because('no_space', /needs \d+\.\d\d GiB on the disk of .* left; make room/));
    assert.equal(hub.requests.length, 0);
  });
});

describe('who may have it', () => {
  test('a gated model is refused with what to do, without a token and with one', async (t) => {
    const hub = await hubWith(t, { token: 'right' });
    await assert.rejects(
      pullFrom(hub.url, tempFolder()),
      because('refused', /org\/model is gated; agree to its terms at .* and set HF_TOKEN/),
    );
    await assert.rejects(
      pullFrom(hub.url, tempFolder(), { token: 'wrong' }),
      because('refused', /does not let this token have org\/model/),
    );
    const cache = tempFolder();
    await pullFrom(hub.url, cache, { token: 'right' });
    assertWhole(cache);
  });

  test('the token goes to the endpoint only', async (t) => {
    const hub = await hubWith(t, { token: 'right' });
    await pullFrom(hub.url, tempFolder(), { token: 'right' });
    assert.ok(hub.cdnHeaders.length > 3);
    for (const headers of hub.cdnHeaders) assert.equal(headers.authorization, undefined);
  });

  test('a list of files that goes on at another host is not followed', async (t) => {
    const other = await hubWith(t);
    const hub = await hubWith(t, {
      apiFault: (_, path) => (path.includes('/tree/') ? { kind: 'headers', headers: { link: `<${other.url}/api/x>; rel="next"` } } : null),
    });
    await assert.rejects(pullFrom(hub.url, tempFolder(), { token: 't' }), because('bad_data', /continues the list of files .* refused/));
    assert.deepEqual(other.apiPaths, []);
  });

  test('no redirect leads to an address of a local network', async (t) => {
    for (const to of [
      'http://10.1.2.3/x',
      'http://169.254.169.254/latest/meta-data',
      'http://[fd00::1]/x',
      'http://0.0.0.0:1/',
      'file:///etc/passwd',
    ]) {
      const hub = await hubWith(t, { fault: ({ path }) => (path === 'model.safetensors' ? { kind: 'redirect', to } : null) });
      await assert.rejects(pullFrom(hub.url, tempFolder()), because('network', /refused; check HF_ENDPOINT|no web address/));
    }
  });

  test('models, revisions and files that are not there', async (t) => {
    const hub = await hubWith(t);
    await assert.rejects(
      pullFrom(hub.url, tempFolder(), { id: 'org/other' }),
      because('not_found', /There is no model org\/other .* or it is private/),
    );
    await assert.rejects(pullFrom(hub.url, tempFolder(), { revision: 'v9' }), because('not_found', /org\/model has no revision v9/));
    await assert.rejects(pullFrom(hub.url, tempFolder(), { include: ['*.xyz'] }), because('not_found', /No file of org\/model fits/));
  });
});

describe('what strangers write', () => {
  test('a hostile name in the list refuses all of it, and nothing is written', async (t) => {
    const names = ['../../evil', '/etc/passwd', 'a/../../b', 'a\\..\\b', 'C:evil', 'a\0b', 'a//b', './a', 'a\nb', ''];
    for (const path of names) {
      const hub = await hubWith(t, { list: (entries) => [...entries, { ...entries[0], path }] });
      const cache = tempFolder();
      await assert.rejects(pullFrom(hub.url, cache), because('bad_data', /nothing of it is downloaded/));
      assert.deepEqual(readdirSync(cache), []);
    }
  });

  test('a name that some system cannot write is refused when it is wanted, and else left alone', async (t) => {
    for (const path of ['aux.json', 'con', 'a/nul.txt', 'x.', `${'y'.repeat(300)}.json`, 'Config.json', 'config.json/x']) {
      const hub = await hubWith(t, { list: (entries) => [...entries, { ...entries[0], path }] });
      await assert.rejects(pullFrom(hub.url, tempFolder(), { include: ['*'] }), because('bad_data', /--exclude/));
      const cache = tempFolder();
      await pullFrom(hub.url, cache, { exclude: [path] });
      assertWhole(cache);
    }
  });

  test('nothing is written through links that lie in the cache', async (t) => {
    const hub = await hubWith(t);
    const outside = tempFolder();
    for (const part of ['models--org--model', 'models--org--model/blobs', 'models--org--model/snapshots', '.locks']) {
      const cache = tempFolder();
      if (part.includes('/')) mkdirSync(join(cache, 'models--org--model'));
      symlinkSync(outside, join(cache, part));
      await assert.rejects(pullFrom(hub.url, cache), because('cache', /is a link, and nothing is written through it/));
    }
    assert.deepEqual(readdirSync(outside), []);
  });

  test('a link in the place of a file is replaced, and what it leads to stays', async (t) => {
    const hub = await hubWith(t);
    const victim = join(tempFolder(), 'victim');
    writeFileSync(victim, 'mine');
    const cache = tempFolder();
    const folder = join(cache, 'models--org--model');
    for (const part of ['blobs', 'refs', 'snapshots']) mkdirSync(join(folder, part), { recursive: true });
    for (const name of [`${sha256(weights)}.inferd-partial`, `${sha256(weights)}.inferd-journal`, gitSha1(Buffer.from(config))])
      symlinkSync(victim, join(folder, 'blobs', name));
    symlinkSync(victim, join(folder, 'refs', 'main'));
    await pullFrom(hub.url, cache);
    assertWhole(cache);
    assert.equal(readFileSync(victim, 'utf8'), 'mine');
  });
});
