/** A program in the place of systemctl that writes down what it is asked, and answers as a user's systemd does, or as none does. */
import { chmodSync, existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { tempFolder } from '../temp-folder.js';

export interface SystemctlStandIn {
  /** Put it first in PATH. */
  readonly folder: string;
  /** The calls since the last time, without "--user". */
  calls(): readonly string[];
  /** What `show` answers for a unit, NAME=value a line. */
  show(unit: string, text: string): void;
  /** From now on it fails like one that finds no session. */
  loseSession(): void;
  /** From now on this verb fails with one line. */
  fail(verb: string, line: string): void;
}

export function systemctlStandIn(): SystemctlStandIn {
  const folder = tempFolder();
  const record = join(folder, 'calls');
  const program = join(folder, 'systemctl');
  writeFileSync(
    program,
    `#!/bin/sh
cd ${folder} || exit 1
shift
echo "$*" >> calls
if [ -e no-session ]; then echo 'Failed to connect to bus: No medium found' >&2; exit 1; fi
if [ -e "fail-$1" ]; then cat "fail-$1" >&2; exit 1; fi
if [ "$1" = show ] && [ -e "show-$2" ]; then cat "show-$2"; fi
exit 0
`,
  );
  chmodSync(program, 0o755);
  return {
    folder,
    calls() {
      const text = existsSync(record) ? readFileSync(record, 'utf8') : '';
      rmSync(record, { force: true });
      return text.split('\n').filter((line) => line !== '');
    },
    show: (unit, text) => writeFileSync(join(folder, `show-${unit}`), text),
    loseSession: () => writeFileSync(join(folder, 'no-session'), ''),
    fail: (verb, line) => writeFileSync(join(folder, `fail-${verb}`), `${line}\n`),
  };
}
