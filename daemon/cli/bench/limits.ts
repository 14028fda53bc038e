/**
 * Limits of this machine, measured beside the work they are compared with: of the CPU what can be read from memory and how many operations
 * its units do, with the threads and the kernel set of that work; of a GPU what a kernel that only reads gets from memory, and the best
 * product of cuBLASLt. Blocks its thread for some tenths of a second. Used by the benchmarks; machines with busy neighbours change within
 * a second, so a CPU's limit is measured again around each figure.
 */
import { loadAddon } from '../../../native/index.js';

export interface Setup {
  readonly isa: string;
  /** 0 = physical cores. */
  readonly threads: number;
}

export interface Limits {
  /** Bytes a second that a plain read loop gets from memory. */
  readonly readBytes: number;
  /** float32 multiply-adds, counted as two operations, a second. */
  readonly fmaFlops: number;
  /** Byte dot products, in multiplications and additions a second; null without such an instruction. */
  readonly dotOps: number | null;
}

/** Large beside any cache of a share of a machine. */
const READ_MEGABYTES = 1000;
const CHAIN_STEPS = 200_000;

/** Rate of the best of a few runs: a limit is what was possible. */
function rate(setup: Setup, op: string, attrs: Readonly<Record<string, number>>, repeat: number): number {
  const result = loadAddon().runOp({ op, backend: 'cpu', isa: setup.isa, threads: setup.threads, attrs, inputs: {}, repeat });
  return ((result['work']?.[0] ?? 0) / Math.min(...(result['timings_us'] ?? []))) * 1e6;
}

/** Bytes a second that can be read now. */
export function readLimit(setup: Setup): number {
  return rate(setup, 'limit_read', { megabytes: READ_MEGABYTES }, 3);
}

/** Arithmetic limits now. */
export function arithmeticLimits(setup: Setup): Pick<Limits, 'fmaFlops' | 'dotOps'> {
  const dot = rate(setup, 'limit_dot', { steps: CHAIN_STEPS }, 3);
  return { fmaFlops: rate(setup, 'limit_fma', { steps: CHAIN_STEPS }, 3), dotOps: dot > 0 ? dot : null };
}

export interface DeviceLimits {
  /** Bytes a second that a kernel reads. */
  readonly readBytes: number;
  /** Operations a second of the best product in 16 bits, counted as two a multiply-add. */
  readonly gemmFlops: number;
}

/** Far beyond any cache; a read takes long beside its launch. */
const DEVICE_READ_MEGABYTES = 2000;
/** Rows, columns and outputs of the product, large enough to fill any GPU. */
const GEMM_SIZE = 8192;
const DEVICE_REPEAT = 8;

/** Limits of the first CUDA device now. It takes about 3 GB of its memory for the moment. @throws NativeError when there is no such memory. */
export function deviceLimits(): DeviceLimits {
  const run = (op: string, attrs: Readonly<Record<string, number | string>>): number => {
    const call = {
      op,
      backend: 'cuda',
      isa: 'auto',
      threads: 1,
      attrs: { ...attrs, noise: 1 },
      inputs: {},
      repeat: DEVICE_REPEAT,
    } as const;
    return Math.min(...(loadAddon().runOp(call)['timings_us'] ?? [])) / 1e6;
  };
  const product = { rows: GEMM_SIZE, cols: GEMM_SIZE, outs: GEMM_SIZE, dtype: 'bf16' };
  return {
    readBytes: (DEVICE_READ_MEGABYTES * 1e6) / run('limit_read', { megabytes: DEVICE_READ_MEGABYTES }),
    gemmFlops: (2 * GEMM_SIZE ** 3) / run('linear', product),
  };
}

/** All limits of the CPU. */
export function measureLimits(setup: Setup): Limits {
  return { readBytes: readLimit(setup), ...arithmeticLimits(setup) };
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const half = Math.floor(sorted.length / 2);
  return sorted.length % 2 === 1 ? (sorted[half] ?? Number.NaN) : ((sorted[half - 1] ?? Number.NaN) + (sorted[half] ?? Number.NaN)) / 2;
}

/** A rate as "12.3 G". */
export function giga(perSecond: number | null): string {
  return perSecond === null ? '-' : (perSecond / 1e9).toFixed(1);
}

export function percent(share: number | null): string {
  return share === null ? '-' : `${(share * 100).toFixed(0)} %`;
}
