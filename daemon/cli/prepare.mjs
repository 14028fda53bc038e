// What npm runs after an install in a clone: compiles the TypeScript and builds the native engine.
//
// npx runs it as well, at a user's first `npx inferd` in the folder, because it links the package into its cache. All is there by then, so
// that it would only hold up the first command, silently; and Ctrl-C meanwhile leaves npx with a cache that it cannot use.
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const root = new URL('../../', import.meta.url);
const built = existsSync(new URL('dist/daemon/cli/main.js', root));

function run(command, ...args) {
  const { status } = spawnSync(command, args, { cwd: fileURLToPath(root), stdio: 'inherit', shell: process.platform === 'win32' });
  if (status !== 0) process.exit(status ?? 1);
}

if (process.env['npm_command'] !== 'exec' || !built) {
  run('npm', 'run', '-s', 'build:ts');
  run('node', 'native/build.mjs', '--later');
}
