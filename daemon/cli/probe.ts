/**
 * Finds out what this machine offers: processor, build tools, GPU driver and libraries. Every probe answers with what it found or with
 * null; none throws, and each child process ends within its time limit. Called by doctor.ts.
 */
import { execFile } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { loadAddon, type NcclInfo, type SystemInfo } from '../../native/index.js';

/** A driver that hangs must not hang us. */
const probeMs = 5000;

/** First line of a program's output, or null when it is not there or fails. */
export function firstLine(program: string, args: readonly string[], env: NodeJS.ProcessEnv): Promise<string | null> {
  return output(program, args, env).then(
    (text) =>
      text
        ?.split('\n')
        .find((line) => line.trim() !== '')
        ?.trim() ?? null,
  );
}

/** All output of a program, or null when it is not there, fails, or takes too long. */
export function output(program: string, args: readonly string[], env: NodeJS.ProcessEnv): Promise<string | null> {
  return new Promise((resolve) => {
    try {
      execFile(program, [...args], { env, timeout: probeMs, maxBuffer: 2 ** 20, windowsHide: true }, (error, stdout) =>
        resolve(error === null ? stdout : null),
      );
    } catch {
      resolve(null);
    }
  });
}

export type AddonProbe = { readonly info: SystemInfo } | { readonly problem: string };

/** NCCL as the addon finds it; null where the addon cannot be loaded. It is a large library, which stays loaded. */
export function probeNccl(addon: AddonProbe): NcclInfo | null {
  return 'problem' in addon ? null : loadAddon().ncclInfo();
}

/** The native addon's view of the processor, or why it cannot be loaded. */
export function probeAddon(): AddonProbe {
  try {
    return { info: loadAddon().systemInfo() };
  } catch (error) {
    return { problem: (error as Error).message.split('\n')[0] ?? 'unknown reason' };
  }
}

export interface GpuProbe {
  /** One line a GPU: name, memory, driver, compute capability. */
  readonly gpus: readonly string[];
  /** Path of the driver library libcuda, when there is one. */
  readonly libcuda: string | null;
  /** Last line of `nvcc --version`. */
  readonly nvcc: string | null;
}

export async function probeGpu(env: NodeJS.ProcessEnv): Promise<GpuProbe> {
  const [smi, nvcc] = await Promise.all([
    output('nvidia-smi', ['--query-gpu=name,memory.total,driver_version,compute_cap', '--format=csv,noheader'], env),
    output('nvcc', ['--version'], env),
  ]);
  const lines = (text: string | null): string[] => (text ?? '').split('\n').flatMap((line) => (line.trim() === '' ? [] : [line.trim()]));
  return {
    gpus: lines(smi).slice(0, 64),
    libcuda: findLibrary(env, /^libcuda\.so(\.\d+)*$/),
    nvcc: lines(nvcc).find((line) => line.includes('release')) ?? lines(nvcc).at(-1) ?? null,
  };
}

const libraryFolders = [
  '/usr/lib/x86_64-linux-gnu',
  '/usr/lib/aarch64-linux-gnu',
  '/usr/lib64',
  '/usr/lib',
  '/usr/lib/wsl/lib',
  '/usr/local/nvidia/lib64',
];

function findLibrary(env: NodeJS.ProcessEnv, name: RegExp): string | null {
  const folders = [...(env['LD_LIBRARY_PATH'] ?? '').split(':').filter((f) => f !== ''), ...libraryFolders];
  for (const folder of folders.slice(0, 64)) {
    try {
      const found = existsSync(folder) ? readdirSync(folder).find((entry) => name.test(entry)) : undefined;
      if (found !== undefined) return join(folder, found);
    } catch {
      // An unreadable folder holds nothing for us.
    }
  }
  return null;
}
