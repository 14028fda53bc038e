/**
 * What clients that ask for far too much cost a daemon and the others: texts of four megabytes from clients that leave, posts that are
 * pipelined by the thousand, reports of twenty entries a token. Prints a JSON line a case with the daemon's memory before, at most and
 * afterwards (MiB), how long an innocent prompt of 36 kB took meanwhile, and the slowest ping. Daemon and attackers are processes of
 * their own; the daemon is the command as a newcomer starts it. Run by hand: node dist/test/bench/heavy-clients.js [texts] [posts] [reports]    all when none is named
 */
import { type ChildProcess, fork, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { WebSocket } from 'ws';
import { privateEnv } from '../helpers/daemon/daemon.js';
import { rawConnect } from '../helpers/wire/raw-http.js';
import { RpcSocket } from '../helpers/wire/rpc-socket.js';
import { origin } from './report.js';

const TEXT_CHARACTERS = 4_000_000;
const POSTS = 1200;
const POST_CHARACTERS = 60_000;
/** What is given back is given back by then, s. */
const REST_S = { texts: 10, posts: 10, reports: 20 } as const;
type Case = keyof typeof REST_S;
const units: Readonly<Record<Case, readonly string[]>> = { texts: ['1', 'a', 'é'], posts: ['a'], reports: ['16x4000', '250x1200'] };

const [first, ...rest] = process.argv.slice(2);
if (first === 'attack') await attack(rest[0] as Case, rest[1] as string, rest[2] as string, Number(rest[3]));
else await measure();

async function measure(): Promise<void> {
  const cases = process.argv.slice(2) as Case[];
  for (const name of cases.length > 0 ? cases : (Object.keys(REST_S) as Case[])) {
    for (const unit of units[name]) console.log(JSON.stringify({ case: name, unit, ...(await costOf(name, unit)), ...origin() }));
  }
}

async function costOf(name: Case, unit: string): Promise<Record<string, unknown>> {
  const command = fileURLToPath(new URL('../../daemon/cli/main.js', import.meta.url));
  const sets = ['server.port=0', 'log.level=fatal'].flatMap((set) => ['--set', set]);
  const daemon = spawn(process.execPath, [command, 'serve', '--json', ...sets], {
    env: privateEnv(),
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const { ws, http } = await readyOf(createInterface(daemon.stdout));
  const innocent = await RpcSocket.open(ws);
  await askInnocently(innocent);
  const before = memoryOf(daemon);
  const attacker = fork(fileURLToPath(import.meta.url), ['attack', name, unit, ws, new URL(http).port]);
  const gone = once(attacker, 'exit');
  const told: unknown[] = [];
  attacker.on('message', (message) => told.push(message));
  let attacked = false;
  void gone.then(() => (attacked = true));
  const waits: number[] = [];
  const pings: number[] = [];
  let peak = before;
  const timed = async (times: number[], work: () => Promise<unknown>): Promise<void> => {
    const start = performance.now();
    await work();
    times.push(performance.now() - start);
    peak = Math.max(peak, memoryOf(daemon));
  };
  const pinger = await RpcSocket.open(ws);
  let over = false;
  const pinging = (async () => {
    for (; !over; await sleep(10)) await timed(pings, () => pinger.call('ping'));
  })();
  for (const start = performance.now(); !attacked || performance.now() - start < 3000; await sleep(100))
    await timed(waits, () => askInnocently(innocent));
  over = true;
  await pinging;
  await sleep(REST_S[name] * 1000);
  const after = memoryOf(daemon);
  const stopping = performance.now();
  const stopped = once(daemon, 'exit');
  daemon.kill('SIGTERM');
  const [code] = (await stopped) as [number];
  const round = (values: readonly number[]) => Math.round(values.reduce((most, value) => Math.max(most, value), 0));
  return {
    rss_mib: { before, peak, after },
    innocent_ms: { asked: waits.length, most: round(waits) },
    ping_ms: { sent: pings.length, most: round(pings) },
    stop: { code, ms: Math.round(performance.now() - stopping) },
    answers: told,
  };
}

/** @throws when the daemon ends before it is ready. */
async function readyOf(lines: AsyncIterable<string>): Promise<{ readonly ws: string; readonly http: string }> {
  for await (const line of lines) {
    const said = JSON.parse(line) as { readonly event: string; readonly ws: string; readonly http: string };
    if (said.event === 'ready') return said;
  }
  throw new Error('the daemon did not start');
}

/** A prompt of 36 kB, encoded and cut to what the model takes. */
async function askInnocently(socket: RpcSocket): Promise<void> {
  const prompt = 'A word and another. '.repeat(1800);
  await socket.call('tokenize', { text: prompt });
  await socket.call('completions.create', { prompt, truncate_prompt_tokens: 16, max_tokens: 2 });
  socket.log.length = 0;
}

function memoryOf({ pid }: ChildProcess): number {
  return Math.round(Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1024);
}

async function attack(name: Case, unit: string, ws: string, port: number): Promise<void> {
  if (name === 'posts') return pipelinePosts(unit, port);
  if (name === 'texts') return leaveTexts(unit, ws);
  const [prompts = 0, tokens = 0] = unit.split('x').map(Number);
  const prompt = Array.from({ length: prompts }, (_, p) => Array.from({ length: tokens }, (_, i) => 10 + ((p * 31 + i) % 200)));
  const params = { prompt, max_tokens: 1, logprobs: 20, prompt_logprobs: 20, temperature: 0 };
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'completions.create', params });
  await Promise.all(Array.from({ length: 3 }, () => askForReports(ws, body)));
}

/** Tells how long the answer took, how large it was and, when it was an error, which. */
async function askForReports(url: string, body: string): Promise<void> {
  const socket = new WebSocket(url, { maxPayload: 2 ** 30 });
  await once(socket, 'open');
  const start = performance.now();
  const ended = Promise.race([once(socket, 'message'), once(socket, 'close')]);
  socket.send(body);
  const [answer] = (await ended) as [Buffer | number];
  const text = typeof answer === 'number' ? '' : answer.subarray(0, 300).toString();
  process.send?.({
    seconds: Math.round((performance.now() - start) / 100) / 10,
    bytes: typeof answer === 'number' ? 0 : answer.length,
    code: typeof answer === 'number' ? `closed ${answer}` : (/"error":{"code":(-\d+)/.exec(text)?.[1] ?? 'answered'),
  });
  socket.terminate();
}

/** Five clients, one after the other, each of which asks for twenty large texts and leaves. */
async function leaveTexts(unit: string, ws: string): Promise<void> {
  const text = unit.repeat(TEXT_CHARACTERS / Buffer.byteLength(unit));
  for (let client = 0; client < 5; client++) {
    const socket = await RpcSocket.open(ws);
    for (let i = 0; i < 20; i++) socket.send('tokenize', { text });
    while (socket.ws.bufferedAmount > 0) await sleep(5);
    socket.ws.terminate();
  }
}

async function pipelinePosts(unit: string, port: number): Promise<void> {
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tokenize', params: { text: unit.repeat(POST_CHARACTERS) } });
  const post = `POST /rpc HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
  const socket = rawConnect(port);
  let open = true;
  const closed = new Promise<void>((resolve) => socket.on('error', () => {}).on('close', () => resolve()));
  void closed.then(() => (open = false));
  socket.resume();
  const until = performance.now() + 15_000;
  for (let i = 0; i < POSTS && performance.now() < until && open; i++) {
    const taken = new Promise<void>((resolve) => socket.write(post, () => resolve()));
    await Promise.race([taken, closed]);
  }
  socket.destroy();
}
