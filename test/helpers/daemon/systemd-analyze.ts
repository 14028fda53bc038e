/** systemd's own reader of units, on machines that have one; nothing is started, and no folder of the user is read. */
import { spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { tempFolder } from '../temp-folder.js';

export const hasSystemdAnalyze = spawnSync('systemd-analyze', ['--version']).status === 0;

export interface Verdict {
  readonly code: number | null;
  /** Empty for a unit without faults. */
  readonly said: string;
  /** What systemd understood, a line a property, as its "Command Line: ..." and "Environment: ...". */
  readonly understood: string;
}

/** `systemd-analyze verify` of units by name, beside each other. */
export function verifyUnits(units: Readonly<Record<string, string>>, debug = false): Verdict {
  const folder = tempFolder();
  const files = Object.entries(units).map(([name, text]) => {
    const path = join(folder, name);
    writeFileSync(path, text);
    return path;
  });
  const run = join(folder, 'run');
  mkdirSync(run, { mode: 0o700 });
  const env = {
    PATH: process.env['PATH'],
    HOME: folder,
    XDG_RUNTIME_DIR: run,
    ...(debug ? { SYSTEMD_LOG_LEVEL: 'debug' } : {}),
  };
  const { status, stdout, stderr } = spawnSync('systemd-analyze', ['verify', '--user', '--man=no', ...files], { env, encoding: 'utf8' });
  return { code: status, said: stderr, understood: stdout };
}
