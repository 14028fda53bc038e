/** The version of this package, as package.json says; read once. Shown by /version, daemon.json and the log. */

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { packageRoot } from '../native/index.js';

let known: string | null = null;

export function packageVersion(): string {
  known ??= (JSON.parse(readFileSync(join(packageRoot(), 'package.json'), 'utf8')) as { version: string }).version;
  return known;
}
