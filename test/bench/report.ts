/** What the benchmarks of this folder share: percentiles, and the fields that say where a figure comes from. */
import { execFileSync } from 'node:child_process';
import { cpus } from 'node:os';

export interface Percentiles {
  readonly count: number;
  readonly p50: number;
  readonly p99: number;
}

/** Of values in any unit, to a tenth of it. */
export function percentiles(values: readonly number[] | Float64Array): Percentiles {
  const sorted = Float64Array.from(values).sort();
  const at = (p: number): number => Math.round((sorted[Math.floor(p * (sorted.length - 1))] ?? 0) * 10) / 10;
  return { count: sorted.length, p50: at(0.5), p99: at(0.99) };
}

/** Processor, Node and commit, for the end of a line of figures. */
export function origin(): Record<string, unknown> {
  return { device: cpus()[0]?.model ?? 'unknown', cores: cpus().length, node: process.version, commit: commit() };
}

function commit(): string {
  try {
    return execFileSync('git', ['rev-parse', '--short', 'HEAD'], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim();
  } catch {
    return 'unknown';
  }
}
