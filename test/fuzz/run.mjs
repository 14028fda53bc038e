// Coverage-guided fuzzing of the native parsers: `npm run fuzz -- --seconds 240 [TARGET ...]`. Builds each target of this folder with
// libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer into native/build/fuzz, runs each for its share of the time, and prints what
// it did. Inputs that are found to reach new code are kept there and used again; inputs that break something are kept in "findings" and end
// the command with 1. Needs clang with its runtime libraries, on Linux.
import { spawn, spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const here = dirname(fileURLToPath(import.meta.url));
const root = dirname(dirname(here));
const native = join(root, 'native');
const out = join(native, 'build', 'fuzz');

/** The files of the architectures: those that read a config of their own. */
const families = 'models/families';
const architectures = readdirSync(join(native, families))
  .filter((file) => file.endsWith('.cpp') && /^ModelConfig configure_/m.test(readFileSync(join(native, families, file), 'utf8')))
  .map((file) => `${families}/${file}`);

/** All sources of a folder and those in it. */
function filesUnder(folder) {
  return readdirSync(join(native, folder), { recursive: true })
    .filter((file) => file.endsWith('.cpp'))
    .map((file) => `${folder}/${file}`);
}

const checkpoints = filesUnder('core/checkpoint');

/** Native sources under test, and the most bytes of an input. */
const targets = {
  json: { sources: ['core/checkpoint/json.cpp'], maxBytes: 4096 },
  safetensors: {
    sources: checkpoints,
    maxBytes: 4096,
  },
  gguf: { sources: checkpoints, maxBytes: 4096 },
  config: {
    sources: [
      ...['core/checkpoint/json.cpp', 'core/checkpoint/mapped_file.cpp'],
      ...['config', 'rope', 'stored', 'usual_format'].map((file) => `models/config/${file}.cpp`),
      'models/registry.cpp',
      ...architectures,
    ],
    maxBytes: 4096,
  },
  plan: { sources: ['engine/plan.cpp'], maxBytes: 8192 },
  grammar: { sources: filesUnder('grammar'), maxBytes: 4096 },
};

function fail(message, code) {
  process.stderr.write(`${message}\n`);
  process.exit(code);
}

const { values, positionals } = parseArgs({ allowPositionals: true, options: { seconds: { type: 'string', default: '60' } } });
const seconds = Number(values.seconds);
const chosen = positionals.length === 0 ? Object.keys(targets) : positionals;
const unknown = chosen.find((name) => !Object.hasOwn(targets, name));
if (!Number.isInteger(seconds) || seconds < 1) fail('--seconds takes a whole number of at least 1.', 64);
if (unknown !== undefined) fail(`There is no target "${unknown}"; there are ${Object.keys(targets).join(', ')}.`, 64);

const FLAGS = ['-std=c++20', '-g', '-O1', '-fsanitize=fuzzer,address,undefined', '-fno-sanitize-recover=all'];

/** A clang that can build fuzzers. */
function findCompiler() {
  const names = process.env['CXX'] ? [process.env['CXX']] : ['clang++', ...Array.from({ length: 10 }, (_, i) => `clang++-${23 - i}`)];
  const probe = 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }\n';
  const works = (name) => spawnSync(name, [...FLAGS, '-x', 'c++', '-', '-o', '/dev/null'], { input: probe }).status === 0;
  const found = names.find(works);
  if (found === undefined) {
    fail('Fuzzing needs clang 14 or newer with libFuzzer (on Debian or Ubuntu: sudo apt install clang libclang-rt-dev).', 69);
  }
  return found;
}

function build(compiler, name) {
  const sources = [join(here, `${name}_fuzz.cpp`), ...targets[name].sources.map((file) => join(native, file))];
  const args = [...FLAGS, '-Wall', '-Wextra', '-Werror', '-I', native, ...sources, '-o', join(out, name)];
  if (spawnSync(compiler, args, { stdio: 'inherit' }).status !== 0) fail(`The target ${name} did not compile; see above.`, 70);
}

/** The folder of the inputs that a target begins with: fixtures, and of step plans such as are of the layout of the day. */
async function seeds(name) {
  if (name !== 'plan') return join(root, 'test', 'fixtures', 'fuzz', name);
  const { planSeeds, seedBytes } = await import(new URL('../../dist/test/fuzz/plan-seeds.js', import.meta.url).href);
  const folder = join(out, 'seeds', name);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  for (const [seed, plans] of Object.entries(planSeeds)) writeFileSync(join(folder, seed), seedBytes(plans));
  return folder;
}

/** Runs one target; resolves with its figures. */
async function run(name, budget) {
  const corpus = join(out, 'corpus', name);
  const findings = join(out, 'findings');
  for (const folder of [corpus, findings]) mkdirSync(folder, { recursive: true });
  const args = [
    `-max_total_time=${budget}`,
    ...[`-max_len=${targets[name].maxBytes}`, '-timeout=10', '-rss_limit_mb=2048', '-use_value_profile=1', '-print_final_stats=1'],
    ...[`-artifact_prefix=${findings}/${name}-`, corpus, await seeds(name)],
  ];
  const child = spawn(join(out, name), args, { stdio: ['ignore', 'ignore', 'pipe'] });
  let log = '';
  child.stderr.on('data', (chunk) => {
    log += chunk;
  });
  return new Promise((resolve) => {
    child.on('close', (status) => {
      const last = (pattern) => Number([...log.matchAll(pattern)].at(-1)?.[1] ?? 0);
      resolve({
        name,
        status,
        executions: last(/stat::number_of_executed_units:\s*(\d+)/g),
        coverage: last(/ cov: (\d+)/g),
        features: last(/ ft: (\d+)/g),
        inputs: readdirSync(corpus).length,
        log,
      });
    });
  });
}

const compiler = findCompiler();
mkdirSync(out, { recursive: true });
for (const name of chosen) {
  process.stderr.write(`building ${name}\n`);
  build(compiler, name);
}
const budget = Math.max(1, Math.round(seconds / chosen.length));
let broken = 0;
process.stdout.write(`target        executions   per s  edges  features  inputs  findings   (${budget} s each)\n`);
for (const name of chosen) {
  const before = Date.now();
  const done = await run(name, budget);
  if (done.status !== 0) {
    broken++;
    process.stderr.write(done.log.slice(-6000));
  }
  const rate = Math.round(done.executions / Math.max(1, (Date.now() - before) / 1000));
  const cells = [done.executions, rate, done.coverage, done.features, done.inputs, done.status === 0 ? 0 : 1];
  const widths = [12, 8, 7, 10, 8, 10];
  process.stdout.write(`${name.padEnd(12)}${cells.map((cell, i) => String(cell).padStart(widths[i])).join('')}\n`);
}
if (broken > 0) {
  const newest = readdirSync(join(out, 'findings')).sort(
    (a, b) => statSync(join(out, 'findings', b)).mtimeMs - statSync(join(out, 'findings', a)).mtimeMs,
  )[0];
  fail(`${broken} targets broke; the newest input that does it is ${join(out, 'findings', newest ?? '')}`, 1);
}
