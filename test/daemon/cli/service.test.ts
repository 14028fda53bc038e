/** `inferd service` as a user meets it, with a program in the place of systemctl. */
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { PassThrough } from 'node:stream';
import { test } from 'node:test';
import { runProgram } from '../../../daemon/cli/program.js';
import { service } from '../../../daemon/cli/service.js';
import { acquireInstance } from '../../../daemon/life/single-instance.js';
import { privateEnv } from '../../helpers/daemon/daemon.js';
import { systemctlStandIn } from '../../helpers/daemon/systemctl-stand-in.js';
import { readUnit } from '../../helpers/daemon/unit-reader.js';
import { written } from './command-line.js';

const onLinux = process.platform === 'linux';

function desk(extra: NodeJS.ProcessEnv = {}) {
  const systemctl = systemctlStandIn();
  const base = privateEnv();
  const env = { ...base, PATH: `${systemctl.folder}:${base['PATH'] ?? ''}`, ...extra };
  const unit = join(base.HOME, '.config/systemd/user/inferd.service');
  const socket = join(dirname(unit), 'inferd.socket');
  const run = async (...args: string[]) => {
    const [stdout, stderr, stdin] = [new PassThrough(), new PassThrough(), new PassThrough()];
    const code = await runProgram({ version: '0', verbs: [service], io: { stdin, stdout, stderr, env } }, ['service', ...args]);
    return { code, stdout: written(stdout), stderr: written(stderr) };
  };
  return { systemctl, env, home: base.HOME, unit, socket, run };
}

if (onLinux) {
  test('install writes the unit, makes its folders, and starts it; a second one changes nothing; uninstall leaves nothing', async () => {
    const { systemctl, home, unit, run } = desk();
    const first = await run('install');
    assert.equal(first.code, 0, first.stderr);
    assert.match(first.stdout, new RegExp(`Wrote ${unit}\\.\n.*the daemon runs`));
    assert.deepEqual(systemctl.calls(), ['daemon-reload', 'enable inferd.service', 'restart inferd.service']);
    const text = readFileSync(unit, 'utf8');
    for (const path of readUnit(text).words('Service', 'ReadWritePaths')) assert.ok(statSync(path.slice(1)).isDirectory(), path);

    const second = await run('install');
    assert.equal(second.code, 0);
    assert.match(second.stdout, /is up to date/);
    assert.equal(readFileSync(unit, 'utf8'), text);
    assert.deepEqual(systemctl.calls(), ['daemon-reload', 'enable inferd.service', 'start inferd.service']);

    const third = await run('install', '--set', 'log.level=warn');
    assert.equal(third.code, 0);
    assert.ok(systemctl.calls().includes('restart inferd.service'), 'a changed unit takes effect');

    const gone = await run('uninstall');
    assert.equal(gone.code, 0);
    assert.match(gone.stdout, new RegExp(`Removed ${unit}\\.`));
    assert.ok(!existsSync(unit));
    assert.ok(systemctl.calls().some((call) => call.startsWith('disable --now')));
    const again = await run('uninstall');
    assert.equal(again.code, 0);
    assert.match(again.stdout, /not installed/);
    assert.ok(existsSync(home));
  });

  test('the configuration is checked before anything is written', async () => {
    const { unit, run } = desk();
    const bad = await run('install', '--set', 'server.port=99999');
    assert.equal(bad.code, 78);
    assert.match(bad.stderr, /server\.port/);
    assert.ok(!existsSync(unit));
    const missing = await run('install', '--config', '/nowhere/x.toml');
    assert.notEqual(missing.code, 0);
    assert.ok(!existsSync(unit));
  });

  test('--dry-run prints the files and writes none', async () => {
    const { systemctl, unit, socket, run } = desk();
    const { code, stdout } = await run('install', '--socket', '--dry-run');
    assert.equal(code, 0);
    assert.ok(stdout.includes(`# ${unit}\n`) && stdout.includes(`# ${socket}\n`));
    assert.ok(!existsSync(unit));
    assert.deepEqual(systemctl.calls(), []);
  });

  test('from one kind to the other nothing of the first stays', async () => {
    const { systemctl, unit, socket, run } = desk();
    await run('install');
    systemctl.calls();
    const withSocket = await run('install', '--socket');
    assert.equal(withSocket.code, 0, withSocket.stderr);
    assert.match(withSocket.stdout, /listens at 127\.0\.0\.1:8765 and starts the daemon at the first connection/);
    assert.ok(existsSync(socket));
    const calls = systemctl.calls();
    assert.ok(calls.indexOf('disable --now inferd.socket inferd.service') < calls.indexOf('enable inferd.socket'));
    assert.ok(calls.includes('restart inferd.socket'));
    await run('install');
    assert.ok(existsSync(unit) && !existsSync(socket));
  });

  test('without a session the unit is written, and a sentence says what to do', async () => {
    const { systemctl, unit, run } = desk();
    systemctl.loseSession();
    const { code, stderr } = await run('install');
    assert.equal(code, 69);
    assert.match(
      stderr,
      /^inferd: The unit is written to .*inferd\.service, but .*No medium found.*loginctl enable-linger .* install it again\n$/,
    );
    assert.ok(existsSync(unit));
    assert.equal((await run('uninstall')).code, 0);
    assert.ok(!existsSync(unit));
  });

  test('without XDG_RUNTIME_DIR, and without systemd, the sentence fits', async () => {
    const bare = desk({ XDG_RUNTIME_DIR: undefined });
    bare.systemctl.loseSession();
    assert.match((await bare.run('install')).stderr, /XDG_RUNTIME_DIR=\/run\/user\/\$\(id -u\)/);
    const none = desk({ PATH: '/nowhere' });
    const { code, stderr } = await none.run('install');
    assert.equal(code, 69);
    assert.match(stderr, /systemctl could not be run.*"inferd serve" in the foreground/);
  });

  test('a service that does not start is told with where to look', async () => {
    const { systemctl, run } = desk();
    systemctl.fail('restart', 'Job for inferd.service failed because the control process exited with error code.');
    const { code, stderr } = await run('install');
    assert.equal(code, 69);
    assert.match(stderr, /could not start the service \(Job for inferd\.service failed.*journalctl --user -u inferd -e/);
  });

  test("somebody else's unit is neither written over nor removed", async () => {
    const { unit, run } = desk();
    mkdirSync(dirname(unit), { recursive: true });
    writeFileSync(unit, '[Service]\nExecStart=/bin/true\n');
    for (const verb of ['install', 'uninstall']) {
      const { code, stderr } = await run(verb);
      assert.equal(code, 77);
      assert.match(stderr, /was not written by inferd and is left alone; move it away/);
    }
    assert.match(readFileSync(unit, 'utf8'), /bin\/true/);
  });

  test('a daemon that was started by hand is not joined by a service that could only fail', async () => {
    const { env, unit, run } = desk();
    const instance = await acquireInstance(env);
    try {
      const { code, stderr } = await run('install');
      assert.equal(code, 69);
      assert.match(stderr, /An inferd daemon that is no service is running; stop it with "inferd stop"/);
      assert.ok(!existsSync(unit));
    } finally {
      instance.release();
    }
  });

  test('status tells what systemd says', async () => {
    const { systemctl, unit, run } = desk();
    const before = await run('status');
    assert.equal(before.code, 69);
    assert.match(before.stdout, /not installed .*"inferd service install" does it/);
    await run('install');
    systemctl.show(
      'inferd.service',
      'ActiveState=active\nSubState=running\nUnitFileState=enabled\nMainPID=4711\nNRestarts=2\nStatusText=Serving demo at ws://127.0.0.1:8765\n',
    );
    const { code, stdout } = await run('status');
    assert.equal(code, 0);
    assert.equal(
      stdout,
      `${unit}\nstate      active (running), pid 4711\nenabled    yes\n           Serving demo at ws://127.0.0.1:8765\n` +
        '           restarted 2 times since it was started\nlog        journalctl --user -u inferd -e\n',
    );
    const json = JSON.parse((await run('status', '--json')).stdout) as Record<string, unknown>;
    assert.deepEqual([json['manager'], json['running'], json['pid']], ['systemd', true, 4711]);
    systemctl.show('inferd.service', 'ActiveState=failed\nSubState=failed\nMainPID=0\nExecMainStatus=78\nResult=exit-code\n');
    const failed = await run('status');
    assert.equal(failed.code, 69);
    assert.match(failed.stdout, /state {6}failed \(failed\)\n.*\n +it ended with 78 \(exit-code\)/);
  });
}

test('secrets of the environment are pointed to their file', async () => {
  const { home, run } = desk({ HF_TOKEN: 'hf_secret' });
  const { stderr } = await run('install');
  assert.match(stderr, new RegExp(`warning: HF_TOKEN is set here .* ${home}.*service\\.env`));
  assert.doesNotMatch(stderr, /hf_secret/);
});
