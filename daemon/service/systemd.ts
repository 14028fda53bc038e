/**
 * The user's systemd as a service manager: `systemctl --user`. It runs while the user is logged in, or always after `loginctl enable-linger`.
 */
import { existsSync } from 'node:fs';
import { userInfo } from 'node:os';
import { isAbsolute, join } from 'node:path';
import { expandHome } from '../../config/paths.js';
import { EXIT } from '../exit-code.js';
import { StartError } from '../start-error.js';
import type { CommandResult, CommandRunner } from './command.js';
import type { ServiceManager } from './manager.js';
import { SERVICE_UNIT, SOCKET_UNIT, systemdUnits } from './systemd-unit.js';

const SHOWN = ['ActiveState', 'SubState', 'UnitFileState', 'MainPID', 'Result', 'ExecMainStatus', 'NRestarts', 'StatusText'];

export function systemd(env: NodeJS.ProcessEnv, run: CommandRunner): ServiceManager {
  const folder = unitFolder(env);
  const [service, socketFile] = [join(folder, SERVICE_UNIT), join(folder, SOCKET_UNIT)];
  const systemctl = (...args: string[]) => run('systemctl', ['--user', ...args], env);

  return {
    name: 'systemd',
    logCommand: 'journalctl --user -u inferd -e',
    paths: [service, socketFile],
    files: (spec, socket) => systemdUnits({ spec, folder, socket }),

    async activate(changed, socket) {
      const reloaded = await systemctl('daemon-reload');
      if (reloaded.code !== 0) throw noSession(reloaded, env, service);
      const units = socket ? [SOCKET_UNIT] : [SERVICE_UNIT];
      const enabled = await systemctl('enable', ...units);
      if (enabled.code !== 0) throw refused('enable', enabled);
      // The socket first: a service that already runs without it holds its address.
      if (changed && socket) await systemctl('stop', SERVICE_UNIT);
      const started = await systemctl(changed ? 'restart' : 'start', ...units);
      if (started.code !== 0) throw refused('start', started);
    },

    async deactivate() {
      await systemctl('disable', '--now', SOCKET_UNIT, SERVICE_UNIT);
      // "disable" gives up at the first unit that it does not know.
      await systemctl('stop', SOCKET_UNIT, SERVICE_UNIT);
      await systemctl('disable', SERVICE_UNIT);
    },

    async forget() {
      await systemctl('daemon-reload');
      await systemctl('reset-failed', SERVICE_UNIT);
    },

    async status() {
      const installed = existsSync(service);
      const shown = await systemctl('show', SERVICE_UNIT, ...SHOWN.map((name) => `--property=${name}`));
      const value = shown.code === 0 ? properties(shown.stdout) : null;
      const socket = existsSync(socketFile) && value !== null ? properties((await systemctl('show', SOCKET_UNIT)).stdout) : null;
      const pid = Number(value?.get('MainPID') ?? 0);
      const status = value?.get('StatusText') ?? '';
      const restarts = Number(value?.get('NRestarts') ?? 0);
      const failed = value !== null && value.get('ActiveState') === 'failed';
      return {
        file: service,
        installed,
        enabled: value === null ? null : (socket ?? value).get('UnitFileState') === 'enabled',
        state: value === null ? null : `${value.get('ActiveState')} (${value.get('SubState')})`,
        running: value?.get('ActiveState') === 'active' || socket?.get('ActiveState') === 'active',
        pid: pid > 0 ? pid : null,
        notes: [
          ...(value === null ? [`systemd does not answer here: ${why(shown)}`] : []),
          ...(status === '' ? [] : [status]),
          ...(socket === null ? [] : [`systemd listens for it: ${socket.get('Listen') ?? socket.get('ActiveState')}`]),
          ...(failed ? [`it ended with ${value.get('ExecMainStatus')} (${value.get('Result')})`] : []),
          ...(restarts > 0 ? [`restarted ${restarts} times since it was started`] : []),
        ],
      };
    },
  };
}

function unitFolder(env: NodeJS.ProcessEnv): string {
  const given = env['XDG_CONFIG_HOME'];
  const config = given !== undefined && isAbsolute(given) ? given : expandHome('~/.config', env);
  return join(config, 'systemd', 'user');
}

/** The lines NAME=value of `systemctl show`. */
function properties(text: string): ReadonlyMap<string, string> {
  const lines = text.split('\n').filter((line) => line.includes('='));
  return new Map(lines.map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]));
}

const why = ({ code, stderr }: CommandResult): string =>
  code === null
    ? 'the program systemctl could not be run'
    : (stderr.split('\n')[0] ?? '').replace(/\.$/, '') || `systemctl ended with ${code}`;

function noSession(result: CommandResult, env: NodeJS.ProcessEnv, unit: string): StartError {
  const todo =
    result.code === null
      ? 'without systemd, let whatever starts programs here run "inferd serve" in the foreground'
      : env['XDG_RUNTIME_DIR'] === undefined
        ? 'log in as this user, or set XDG_RUNTIME_DIR=/run/user/$(id -u), and install it again'
        : `log in as this user, or run "loginctl enable-linger ${userInfo().username}" as root, and install it again`;
  return new StartError(
    `The unit is written to ${unit}, but the user's systemd does not answer (${why(result)}); ${todo}.`,
    EXIT.unavailable,
  );
}

function refused(verb: string, result: CommandResult): StartError {
  return new StartError(
    `systemd could not ${verb} the service (${why(result)}); "journalctl --user -u inferd -e" tells why.`,
    EXIT.unavailable,
  );
}
