/**
 * A daemon in a process of its own that is attacked, a bystander beside it, and what the attack cost both: the latency of the
 * bystander, and the longest time for which the daemon's event loop did not turn.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { constants, setPriority } from 'node:os';
import type { TestContext } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { privateEnv } from '../../helpers/daemon/daemon.js';
import { eventually, inTime } from '../../helpers/eventually.js';
import { RpcSocket } from '../../helpers/wire/rpc-socket.js';
import type { LoopFigures } from '../loop-probe.js';
import { Bystander, servedIn } from './bystander.js';

const host = fileURLToPath(new URL('../daemon-host.js', import.meta.url));
const CALM_MS = 1000;
/**
 * As a benchmark (`INFERD_HOSTILE_ANSWERS=200 npm test -- e2e/hostile`) each case first waits for so many answers of the bystander in
 * calm, and then repeats its attack until there were as many beside it. As a test it attacks once.
 */
const BENCH_ANSWERS = Number(process.env['INFERD_HOSTILE_ANSWERS'] ?? 0);
/** Answers before the first case of a benchmark: until then code is compiled. */
const WARM_ANSWERS = 500;
/** Cases whose calm answers count together. */
const CALM_CASES = 4;
/** Answers between two attacks of a benchmark: the p99 tells what an attack costs, not how much of the processor a loop of them takes. */
const BENCH_PAUSE = 3;
/** The goal is 50 ms on a machine of its own; twice that is room for a slow one. */
const MAX_BUSY_MS = 100;
/** The goal is twice the calm p99. The rest is room for other work on the machine. */
const P99_FACTOR = 2;
const P99_SLACK_MS = 3000;
/** What an attack costs it costs every time; what other work on the machine costs seldom comes so often in a row. */
const ATTEMPTS = BENCH_ANSWERS > 0 ? 1 : 3;

export type Open = (protocols?: string | string[]) => Promise<RpcSocket>;

export class AttackedDaemon {
  readonly ws: string;
  readonly http: string;
  readonly env: NodeJS.ProcessEnv;
  readonly port: number;
  readonly #child: ChildProcess;
  readonly #control: RpcSocket;
  readonly #bystander: Bystander;
  /** Of answers in calm, those of a few cases: the p99 of one's is little more than its slowest. */
  #calm: number[] = [];

  private constructor(
    child: ChildProcess,
    addresses: { ws: string; http: string },
    env: NodeJS.ProcessEnv,
    sockets: [RpcSocket, Bystander],
  ) {
    this.#child = child;
    this.env = env;
    ({ ws: this.ws, http: this.http } = addresses);
    this.port = Number(new URL(this.http).port);
    [this.#control, this.#bystander] = sockets;
  }

  /** `sets`: "section.key=value", as for --set. */
  static async start(sets: readonly string[], env = privateEnv()): Promise<AttackedDaemon> {
    const all = ['server.port=0', 'inference.device=cpu', 'inference.threads=1', 'log.level=fatal', ...sets];
    const child = fork(host, all, { env, stdio: ['ignore', 'pipe', 'inherit', 'ipc'] });
    assert.ok(child.stdout);
    const [line] = (await inTime('the daemon starts', once(child.stdout, 'data'))) as [Buffer];
    const addresses = JSON.parse(line.toString()) as { ws: string; http: string };
    const control = await RpcSocket.open(addresses.ws);
    const daemon = new AttackedDaemon(child, addresses, env, [control, await Bystander.start(addresses.ws)]);
    if (BENCH_ANSWERS > 0) await daemon.#bystander.served(WARM_ANSWERS);
    else await sleep(CALM_MS);
    const first = daemon.#bystander.take();
    if (BENCH_ANSWERS === 0) daemon.#calm.push(...first);
    // From here on this thread attacks, and any program that keeps a core busy slows its neighbours: what is looked at is what an attack
    // costs by way of the daemon. On Linux a thread has a priority of its own; elsewhere the bystander is held back too, alike in calm.
    setPriority(constants.priority.PRIORITY_LOW);
    return daemon;
  }

  open: Open = (protocols = []) => RpcSocket.open(this.ws, protocols);

  /** Connections that are open beside those of a test. */
  static readonly ownConnections = 2;

  /**
   * Runs `attack` beside the bystander, as a benchmark again and again, then a little longer. Afterwards all sockets that it opened are
   * cut and the daemon is idle but for the bystander. Prints the cost, and checks it unless `costly` says that this attack may cost the
   * bystander more. A test fails when each of a few attacks cost too much.
   */
  async beside(t: TestContext, attack: (open: Open) => Promise<void>, { costly = false } = {}): Promise<void> {
    if (BENCH_ANSWERS > 0) await this.#lookCalm();
    let fault: string | null = null;
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      fault = await this.#costOf(t, attack, costly);
      await this.#untilLeft();
      if (fault === null) return;
    }
    assert.fail(fault ?? 'nothing was attempted');
  }

  /** Null, or what was too much. */
  async #costOf(t: TestContext, attack: (open: Open) => Promise<void>, costly: boolean): Promise<string | null> {
    await this.#probe();
    this.#bystander.take();
    do {
      await this.#once(attack);
      await this.#bystander.served(BENCH_ANSWERS > 0 ? BENCH_PAUSE : 2);
    } while (this.#bystander.count < BENCH_ANSWERS);
    const served = servedIn(this.#bystander.take());
    const calm = servedIn(this.#calm);
    const loop = await this.#probe();
    const ms = (value: number) => value.toFixed(1);
    t.diagnostic(
      `bystander p50 ${ms(served.p50)} p99 ${ms(served.p99)} ms of ${served.count} (calm ${ms(calm.p50)}, ${ms(calm.p99)}); ` +
        `loop busy at most ${ms(loop.busyMs)} ms, delayed p99 ${ms(loop.delayP99Ms)} max ${ms(loop.delayMs)} ms`,
    );
    if (loop.busyMs > MAX_BUSY_MS) return `the event loop did not turn for ${ms(loop.busyMs)} ms`;
    const most = P99_FACTOR * calm.p99 + P99_SLACK_MS;
    return costly || served.p99 <= most ? null : `the bystander waited ${ms(served.p99)} ms, more than ${ms(most)}`;
  }

  async #once(attack: (open: Open) => Promise<void>): Promise<void> {
    const opened: RpcSocket[] = [];
    try {
      await attack(async (protocols) => {
        const more = await this.open(protocols);
        opened.push(more);
        return more;
      });
    } finally {
      for (const one of opened) one.ws.terminate();
    }
  }

  async #lookCalm(): Promise<void> {
    this.#bystander.take();
    await this.#bystander.served(BENCH_ANSWERS);
    this.#calm = [...this.#calm, ...this.#bystander.take()].slice(-CALM_CASES * BENCH_ANSWERS);
  }

  async close(): Promise<void> {
    await this.#bystander.stop();
    const ended = once(this.#child, 'exit');
    this.#child.kill('SIGTERM');
    assert.deepEqual(await inTime('the daemon stops', ended), [0, null]);
  }

  /** What the daemon's main thread measured since the last call. */
  async #probe(): Promise<LoopFigures> {
    const answer = once(this.#child, 'message');
    this.#child.send({ probe: true });
    const [figures] = (await answer) as [LoopFigures];
    return figures;
  }

  /** Until nobody's request is left but one of the bystander's. */
  #untilLeft(): Promise<void> {
    return eventually('nothing of the attack stays behind', async () => {
      const { requests } = await this.#control.call('stats.get');
      const rows = (await this.#control.call('requests.list'))['requests'] as unknown as readonly unknown[];
      this.#control.log.length = 0;
      return (requests?.running ?? 0) + (requests?.waiting ?? 0) <= 1 && rows.length <= 1;
    });
  }
}
