/**
 * Compiles the GPU test programs: every source once for all programs that share it, on all cores, then links. Objects are kept by what
 * they are made from in native/build/gpu-tests (or the folder INFERD_GPU_BUILD), so that a second run compiles only what changed.
 *
 *   native    for the GPUs of this machine
 *   generic   PTX for compute capability 8.0 alone, which the driver compiles for the GPU at hand: the code of older devices, on newer ones
 *   newest    PTX for 9.0a alone, whatever this machine has
 */
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { codeFor, cublasInclude, findTool, presentArchitectures } from '../../native/toolkit.mjs';
import { inParallel, run } from './pool.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, '..', '..');
const native = join(root, 'native');
const programsFolder = join(here, 'programs');
const compileLimitS = 900;
const noCublas = 'cublasLt.h was not found; name its folder in INFERD_CUBLAS_INCLUDE';

/** Flags that choose the device code. INFERD_MOST_MAJOR tells host code what its kernels were compiled for. */
function codeFlags(mode) {
  if (mode === 'generic') return ['-gencode', 'arch=compute_80,code=compute_80', '-DINFERD_MOST_MAJOR=8'];
  if (mode === 'newest') return ['-gencode', 'arch=compute_90a,code=compute_90a', '-DINFERD_MOST_MAJOR=9'];
  const asked = (process.env['INFERD_CUDA_ARCHS'] ?? '').split(',').filter((arch) => /^\d+a?$/.test(arch));
  const archs = asked.length > 0 ? asked : presentArchitectures().map(codeFor);
  if (archs.length === 0) return null;
  const major = Math.min(...archs.map((arch) => Math.floor(Number.parseInt(arch, 10) / 10)));
  return [...archs.flatMap((arch) => ['-gencode', `arch=compute_${arch},code=sm_${arch}`]), `-DINFERD_MOST_MAJOR=${major}`];
}

/** All headers as one text: which object needs which is not worth knowing. */
function headers() {
  const folders = ['cuda', 'core', 'cpu'].map((name) => join(native, name));
  return [programsFolder, ...folders].flatMap((folder) =>
    readdirSync(folder, { recursive: true })
      .map(String)
      .filter((file) => /\.(h|cuh)$/.test(file))
      .sort()
      .map((file) => `${file}\n${readFileSync(join(folder, file), 'utf8')}`),
  );
}

/** What a compilation needs to know. `problem` says in one sentence why nothing can be compiled. */
function settings(mode) {
  const nvcc = findTool('nvcc');
  if (nvcc === undefined) return { problem: 'nvcc was not found; install the CUDA toolkit' };
  const code = codeFlags(mode);
  if (code === null) return { problem: 'nvidia-smi names no GPU to compile for; name one in INFERD_CUDA_ARCHS, such as 90a' };
  const include = cublasInclude();
  const includes = [native, ...(include === '' ? [] : [include])].map((folder) => `-I${folder}`);
  const warnings = ['-Xcompiler=-Wall,-Wextra,-Werror', '-Werror', 'all-warnings'];
  const launcher = (process.env['CMAKE_CUDA_COMPILER_LAUNCHER'] ?? '').split(' ').filter((word) => word !== '');
  return {
    problem: '',
    nvcc,
    include,
    compiler: [...launcher, nvcc],
    flags: ['-std=c++20', '-O3', '-lineinfo', '--expt-relaxed-constexpr', ...warnings, ...code, ...includes],
  };
}

/** Where the linker finds cuBLASLt: beside its headers in a Python package, else where the toolkit keeps it. */
function cublasFlags(include) {
  for (const folder of [join(include, '..', 'lib'), join(include, '..', 'lib64')]) {
    const file = existsSync(folder) ? readdirSync(folder).find((name) => /^libcublasLt\.so\.\d+$/.test(name)) : undefined;
    if (file !== undefined) return ['-Xlinker', join(folder, file), `-Xlinker=-rpath,${folder}`];
  }
  return ['-lcublasLt'];
}

/**
 * Builds `wanted` for a mode. @returns per program its file, or the sentence that says why there is none; `skipped` when this machine
 * lacks what it needs, which is no failure of the program.
 */
export async function compilePrograms(wanted, mode, log = () => {}) {
  const setup = settings(mode);
  if (setup.problem !== '') return wanted.map((program) => ({ program, problem: setup.problem, skipped: true }));
  const folder = join(process.env['INFERD_GPU_BUILD'] ?? join(native, 'build', 'gpu-tests'), mode);
  mkdirSync(folder, { recursive: true });
  const common = createHash('sha256')
    .update([...setup.flags, ...headers()].join('\n'))
    .digest('hex');
  const possible = wanted.filter((program) => !program.cublas || setup.include !== '');
  const objects = new Map();
  for (const source of new Set(possible.flatMap(sourcesOf))) {
    const text = readFileSync(source, 'utf8');
    const name = createHash('sha256').update(common).update(source).update(text).digest('hex').slice(0, 16);
    objects.set(source, { source, file: join(folder, `${name}.o`), bytes: text.length, problem: '' });
  }
  // The longest sources first, so that none of them is left for the end.
  const jobs = [...objects.values()].filter(({ file }) => !existsSync(file)).sort((a, b) => b.bytes - a.bytes);
  await inParallel(jobs, availableParallelism(), async (job) => {
    const fresh = `${job.file}.${process.pid}.o`;
    const [command, ...args] = [...setup.compiler, ...setup.flags, '-c', job.source, '-o', fresh];
    const done = await run(command, args, { limitS: compileLimitS });
    const moved = done.status === 0 ? await run('mv', [fresh, job.file]) : done;
    job.problem = moved.status === 0 ? '' : `${job.source} did not compile\n${done.output}`;
    log(`${mode}: ${job.problem === '' ? 'compiled' : 'FAILED'} ${job.source.slice(root.length + 1)} in ${done.seconds.toFixed(1)} s`);
  });
  return inParallel(wanted, availableParallelism(), async (program) => {
    if (!possible.includes(program)) return { program, problem: noCublas, skipped: true };
    const parts = sourcesOf(program).map((source) => objects.get(source));
    const problem = parts.map((part) => part.problem).find((text) => text !== '');
    if (problem !== undefined) return { program, problem, skipped: false };
    const file = join(folder, program.name);
    const libraries = program.cublas ? cublasFlags(setup.include) : [];
    const linked = await run(setup.nvcc, [...parts.map((part) => part.file), '-o', file, ...libraries], { limitS: compileLimitS });
    return linked.status === 0 ? { program, file } : { program, problem: `${program.name} did not link\n${linked.output}`, skipped: false };
  });
}

/**
 * Whether the own files of `wanted` are right, for machines without a GPU: they pass the compiler's front end for the newest device, and
 * nothing is kept. What they use of native/ is compiled with the addon. @returns as compilePrograms, `file` being the source.
 */
export async function checkPrograms(wanted) {
  const setup = settings('newest');
  if (setup.problem !== '') return wanted.map((program) => ({ program, problem: setup.problem, skipped: true }));
  return inParallel(wanted, availableParallelism(), async (program) => {
    if (program.cublas && setup.include === '') return { program, problem: noCublas, skipped: true };
    const [file] = sourcesOf(program);
    const done = await run(setup.nvcc, [...setup.flags, '-ptx', file, '-o', '/dev/null'], { limitS: compileLimitS });
    return done.status === 0 ? { program, file } : { program, problem: `${file} did not compile\n${done.output}`, skipped: false };
  });
}

/** The files that a program is made from; its own first. */
export function sourcesOf(program) {
  return [join(programsFolder, `${program.name}.cu`), ...program.sources.map((source) => join(native, source))];
}
