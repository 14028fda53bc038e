/**
 * Packs what a bare machine with a GPU lacks: Node, the packages the daemon needs there, and the compiled TypeScript.
 *
 *   npm run build:ts && node test/gpu/pack.mjs <folder>
 *   there, in the same checkout: bash test/gpu/run.sh <folder> [parts]
 */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = join(dirname(fileURLToPath(import.meta.url)), '..', '..');
const folder = process.argv[2];
if (folder === undefined) {
  process.stderr.write('usage: node test/gpu/pack.mjs <folder>\n');
  process.exit(64);
}
mkdirSync(folder, { recursive: true });

/** Development packages of which the tests need some. */
const wanted = new Set(['fast-check', 'pure-rand']);
/** Native binaries of other platforms. */
const foreign = /(darwin|win32|android|freebsd|arm64|armv7|arm-|musl|ia32|riscv|s390x|ppc64|wasm32|wasi)/;

function packages() {
  const lock = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8'));
  return Object.entries(lock.packages)
    .filter(([path, entry]) => path !== '' && (!entry.dev || wanted.has(path.replace('node_modules/', ''))))
    .map(([path]) => path)
    .filter((path) => !foreign.test(path) && existsSync(join(root, path)));
}

/** Binaries for other platforms inside packages that bring all of them. */
function excluded(paths) {
  return paths.flatMap((path) =>
    readdirSync(join(root, path), { recursive: true })
      .map(String)
      .filter((file) => /\.(node|map)$/.test(file) && (file.endsWith('.map') || foreign.test(file)))
      .map((file) => `--exclude=${join(path, file)}`),
  );
}

function run(command, args, options = {}) {
  const done = spawnSync(command, args, { cwd: root, stdio: 'inherit', ...options });
  if (done.status !== 0) process.exit(done.status ?? 1);
}

if (!existsSync(join(folder, 'node.xz')) || statSync(join(folder, 'node.xz')).mtimeMs < statSync(process.execPath).mtimeMs)
  run('sh', ['-c', `xz -2 -T0 -c "${process.execPath}" > "${join(folder, 'node.xz')}"`]);
const paths = packages();
run('tar', ['-c', '-I', 'xz -2 -T0', '-f', join(folder, 'packed.tar.xz'), ...excluded(paths), '--exclude=*.map', ...paths, 'dist']);
for (const name of ['node.xz', 'packed.tar.xz'])
  process.stdout.write(`${name} ${(statSync(join(folder, name)).size / 2 ** 20).toFixed(1)} MiB\n`);
