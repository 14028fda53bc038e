/**
 * The whole daemon beside its engine: start-up of a Llama-3-8B shape with random weights, then 1, 32 and 128 WebSocket streams decoding,
 * the time between two tokens as the clients see it, against that between two steps of the bare engine with the same batch (`inferd
 * bench forward`). Daemon, clients and engine are processes of their own. Prints a table last and exits with 1 when a gate does not hold.
 *
 *   node dist/test/gpu/serve-bench.js [--device cuda] [--shape folder with config.json] [--streams 1,32,128] [--tokens 200] [--rounds 3]
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface, type Interface } from 'node:readline';
import { parseArgs } from 'node:util';
import { median } from '../../daemon/cli/bench-limits.js';
import { packageRoot } from '../../native/index.js';
import type { ProfileStopped } from '../../rpc/schemas/profile.js';
import { deviceEnv } from '../helpers/device-env.js';
import { dummyModel } from '../helpers/dummy-model.js';
import { fixture } from '../helpers/native-engine.js';
import { type Answer, RpcSocket } from '../helpers/rpc-socket.js';
import { tempFolder } from '../helpers/temp-folder.js';
import type { Round, RoundReport } from './serve-client.js';

const { values } = parseArgs({
  options: {
    device: { type: 'string', default: 'cuda' },
    shape: { type: 'string', default: fixture('shapes', 'llama-3-8b') },
    streams: { type: 'string', default: '1,32,128' },
    tokens: { type: 'string', default: '200' },
    rounds: { type: 'string', default: '3' },
  },
});
/** What must hold. */
const gates = { ratio: 1.03, startS: 10, idleShare: 0.02 };
const promptTokens = 128;
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
  const sets = [
    ...[`inference.model_name=${JSON.stringify(model)}`, 'inference.load_dummy=true', `inference.device=${values.device}`],
    ...['server.port=0', `scheduler.max_num_sequences=${most}`, 'scheduler.max_model_len=1024', 'server.max_connections=1024'],
    'cache.cache_dtype=auto',
    ...['profile.max_events=4000000', `profile.directory=${JSON.stringify(tempFolder())}`],
    `scheduler.max_num_batched_tokens=${Math.max(2048, most * promptTokens)}`,
  ];
  const began = performance.now();
  const child = spawn(process.execPath, [inferd, 'serve', '--json', ...sets.flatMap((set) => ['--set', set])], {
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

/** Client processes answer one line a command. */
class Clients {
  readonly #child: ChildProcess;
  readonly #lines: AsyncIterator<string>;

  constructor(ws: string, streams: number) {
    this.#child = spawn(process.execPath, [join(packageRoot(), 'dist', 'test', 'gpu', 'serve-client.js'), ws, String(streams)], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    const lines: Interface = createInterface({ input: this.#child.stdout as NodeJS.ReadableStream });
    this.#lines = lines[Symbol.asyncIterator]();
  }

  async round(length: number): Promise<RoundReport> {
    const wanted: Round = { prompt: promptTokens, tokens: length, vocab };
    this.#child.stdin?.write(`${JSON.stringify(wanted)}\n`);
    const { value, done } = await this.#lines.next();
    if (done === true) throw new Error('the client process ended');
    return JSON.parse(value) as RoundReport;
  }

  end(): void {
    this.#child.stdin?.end();
  }
}

/** How the device spent the decode steps of one more round. */
async function profiled(control: RpcSocket, round: () => Promise<unknown>): Promise<Idle | null> {
  await control.call('profile.start');
  await round();
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
  /** Of the engine's steps in the same minutes, by stats.get. */
  readonly execMs: number;
  readonly idle: Idle | null;
}

async function measure(daemon: Daemon, control: RpcSocket, streams: number): Promise<Line> {
  const clients = new Clients(daemon.ws, streams);
  await clients.round(16); // prompts into the prefix cache, products and graphs into place
  const reports: RoundReport[] = [];
  for (let i = 0; i < Number(values.rounds); i++) reports.push(await clients.round(tokens));
  const stats = (await control.call('stats.get')) as Answer & { readonly step: { readonly p50_ms: number } };
  const idle = await profiled(control, () => clients.round(tokens));
  clients.end();
  return {
    streams,
    clientMs: median(reports.map((r) => r.step_ms)),
    firstMs: median(reports.map((r) => r.first_ms)),
    execMs: stats.step.p50_ms,
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
const engine = engineSteps();
let missed = daemon.startMs / 1000 > gates.startS ? 1 : 0;
const verdict = (good: boolean): string => {
  if (!good) missed++;
  return good ? '' : ' MISSED';
};
console.log('\nstreams  client ms  engine ms  ratio           exec p50 ms  first ms  idle share');
for (const { streams, clientMs, firstMs, execMs, idle } of lines) {
  const bare = engine.get(streams) ?? Number.NaN;
  const ratio = clientMs / bare;
  const share =
    idle === null ? 'no decode steps' : `${(100 * idle.share).toFixed(2)} % (${idle.source})${verdict(idle.share <= gates.idleShare)}`;
  console.log(
    `${String(streams).padEnd(9)}${clientMs.toFixed(3).padStart(9)}${bare.toFixed(3).padStart(11)}${ratio.toFixed(3).padStart(7)}${verdict(ratio <= gates.ratio).padEnd(9)}` +
      `${execMs.toFixed(3).padStart(12)}${firstMs.toFixed(1).padStart(10)}  ${share}`,
  );
}
console.log(
  `\nstart-up ${(daemon.startMs / 1000).toFixed(2)} s (gate ${gates.startS}), clients at most ${gates.ratio} x the engine: ` +
    `${missed === 0 ? 'all gates hold' : `${missed} gates MISSED`}`,
);
process.exit(missed === 0 ? 0 : 1);
