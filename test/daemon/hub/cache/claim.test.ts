/** One writer at a time, and none that waits for the dead. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { claimFolder } from '../../../../daemon/hub/cache/claim.js';
import { tempFolder } from '../../../helpers/temp-folder.js';

const never = new AbortController().signal;
const quiet = (): void => {};

test('of many who claim a folder each gets it, one at a time', async () => {
  const folder = tempFolder();
  let holders = 0;
  let turns = 0;
  await Promise.all(
    Array.from({ length: 6 }, async () => {
      const claim = await claimFolder(folder, never, quiet);
      assert.equal(++holders, 1);
      await sleep(5);
      turns++;
      holders--;
      await claim.release();
    }),
  );
  assert.equal(turns, 6);
  assert.deepEqual(readdirSync(folder), []);
});

test('a claim of a process that is dead, or that began at another time, is removed', async () => {
  const folder = tempFolder();
  const mine = await claimFolder(folder, never, quiet);
  const own = JSON.parse(readFileSync(join(folder, readdirSync(folder)[0] ?? ''), 'utf8')) as { place: string };
  await mine.release();
  writeFileSync(join(folder, 'a.inferd-claim'), JSON.stringify({ ...own, pid: process.pid, start: '1' }));
  writeFileSync(join(folder, 'b.inferd-claim'), JSON.stringify({ ...own, pid: 2 ** 22 + 5, start: '2' }));
  const claim = await claimFolder(folder, never, () => assert.fail('nobody is there to be waited for'));
  assert.equal(readdirSync(folder).length, 1);
  await claim.release();
});

test('a claim of another system counts until its owner has been silent for long', async () => {
  const folder = tempFolder();
  const path = join(folder, 'a.inferd-claim');
  writeFileSync(path, JSON.stringify({ pid: 77, start: '5', place: 'elsewhere', holds: true }));
  let waitsFor = 0;
  const waiting = claimFolder(folder, never, (pid) => {
    waitsFor = pid;
    utimesSync(path, new Date(0), new Date(0));
  });
  const claim = await waiting;
  assert.equal(waitsFor, 77);
  await claim.release();
});

test('one that only looks, as we do, is given way to and not called a holder', async () => {
  const folder = tempFolder();
  const path = join(folder, 'a.inferd-claim');
  writeFileSync(path, JSON.stringify({ pid: 77, start: '5', place: 'elsewhere', holds: false }));
  const waiting = claimFolder(folder, never, () => assert.fail('nobody holds the folder'));
  await sleep(300);
  assert.deepEqual(readdirSync(folder), ['a.inferd-claim']);
  rmSync(path);
  const claim = await waiting;
  assert.equal(readdirSync(folder).length, 1);
  await claim.release();
});

test('a wait ends when it is no longer wanted', async () => {
  const folder = tempFolder();
  const claim = await claimFolder(folder, never, quiet);
  const stop = new AbortController();
  await assert.rejects(
    claimFolder(folder, stop.signal, () => stop.abort()),
    { reason: 'cancelled' },
  );
  await claim.release();
  assert.deepEqual(readdirSync(folder), []);
});
