/**
 * A daemon under fire: its lives one after the other on the same port, its log as it is written, and the faults it can be given.
 *
 *   threads   a daemon whose actor threads are killed and whose steps are made to fail from inside its process (../daemon-host.ts)
 *   signals   the real command, which gets SIGTERM and SIGKILL
 */
import { type ChildProcess, fork, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { daemonFilePath } from '../../../config/paths.js';
import { privateEnv } from '../../helpers/daemon/daemon.js';
import { secretText } from './counting.js';
import type { Figures } from './figures.js';

export type Mode = 'threads' | 'signals';

const host = fileURLToPath(new URL('../daemon-host.js', import.meta.url));
const cli = fileURLToPath(new URL('../../../daemon/cli/main.js', import.meta.url));
const START_TIMEOUT_MS = 60_000;

/** Small pools, so that requests queue, are preempted and are refused; short timeouts, so that slow clients are met often. */
const settings = [
  'inference.threads=1',
  'inference.num_tokenizer_workers=2',
  'scheduler.max_num_sequences=32',
  'scheduler.max_num_batched_tokens=128',
  'scheduler.max_model_len=1024',
  'scheduler.max_queue=8',
  'cache.num_gpu_blocks_override=100',
  'server.slow_client_timeout_s=1.5',
  'server.ping_interval_s=2',
  'server.drain_timeout_s=3',
  'log.level=debug',
];

/** The module of an engine whose step fails when `faultFile` appears. */
function faultyEngine(faultFile: string): string {
  const module = new URL('./faulty-engine.js', import.meta.url);
  module.searchParams.set('fault', faultFile);
  return module.href;
}

/** From one start of the daemon to its end. */
export class Life {
  readonly number: number;
  readonly child: ChildProcess;
  readonly startedAt = performance.now();
  ws = '';
  http = '';
  /** Peers that it dropped, by its log, because they did not answer a ping. */
  missedPongs = 0;
  /** Its end was brought about, or has come. */
  ending = false;
  readonly exit: Promise<readonly [code: number | null, signal: NodeJS.Signals | null]>;

  constructor(number: number, child: ChildProcess) {
    this.number = number;
    this.child = child;
    this.exit = once(child, 'exit').then(([code, signal]) => {
      this.ending = true;
      return [code as number | null, signal as NodeJS.Signals | null] as const;
    });
  }

  get ageS(): number {
    return (performance.now() - this.startedAt) / 1000;
  }

  /** True when this life is ending, or is seen to within `ms`. */
  async endsWithin(ms: number): Promise<boolean> {
    for (const until = performance.now() + ms; !this.ending && performance.now() < until; ) await sleep(20);
    return this.ending;
  }
}

export class Target {
  readonly mode: Mode;
  readonly #figures: Figures;
  readonly #env = privateEnv();
  readonly #faultFile: string;
  #port = 0;
  #numLives = 0;
  #life: Life | null = null;
  #waiting: ((life: Life | null) => void)[] = [];
  #over = false;

  constructor(mode: Mode, figures: Figures) {
    this.mode = mode;
    this.#figures = figures;
    this.#faultFile = join(this.#env.HOME, 'fault');
  }

  /** The life that serves now, or the next one; null when there will be none. */
  current(): Promise<Life | null> {
    if (this.#over || (this.#life !== null && !this.#life.ending)) return Promise.resolve(this.#over ? null : this.#life);
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  /** Starts the next life; resolves when it serves. */
  async start(): Promise<Life> {
    const sets = [...settings, `server.port=${this.#port}`];
    const env = { ...this.#env, INFERD_TEST_ENGINE: faultyEngine(this.#faultFile) };
    const options = sets.flatMap((set) => ['--set', set]);
    const child =
      this.mode === 'threads'
        ? fork(host, sets, { env, stdio: ['ignore', 'pipe', 'pipe', 'ipc'] })
        : spawn(process.execPath, [cli, 'serve', '--json', ...options], { env, stdio: ['ignore', 'pipe', 'pipe'] });
    const life = new Life(++this.#numLives, child);
    this.#figures.count(`daemons started (${this.mode})`);
    const log: string[] = [];
    if (child.stdout === null || child.stderr === null) throw new Error('the daemon has no output');
    createInterface(child.stderr).on('line', (line) => {
      if (log.push(line) > 20) log.shift();
      this.#checkLogLine(line, life);
    });
    const timer = setTimeout(() => child.kill('SIGKILL'), START_TIMEOUT_MS);
    for await (const line of createInterface(child.stdout)) {
      const event = JSON.parse(line) as { readonly event: string; readonly ws?: string; readonly http?: string };
      if (event.event !== 'ready') continue;
      life.ws = event.ws ?? '';
      life.http = event.http ?? '';
      break;
    }
    clearTimeout(timer);
    if (life.ws === '') throw new Error(`the daemon did not start:\n${log.join('\n')}`);
    child.stdout.resume();
    this.#port = Number(new URL(life.http).port);
    this.#life = life;
    for (const resolve of this.#waiting.splice(0)) resolve(life);
    return life;
  }

  /** Terminates one thread, or makes a step fail. */
  killThread(kind: 'tokenizer' | 'scheduler' | 'executor' | 'step', index: number): void {
    this.#figures.count(kind === 'step' ? 'steps made to fail' : `${kind} threads killed`);
    if (kind === 'step') writeFileSync(this.#faultFile, '');
    else this.#life?.child.send({ kill: kind, index }, () => {});
  }

  /** Collects the garbage of the living process's threads, so that its memory is what it holds and not when their heaps were last full. */
  async collect(): Promise<void> {
    const life = this.#life;
    if (life === null || life.ending || this.mode !== 'threads') return;
    const done = once(life.child, 'message');
    life.child.send({ collect: true }, () => {});
    await Promise.race([done, life.exit]);
  }

  /** Sends a signal that ends this life and waits for the end. The exit code, or the name of the signal it died of. */
  async signal(signals: readonly NodeJS.Signals[]): Promise<number | string | null> {
    const life = this.#life;
    if (life === null) return null;
    this.notePeak();
    life.ending = true;
    for (const signal of signals) {
      this.#figures.count(`${signal} sent`);
      life.child.kill(signal);
      if (signals.length > 1) await sleep(100);
    }
    const [code, signal] = await life.exit;
    if (code === 0 && existsSync(daemonFilePath(this.#env))) this.#figures.violation('a daemon that stopped in order left its daemon.json');
    return code ?? signal;
  }

  /** Nobody waits for a further life. */
  finish(): void {
    this.#over = true;
    for (const resolve of this.#waiting.splice(0)) resolve(null);
  }

  /** Last resort when the soak itself fails. */
  abandon(): void {
    this.finish();
    this.#life?.child.kill('SIGKILL');
  }

  /** The peak of the living process's memory, where the system tells it. */
  notePeak(): void {
    const life = this.#life;
    if (life === null || life.ending || process.platform !== 'linux') return;
    try {
      const status = readFileSync(`/proc/${life.child.pid}/status`, 'utf8');
      const peakBytes = Number(/VmHWM:\s+(\d+) kB/.exec(status)?.[1] ?? 0) * 1024;
      this.#figures.peakRssBytes = Math.max(this.#figures.peakRssBytes, peakBytes);
    } catch {
      // It ended meanwhile.
    }
  }

  #checkLogLine(line: string, life: Life): void {
    this.#figures.count('log lines');
    if (secretText.test(line)) this.#figures.violation(`a log line holds the text of a prompt or an answer: ${line.slice(0, 300)}`);
    try {
      const { level, msg } = JSON.parse(line) as { readonly level?: string; readonly msg?: string };
      if (msg?.startsWith('a WebSocket peer was dropped')) {
        this.#figures.count(`log: ${msg}`);
        if (msg.endsWith('did not answer a ping')) life.missedPongs++;
      }
      if (level === 'error' || level === 'fatal' || level === 'warn') this.#figures.count(`log ${level}: ${msg}`);
      if (level === 'fatal' || /failed$/.test(msg ?? '') === false) return;
      if (/^(a WebSocket message|an HTTP request) failed$/.test(msg ?? '')) this.#figures.violation(`the log tells of a bug: ${line}`);
    } catch {
      this.#figures.violation(`a log line is no JSON: ${line.slice(0, 300)}`);
    }
  }
}
