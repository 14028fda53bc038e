/**
 * The whole daemon beside its engine: start-up of a Llama-3-8B shape with random weights, then 1, 32 and 128 WebSocket streams decoding,
 * the time between two tokens as the clients see it while all of them decode, against that between two steps of the bare engine with the
 * same batch (`inferd bench forward`). Daemon, clients and engine are processes of their own. Prints a table last and exits with 1 when a gate does not hold.
 * The bare engine is measured before the daemon and after it, since a device changes its clocks within seconds; the mean of both counts.
 *
 *   node dist/test/gpu/serve-bench.js [--device cuda] [--shape folder with config.json] [--streams 1,32,128] [--tokens 200] [--rounds 5] [--utilization 0.9]
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface, type Interface } from 'node:readline';
import { parseArgs } from 'node:util';
import { median } from '../../daemon/cli/bench/limits.js';
import { packageRoot } from '../../native/index.js';
import type { ProfileStopped } from '../../rpc/schemas/profile.js';
import { deviceEnv } from '../helpers/daemon/device-env.js';
import { dummyModel } from '../helpers/native/dummy-model.js';
import { fixture } from '../helpers/native/native-engine.js';
import { tempFolder } from '../helpers/temp-folder.js';
import { type Answer, RpcSocket } from '../helpers/wire/rpc-socket.js';
import type { Round, StreamReport } from './serve-client.js';

const { values } = parseArgs({
  options: {
    device: { type: 'string', default: 'cuda' },
    shape: { type: 'string', default: fixture('shapes', 'llama-3-8b') },
    streams: { type: 'string', default: '1,32,128' },
    tokens: { type: 'string', default: '200' },
    rounds: { type: 'string', default: '5' },
    utilization: { type: 'string', default: '0.9' },
  },
});
/** What must hold. */
const gates = { ratio: 1.03, startS: 10, idleShare: 0.02 };
const promptTokens = 128;
const streamsPerProcess = 16;
const startLimitMs = 120_000;
const streamCounts = values.streams.split(',').map(Number);
const most = Math.max(...streamCounts);
const tokens = Number(values.tokens);
const inferd = join(packageRoot(), 'daemon', 'cli', 'inferd.mjs');
const env = deviceEnv();
const model = dummyModel(values.shape);
const { vocab_size: vocab } = JSON.parse(readFileSync(join(model, 'config.json'), 'utf8')) as { vocab_size: number };

interface Daemon {
  readonly process: ChildProcess;
  readonly ws: string;
  readonly startMs: number;
}

/** Starts `inferd serve`. @throws when it ends before it is ready, with what it said. */
function startDaemon(): Promise<Daemon> {
  const folder = tempFolder();
  const config = join(folder, 'config.toml');
  const lines = [
    ...['[inference]', `model_name = ${JSON.stringify(model)}`, 'load_dummy = true', `device = "${values.device}"`],
    ...['[cache]', `gpu_memory_utilization = ${values.utilization}`],
    ...['[server]', 'port = 0', 'max_connections = 1024'],
    ...['[scheduler]', `max_num_sequences = ${most}`, 'max_model_len = 1024'],
    `max_num_batched_tokens = ${Math.max(2048, most * promptTokens)}`,
    ...['[profile]', 'max_events = 4000000', `directory = ${JSON.stringify(folder)}`],
  ];
  writeFileSync(config, lines.join('\n'));
  const began = performance.now();
  const child = spawn(process.execPath, [inferd, 'serve', '--json', '--config', config], {
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let said = '';
  child.stderr.on('data', (chunk: Buffer) => (said = (said + chunk).slice(-4000)));
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => child.kill('SIGKILL'), startLimitMs);
    child.once('exit', (code) => reject(new Error(`the daemon ended with ${code} before it was ready:\n${said}`)));
    createInterface({ input: child.stdout }).on('line', (line) => {
      const event = JSON.parse(line) as { event: string; ws?: string };
      if (event.event !== 'ready') return;
      clearTimeout(timer);
      child.removeAllListeners('exit');
      resolve({ process: child, ws: event.ws ?? '', startMs: performance.now() - began });
    });
  });
}

/** One process of clients; answers one line a command. */
class ClientProcess {
  readonly #child: ChildProcess;
  readonly #lines: AsyncIterator<string>;

  constructor(ws: string, streams: number, first: number) {
    const script = join(packageRoot(), 'dist', 'test', 'gpu', 'serve-client.js');
    this.#child = spawn(process.execPath, [script, ws, String(streams), String(first)], { stdio: ['pipe', 'pipe', 'inherit'] });
    const lines: Interface = createInterface({ input: this.#child.stdout as NodeJS.ReadableStream });
    this.#lines = lines[Symbol.asyncIterator]();
  }

  async round(length: number): Promise<StreamReport[]> {
    const wanted: Round = { prompt: promptTokens, tokens: length, vocab };
    this.#child.stdin?.write(`${JSON.stringify(wanted)}\n`);
    const { value, done } = await this.#lines.next();
    if (done === true) throw new Error('the client process ended');
    return JSON.parse(value) as StreamReport[];
  }

  end(): void {
    this.#child.stdin?.end();
  }
}

/** The streams of a round, shared out over processes so that the clients are never what is measured. */
class Clients {
  readonly #processes: readonly ClientProcess[];

  constructor(ws: string, streams: number) {
    const count = Math.ceil(streams / streamsPerProcess);
    const share = (i: number): number => Math.min(streamsPerProcess, streams - i * streamsPerProcess);
    this.#processes = Array.from({ length: count }, (_, i) => new ClientProcess(ws, share(i), i * streamsPerProcess));
  }

  async round(length: number): Promise<StreamReport[]> {
    return (await Promise.all(this.#processes.map((clients) => clients.round(length)))).flat();
  }

  end(): void {
    for (const clients of this.#processes) clients.end();
  }
}

interface RoundFigures {
  /** Time between two tokens while every stream decodes: from the last first piece to the first last piece; median over the streams, ms. */
  readonly stepMs: number;
  /** Median over the streams, ms. */
  readonly firstMs: number;
  /** From the first request to the end of the last answer, ms. */
  readonly wallMs: number;
}

/** @throws when the streams did not decode together for half of their tokens. */
function figures(streams: readonly StreamReport[]): RoundFigures {
  const begin = Math.max(...streams.map(({ atMs }) => atMs[0] ?? Number.POSITIVE_INFINITY));
  const end = Math.min(...streams.map(({ atMs }) => atMs.at(-1) ?? 0));
  const steps = streams.map(({ atMs, tokens }) => {
    const inside = atMs.flatMap((at, i) => (at >= begin && at <= end ? [i] : []));
    const [from = 0, to = 0] = [inside[0], inside.at(-1)];
    const between = tokens.slice(from + 1, to + 1).reduce((sum, count) => sum + count, 0);
    const all = tokens.reduce((sum, count) => sum + count, 0);
    if (between < all / 2) throw new Error(`a stream had ${between} of its ${all} tokens while all others decoded too`);
    return ((atMs[to] ?? 0) - (atMs[from] ?? 0)) / between;
  });
  return {
    stepMs: median(steps),
    firstMs: median(streams.map(({ sentMs, atMs }) => (atMs[0] ?? Number.NaN) - sentMs)),
    wallMs: Math.max(...streams.map(({ atMs }) => atMs.at(-1) ?? 0)) - Math.min(...streams.map(({ sentMs }) => sentMs)),
  };
}

/** How the device spent the decode steps of as many rounds more. */
async function profiled(control: RpcSocket, round: () => Promise<unknown>): Promise<Idle | null> {
  await control.call('profile.start');
  for (let i = 0; i < Number(values.rounds); i++) await round();
  const { summary } = (await control.call('profile.stop')) as unknown as ProfileStopped;
  const [rank] = summary;
  return rank === undefined || rank.idle_share === null ? null : { share: rank.idle_share, source: rank.device.source };
}

interface Idle {
  readonly share: number;
  /** How the device was seen. */
  readonly source: string;
}

interface Line {
  readonly streams: number;
  readonly clientMs: number;
  readonly firstMs: number;
  readonly wallMs: number;
  /** Of the engine's steps in the same minutes, by stats.get. */
  readonly execMs: number;
  readonly idle: Idle | null;
}

/** @throws when a stream was preempted. */
async function measure(daemon: Daemon, control: RpcSocket, streams: number): Promise<Line> {
  const clients = new Clients(daemon.ws, streams);
  await clients.round(16); // prompts into the prefix cache, products and graphs into place
  const reports: RoundFigures[] = [];
  for (let i = 0; i < Number(values.rounds); i++) reports.push(figures(await clients.round(tokens)));
  const { step, requests } = (await control.call('stats.get')) as Required<Answer> & { readonly step: { readonly p50_ms: number } };
  if (requests.preempted_total > 0) throw new Error(`${requests.preempted_total} preemptions: the streams did not decode together`);
  const idle = await profiled(control, () => clients.round(tokens));
  clients.end();
  return {
    streams,
    clientMs: median(reports.map((r) => r.stepMs)),
    firstMs: median(reports.map((r) => r.firstMs)),
    wallMs: median(reports.map((r) => r.wallMs)),
    execMs: step.p50_ms,
    idle,
  };
}

/** Milliseconds between two steps of the bare engine, by batch. */
function engineSteps(): ReadonlyMap<number, number> {
  const shapes = streamCounts.flatMap((streams) => ['--shape', `${streams}x${promptTokens}`]);
  const fixed = ['bench', 'forward', model, '--load-dummy', '--device', values.device, '--repeat', values.rounds, '--json'];
  const { status, stdout } = spawnSync(process.execPath, [inferd, ...fixed, '--steps', String(tokens - 1), ...shapes], {
    ...{ env, encoding: 'utf8', maxBuffer: 2 ** 24 },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  if (status !== 0) throw new Error(`bench forward ended with ${status}`);
  const report = JSON.parse(stdout) as { shapes: readonly { batch: number; decode: { ms: number } }[] };
  return new Map(report.shapes.map(({ batch, decode }) => [batch, decode.ms]));
}

const before = engineSteps();
const daemon = await startDaemon();
console.log(`ready after ${(daemon.startMs / 1000).toFixed(2)} s`);
const lines: Line[] = [];
try {
  const control = await RpcSocket.open(daemon.ws);
  for (const streams of streamCounts) lines.push(await measure(daemon, control, streams));
  await control.close();
} finally {
  const ended = new Promise((resolve) => daemon.process.once('exit', resolve));
  daemon.process.kill('SIGTERM');
  await ended;
}
const after = engineSteps();
let missed = daemon.startMs / 1000 > gates.startS ? 1 : 0;
const verdict = (good: boolean): string => {
  if (!good) missed++;
  return good ? '' : ' MISSED';
};
console.log('\nstreams  client ms  engine ms  ratio           exec p50 ms  first ms   round ms  idle share');
for (const { streams, clientMs, firstMs, wallMs, execMs, idle } of lines) {
  const bare = ((before.get(streams) ?? Number.NaN) + (after.get(streams) ?? Number.NaN)) / 2;
  const ratio = clientMs / bare;
  const share =
    idle === null ? 'no decode steps' : `${(100 * idle.share).toFixed(2)} % (${idle.source})${verdict(idle.share <= gates.idleShare)}`;
  console.log(
    `${String(streams).padEnd(9)}${clientMs.toFixed(3).padStart(9)}${bare.toFixed(3).padStart(11)}${ratio.toFixed(3).padStart(7)}${verdict(ratio <= gates.ratio).padEnd(9)}` +
      `${execMs.toFixed(3).padStart(12)}${firstMs.toFixed(1).padStart(10)}${wallMs.toFixed(0).padStart(11)}  ${share}`,
  );
}
console.log(
  `\nstart-up ${(daemon.startMs / 1000).toFixed(2)} s (gate ${gates.startS}), clients at most ${gates.ratio} x the engine: ` +
    `${missed === 0 ? 'all gates hold' : `${missed} gates MISSED`}`,
);
process.exit(missed === 0 ? 0 : 1);
