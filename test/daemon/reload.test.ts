/** SIGHUP: what a changed configuration changes in a running daemon. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Log } from '../../actors/runtime/log.js';
import { gateRules } from '../../daemon/front/gate.js';
import { type Live, reload } from '../../daemon/reload.js';
import { testConfig } from '../helpers/test-config.js';

function recorder(): { log: Log; lines: [string, Record<string, unknown>][] } {
  const lines: [string, Record<string, unknown>][] = [];
  const at = (level: string) => (fields: Record<string, unknown>) => void lines.push([level, fields]);
  const log: Log = { debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') };
  return { log, lines };
}

const live = (): Live => ({ config: testConfig(), rules: gateRules(testConfig().auth) });

test('log level, hosts and origins change at once; other options are named and keep their value', () => {
  const { log, lines } = recorder();
  const now = live();
  const levels: string[] = [];
  const next = testConfig({
    log: { level: 'debug' },
    auth: { allowed_hosts: ['box'], allowed_origins: ['http://a'] },
    server: { port: 1 },
  });
  reload(
    now,
    () => next,
    (level) => levels.push(level),
    log,
  );
  assert.deepEqual(levels, ['debug']);
  assert.ok(now.rules.hosts.has('box') && now.rules.origins.has('http://a'));
  assert.equal(now.config.server.port, testConfig().server.port);
  assert.equal(now.config.log.level, 'debug');
  assert.deepEqual(lines, [
    ['info', { applied: ['auth.allowed_hosts', 'auth.allowed_origins', 'log.level'] }],
    ['warn', { ignored: ['server.port'] }],
  ]);
});

test('a faulty file changes nothing and is explained in the log', () => {
  const { log, lines } = recorder();
  const now = live();
  const before = { ...now };
  const faulty = () => {
    throw new Error('line 3: no such option');
  };
  reload(now, faulty, () => assert.fail('the level must stay'), log);
  assert.deepEqual(now, before);
  assert.deepEqual(lines, [['error', { error: 'line 3: no such option' }]]);
});
