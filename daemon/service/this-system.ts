/** Which service manager this system has. */
import { EXIT } from '../exit-code.js';
import { StartError } from '../start-error.js';
import { type CommandRunner, runCommand } from './command.js';
import { launchd } from './launchd.js';
import type { ServiceManager } from './manager.js';
import { systemd } from './systemd.js';

/** The manager of this system. @throws StartError where there is none that inferd knows */
export function serviceManager(
  env: NodeJS.ProcessEnv,
  platform: NodeJS.Platform = process.platform,
  run: CommandRunner = runCommand,
): ServiceManager {
  if (platform === 'linux') return systemd(env, run);
  if (platform === 'darwin') return launchd(env, run);
  throw new StartError(
    'On this system inferd knows no service manager; let the one that it has run "inferd serve" in the foreground.',
    EXIT.unavailable,
  );
}
