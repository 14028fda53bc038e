/**
 * The whole daemon under the loads by which servers are compared: `inferd serve` with random weights of a shape, and `inferd bench serve`
 * against it, a process of its own on the same host. Prints a line a point, so that what was measured is kept when time runs out.
 *
 *   node dist/test/gpu/online-bench.js [--shape folder with config.json] [--doors inferd-ws,openai] [--set key=value ...] POINT ...
 *
 * A point is one of
 *   IN/OUT@USERS[xN]      closed loop: USERS requests at all times, prompts of IN random tokens, answers of OUT; N x USERS requests (5)
 *   IN/OUT~RATIO@USERS    the same with lengths drawn between RATIO and 1 of them
 *   sharegpt@RATE[xN]     arrivals by Poisson at RATE a second ("inf": all at once), lengths like those of ShareGPT; N requests (1000)
 * Each point has prompts of its own, so that none is found in the prefix cache; answers ignore the end of text, temperature 0. `idle` is
 * the share of time in which the device computed no step, in percent, from 40 to 90 % of the way between start and end of the client: so
 * without its start and its first request, which it sends alone.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { packageRoot } from '../../native/index.js';
import { deviceEnv } from '../helpers/daemon/device-env.js';
import { dummyModel } from '../helpers/native/dummy-model.js';
import { fixture } from '../helpers/native/native-engine.js';
import { tempFolder } from '../helpers/temp-folder.js';

const { values, positionals } = parseArgs({
  options: {
    shape: { type: 'string', default: fixture('shapes', 'llama-3-8b') },
    doors: { type: 'string', default: 'inferd-ws,openai' },
    device: { type: 'string', default: 'cuda' },
    set: { type: 'string', multiple: true, default: [] },
  },
  allowPositionals: true,
});
const inferd = join(packageRoot(), 'daemon', 'cli', 'inferd.mjs');
const env = deviceEnv();
const pointLimitMs = 240_000;

/** The arguments of `inferd bench serve` for a point. @throws when it cannot be read. */
function loadOf(point: string): string[] {
  const closed = /^(\d+)\/(\d+)(?:~([\d.]+))?@(\d+)(?:x(\d+))?$/.exec(point);
  if (closed) {
    const [, input = '', output = '', ratio = '1', users = '', times = '5'] = closed;
    const lengths = ['--random-input-len', input, '--random-output-len', output, '--random-range-ratio', ratio];
    return [...lengths, '--max-concurrency', users, '--num-prompts', String(Number(users) * Number(times))];
  }
  const open = /^sharegpt@(inf|[\d.]+)(?:x(\d+))?$/.exec(point);
  if (open) return ['--dataset-name', 'sharegpt', '--request-rate', open[1] ?? 'inf', '--num-prompts', open[2] ?? '1000'];
  throw new Error(`"${point}" is no point: see the head of this file`);
}

interface Daemon {
  readonly process: ChildProcess;
  readonly http: string;
}

/** @throws when the daemon ends before it is ready, with what it said. */
function startDaemon(model: string): Promise<Daemon> {
  const folder = tempFolder();
  const config = join(folder, 'config.toml');
  const lines = [
    ...['[inference]', `model_name = ${JSON.stringify(model)}`, 'load_dummy = true', `device = "${values.device}"`],
    ...['[server]', 'port = 0', 'max_connections = 2048', '[scheduler]', 'max_queue = 4096'],
  ];
  writeFileSync(config, lines.join('\n'));
  const set = values.set.flatMap((pair) => ['--set', pair]);
  const child = spawn(process.execPath, [inferd, 'serve', '--json', '--config', config, ...set], {
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let said = '';
  child.stderr.on('data', (chunk: Buffer) => (said = (said + chunk).slice(-4000)));
  return new Promise((resolve, reject) => {
    child.once('exit', (code) => reject(new Error(`the daemon ended with ${code} before it was ready:\n${said}`)));
    createInterface({ input: child.stdout }).on('line', (line) => {
      const event = JSON.parse(line) as { event: string; http?: string };
      if (event.event !== 'ready') return;
      child.removeAllListeners('exit');
      resolve({ process: child, http: event.http ?? '' });
    });
  });
}

/** The result of one `inferd bench serve`. @throws with what it said when it failed. */
function bench(door: string, http: string, point: string, seed: number): Promise<Readonly<Record<string, number>>> {
  const url = door.startsWith('inferd-ws') ? http.replace(/^http/, 'ws') : http;
  const args = ['bench', 'serve', '--backend', door, '--base-url', url, ...loadOf(point), '--seed', String(seed)];
  const asked = ['--ignore-eos', '--json'];
  const metrics = ['--percentile-metrics', 'ttft,tpot,itl,e2el', '--metric-percentiles', '50,95,99', '--goodput', 'ttft:500', 'tpot:50'];
  const child = spawn(process.execPath, [inferd, ...args, ...asked, ...metrics], { env, stdio: ['ignore', 'pipe', 'pipe'] });
  let [out, err] = ['', ''];
  child.stdout.on('data', (chunk: Buffer) => (out += chunk));
  child.stderr.on('data', (chunk: Buffer) => (err = (err + chunk).slice(-2000)));
  const timer = setTimeout(() => child.kill('SIGINT'), pointLimitMs);
  return new Promise((resolve, reject) => {
    child.once('close', () => {
      clearTimeout(timer);
      try {
        resolve(JSON.parse(out) as Record<string, number>);
      } catch {
        reject(new Error(`${point} through ${door}: ${err || out.slice(-2000)}`));
      }
    });
  });
}

/** Seconds of steps on the device since the daemon started. */
async function deviceSeconds(http: string): Promise<number> {
  const text = await (await fetch(`${http}/metrics`)).text();
  return [...text.matchAll(/^inferd_step_seconds_sum\S* (\S+)$/gm)].reduce((sum, [, value]) => sum + Number(value), 0);
}

/** Asks for the device's time while `work` goes on. The share of idle time in the middle of it, and what `work` came to. */
async function withIdleShare<T>(http: string, work: Promise<T>): Promise<{ result: T; idle: number }> {
  const samples: { readonly atS: number; readonly busyS: number }[] = [];
  let ended = false;
  const settled = work.finally(() => (ended = true));
  const began = performance.now();
  while (!ended) {
    samples.push({ busyS: await deviceSeconds(http), atS: (performance.now() - began) / 1000 });
    await Promise.race([settled, sleep(200)]);
  }
  const result = await settled;
  const from = samples[Math.floor(samples.length * 0.4)];
  const to = samples[Math.floor(samples.length * 0.9)];
  if (from === undefined || to === undefined) return { result, idle: Number.NaN };
  return { result, idle: 1 - (to.busyS - from.busyS) / (to.atS - from.atS) };
}

const model = dummyModel(values.shape);
const daemon = await startDaemon(model);
const shown = (value: number | undefined, digits = 1): string => (value ?? Number.NaN).toFixed(digits).padStart(9);
process.stdout.write(
  `${'point'.padEnd(22)} ${'door'.padEnd(10)} ${['done', 'req/s', 'tok/s', 'ttft50', 'ttft95', 'ttft99', 'tpot', 'tpot95', 'itl99', 'e2el50', 'e2el99', 'goodput', 'idle'].map((name) => name.padStart(9)).join(' ')}\n`,
);
let failed = false;
let seed = 0;
for (const point of positionals)
  for (const door of values.doors.split(',')) {
    try {
      const { result: r, idle } = await withIdleShare(daemon.http, bench(door, daemon.http, point, seed++));
      const figures = [
        ...[shown(r['completed'], 0), shown(r['request_throughput'], 2), shown(r['output_throughput'], 0)],
        ...[shown(r['median_ttft_ms']), shown(r['p95_ttft_ms']), shown(r['p99_ttft_ms'])],
        ...[shown(r['mean_tpot_ms'], 2), shown(r['p95_tpot_ms'], 2), shown(r['p99_itl_ms'], 2)],
        ...[shown(r['median_e2el_ms'], 0), shown(r['p99_e2el_ms'], 0), shown(r['request_goodput'], 2)],
        shown(100 * idle),
      ];
      process.stdout.write(`${point.padEnd(22)} ${door.padEnd(10)} ${figures.join(' ')}\n`);
    } catch (error) {
      failed = true;
      process.stdout.write(`${point.padEnd(22)} ${door.padEnd(10)} ${(error as Error).message}\n`);
    }
  }
daemon.process.kill('SIGTERM');
process.exitCode = failed ? 1 : 0;
