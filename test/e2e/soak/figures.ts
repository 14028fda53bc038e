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
  readonly rssBytes: number;
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
    for (const life of this.#longLives()) rows.push([`RSS idle, ${life.name}`, life.text]);
    rows.push(['broken rules', String(this.numViolations)]);
    const width = Math.max(...rows.map(([name]) => name.length));
    return [...rows.map(([name, value]) => `${name.padEnd(width)}  ${value}`), ...this.violations.map((v) => `BROKEN: ${v}`), ''].join(
      '\n',
    );
  }

  /** Memory must be flat: see `growth`. */
  checkMemory(): void {
    for (const life of this.#longLives()) {
      if (life.grownBytes > life.allowedBytes) this.violation(`memory of ${life.name} grew: ${life.text}`);
    }
  }

  #longLives(): { name: string; text: string; grownBytes: number; allowedBytes: number }[] {
    const lives = new Map<string, IdleLook[]>();
    for (const look of this.idle) {
      const name = `${look.target} life ${look.life}`;
      lives.set(name, [...(lives.get(name) ?? []), look]);
    }
    return [...lives].flatMap(([name, looks]) => {
      const memory = growth(looks);
      if (memory === null) return [];
      const mib = (bytes: number) => (bytes / 2 ** 20).toFixed(0);
      const age = looks.at(-1)?.ageS.toFixed(0);
      const slope = `${((memory.bytesPerS * 60) / 2 ** 20).toFixed(2)} MiB a minute in the second half`;
      const text = `${mib(memory.before)} -> ${mib(memory.after)} MiB over ${age} s, ${slope}`;
      return [{ name, text, grownBytes: memory.after - memory.before, allowedBytes: 0.15 * memory.before + 24 * 2 ** 20 }];
    });
  }
}

const MIN_LOOKS = 6;
const MIN_AGE_S = 60;

interface Growth {
  /** Median memory of the second and of the last quarter of a life, bytes. */
  readonly before: number;
  readonly after: number;
  /** Least-squares slope over the second half. */
  readonly bytesPerS: number;
}

/** Null when the life was too short to say. */
function growth(looks: readonly IdleLook[]): Growth | null {
  const age = looks.at(-1)?.ageS ?? 0;
  if (looks.length < MIN_LOOKS || age < MIN_AGE_S) return null;
  const median = (from: number, to: number) => {
    const within = looks.filter((l) => l.ageS >= from * age && l.ageS <= to * age).map((l) => l.rssBytes);
    return within.toSorted((a, b) => a - b)[Math.floor(within.length / 2)] ?? null;
  };
  const before = median(0.25, 0.5);
  const after = median(0.75, 1);
  if (before === null || after === null) return null;
  return { before, after, bytesPerS: slope(looks.filter((l) => l.ageS >= 0.5 * age)) };
}

function slope(looks: readonly IdleLook[]): number {
  const mean = (of: (look: IdleLook) => number) => looks.reduce((sum, look) => sum + of(look), 0) / looks.length;
  const [age, rss] = [mean((l) => l.ageS), mean((l) => l.rssBytes)];
  const spread = looks.reduce((sum, l) => sum + (l.ageS - age) ** 2, 0);
  return spread === 0 ? 0 : looks.reduce((sum, l) => sum + (l.ageS - age) * (l.rssBytes - rss), 0) / spread;
}
