/**
 * Everything that needs a CUDA device: `npm run test:gpu`, or with parts, `npm run test:gpu -- programs sanitize ops`. Without parts it
 * runs all, in this order, and prints a short table last, which also names what did not run. A part may be narrowed by words:
 * `programs:gemm`, `sanitize:racecheck,attention`, `ops:attention` (a pattern of test names), `bench:1x128` (arguments).
 *
 *   build      the addon and the CUDA backend; always when another part needs them
 *   programs   every programs/*_test.cu: kernels alone against float64 and exact host code
 *   generic    the same on code compiled for compute capability 8.0 alone
 *   ops        the op table against float64 references
 *   golden     the golden packs, both 16-bit types, with graphs and without
 *   eval       the evaluation set through the daemon
 *   oracle     128 counting requests at once, in pools and batches of several sizes
 *   ...        the other files of tests here, by name
 *   bench      steps of a Llama-3-8B shape, with the limits of the card and the gates
 *   serve      the whole daemon under WebSocket clients beside the engine's own steps
 *   sanitize   compute-sanitizer over the quick checks of the programs and the op table
 */
import { readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { findTool } from '../../native/toolkit.mjs';
import { compilePrograms } from './compile.mjs';
import { inParallel, run } from './pool.mjs';
import { programs } from './programs.mjs';
import { columns, sanitizerErrors, summary, tail, testCounts } from './report.mjs';

const root = join(dirname(fileURLToPath(import.meta.url)), '..', '..');
const checkLimitS = 300;
const sanitizeLimitS = Number(process.env['GPU_SANITIZE_LIMIT_S'] ?? 300);
const partLimitS = 1800;
/** Checks share the GPU; most of their time is the host's. */
const checksAtOnce = 4;
const tools = ['memcheck', 'racecheck', 'initcheck', 'synccheck'];
const mark = '-'.repeat(80);

const compiled = new Map();
/** Files of all programs for a mode, compiled once. */
function built(mode) {
  const wanted = mode === 'generic' ? programs.filter((program) => program.generic !== null) : programs;
  if (!compiled.has(mode)) compiled.set(mode, compilePrograms(wanted, mode, say));
  return compiled.get(mode);
}

function say(line) {
  process.stdout.write(`${line}\n`);
}

/** The test files of a folder here, as paths without their ending. */
function testsIn(folder) {
  const files = readdirSync(join(root, 'test', 'gpu', folder)).filter((file) => file.endsWith('.test.ts'));
  return files.map((file) => join(folder, file.slice(0, -'.test.ts'.length)));
}

const compiledTest = (file) => join(root, 'dist', 'test', 'gpu', `${file}.test.js`);

/** The op table, a file a subject, each of which compute-sanitizer sees as a program. */
const opTable = testsIn('ops');
const sanitized = (file) => file.replace('ops/', 'op_table_');

const chosen = (name, words) => words.every((word) => name.includes(word));

const nothing = { state: 'failed', note: 'no program has these words in its name' };

/** Runs the checks of one mode. */
async function checks(mode, words) {
  const made = (await built(mode)).filter(({ program }) => chosen(program.name, words));
  if (made.length === 0) return nothing;
  const rows = [];
  let failed = 0;
  const skipped = [];
  await inParallel(made, checksAtOnce, async ({ program, file, problem, skipped: lacking }) => {
    if (file === undefined) {
      say(`${program.name}: ${lacking ? 'not run: ' : ''}${tail(problem, 40)}`);
      if (lacking) skipped.push(program.name);
      else failed++;
      rows.push([program.name, lacking ? 'not run' : 'FAILED', '', '']);
      return;
    }
    const done = await run(file, [mode === 'generic' ? program.generic : program.check], { limitS: checkLimitS });
    if (done.status !== 0) failed++;
    if (done.status !== 0) say(`${program.name}:\n${tail(done.output, 45)}`);
    rows.push([program.name, done.status === 0 ? 'passed' : `FAILED (${done.status})`, done.seconds.toFixed(1), tail(done.output, 1)]);
  });
  say(columns([['program', 'result', 'seconds', 'last line'], ...rows.sort((a, b) => (a[0] < b[0] ? -1 : 1))]));
  const left = mode === 'generic' ? programs.filter((program) => program.generic === null).map(({ name }) => name) : [];
  const notes = [`${made.length - failed - skipped.length} of ${made.length} programs passed`];
  if (skipped.length > 0) notes.push(`not run: ${skipped.join(' ')}`);
  if (left.length > 0) notes.push(`newer devices only: ${left.join(' ')}`);
  const state = failed > 0 ? 'failed' : skipped.length === made.length ? 'not run' : skipped.length > 0 ? 'in part' : 'passed';
  return { state, note: notes.join('; ') };
}

/** Compute-sanitizer over every quick check, several at once: it is slow, and nothing is timed. */
async function sanitize(words) {
  const sanitizer = findTool('compute-sanitizer');
  if (sanitizer === undefined) return { state: 'not run', note: 'compute-sanitizer was not found; it comes with the CUDA toolkit' };
  const targets = (await built('native')).map(({ program, file, problem }) => ({
    name: program.name,
    command: file === undefined ? null : [file, program.quick],
    problem,
  }));
  for (const file of opTable) targets.push({ name: sanitized(file), command: [process.execPath, compiledTest(file)], problem: '' });
  const jobs = targets
    .flatMap((target) => tools.map((tool) => ({ ...target, tool })))
    .filter((job) => chosen(`${job.name} ${job.tool}`, words));
  if (jobs.length === 0) return nothing;
  const rows = await inParallel(jobs, checksAtOnce, async ({ name, command, problem, tool }) => {
    if (command === null) return [name, tool, 'not run', '', tail(problem, 1)];
    const options = ['--tool', tool, '--target-processes', 'all', '--print-limit', '20', '--error-exitcode', '97'];
    const done = await run(sanitizer, [...options, ...command], { limitS: sanitizeLimitS, env: { INFERD_TEST_QUICK: '1' } });
    const errors = sanitizerErrors(done.output);
    const good = errors === 0 && done.status === 0;
    if (!good) say(`${name} under ${tool}:\n${tail(done.output, 40)}`);
    return [name, tool, errors === null ? 'none given' : String(errors), done.seconds.toFixed(1), good ? 'clean' : `exit ${done.status}`];
  });
  say(columns([['program', 'tool', 'errors', 'seconds', ''], ...rows]));
  const clean = rows.filter((row) => row[4] === 'clean').length;
  const skipped = rows.filter((row) => row[2] === 'not run').length;
  const note = `${clean} of ${rows.length} clean${skipped > 0 ? `, ${skipped} not run` : ''}`;
  return { state: clean + skipped < rows.length ? 'failed' : clean === 0 ? 'not run' : skipped > 0 ? 'in part' : 'passed', note };
}

/** Files of node:test, one after the other. */
async function tests(files, words) {
  const pattern = words.map((word) => `--test-name-pattern=${word}`);
  const args = ['--test', '--test-reporter=spec', '--test-concurrency=1', ...pattern, ...files.map(compiledTest)];
  const done = await run(process.execPath, args, { limitS: partLimitS, show: true });
  const counts = testCounts(done.output);
  const note =
    counts === null ? '' : `${counts.passed} passed, ${counts.failed} failed${counts.skipped > 0 ? `, ${counts.skipped} not run` : ''}`;
  return { state: done.status === 0 ? 'passed' : 'failed', note };
}

/** A bench, which prints its own table and exits with 1 when a gate does not hold. */
async function bench(file, words) {
  const done = await run(process.execPath, [join(root, 'dist', 'test', 'gpu', `${file}.js`), ...words], { limitS: partLimitS, show: true });
  return { state: done.status === 0 ? 'passed' : 'failed', note: tail(done.output, 1) };
}

async function build() {
  const done = await run(process.execPath, [join(root, 'native', 'build.mjs')], {
    limitS: partLimitS,
    show: true,
    env: { INFERD_CUDA: '1' },
  });
  return { state: done.status === 0 ? 'passed' : 'failed', note: '' };
}

const ordered = ['golden', 'eval', 'oracle'];
const otherTests = [...testsIn('.'), ...testsIn('ranks')].filter((name) => !ordered.includes(name));
const always = () => true;
const opTableWanted = (words) => opTable.some((file) => tools.some((tool) => chosen(`${sanitized(file)} ${tool}`, words)));
/** `native`: whether it needs the addon; `compiles`: programs to compile from the start, beside the parts before, none of which takes times. */
const parts = [
  { name: 'build', native: always, work: build },
  { name: 'programs', compiles: 'native', work: (words) => checks('native', words) },
  { name: 'generic', compiles: 'generic', work: (words) => checks('generic', words) },
  { name: 'ops', native: always, work: (words) => tests(opTable, words) },
  ...[...ordered, ...otherTests].map((file) => ({ name: file, native: always, work: (words) => tests([file], words) })),
  { name: 'bench', native: always, work: (words) => bench('bench', words) },
  { name: 'serve', native: always, work: (words) => bench('serve-bench', words) },
  { name: 'sanitize', native: opTableWanted, work: sanitize },
];

const needsBuild = (asked) => parts.some(({ name, native }) => asked.has(name) && native?.(asked.get(name)) === true);

async function main(args) {
  const asked = new Map(args.map((arg) => [arg.split(':')[0], (arg.split(':')[1] ?? '').split(',').filter((word) => word !== '')]));
  const unknown = [...asked.keys()].filter((name) => !parts.some((part) => part.name === name));
  if (unknown.length > 0) {
    process.stderr.write(`There is no part ${unknown.join(', ')}; the parts are ${parts.map(({ name }) => name).join(' ')}.\n`);
    return 64;
  }
  const wanted = parts.filter((part) => asked.size === 0 || asked.has(part.name) || (part.name === 'build' && needsBuild(asked)));
  const reports = new Map();
  for (const { compiles } of wanted) if (compiles !== undefined) built(compiles);
  let unusable = false;
  for (const part of wanted) {
    say(`\n${mark}\n${part.name}`);
    const started = performance.now();
    const lacking = unusable && part.native?.(asked.get(part.name) ?? []) === true;
    const outcome = lacking ? { state: 'not run', note: 'the build failed' } : await part.work(asked.get(part.name) ?? []);
    reports.set(part.name, { name: part.name, seconds: (performance.now() - started) / 1000, ...outcome });
    if (part.name === 'build' && outcome.state !== 'passed') unusable = true;
  }
  const lines = parts.map(({ name }) => reports.get(name) ?? { name, state: 'not run', seconds: 0, note: 'not asked for' });
  say(`\n${mark}\n${summary(lines)}`);
  return [...reports.values()].every(({ state }) => state === 'passed') ? 0 : 1;
}

process.exit(await main(process.argv.slice(2)));
