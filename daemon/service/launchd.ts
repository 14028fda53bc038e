/**
 * launchd of macOS as a service manager: an agent of the user, which runs while the user is logged in. Written and checked as text on other
 * systems; `launchctl` does the rest.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { expandHome } from '../../config/paths.js';
import { EXIT } from '../exit-code.js';
import { StartError } from '../start-error.js';
import type { CommandRunner } from './command.js';
import { agentPlist, LABEL } from './launchd-plist.js';
import type { ServiceManager } from './manager.js';

export function launchd(env: NodeJS.ProcessEnv, run: CommandRunner): ServiceManager {
  const path = join(expandHome('~/Library/LaunchAgents', env), `${LABEL}.plist`);
  const log = join(expandHome('~/Library/Logs', env), 'inferd.log');
  const domain = `gui/${process.getuid?.() ?? 0}`;
  const launchctl = (...args: string[]) => run('launchctl', args, env);

  return {
    name: 'launchd',
    logCommand: `tail -f ${log}`,
    paths: [path],
    files(spec, socket) {
      if (socket)
        throw new StartError('launchd hands its sockets only to programs that call its own library; leave --socket away.', EXIT.usage);
      return [{ path, text: agentPlist(spec, log) }];
    },

    async activate(changed) {
      if (changed) await launchctl('bootout', `${domain}/${LABEL}`);
      const loaded = (await launchctl('print', `${domain}/${LABEL}`)).code === 0;
      const started = loaded ? await launchctl('kickstart', `${domain}/${LABEL}`) : await launchctl('bootstrap', domain, path);
      if (started.code !== 0)
        throw new StartError(
          `The agent is written to ${path}, but launchd did not start it (${started.stderr.split('\n')[0]}); log in to the desktop as this user and install it again.`,
          EXIT.unavailable,
        );
    },

    async deactivate() {
      await launchctl('bootout', `${domain}/${LABEL}`);
    },

    async forget() {},

    async status() {
      const printed = await launchctl('print', `${domain}/${LABEL}`);
      const field = (name: string): string | null => new RegExp(`^\\s*${name} = (.+)$`, 'm').exec(printed.stdout)?.[1] ?? null;
      const state = printed.code === 0 ? field('state') : null;
      const code = field('last exit code');
      return {
        file: path,
        installed: existsSync(path),
        enabled: printed.code === 0,
        state,
        running: state === 'running',
        pid: Number(field('pid')) || null,
        notes: code === null || code === '(never exited)' ? [] : [`last exit code ${code}`],
      };
    },
  };
}
