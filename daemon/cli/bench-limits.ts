/**
 * Limits of this machine's CPU, measured with the threads and the kernel set of the work they stand beside: what can be read from memory,
 * and how many operations the arithmetic units do. Blocks its thread for some tenths of a second. Used by the benchmarks; machines with
 * busy neighbours change within a second, so a limit is measured again around each figure.
 */
import { loadAddon } from '../../native/index.js';

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

/** All of them. */
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
