/**
 * When requests are sent, as ATOM's and vLLM's benchmarks do: the first at once, then gaps drawn from a gamma distribution whose shape is
 * the burstiness (1: a Poisson process; less: bursts; more: even gaps) and whose mean is 1 / rate. Times are absolute, so that a request sent
 * late does not move those after it. Pure.
 */
import type { Random } from './random.js';

export interface Ramp {
  readonly strategy: 'linear' | 'exponential';
  /** Requests a second at the first and at the last request. */
  readonly from: number;
  readonly to: number;
}

export interface Load {
  /** Requests a second; infinite: all at once. Where there is a ramp it counts instead. */
  readonly rate: number;
  readonly burstiness: number;
  readonly ramp: Ramp | null;
}

/** Seconds after the start for each of `count` requests, ascending. */
export function arrivalTimes(count: number, { rate, burstiness, ramp }: Load, random: Random): Float64Array {
  const times = new Float64Array(count);
  if (ramp === null && rate === Number.POSITIVE_INFINITY) return times;
  for (let i = 1; i < count; i++) {
    const now = ramp === null ? rate : rampRate(ramp, (i - 1) / count);
    times[i] = (times[i - 1] ?? 0) + random.gamma(burstiness, 1 / (now * burstiness));
  }
  return times;
}

/** `progress`: share of the requests sent so far. */
export function rampRate({ strategy, from, to }: Ramp, progress: number): number {
  return strategy === 'linear' ? from + (to - from) * progress : from * (to / from) ** progress;
}
