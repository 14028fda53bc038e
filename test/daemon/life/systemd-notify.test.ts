/** What the daemon tells systemd, seen by a program that stands in for systemd-notify. */
import assert from 'node:assert/strict';
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { silentLog } from '../../../actors/runtime/log.js';
import { createNotifier } from '../../../daemon/life/systemd-notify.js';
import { packageRoot } from '../../../native/index.js';
import { systemdStandIn } from '../../helpers/daemon/systemd-stand-in.js';
import { eventually } from '../../helpers/eventually.js';
import { tempFolder } from '../../helpers/temp-folder.js';

test('start, readiness, watchdog and stop are told, with one child at a time', async () => {
  const { env, said } = systemdStandIn();
  const notifier = createNotifier(env, silentLog);
  notifier.loading('weights 1 of 2');
  notifier.loading('weights 2 of 2');
  for (let i = 0; i < 50; i++) notifier.status(`line ${i}\nbreak`);
  let healthy = false;
  notifier.ready('Serving demo', () => healthy);
  await eventually('systemd is told', () => said().includes('READY=1|'));
  assert.match(said(), /EXTEND_TIMEOUT_USEC=\d+\|/);
  assert.match(said(), new RegExp(`--pid=${process.pid}\\|`));
  assert.ok(said().split('\n').length < 10, 'what came meanwhile was merged');
  assert.doesNotMatch(said(), /WATCHDOG/);
  healthy = true;
  await eventually('systemd is told', () => said().includes('WATCHDOG=1|'));
  notifier.stopping();
  await eventually('systemd is told', () => said().includes('STOPPING=1|'));
  notifier.close();
});

test('without NOTIFY_SOCKET, or without the program, nothing happens', async () => {
  const none = createNotifier({}, silentLog);
  none.ready('x', () => true);
  none.close();
  const missing = createNotifier({ NOTIFY_SOCKET: '/nowhere', PATH: '/nowhere' }, silentLog);
  missing.status('a');
  missing.status('b');
  await new Promise((resolve) => setTimeout(resolve, 100));
  missing.close();
});

test('a reload is told as begin and end, in two messages, however busy the line', async () => {
  const { env, said } = systemdStandIn();
  const notifier = createNotifier({ ...env, WATCHDOG_USEC: undefined }, silentLog);
  let done = 0;
  const work = (): void => void done++;
  notifier.reloading(work);
  assert.equal(done, 1, 'it is done also while the start goes on');
  notifier.ready('Serving demo', () => true);
  await eventually('systemd is told', () => said().includes('READY=1|'));
  assert.doesNotMatch(said(), /RELOADING/, 'and does not end the start');
  const before = process.hrtime.bigint() / 1000n;
  for (let i = 0; i < 20; i++) {
    notifier.status(`busy ${i}`);
    notifier.reloading(work);
  }
  assert.equal(done, 21);
  await eventually(
    'the last is over',
    () => said().lastIndexOf('READY=1|') > said().lastIndexOf('RELOADING=1|') && said().includes('RELOADING=1|'),
  );
  const lines = said().split('\n');
  assert.ok(lines.every((line) => !(line.includes('RELOADING=1|') && line.includes('READY=1|'))));
  const begin = lines.find((line) => line.includes('RELOADING=1|')) ?? '';
  assert.ok(BigInt(/MONOTONIC_USEC=(\d+)\|/.exec(begin)?.[1] ?? 0) >= before);
  notifier.close();
});

if (spawnSync('systemd-notify', ['--version']).status === 0) {
  const reader = join(tempFolder(), 'notify_reader');

  for (const kind of ['a path', 'an abstract name'] as const) {
    test(`systemd-notify brings the messages to a socket that has ${kind}`, async () => {
      execFileSync(process.env['CXX'] ?? 'c++', ['-o', reader, join(packageRoot(), 'test/helpers/daemon/notify_reader.cpp')]);
      const name = kind === 'a path' ? join(tempFolder(), 'notify') : `@inferd-test-${process.pid}`;
      const child = spawn(reader, [name], { stdio: ['ignore', 'pipe', 'inherit'] });
      let said = '';
      child.stdout.on('data', (chunk: Buffer) => {
        said += chunk.toString();
      });
      try {
        await eventually('it listens', () => said.includes('bound\n'));
        const notifier = createNotifier({ PATH: process.env['PATH'], NOTIFY_SOCKET: name }, silentLog);
        notifier.loading('weights 1 of 2');
        notifier.ready('Serving demo', () => true);
        await eventually('systemd is told', () => /\|READY=1\|STATUS=Serving demo/.test(said));
        notifier.reloading(() => {});
        await eventually('the reload is told', () => /\|RELOADING=1\|MONOTONIC_USEC=\d+\n(.*\n)*.*\|READY=1/.test(said));
        notifier.stopping();
        await eventually('the end is told', () => /\|STOPPING=1/.test(said));
        notifier.close();
      } finally {
        child.kill('SIGKILL');
      }
    });
  }
}
