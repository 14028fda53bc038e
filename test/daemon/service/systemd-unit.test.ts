/**
 * The systemd units: what they say, read by rules written down here, and by systemd itself where it is installed.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { EXIT } from '../../../daemon/exit-code.js';
import { type ServiceSpec, serviceSpec, serviceWarnings } from '../../../daemon/service/spec.js';
import { restOfLine, word } from '../../../daemon/service/systemd-text.js';
import { systemdUnits } from '../../../daemon/service/systemd-unit.js';
import { StartError } from '../../../daemon/start-error.js';
import { hasSystemdAnalyze, verifyUnits } from '../../helpers/daemon/systemd-analyze.js';
import { readUnit, splitWords } from '../../helpers/daemon/unit-reader.js';
import { type ConfigChanges, testConfig } from '../../helpers/test-config.js';

const env = { HOME: '/home/ann', PATH: '/usr/bin' };
const spec = (changes: ConfigChanges = {}, more: Partial<ServiceSpec> = {}): ServiceSpec => ({
  ...serviceSpec({ config: testConfig(changes), configFile: '/etc/my models/100%.toml', sets: ['server.port=9000'], env }),
  ...more,
});
const texts = (of: ServiceSpec, socket = false): readonly string[] =>
  systemdUnits({ spec: of, folder: '/units', socket }).map(({ text }) => text);
const service = (of: ServiceSpec, socket = false): string => texts(of, socket)[0] ?? '';

/** What people call their folders, and what attackers would. */
const anyText = fc
  .oneof(fc.string(), fc.string({ unit: 'binary' }), fc.string({ unit: fc.constantFrom(...` '"\\%$;#{}\n\t-:@!|&äλ\u0085`) }))
  .map((text) => text.replaceAll('\0', ''))
  .filter((text) => text.isWellFormed());

test('the service runs the daemon as it was asked for, and is told by it when it is ready', () => {
  const unit = readUnit(service(spec()));
  const [program, script, ...args] = unit.words('Service', 'ExecStart');
  assert.equal(program, `:${process.execPath}`);
  assert.match(script ?? '', /\/daemon\/cli\/inferd\.mjs$/);
  assert.deepEqual(args, ['serve', '--config', '/etc/my models/100%.toml', '--set', 'server.port=9000']);
  assert.equal(unit.one('Service', 'Type'), 'notify');
  assert.equal(unit.one('Service', 'NotifyAccess'), 'all');
  assert.equal(unit.one('Service', 'ExecReload'), 'kill -HUP $MAINPID');
  assert.equal(unit.one('Install', 'WantedBy'), 'default.target');
});

test('it is started again after what a fresh start may cure, and only then', () => {
  const unit = readUnit(service(spec()));
  assert.equal(unit.one('Service', 'Restart'), 'on-failure');
  const lasting = unit.words('Service', 'RestartPreventExitStatus').map(Number);
  for (const code of [EXIT.usage, EXIT.badData, EXIT.missing, EXIT.noPermission, EXIT.config]) assert.ok(lasting.includes(code), `${code}`);
  for (const code of [EXIT.unavailable, EXIT.internal, EXIT.device]) assert.ok(!lasting.includes(code), `${code}`);
});

test('the manager waits longer than a drain and all that follows it, and longer than the daemon takes to notice a hang', () => {
  const unit = readUnit(service(spec({ server: { drain_timeout_s: 600.5 }, scheduler: { hang_timeout_s: 300 } })));
  assert.ok(Number(unit.one('Service', 'TimeoutStopSec')) > 600 + 60);
  assert.ok(Number(unit.one('Service', 'WatchdogSec')) >= 600);
});

test('it may write where the daemon does, and nowhere else', () => {
  const files = { server: { unix_socket: '/srv/a b/s.sock' }, auth: { token_file: '~/keys/token' }, profile: { directory: '/var/prof' } };
  const unit = readUnit(service(spec(files)));
  assert.equal(unit.one('Service', 'ProtectSystem'), 'strict');
  assert.equal(unit.one('Service', 'ProtectHome'), 'read-only');
  assert.equal(unit.one('Service', 'PrivateTmp'), 'yes');
  assert.deepEqual(unit.words('Service', 'ReadWritePaths'), [
    '-/home/ann/.cache/huggingface/hub',
    '-/home/ann/.cache/inferd',
    '-/home/ann/.local/share/inferd',
    '-/home/ann/.local/state/inferd',
    '-/home/ann/keys',
    '-/srv/a b',
    '-/var/prof',
  ]);
});

test('a socket in /tmp is not hidden from its clients', () => {
  const unit = readUnit(service(spec({ server: { unix_socket: '/tmp/x/s.sock' } })));
  assert.equal(unit.one('Service', 'PrivateTmp'), 'no');
});

test('variables that say where things are go along, secrets do not', () => {
  const given = {
    ...env,
    HF_HOME: '/data/hf models',
    HF_TOKEN: 'hf_x',
    INFERD_LOG__LEVEL: 'warn',
    INFERD_INFERENCE__API_KEY: 'k',
    EDITOR: 'vi',
  };
  const made = serviceSpec({ config: testConfig(), configFile: null, sets: [], env: given });
  const unit = readUnit(service(made));
  assert.deepEqual(unit.words('Service', 'Environment'), ['HF_HOME=/data/hf models', 'INFERD_LOG__LEVEL=warn']);
  assert.equal(unit.one('Service', 'EnvironmentFile'), '-/home/ann/.config/inferd/service.env');
  const warnings = serviceWarnings(made, given).join('\n');
  assert.match(warnings, /HF_TOKEN is set here and is not written .* \/home\/ann\/\.config\/inferd\/service\.env/);
  assert.match(warnings, /INFERD_INFERENCE__API_KEY/);
  assert.doesNotMatch(warnings, /hf_x/);
});

test('with a socket unit systemd listens at the addresses of the configuration', () => {
  const [unitText = '', socketText = ''] = texts(spec({ server: { host: '::1', port: 8765, unix_socket: '/srv/50%/s' } }), true);
  const unit = readUnit(unitText);
  assert.equal(unit.one('Unit', 'Requires'), 'inferd.socket');
  assert.equal(unit.one('Install', 'Also'), 'inferd.socket');
  const socket = readUnit(socketText);
  assert.deepEqual(socket.all('Socket', 'ListenStream'), ['[::1]:8765', '/srv/50%%/s']);
  assert.equal(socket.one('Socket', 'SocketMode'), '0600');
  assert.equal(socket.one('Install', 'WantedBy'), 'sockets.target');
  const localhost = readUnit(texts(spec({ server: { host: 'localhost' } }), true)[1] ?? '');
  assert.deepEqual(localhost.all('Socket', 'ListenStream'), ['127.0.0.1:8765']);
});

test('addresses and paths that a unit cannot hold are refused with what to do', () => {
  const refused = (changes: ConfigChanges, more: Partial<ServiceSpec>, message: RegExp) =>
    assert.throws(
      () => texts(spec(changes, more), true),
      (e) => e instanceof StartError && e.exitCode === EXIT.config && message.test(e.message),
    );
  refused({ server: { port: 0 } }, {}, /server\.port is 0; .*fixed port/);
  refused({ server: { host: 'my-box' } }, {}, /server\.host is the name my-box/);
  refused({ server: { unix_socket: '/srv/a\nListenStream=0.0.0.0:1' } }, {}, /server\.unix_socket.*rename/);
  refused({ profile: { directory: '/srv/a\tb' } }, {}, /folder.*a\\tb.*rename/);
  refused({}, { environmentFile: '/x \\' }, /variables.*rename/);
});

test('every text comes back from a list of words, and none ends its line', () => {
  fc.assert(
    fc.property(fc.array(anyText, { maxLength: 5 }), (list) => {
      const line = list.map(word).join(' ');
      assert.doesNotMatch(line, /[\n\r]|\\$/);
      assert.deepEqual(splitWords(line), list);
    }),
  );
});

test('a path is the rest of its line or is refused', () => {
  fc.assert(
    fc.property(anyText, (tail) => {
      const line = restOfLine(`/x${tail}`);
      if (line === null) assert.match(tail, /\p{Cc}|[\s\\]$/u);
      else assert.equal(line.replaceAll('%%', '%'), `/x${tail}`);
    }),
  );
});

if (hasSystemdAnalyze) {
  test('systemd finds no fault in the units', () => {
    for (const socket of [false, true]) {
      const [unit = '', socketUnit] = texts(spec({ server: { unix_socket: '/srv/a b/s' } }, { environment: { A: 'x y%z' } }), socket);
      const units = { 'inferd.service': unit, ...(socketUnit === undefined ? {} : { 'inferd.socket': socketUnit }) };
      assert.deepEqual(verifyUnits(units), { code: 0, said: '', understood: '' });
    }
  });

  test('systemd reads every path, variable and argument as it was meant', () => {
    // All samples in one unit: the program takes seconds to start.
    const samples = fc.sample(
      anyText.filter((text) => !/[^\P{Cc}\n\t]/u.test(text)),
      { numRuns: 200, seed: 1 },
    );
    const environment = Object.fromEntries(samples.map((text, i) => [`V${i}`, `${text}.`]));
    const writable = samples.filter((text) => !/\/|\p{Cc}/u.test(text)).map((text, i) => `/w${i}${text}.`);
    const command = ['/bin/echo', ...samples.map((text, i) => `${i}${text}`), 'end'];
    const { understood, said } = verifyUnits({ 'inferd.service': service(spec({}, { environment, writable, command })) }, true);
    const skipped = said.match(/^.*inferd\.service:\d+: (?!Failed to parse system call).*$/gm); // names its filter knows and this kernel does not
    assert.equal(skipped, null);
    for (const [name, value] of Object.entries(environment)) assert.ok(understood.includes(`Environment: ${name}=${value}\n`), value);
    const paths = /^\t*ReadWritePaths: (.*?)\n\t+InaccessiblePaths/ms.exec(understood)?.[1];
    assert.equal(paths, writable.map((path) => `-${path}`).join(' '));
    for (const arg of command.slice(1, -1))
      assert.ok(
        shellWords(arg).some((form) => understood.includes(` ${form} `)),
        arg,
      );
  });
} else {
  test('without systemd-analyze, the checks above are all there are', () => assert.ok(!hasSystemdAnalyze));
}

/** An argument as systemd shows it, with quotes or without. */
function shellWords(text: string): readonly string[] {
  const control = (c: string): string => ({ '\n': '\\n', '\t': '\\t' })[c] ?? `\\${c.charCodeAt(0).toString(8).padStart(3, '0')}`;
  const quoted = text.replaceAll(/["\\`$]/g, '\\$&').replaceAll(/(?![\x80-\x9f])\p{Cc}/gu, control);
  return [text, `"${quoted}"`];
}
