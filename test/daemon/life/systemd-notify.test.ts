/** What the daemon tells systemd, seen by a program that stands in for systemd-notify. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { silentLog } from '../../../actors/runtime/log.js';
import { createNotifier } from '../../../daemon/life/systemd-notify.js';
import { systemdStandIn } from '../../helpers/daemon/systemd-stand-in.js';
import { eventually } from '../../helpers/eventually.js';

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
