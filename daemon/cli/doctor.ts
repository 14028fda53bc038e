/**
 * `inferd doctor`: what was found on this machine, what would be used, and what to do where something is missing. Exits with 0 when a
 * model can be served, else 69. Never fails because something is missing: that is its subject.
 */
import { accessSync, constants, existsSync } from 'node:fs';
import os from 'node:os';
import { dirname } from 'node:path';
import { resolveModelFolder } from '../../config/models/model-folder.js';
import { hubCachePath, inferdPaths } from '../../config/paths.js';
import type { Config } from '../../config/schema.js';
import type { BackendName, CudaDevice, NcclInfo, WeightFormatInfo } from '../../native/index.js';
import { bestBackend } from '../life/topology.js';
import { useNativeBuild } from '../native-build.js';
import { effectiveConfig } from './effective.js';
import { type AddonProbe, firstLine, type GpuProbe, probeAddon, probeGpu, probeNccl } from './probe.js';
import { formatBytes, hanging } from './table.js';
import { configOptions, EXIT, type ExitCode, jsonOption, printJson, type Verb, type VerbInput } from './verb.js';

/** One thing that was looked at. */
export interface Check {
  readonly name: string;
  /** `missing`: something that is not needed here; `bad`: nothing can be served without it. */
  readonly state: 'ok' | 'missing' | 'bad';
  readonly found: string;
  /** What to do, one sentence. */
  readonly advice?: string;
}

export const doctor: Verb = {
  name: 'doctor',
  summary: 'show what this machine offers and what would be used',
  options: [...configOptions, jsonOption],
  examples: ['inferd doctor', 'inferd doctor --json'],
  run,
};

async function run(input: VerbInput): Promise<ExitCode> {
  const { io } = input;
  const { env } = io;
  useNativeBuild(env);
  const addon = probeAddon();
  const [gpu, cmake, compiler] = await Promise.all([
    probeGpu(env),
    firstLine('cmake', ['--version'], env),
    firstLine(env['CXX'] ?? 'c++', ['--version'], env).then((line) => line ?? firstLine('g++', ['--version'], env)),
  ]);
  const settings = configChecks(input);
  const need = ncclNeed(settings.config);
  const checks: readonly Check[] = [
    nodeCheck(process.versions.node),
    ...processorChecks(addon),
    ...buildChecks('info' in addon, cmake, compiler),
    ...gpuChecks(gpu),
    ...cudaChecks(addon, gpu),
    ...ncclChecks(gpu.gpus.length > 0 || need !== 'none' ? probeNccl(addon) : null, need),
    ...folderChecks(env),
    ...settings.checks,
  ];
  const use = plan(addon, settings.config);
  const good = checks.every((c) => c.state !== 'bad') && use.backend !== null;
  if (input.flag('json')) printJson(io, { ok: good, use, checks });
  else {
    const width = Math.max(...checks.map((c) => c.name.length));
    const marks = { ok: 'ok ', missing: '-  ', bad: '!! ' } as const;
    for (const c of checks) {
      io.stdout.write(hanging(`${marks[c.state]} ${c.name.padEnd(width)}  `, c.found, io.stdout.columns));
      if (c.advice !== undefined) io.stdout.write(hanging(`    ${' '.repeat(width)}  -> `, c.advice, io.stdout.columns));
    }
    io.stdout.write(`\n${use.sentence}\n`);
  }
  return good ? EXIT.ok : EXIT.unavailable;
}

/** Oldest Node that inferd runs on. */
const oldestNode = 20;

function nodeCheck(version: string): Check {
  const good = Number(version.split('.')[0]) >= oldestNode;
  return { name: 'node', state: good ? 'ok' : 'bad', found: version, ...(good ? {} : { advice: `install Node ${oldestNode} or newer` }) };
}

function processorChecks(addon: AddonProbe): Check[] {
  const memory: Check = { name: 'memory', state: 'ok', found: `${formatBytes(os.freemem())} free of ${formatBytes(os.totalmem())}` };
  const system: Check = { name: 'system', state: 'ok', found: `${os.type()} ${os.release()} ${process.arch}` };
  if ('problem' in addon) {
    const cpu: Check = {
      name: 'processor',
      state: 'ok',
      found: `${os.cpus()[0]?.model.trim() ?? process.arch}, ${os.availableParallelism()} threads`,
    };
    return [system, cpu, memory, { name: 'native addon', state: 'bad', found: addon.problem, advice: 'build it with: inferd build' }];
  }
  const { cpu, physicalCores, features, isa, usableIsas } = addon.info;
  return [
    system,
    { name: 'processor', state: 'ok', found: `${cpu}, ${physicalCores} cores, ${os.availableParallelism()} threads` },
    { name: 'instruction sets', state: 'ok', found: features.join(', ') || 'no vector sets known' },
    memory,
    { name: 'native addon', state: 'ok', found: `built; kernels: ${usableIsas.join(', ')}; would use ${isa}` },
    ...formatChecks(addon.info.weightFormats),
  ];
}

/** Formats that a checkpoint may have beside 16 bits: those that the CPU multiplies in their own codes, and the others. */
export function formatChecks(formats: readonly WeightFormatInfo[]): Check[] {
  const names = (native: boolean): string => formats.flatMap((f) => (f.native === native ? [f.name] : [])).join(', ');
  const checks: Check[] = [{ name: 'formats in own codes', state: 'ok', found: names(true) }];
  if (names(false) !== '') checks.push({ name: 'formats widened', state: 'ok', found: `${names(false)} (to 16 bits, as they are loaded)` });
  return checks;
}

function buildChecks(built: boolean, cmake: string | null, compiler: string | null): Check[] {
  // Tools are needed to build only: with a built addon their absence is no problem.
  const state = built ? 'missing' : 'bad';
  return [
    cmake === null
      ? {
          name: 'cmake',
          state,
          found: 'not found',
          advice: 'to build the native addon, install cmake (Debian: apt-get install cmake make)',
        }
      : { name: 'cmake', state: 'ok', found: cmake },
    compiler === null
      ? {
          name: 'C++ compiler',
          state,
          found: 'not found',
          advice: 'to build the native addon, install a C++20 compiler (Debian: apt-get install g++)',
        }
      : { name: 'C++ compiler', state: 'ok', found: compiler },
  ];
}

function gpuChecks({ gpus, libcuda, nvcc }: GpuProbe): Check[] {
  const driver: Check =
    gpus.length > 0
      ? { name: 'NVIDIA GPU', state: 'ok', found: gpus.join('; ') }
      : {
          name: 'NVIDIA GPU',
          state: 'missing',
          found: libcuda === null ? 'none found (no nvidia-smi, no libcuda)' : 'none visible to nvidia-smi',
        };
  return [
    driver,
    libcuda === null ? { name: 'libcuda', state: 'missing', found: 'not found' } : { name: 'libcuda', state: 'ok', found: libcuda },
    nvcc === null ? { name: 'nvcc', state: 'missing', found: 'not found' } : { name: 'nvcc', state: 'ok', found: nvcc },
  ];
}

/** Oldest compute capability that the kernels are made for; where no GPU is newer, the addon reports that as its problem. */
const oldestCapability = 8;

/** The CUDA backend as the addon sees it: what is missing, in its words, and what to do about it only where there is a GPU to use. */
export function cudaChecks(addon: AddonProbe, { gpus, nvcc }: Pick<GpuProbe, 'gpus' | 'nvcc'>): Check[] {
  if ('problem' in addon) return [];
  const { problem, devices, cublas, driverVersion, runtimeVersion } = addon.info.cuda;
  const check = { name: 'CUDA backend', state: 'missing' } as const;
  if (problem !== '') {
    // The first clause is what is missing; what follows the semicolon is what to do.
    const [lacking = '', ...advice] = problem.replace(/\.$/, '').split(/;\s*/);
    const found = `cannot be used: ${lacking}`;
    if (gpus.length === 0) return [{ ...check, found }];
    const build = nvcc === null && /build/.test(problem) ? ['nvcc is part of the toolkit and was not found'] : [];
    return [{ ...check, found, advice: [...advice, ...build].join('; ') || 'put that right to use the GPU' }];
  }
  const found = devices.map((d) => `${d.name} (compute capability ${d.computeCapability}, ${formatBytes(d.totalBytes)})`).join('; ');
  const line = `${found}; driver for CUDA ${driverVersion}, built for ${runtimeVersion}, cuBLAS ${cublas}`;
  const isOld = devices.map((d) => Number.parseInt(d.computeCapability, 10) < oldestCapability);
  const ids = (old: boolean): number[] => isOld.flatMap((is, id) => (is === old ? [id] : []));
  const links = linkChecks(devices);
  if (!isOld.includes(true)) return [{ name: 'CUDA backend', state: 'ok', found: line }, ...links];
  const advice =
    `the kernels need compute capability ${oldestCapability}.0 or newer, which GPU ${ids(true).join(' and ')} has not; ` +
    `set inference.device_ids to [${ids(false).join(', ')}]`;
  return [{ name: 'CUDA backend', state: 'ok', found: line, advice }, ...links];
}

/** Which GPUs reach each other's memory, and how: ranks of one model need all of theirs to. */
function linkChecks(devices: readonly CudaDevice[]): Check[] {
  if (devices.length < 2) return [];
  const names = { nvlink: 'NVLink', peer: 'PCIe', none: 'no way' } as const;
  const pairs = devices.flatMap(({ links }, from) => links.flatMap((link, to) => (from < to ? [{ link, pair: `${from}-${to}` }] : [])));
  const kinds = (['nvlink', 'peer', 'none'] as const).map((kind) => [kind, pairs.filter(({ link }) => link === kind)] as const);
  const found = kinds
    .filter(([, list]) => list.length > 0)
    .map(([kind, list]) => `${names[kind]} ${list.length === pairs.length ? 'between all' : list.map(({ pair }) => pair).join(', ')}`)
    .join('; ');
  const apart = pairs.some(({ link }) => link === 'none');
  const advice =
    'parallel.tensor_parallel_size needs GPUs that reach each other: name them in inference.device_ids, or have NCCL, which does without';
  return [{ name: 'GPU links', state: apart ? 'missing' : 'ok', found, ...(apart ? { advice } : {}) }];
}

/** What the configuration makes of NCCL: nothing can be served without it where ranks on GPUs are told to use it. */
type NcclNeed = 'none' | 'asked' | 'needed';

function ncclNeed(config: Config | null): NcclNeed {
  if (config?.parallel.all_reduce !== 'nccl') return 'none';
  return config.inference.device === 'cuda' && config.parallel.tensor_parallel_size > 1 ? 'needed' : 'asked';
}

/** What carries sums between GPUs that do not reach each other's memory. Most do, so there is something to do only where it is asked for. */
export function ncclChecks(nccl: NcclInfo | null, need: NcclNeed): Check[] {
  if (nccl === null) return [];
  if (nccl.problem === '') return [{ name: 'NCCL', state: 'ok', found: nccl.version }];
  const [found = '', ...advice] = nccl.problem.replace(/\.$/, '').split(/;\s*/);
  const check: Check = { name: 'NCCL', state: need === 'needed' ? 'bad' : 'missing', found };
  return [need !== 'none' && advice.length > 0 ? { ...check, advice: advice.join('; ') } : check];
}

function folderChecks(env: NodeJS.ProcessEnv): Check[] {
  const { runtimeDir } = inferdPaths(env);
  let existing = runtimeDir;
  while (!existsSync(existing) && dirname(existing) !== existing) existing = dirname(existing);
  try {
    accessSync(existing, constants.W_OK);
    return [{ name: 'runtime folder', state: 'ok', found: runtimeDir }];
  } catch {
    return [
      {
        name: 'runtime folder',
        state: 'bad',
        found: `${runtimeDir} cannot be made`,
        advice: `make ${existing} writable, or set XDG_RUNTIME_DIR to a folder of yours`,
      },
    ];
  }
}

function configChecks(input: VerbInput): { readonly config: Config | null; readonly checks: readonly Check[] } {
  try {
    const loaded = effectiveConfig(input);
    const { config } = loaded;
    const cache: Check = { name: 'model cache', state: 'ok', found: hubCachePath(config.inference.cache_dir, input.io.env) };
    const file: Check = { name: 'configuration', state: 'ok', found: loaded.file ?? 'defaults' };
    try {
      const model = resolveModelFolder(config, input.io.env);
      return {
        config,
        checks: [
          file,
          cache,
          {
            name: 'model',
            state: 'ok',
            found: `${model.name} (${model.architecture}, ${model.format}, ${formatBytes(model.sizeBytes)}) in ${model.path}`,
          },
        ],
      };
    } catch (error) {
      return {
        config,
        checks: [file, cache, { name: 'model', state: 'bad', found: config.inference.model_name, advice: (error as Error).message }],
      };
    }
  } catch (error) {
    return {
      config: null,
      checks: [{ name: 'configuration', state: 'bad', found: 'has problems', advice: (error as Error).message.replaceAll('\n', '; ') }],
    };
  }
}

interface Plan {
  readonly backend: BackendName | null;
  readonly isa: string | null;
  readonly threads: number | null;
  readonly sentence: string;
}

/** What `inferd serve` would do with this configuration. */
function plan(addon: AddonProbe, config: Config | null): Plan {
  const nothing = (sentence: string): Plan => ({ backend: null, isa: null, threads: null, sentence });
  if ('problem' in addon) return nothing('Nothing can be served before the native engine is built: inferd build');
  if (config === null) return nothing('Nothing can be served before the configuration is corrected.');
  const { inference } = config;
  const { isa, cuda, physicalCores } = addon.info;
  const backend = inference.device === 'auto' ? bestBackend(config) : inference.device;
  if (backend === 'cuda') {
    if (cuda.problem !== '') return nothing(`inference.device = "cuda" is asked for, but: ${cuda.problem}`);
    const names = inference.device_ids.map((id) => cuda.devices[id]?.name ?? `GPU ${id}, which is not there`).join(', ');
    return { backend, isa: null, threads: null, sentence: `Would serve ${inference.model_name} with CUDA on ${names}.` };
  }
  // What a backend says that has no words of its own here.
  if (backend !== 'cpu') return { backend, isa: null, threads: null, sentence: `Would serve ${inference.model_name} on ${backend}.` };
  const threads = inference.threads === 0 ? physicalCores : inference.threads;
  return { backend, isa, threads, sentence: `Would serve ${inference.model_name} on the CPU: ${isa} kernels, ${threads} threads.` };
}
