/**
 * The package as others get it: packed, installed from the tarball into empty folders, and used as a command, as a library, as types, and in
 * a web page. Needs the registry and, for the engine, some minutes and the tools of the README: `npm run test:package`, not part of `npm test`.
 */
import assert from 'node:assert/strict';
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { before, test } from 'node:test';
import { packageRoot } from '../../native/index.js';
import { tempFolder } from '../helpers/temp-folder.js';

const work = tempFolder();
const tsc = join(packageRoot(), 'node_modules', '.bin', 'tsc');
let tarball = '';

/** Of a user who has nothing but npm's own settings. */
function emptyHome(more: NodeJS.ProcessEnv = {}): NodeJS.ProcessEnv {
  const home = tempFolder();
  const kept = Object.entries(process.env).filter(([name]) => /^(PATH|LANG|SSL_|NODE_EXTRA_CA_CERTS|https?_proxy)/i.test(name));
  const userconfig = process.env['npm_config_userconfig'] ?? join(process.env['HOME'] ?? '', '.npmrc');
  return { ...Object.fromEntries(kept), HOME: home, XDG_RUNTIME_DIR: join(home, 'run'), npm_config_userconfig: userconfig, ...more };
}

function npm(args: readonly string[], cwd: string): string {
  return execFileSync('npm', [...args], { cwd, env: emptyHome(), encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
}

/** A program of somebody else's that depends on inferd; no script of any package was run. */
function app(): string {
  const folder = tempFolder();
  writeFileSync(join(folder, 'package.json'), JSON.stringify({ name: 'app', version: '1.0.0', private: true, type: 'module' }));
  npm(['install', '--ignore-scripts', '--no-audit', '--no-fund', tarball], folder);
  return folder;
}

before(() => {
  npm(['pack', '--silent', '--pack-destination', work], packageRoot());
  const [name = ''] = readdirSync(work).filter((file) => file.endsWith('.tgz'));
  tarball = join(work, name);
  // Whatever package npm is given the name of is the one of this checkout.
  assert.match(name, /^inferd-\d+\.\d+\.\d+\.tgz$/);
});

test('the tarball has what runs and what the engine is built from, and no tests', () => {
  const files = execFileSync('tar', ['tzf', tarball], { encoding: 'utf8' }).trim().split('\n');
  for (const needed of [
    'dist/daemon/cli/main.js',
    'daemon/cli/inferd.mjs',
    'native/build.mjs',
    'native/CMakeLists.txt',
    'config/demo.toml',
    'LICENSE',
  ])
    assert.ok(files.includes(`package/${needed}`), needed);
  assert.ok(files.some((file) => file.startsWith('package/config/demo-model/')));
  assert.deepEqual(
    files.filter((file) => /^package\/(dist\/)?test\/|\/native\/build\/|\.map$|(?<!\.d)\.ts$|\.tsbuildinfo$/.test(file)),
    [],
  );
});

test('npm would publish it', () => {
  const { status, stderr } = spawnSync('npm', ['publish', '--dry-run', '--ignore-scripts', tarball], {
    cwd: work,
    env: emptyHome(),
    encoding: 'utf8',
  });
  assert.equal(status, 0, stderr);
  assert.doesNotMatch(stderr, /npm warn publish (?!This command requires you to be logged in)|npm error/);
});

test('as a dependency the client alone is imported without an engine, and an engine is asked for in one sentence', () => {
  const folder = app();
  const root = join(folder, 'node_modules', 'inferd');
  assert.ok(!existsSync(join(root, 'native', 'build')), 'nothing was built');
  const run = (code: string) =>
    spawnSync(process.execPath, ['--input-type=module', '-e', code], { cwd: folder, env: emptyHome(), encoding: 'utf8' });
  const client = run(`import { connect } from 'inferd/client'; try { await connect(); } catch (error) { console.log(error.message); }`);
  assert.match(client.stdout, /^No inferd daemon is running/, client.stderr);
  const engine = run(`import { createEngine } from 'inferd'; try { await createEngine(); } catch (error) { console.log(error.message); }`);
  assert.equal(engine.stdout, 'The native engine is not built; run "npx inferd build" once.\n', engine.stderr);
});

test('its types fit strict programs, with both ways of finding modules', () => {
  const folder = app();
  writeFileSync(
    join(folder, 'use.ts'),
    `import { connect, type InferdClient } from 'inferd/client';
import { createEngine, type Engine } from 'inferd';
export async function ask(): Promise<string> {
  const client: InferdClient = await connect({ url: 'ws://127.0.0.1:8765' });
  const { choices } = await client.chat.completions.create({ messages: [{ role: 'user', content: 'Hi' }] });
  const engine: Engine = await createEngine({ scheduler: { max_num_sequences: 8 } });
  const answer = await engine.generate('Once', { max_tokens: 4 });
  // @ts-expect-error: a parameter that does not exist
  await engine.generate('Once', { max_token: 4 });
  await engine.close();
  return \`\${choices[0]?.message.content}\${answer.choices[0]?.text}\`;
}
`,
  );
  npm(['install', '--ignore-scripts', '--no-audit', '--no-fund', '--save-dev', '@types/node@20'], folder);
  for (const [module, moduleResolution] of [
    ['nodenext', 'nodenext'],
    ['node16', 'node16'],
    ['esnext', 'bundler'],
  ] as const) {
    const flags = ['--module', module, '--moduleResolution', moduleResolution, '--target', 'es2023', '--types', 'node'];
    const { status, stdout } = spawnSync(tsc, ['--noEmit', '--strict', ...flags, 'use.ts'], { cwd: folder, encoding: 'utf8' });
    assert.equal(status, 0, `${moduleResolution}: ${stdout}`);
  }
});

test('what bundlers take for web pages names no module of Node', () => {
  const root = join(app(), 'node_modules', 'inferd');
  const { exports } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
    exports: Record<'./client', { browser: { default: string; types: string } }>;
  };
  const seen = new Set<string>();
  const bare = new Set<string>();
  const walk = (file: string): void => {
    if (seen.has(file)) return;
    seen.add(file);
    for (const [, name = ''] of readFileSync(file, 'utf8').matchAll(/(?:from|import|import\()\s*'([^']+)'/g)) {
      if (name.startsWith('.')) walk(join(dirname(file), name));
      else bare.add(name);
    }
  };
  walk(join(root, exports['./client'].browser.default));
  assert.ok(seen.size > 1);
  // Plain JavaScript without imports of its own.
  assert.deepEqual([...bare], ['json-rpc-2.0']);
  assert.ok(existsSync(join(root, exports['./client'].browser.types)));
});

test('installed for all users it builds its engine at the first use, once for several at a time, and serves', async () => {
  const prefix = tempFolder();
  npm(['install', '-g', '--prefix', prefix, '--no-audit', '--no-fund', tarball], prefix);
  const inferd = join(prefix, 'bin', 'inferd');
  const env = emptyHome();
  // A package of root's, as seen by others; root itself may write everywhere.
  const native = join(prefix, 'lib', 'node_modules', 'inferd', 'native');
  const readOnly = process.getuid?.() !== 0;
  if (readOnly) chmodSync(native, 0o555);
  const ask = async () => {
    const child = spawn(inferd, ['run', 'What is 123 + 456?'], { env, stdio: ['ignore', 'pipe', 'pipe'] });
    let [stdout, stderr] = ['', ''];
    child.stdout.on('data', (chunk: Buffer) => (stdout += chunk.toString()));
    child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()));
    const [code] = (await once(child, 'close')) as [number];
    return { code, stdout, stderr };
  };
  for (const { code, stdout, stderr } of await Promise.all([ask(), ask()])) {
    assert.equal(code, 0, stderr);
    assert.equal(stdout, '123 + 456 = 579\n');
    assert.match(stderr, /building the native engine, once/);
  }
  assert.equal((await ask()).stderr, '', 'the second time there is nothing to build');
  assert.equal(existsSync(join(native, 'build', 'inferd.node')), !readOnly);

  mkdirSync(join(env['HOME'] ?? '', 'run'), { mode: 0o700 });
  const daemon = spawn(inferd, ['serve', '--json', '--set', 'server.port=0'], { env, stdio: ['ignore', 'pipe', 'inherit'] });
  let said = '';
  for await (const chunk of daemon.stdout) {
    said += String(chunk);
    if (said.includes('"event":"ready"')) break;
  }
  assert.match(said, /"model":"demo"/);
  assert.equal((await ask()).stdout, '123 + 456 = 579\n');
  daemon.kill('SIGTERM');
  const [code] = (await once(daemon, 'exit')) as [number];
  assert.equal(code, 0);
});
