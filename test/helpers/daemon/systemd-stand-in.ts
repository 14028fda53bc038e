/** A program in the place of systemd-notify that writes down what it is told. */
import { chmodSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { tempFolder } from '../temp-folder.js';

export interface SystemdStandIn {
  /** As systemd sets it for a service with a watchdog of 100 ms. */
  readonly env: NodeJS.ProcessEnv;
  /** All it was told, one call a line, its arguments ended by "|". */
  said(): string;
}

export function systemdStandIn(): SystemdStandIn {
  const dir = tempFolder();
  const record = join(dir, 'said');
  const program = join(dir, 'systemd-notify');
  writeFileSync(program, `#!/bin/sh\nprintf '%s|' "$@" >> ${record}\necho >> ${record}\n`);
  chmodSync(program, 0o755);
  return {
    env: { PATH: `${dir}:/bin:/usr/bin`, NOTIFY_SOCKET: '/nowhere', WATCHDOG_USEC: '100000' },
    said: () => (existsSync(record) ? readFileSync(record, 'utf8') : ''),
  };
}
