/** Everything a soak counts and finds, and how it is shown. One object for all clients; no clock, no I/O. */

/** Broken rules kept with their text; all are counted. */
const MAX_VIOLATIONS = 50;
/** Times kept of one kind; beyond it each new one takes the place of a random older one (reservoir sampling, Vitter 1985). */
const MAX_SAMPLES = 100_000;

/** Times in ms. */
export class Times {
  readonly #values: number[] = [];
  #seen = 0;

  add(ms: number): void {
    this.#seen++;
    if (this.#values.length < MAX_SAMPLES) this.#values.push(ms);
    else {
      const at = Math.floor(Math.random() * this.#seen);
      if (at < MAX_SAMPLES) this.#values[at] = ms;
    }
  }

  summary(): { readonly count: number; readonly p50: number; readonly p99: number; readonly max: number } {
    const sorted = this.#values.toSorted((a, b) => a - b);
    const at = (share: number) => Math.round((sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? 0) * 10) / 10;
    return { count: this.#seen, p50: at(0.5), p99: at(0.99), max: at(1) };
  }
}

/** One look at a daemon that has nothing to do. */
export interface IdleLook {
  readonly target: string;
  readonly life: number;
  /** Since the start of that life, s. */
  readonly ageS: number;
  /** Resident memory of the process. */
  readonly rssBytes: number;
  /** Of the main thread. */
  readonly heapBytes: number;
}

export class Figures {
  readonly ttft = new Times();
  /** Between two delta events of one stream. */
  readonly gap = new Times();
  readonly idle: IdleLook[] = [];
  readonly violations: string[] = [];
  numViolations = 0;
  peakRssBytes = 0;
  readonly #counts = new Map<string, number>();

  count(name: string, n = 1): void {
    this.#counts.set(name, (this.#counts.get(name) ?? 0) + n);
  }

  of(name: string): number {
    return this.#counts.get(name) ?? 0;
  }

  /** A rule was broken: the soak has failed, and goes on to find more. */
  violation(text: string): void {
    this.numViolations++;
    if (this.violations.length < MAX_VIOLATIONS) this.violations.push(text);
  }

  toJSON(): Record<string, unknown> {
    return {
      counts: Object.fromEntries([...this.#counts].sort(([a], [b]) => (a < b ? -1 : 1))),
      ttft_ms: this.ttft.summary(),
      inter_token_gap_ms: this.gap.summary(),
      peak_rss_bytes: this.peakRssBytes,
      idle: this.idle,
      memory: this.#lives().map(({ name, windows }) => ({ life: name, windows })),
      num_violations: this.numViolations,
      violations: this.violations,
    };
  }

  table(): string {
    const rows: [string, string][] = [...this.#counts].sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, n]) => [name, String(n)]);
    for (const [name, times] of [
      ['TTFT', this.ttft],
      ['inter-token gap', this.gap],
    ] as const) {
      const { count, p50, p99, max } = times.summary();
      rows.push([`${name} (of ${count})`, `p50 ${p50} ms, p99 ${p99} ms, max ${max} ms`]);
    }
    rows.push(['peak RSS', `${(this.peakRssBytes / 2 ** 20).toFixed(0)} MiB`]);
    for (const { name, windows, trend } of this.#lives()) {
      if (trend === null) continue;
      rows.push([`RSS, ${name}`, trendText(trend)]);
      rows.push([`RSS at rest every ${WINDOW_S} s, MiB`, windows.map((w) => mib(w.rssBytes)).join(' ')]);
    }
    rows.push(['broken rules', String(this.numViolations)]);
    const width = Math.max(...rows.map(([name]) => name.length));
    return [...rows.map(([name, value]) => `${name.padEnd(width)}  ${value}`), ...this.violations.map((v) => `BROKEN: ${v}`), ''].join(
      '\n',
    );
  }

  /** Memory must be flat: see `trendOf`. */
  checkMemory(): void {
    for (const { name, trend } of this.#lives()) {
      if (trend !== null && trend.bytesPerS > trend.maxBytesPerS) this.violation(`memory of ${name} grew: ${trendText(trend)}`);
    }
  }

  #lives(): { readonly name: string; readonly windows: readonly MemoryWindow[]; readonly trend: Trend | null }[] {
    const lives = new Map<string, IdleLook[]>();
    for (const look of this.idle) {
      const name = `${look.target} life ${look.life}`;
      const looks = lives.get(name);
      if (looks === undefined) lives.set(name, [look]);
      else looks.push(look);
    }
    return [...lives].map(([name, looks]) => {
      const windows = windowsOf(looks);
      return { name, windows, trend: trendOf(windows) };
    });
  }
}

/** Long enough for some looks, short enough for several in the half of a life. */
const WINDOW_S = 30;
/** Caches, heaps and pools fill in the first half of a life; fewer windows than this in the other half say nothing. */
const MIN_WINDOWS = 5;
/** What a flat process may seem to grow by in all, because heaps of V8 come and go: the longer it is watched, the less a minute. */
const NOISE_BYTES = 15 * 2 ** 20;

/** Median over WINDOW_S seconds. */
interface MemoryWindow {
  readonly ageS: number;
  readonly rssBytes: number;
}

interface Trend {
  readonly overS: number;
  readonly beforeBytes: number;
  readonly afterBytes: number;
  readonly bytesPerS: number;
  readonly maxBytesPerS: number;
}

function windowsOf(looks: readonly IdleLook[]): MemoryWindow[] {
  const windows = new Map<number, number[]>();
  for (const { ageS, rssBytes } of looks) {
    const at = Math.floor(ageS / WINDOW_S);
    windows.set(at, [...(windows.get(at) ?? []), rssBytes]);
  }
  return [...windows].map(([at, bytes]) => ({ ageS: (at + 0.5) * WINDOW_S, rssBytes: median(bytes) }));
}

/** The slope of the second half of a life; null when the life was too short to say. */
function trendOf(windows: readonly MemoryWindow[]): Trend | null {
  const half = windows.slice(Math.floor(windows.length / 2));
  const [first, last] = [half[0], half.at(-1)];
  if (first === undefined || last === undefined || half.length < MIN_WINDOWS) return null;
  const overS = last.ageS - first.ageS;
  const bytesPerS = slope(half);
  return { overS, beforeBytes: first.rssBytes, afterBytes: last.rssBytes, bytesPerS, maxBytesPerS: NOISE_BYTES / overS };
}

/** Theil and Sen's: the median of the slopes between all pairs, which a single high window does not move. */
function slope(windows: readonly MemoryWindow[]): number {
  return median(windows.flatMap((a, i) => windows.slice(i + 1).map((b) => (b.rssBytes - a.rssBytes) / (b.ageS - a.ageS))));
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;
}

const mib = (bytes: number): string => (bytes / 2 ** 20).toFixed(0);

function trendText({ overS, beforeBytes, afterBytes, bytesPerS, maxBytesPerS }: Trend): string {
  const perMinute = (bytes: number) => ((bytes * 60) / 2 ** 20).toFixed(2);
  const change = `${mib(beforeBytes)} -> ${mib(afterBytes)} MiB in the last ${overS.toFixed(0)} s`;
  return `${change}, ${perMinute(bytesPerS)} MiB a minute (at most ${perMinute(maxBytesPerS)})`;
}
