/** The launchd agent as text, read back by the few rules of XML that it uses, and what launchctl is asked. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { CommandResult } from '../../../daemon/service/command.js';
import { launchd } from '../../../daemon/service/launchd.js';
import { agentPlist } from '../../../daemon/service/launchd-plist.js';
import { serviceSpec } from '../../../daemon/service/spec.js';
import { serviceManager } from '../../../daemon/service/this-system.js';
import { StartError } from '../../../daemon/start-error.js';
import { testConfig } from '../../helpers/test-config.js';

const env = { HOME: '/Users/ann', HF_HOME: '/Volumes/R&D <1>' };
const spec = serviceSpec({ config: testConfig(), configFile: '/etc/a b.toml', sets: [], env });

type Plist = string | number | boolean | Plist[] | { [key: string]: Plist };

/** Elements without attributes, text with entities. */
function readPlist(text: string): Plist {
  const tokens = [...text.replace(/^.*<plist version="1.0">/s, '').matchAll(/<(\/?)(\w+)(\/?)>|([^<]+)/g)];
  let at = 0;
  const skip = (): void => {
    while (tokens[at]?.[4]?.trim() === '') at++;
  };
  const content = (): string => {
    let found = '';
    if (tokens[at]?.[4] !== undefined) found = tokens[at++]?.[4] ?? '';
    at++; // the end tag
    return found.replaceAll('&lt;', '<').replaceAll('&gt;', '>').replaceAll('&amp;', '&');
  };
  const value = (): Plist => {
    skip();
    const name = tokens[at++]?.[2] ?? assert.fail('the text ends early');
    if (name === 'string') return content();
    if (name === 'integer') return Number(content());
    if (name === 'true' || name === 'false') return name === 'true';
    const list: Plist[] = [];
    const dict: { [key: string]: Plist } = {};
    for (skip(); tokens[at]?.[1] !== '/'; skip()) {
      if (name === 'array') list.push(value());
      else {
        assert.equal(tokens[at++]?.[2], 'key');
        const key = content();
        dict[key] = value();
      }
    }
    at++;
    return name === 'array' ? list : dict;
  };
  return value();
}

test('the agent runs the daemon at login, and again after a failure', () => {
  const text = agentPlist(spec, '/Users/ann/Library/Logs/inferd.log');
  const agent = readPlist(text) as { [key: string]: Plist };
  assert.deepEqual(agent['ProgramArguments'], spec.command);
  assert.deepEqual(agent['EnvironmentVariables'], { HF_HOME: '/Volumes/R&D <1>' });
  assert.equal(agent['RunAtLoad'], true);
  assert.deepEqual(agent['KeepAlive'], { SuccessfulExit: false });
  assert.equal(agent['ExitTimeOut'], spec.stopLimitS);
  assert.match(text, /^<\?xml version="1\.0" encoding="UTF-8"\?>\n<!-- Written by "inferd service install"/);
});

test('every text comes back, or is refused with what to do', () => {
  fc.assert(
    fc.property(fc.oneof(fc.string(), fc.string({ unit: 'binary' }), fc.string({ unit: fc.constantFrom(...' <>&;"\'ä\t\n') })), (text) => {
      try {
        const agent = readPlist(agentPlist({ ...spec, environment: { A: text } }, '/log')) as { [key: string]: Plist };
        assert.deepEqual(agent['EnvironmentVariables'], { A: text });
      } catch (error) {
        assert.ok(error instanceof StartError, String(error));
        assert.ok(/[\p{Cc}\ufffe\uffff]/u.test(text) || !text.isWellFormed());
      }
    }),
  );
});

test('launchctl is asked to load the agent, to look at it, and to forget it', async () => {
  const calls: string[] = [];
  const answers = new Map<string, CommandResult>();
  const run = (program: string, args: readonly string[]): Promise<CommandResult> => {
    calls.push([program, ...args].join(' '));
    return Promise.resolve(answers.get(args[0] ?? '') ?? { code: 0, stdout: '', stderr: '' });
  };
  const manager = launchd(env, run);
  answers.set('print', { code: 113, stdout: '', stderr: 'Could not find service' });
  const domain = `gui/${process.getuid?.() ?? 0}`;
  await manager.activate(true, false);
  assert.equal(calls.at(-1), `launchctl bootstrap ${domain} /Users/ann/Library/LaunchAgents/inferd.daemon.plist`);
  answers.set('print', { code: 0, stdout: 'x = {\n\tstate = running\n\tpid = 77\n\tlast exit code = (never exited)\n}', stderr: '' });
  const status = await manager.status();
  assert.deepEqual([status.state, status.running, status.pid, status.notes], ['running', true, 77, []]);
  await manager.deactivate();
  assert.equal(calls.at(-1), `launchctl bootout ${domain}/inferd.daemon`);
  assert.throws(() => manager.files(spec, true), /leave --socket away/);
});

test('the manager is that of the system, and a system without one is told so', () => {
  assert.equal(serviceManager(env, 'linux').name, 'systemd');
  assert.equal(serviceManager(env, 'darwin').name, 'launchd');
  assert.throws(() => serviceManager(env, 'win32'), /inferd knows no service manager; .*"inferd serve" in the foreground/);
});
