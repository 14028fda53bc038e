/** A stream of wrong credentials: who waits, and who does not. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { silentLog } from '../../../../actors/runtime/log.js';
import { createAuth } from '../../../../daemon/front/auth/auth.js';
import { RefusalPace } from '../../../../daemon/front/auth/refusal-pace.js';
import { eventually } from '../../../helpers/eventually.js';
import { tempFolder } from '../../../helpers/temp-folder.js';
import { testConfig } from '../../../helpers/test-config.js';
import { rawRequest } from '../../../helpers/wire/raw-http.js';
import { startFront } from '../echo-front.js';

test('the first refusals come at once, those of a flood wait, and after a while they come at once again', () => {
  let now = 0;
  const pace = new RefusalPace(() => now);
  const burst = Array.from({ length: 2000 }, () => pace.delayMs());
  assert.equal(burst[0], 0);
  assert.ok(burst.lastIndexOf(0) < burst.findIndex((ms) => ms > 0), 'none comes at once after one that waits');
  now = 1000;
  const next = Array.from({ length: 2000 }, () => pace.delayMs()).filter((ms) => ms === 0).length;
  assert.ok(next > 0 && next < burst.filter((ms) => ms === 0).length / 2);
  now = 1e9;
  assert.equal(pace.delayMs(), 0);
});

test('a connection whose refusal waits is not read meanwhile, and then again', async () => {
  const told: string[] = [];
  const connection = { pause: () => told.push('pause'), resume: () => told.push('resume') };
  const refusal = await new RefusalPace().hold('no', 1, connection);
  assert.deepEqual([refusal, told], ['no', ['pause', 'resume']]);
});

test('whoever shows the right token passes a flood of wrong ones, each of which is answered once', async () => {
  const folder = tempFolder();
  const files = {
    tokenFile: join(folder, 'token'),
    tokensFolder: join(folder, 'tokens'),
    keysFolder: join(folder, 'keys'),
    trustedKeys: [],
  };
  const waiting: (() => void)[] = [];
  const pace = new RefusalPace(
    () => 0,
    () => new Promise<void>((resolve) => waiting.push(resolve)),
  );
  while (pace.delayMs() === 0);
  const auth = createAuth(testConfig({ auth: { mode: 'token' } }), files, silentLog, pace);
  const front = await startFront({ auth });
  const ask = async (token: string | null) =>
    (await rawRequest(front.port, ['GET /openrpc.json HTTP/1.1', 'Host: localhost', `Authorization: Bearer ${token}`])).status;
  try {
    const refused: number[] = [];
    const flood = Array.from({ length: 60 }, async () => refused.push(await ask('nobody')));
    await eventually('all wrong ones wait', () => waiting.length === flood.length);
    assert.equal(await ask(auth.token), 200);
    assert.deepEqual(refused, []);
    for (const goOn of waiting) goOn();
    await Promise.all(flood);
    assert.deepEqual(refused, new Array(flood.length).fill(401));
  } finally {
    await front.close();
    auth.close();
  }
});
