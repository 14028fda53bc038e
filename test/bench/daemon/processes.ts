/** The daemon and the clients of the benchmark as processes that answer commands, one at a time. */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import type { BareRound, ClientCommand, FillRound, FirstRound, FirstToken, StreamsAnswer, StreamsRound } from './client.js';
import type { HostCommand, Stamp, StepsAnswer } from './host.js';
import type { SseAnswer, SseRound } from './sse-clients.js';

const settings = [
  'server.port=0',
  'log.level=error',
  'scheduler.max_queue=4096',
  'cache.num_gpu_blocks_override=100000',
  // A stalled client has to stay for a whole round.
  'server.slow_client_timeout_s=3600',
];

class Child {
  readonly process: ChildProcess;
  #failed: ((error: Error) => void) | null = null;

  constructor(file: string, args: readonly string[], nodeArgs: readonly string[]) {
    const path = fileURLToPath(new URL(file, import.meta.url));
    // "advanced": typed arrays as they are.
    this.process = fork(path, args, { serialization: 'advanced', execArgv: [...nodeArgs] });
    this.process.once('exit', (code) => this.#failed?.(new Error(`${file} ended with ${code}`)));
  }

  async next(): Promise<unknown> {
    const failed = new Promise<never>((_, reject) => {
      this.#failed = reject;
    });
    const [message] = (await Promise.race([once(this.process, 'message'), failed])) as [unknown];
    return message;
  }

  async ask<T>(command: HostCommand | ClientCommand): Promise<T> {
    const answered = this.next();
    this.process.send(command);
    return (await answered) as T; // by the table of commands in host.ts and client.ts
  }

  async end(): Promise<void> {
    this.#failed = null;
    const gone = once(this.process, 'exit');
    this.process.disconnect();
    await gone;
  }
}

export class Host {
  readonly url: string;
  readonly http: string;
  /** Port of the plain socket. */
  readonly bare: number;
  readonly #child: Child;

  private constructor(child: Child, url: string, http: string, bare: number) {
    this.#child = child;
    this.url = url;
    this.http = http;
    this.bare = bare;
  }

  /** `nodeArgs`: for example --cpu-prof. */
  static async start(sets: readonly string[], nodeArgs: readonly string[]): Promise<Host> {
    const child = new Child('./host.js', [...settings, ...sets], nodeArgs);
    const { ready, http, bare } = (await child.next()) as { readonly ready: string; readonly http: string; readonly bare: number };
    return new Host(child, ready, http, bare);
  }

  setStepUs(stepUs: number): Promise<null> {
    return this.#child.ask({ stepUs });
  }

  steps(from: number): Promise<StepsAnswer> {
    return this.#child.ask({ steps: from });
  }

  stamps(): Promise<readonly Stamp[]> {
    return this.#child.ask({ stamps: true });
  }

  end(): Promise<void> {
    return this.#child.end();
  }
}

export class Clients {
  readonly #child: Child;

  private constructor(child: Child) {
    this.#child = child;
  }

  static async start(): Promise<Clients> {
    const child = new Child('./client.js', [], []);
    await child.next();
    return new Clients(child);
  }

  first(round: FirstRound): Promise<readonly FirstToken[]> {
    return this.#child.ask({ first: round });
  }

  /** Round trips over a plain socket, microseconds. */
  bare(round: BareRound): Promise<readonly number[]> {
    return this.#child.ask({ bare: round });
  }

  streams(round: StreamsRound): Promise<StreamsAnswer> {
    return this.#child.ask({ streams: round });
  }

  sse(round: SseRound): Promise<SseAnswer> {
    return this.#child.ask({ sse: round });
  }

  fill(round: FillRound): Promise<null> {
    return this.#child.ask({ fill: round });
  }

  unfill(): Promise<null> {
    return this.#child.ask({ unfill: true });
  }

  end(): Promise<void> {
    return this.#child.end();
  }
}
