/**
 * A soak: clients that ask and misbehave, faults that strike the daemons meanwhile, and rules that must hold all the time. After
 * each fault everybody is held back until all requests have ended: then no KV block may be in use and memory is looked at.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Answer } from '../../helpers/wire/rpc-socket.js';
import { Client } from './client.js';
import { Connection } from './connection.js';
import { Figures } from './figures.js';
import { Gate } from './gate.js';
import { watchPulse } from './pulse.js';
import { Random } from './random.js';
import { type Life, type Mode, Target } from './target.js';

export interface SoakOptions {
  readonly seconds: number;
  /** Divided among the modes. */
  readonly clients: number;
  readonly modes: readonly Mode[];
  readonly seed: number;
  /** Called now and then with one line. */
  readonly onProgress?: (line: string) => void;
}

/** More restarts than this in a minute end a daemon with 70 (daemon/life/topology.ts). */
const RESTARTS_PER_MINUTE = 3;
const EXIT_GAVE_UP = 70;
/**
 * From this length on, no more threads die in a minute than a daemon survives, so that its memory can be judged over one long life.
 * Shorter soaks strike more often, and daemons give up in them.
 */
const LONG_S = 240;
const SPARING_MS = [20_500, 26_000] as const;
const RECOVERY_MS = 20_000;
const IDLE_MS = 15_000;
const PROGRESS_EVERY_S = 15;

export async function runSoak(options: SoakOptions): Promise<Figures> {
  const figures = new Figures();
  const random = new Random(options.seed);
  const deadline = performance.now() + options.seconds * 1000;
  const share = Math.ceil(options.clients / options.modes.length);
  const progress = setInterval(() => {
    const left = Math.round((deadline - performance.now()) / 1000);
    options.onProgress?.(`${left} s left, ${figures.of('requests')} requests, ${figures.numViolations} rules broken`);
  }, PROGRESS_EVERY_S * 1000);
  const unwatch = watchPulse(() => figures.count('times the soak itself stood still'));
  try {
    const siege = (mode: Mode) => new Siege(mode, figures, new Random(random.between(0, 2 ** 31)), options.seconds).run(share, deadline);
    await Promise.all(options.modes.map(siege));
  } finally {
    clearInterval(progress);
    unwatch();
  }
  figures.checkMemory();
  return figures;
}

/** One target, its clients and its faults. */
class Siege {
  readonly #target: Target;
  readonly #figures: Figures;
  readonly #random: Random;
  readonly #gate = new Gate();
  /** Time between faults, ms. */
  readonly #faultMs: readonly [least: number, most: number];
  /** When threads of this life were killed, performance.now(). */
  #kills: number[] = [];

  constructor(mode: Mode, figures: Figures, random: Random, seconds: number) {
    this.#target = new Target(mode, figures);
    this.#figures = figures;
    this.#random = random;
    this.#faultMs = faultSpacing(mode, seconds);
  }

  async run(numClients: number, deadline: number): Promise<void> {
    try {
      let life = await this.#target.start();
      const clients = Array.from({ length: numClients }, () => {
        const random = new Random(this.#random.between(0, 2 ** 31));
        return new Client(this.#target, this.#gate, this.#figures, random).run();
      });
      const all = Promise.all(clients);
      all.catch(() => {});
      while (performance.now() < deadline) {
        await this.#quiet(life, Math.min(this.#random.between(...this.#faultMs), deadline - performance.now()));
        if (performance.now() >= deadline) break;
        life = await this.#strike(life);
        await this.#gate.close();
        if (!life.ending) await this.#checkIdle(life);
        this.#gate.reopen();
      }
      if (life.ending) life = await this.#revive(life);
      await this.#gate.close();
      if (life.ending) life = await this.#revive(life);
      await this.#checkIdle(life);
      this.#gate.shut();
      const code = await this.#target.signal(['SIGTERM']);
      if (code !== 0) this.#figures.violation(`the last daemon exited with ${code}`);
      await all;
    } finally {
      this.#gate.shut();
      this.#target.abandon();
    }
  }

  /** Lets the clients work undisturbed, and notes the peak of memory; returns early when the daemon ends. */
  async #quiet(life: Life, ms: number): Promise<void> {
    for (const until = performance.now() + ms; performance.now() < until && !life.ending; ) {
      await sleep(Math.min(250, Math.max(1, until - performance.now())));
      this.#target.notePeak();
    }
  }

  /** One fault, and back to service. Returns the life that serves then. */
  async #strike(life: Life): Promise<Life> {
    if (life.ending) return this.#revive(life);
    if (this.#target.mode === 'signals') {
      const signals = this.#random.weighted<readonly NodeJS.Signals[]>([
        [4, ['SIGTERM']],
        [4, ['SIGKILL']],
        [1, ['SIGTERM', 'SIGTERM']],
        [1, ['SIGINT']],
      ]);
      const code = await this.#target.signal(signals);
      const wanted: readonly (number | string)[] = signals[0] === 'SIGKILL' ? ['SIGKILL'] : signals.length === 2 ? [0, 143] : [0];
      if (!wanted.includes(code ?? -1)) this.#figures.violation(`after ${signals.join(', ')} the daemon ended with ${code}`);
      return this.#target.start();
    }
    const [kind, index] = this.#random.weighted([
      [1, ['tokenizer', 0] as const],
      [1, ['tokenizer', 1] as const],
      [2, ['scheduler', 0] as const],
      [2, ['executor', 0] as const],
      [2, ['step', 0] as const],
    ]);
    this.#kills.push(performance.now());
    this.#target.killThread(kind, index);
    for (const until = performance.now() + RECOVERY_MS; !life.ending && performance.now() < until; ) {
      await sleep(100);
      if (await healthy(life)) return life;
    }
    if (life.ending) return this.#revive(life);
    this.#figures.violation(`the daemon did not recover from the death of its ${kind}`);
    return life;
  }

  /** A life that nobody ended must have given up on its actors, and only after too many deaths. */
  async #revive(life: Life): Promise<Life> {
    const [code, signal] = await life.exit;
    const recent = this.#kills.filter((at) => performance.now() - at < 75_000).length;
    if (code === EXIT_GAVE_UP && recent > RESTARTS_PER_MINUTE) this.#figures.count('daemons that gave up');
    else this.#figures.violation(`the daemon ended with ${code ?? signal} after ${recent} deaths of threads`);
    this.#kills = [];
    return this.#target.start();
  }

  async #checkIdle(life: Life): Promise<void> {
    const connection = await Connection.open(life, this.#figures, false);
    if (connection === null) {
      if (!(await life.endsWithin(1000))) this.#figures.violation('an idle daemon takes no connection');
      return;
    }
    const idle = (stats: Answer) => stats.kv?.used_blocks === 0 && stats.requests?.running === 0 && stats.requests.waiting === 0;
    const listed = (rows: unknown) => Array.isArray(rows) && rows.length > 0;
    let stats: Answer = {};
    let rows: unknown;
    // What a client sent before it left may still be read, and is listed until the daemon sees that it left.
    for (const until = performance.now() + IDLE_MS; performance.now() < until && !connection.closed; await sleep(50)) {
      stats = (await connection.ask('stats.get', {}).outcome).reply?.result ?? {};
      rows = (await connection.ask('requests.list', {}).outcome).reply?.result?.['requests'];
      if (idle(stats) && !listed(rows)) break;
    }
    if (!idle(stats) && !(await life.endsWithin(1000))) this.#figures.violation(`not idle when nobody asks: ${JSON.stringify(stats)}`);
    if (listed(rows) && !connection.closed) this.#figures.violation(`requests are listed when nobody asks: ${JSON.stringify(rows)}`);
    await this.#target.collect();
    const rest = (await connection.ask('stats.get', {}).outcome).reply?.result ?? {};
    await connection.close();
    const memory = rest['memory'] as { readonly rss_bytes: number; readonly heap_used_bytes: number } | undefined;
    if (memory === undefined) return;
    this.#figures.count('idle checks');
    this.#figures.count('preemptions seen', stats.requests?.preempted_total ?? 0);
    const { rss_bytes: rssBytes, heap_used_bytes: heapBytes } = memory;
    this.#figures.idle.push({ target: this.#target.mode, life: life.number, ageS: life.ageS, rssBytes, heapBytes });
  }
}

function faultSpacing(mode: Mode, seconds: number): readonly [least: number, most: number] {
  if (mode === 'threads' && seconds >= LONG_S) return SPARING_MS;
  const mean = mode === 'threads' ? clamp(seconds * 80, 1500, 21_000) : clamp(seconds * 100, 2500, 15_000);
  return [0.5 * mean, 1.5 * mean];
}

async function healthy(life: Life): Promise<boolean> {
  try {
    return (await fetch(`${life.http}/health`, { headers: { connection: 'close' } })).status === 200;
  } catch {
    return false;
  }
}

function clamp(value: number, least: number, most: number): number {
  return Math.min(most, Math.max(least, value));
}
