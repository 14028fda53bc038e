// Runs the compiled tests: `npm test` runs all, `npm test -- scheduler rpc` those whose path holds one of the words.
// Lists the sources, since Node 20 takes no globs and compiled files of deleted tests may still lie in dist/.
import { spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const words = process.argv.slice(2);
const files = readdirSync(here, { recursive: true })
  .map(String)
  .filter((file) => file.endsWith('.test.ts') && !file.startsWith('gpu'))
  .filter((file) => words.length === 0 || words.some((word) => file.includes(word)))
  .sort()
  .map((file) => join(here, '..', 'dist', 'test', file.replace(/\.ts$/, '.js')));
if (files.length === 0) {
  process.stderr.write(`No test file has "${words.join('" or "')}" in its path.\n`);
  process.exit(64);
}
process.exit(spawnSync(process.execPath, ['--test', ...files], { stdio: 'inherit' }).status ?? 1);
