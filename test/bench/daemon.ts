/**
 * What the daemon itself costs: the real daemon in a process of its own (sockets, front, tokenizer, scheduler, executor), an engine that
 * takes a known time and computes nothing (daemon/step-engine.ts), and bare clients in a second process (daemon/bare-socket.ts). Daemon
 * and clients share the machine's cores; the targets are for two (`taskset -c 0,1` where there are more) and an idle machine.
 *
 *   npm run bench:daemon [-- --only first,streams,sse,stall,steps --seconds-scale 1 --set scheduler.spin_us=200 --gates --cpu-prof DIR]
 *
 * Prints one JSON line a part. With --gates it exits with 1 when a target of `targets` is missed.
 *
 *   first    Time to the first token that is the daemon's own. A chat request with a prompt of 100 tokens, streamed, one at a time, in
 *            JSON text; steps of 2 ms; the next one at once, or 5 to 10 ms later, when processors have gone to sleep.
 *                added = (step submitted - request sent) + (first token read - step done)
 *            Sent: just before the client's write. Submitted, done: the executor calls the engine, the engine's wait returns. Read: the
 *            client has read the bytes. Of these stages the first three are before the step, the last two behind it:
 *                to_front      sent -> parameters checked and given to the engine's door
 *                to_scheduler  -> the turn of the scheduler that plans it (template, encoding, two threads); `encoded` of it until the
 *                              front hears of the encoded prompt
 *                to_engine     -> step submitted
 *                to_front_back step done -> the front has the text of the token (scheduler, tokenizer)
 *                to_client     -> bytes read by the client
 *            bare_socket is the floor: a round trip of as many bytes between the same two processes, each asleep before for as long as in a
 *            request (four steps and the pause); to_front and to_client hold one such trip, the client's own write and read included.
 *   streams  Tokens a second to 64 connections with one stream each, in JSON text and in msgpack, from the first request to the last
 *            response. Tokens of one stream that come together (two steps, before the scheduler looked) are one notification. `paced`: a
 *            step of 64 tokens takes 0.9 ms, so that at most 71,000 a second are made and nearly each has a notification of its own; the
 *            target is for notifications. `free`: a step takes no time, and they come in pairs.
 *   sse      Tokens a second to 256 connections with one stream of server-sent events each, over POST /v1/completions, steps of no time.
 *   stall    One of 64 clients stops reading: how that changes the gap between two tokens of the other 63, with steps of 5 ms. Rounds of
 *            three kinds in turn: all read; one stops reading at its first token (`fresh`); one stopped before and all its buffers, the
 *            daemon's 1 MiB too, are full, its streams paused (`full`). The ratio of p99s is taken within each turn.
 *   steps    Idle time of the engine between two steps: from the end of one to the submission of the next, 0 when that was earlier; at
 *            64 and 256 sequences, steps of 2 ms and of no time. And the scheduler's own time a step (scheduler.ts) at 256.
 */
import { execFileSync } from 'node:child_process';
import { argv, env, execPath, exit, stdout } from 'node:process';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { median } from '../../daemon/cli/bench/limits.js';
import type { Encoding } from './daemon/bare-socket.js';
import type { FirstToken } from './daemon/client.js';
import type { Stamp } from './daemon/host.js';
import { Clients, Host } from './daemon/processes.js';
import type { StepTimes } from './daemon/step-log.js';
import { origin, percentiles } from './report.js';

const targets = { firstP50Us: 500, firstP99Us: 2000, tokensPerS: 60_000, sseTokensPerS: 50_000, stallRatio: 1.1, schedulerUs: 100 };
const STREAMS = 64;

interface Setup {
  readonly clients: Clients;
  /** Multiplies the length of every part. */
  readonly scale: number;
  /** Of the daemon, besides its own: "section.key=value". */
  readonly sets: readonly string[];
  readonly nodeArgs: readonly string[];
}

/** Figures of a part, and which targets it missed. */
type Part = (setup: Setup) => Promise<{ readonly figures: object; readonly missed: readonly string[] }>;

const missedOf = (checks: Readonly<Record<string, boolean>>): string[] => Object.keys(checks).filter((name) => checks[name] === false);

async function withHost<T>(setup: Setup, sequences: number, work: (host: Host) => Promise<T>): Promise<T> {
  const host = await Host.start([`scheduler.max_num_sequences=${sequences}`, ...setup.sets], setup.nodeArgs);
  try {
    return await work(host);
  } finally {
    await host.end();
  }
}

/** Requests until the code that they run is compiled, as it is in a daemon that has served for a while. */
const FIRST_WARM_UP = 3000;
/** Of such a request. */
const FIRST_BYTES = 550;
/** Four steps. */
const FIRST_ASLEEP_MS = 8;

const first: Part = (setup) =>
  withHost(setup, STREAMS, async (host) => {
    const round = { url: host.url, encoding: 'json' as const, promptTokens: 100, answerTokens: 4 };
    await setup.clients.first({ ...round, pauseMs: 0, requests: FIRST_WARM_UP });
    await host.setStepUs(2000);
    const figures: Record<string, object> = {};
    const missed: string[] = [];
    for (const [name, pauseMs] of [
      ['back_to_back', 0],
      ['after_5_ms', 5],
    ] as const) {
      await host.stamps();
      const { count } = await host.steps(Number.MAX_SAFE_INTEGER);
      const requests = await setup.clients.first({ ...round, pauseMs, requests: Math.round(1500 * setup.scale) });
      const { times } = await host.steps(count);
      const stages = stagesOf(requests, await host.stamps(), times);
      const bareRound = {
        port: host.bare,
        bytes: FIRST_BYTES,
        requests: Math.round(500 * setup.scale),
        pauseMs: pauseMs + FIRST_ASLEEP_MS,
      };
      const added = percentiles(stages.map((s) => s.added));
      figures[name] = {
        prompt_tokens: median(requests.map((r) => r.promptTokens)),
        bare_socket_us: percentiles(await setup.clients.bare(bareRound)),
        added_us: added,
        ...Object.fromEntries(stageNames.map((stage) => [`${stage}_us`, percentiles(stages.map((s) => s[stage]))])),
      };
      if (added.p50 > targets.firstP50Us) missed.push(`first token p50, ${name}`);
      if (added.p99 > targets.firstP99Us) missed.push(`first token p99, ${name}`);
    }
    return { figures, missed };
  });

const stageNames = ['to_front', 'encoded', 'to_scheduler', 'to_engine', 'to_front_back', 'to_client'] as const;
type Stages = Readonly<Record<(typeof stageNames)[number] | 'added', number>>;

/** The first step submitted after a request was sent is its own: there is one request at a time. */
function stagesOf(requests: readonly FirstToken[], stamps: readonly Stamp[], steps: readonly StepTimes[]): Stages[] {
  return requests.map((request, i) => {
    const stamp = stamps[i];
    const step = steps.find((s) => s.submitted > request.sent);
    if (stamp === undefined || step === undefined) throw new Error('a request without its step');
    return {
      to_front: stamp.submitted - request.sent,
      encoded: stamp.encoded - stamp.submitted,
      to_scheduler: stamp.planned - stamp.submitted,
      to_engine: step.submitted - stamp.planned,
      to_front_back: stamp.token - step.done,
      to_client: request.received - stamp.token,
      added: step.submitted - request.sent + request.received - step.done,
    };
  });
}

interface StreamsFigures {
  readonly tokensPerS: number;
  readonly notificationsPerToken: number;
  readonly daemonUs: number;
  readonly clientUs: number;
}

async function streamsOnce(setup: Setup, host: Host, encoding: Encoding, tokens: number): Promise<StreamsFigures> {
  const before = await host.steps(Number.MAX_SAFE_INTEGER);
  const answer = await setup.clients.streams({ url: host.url, encoding, streams: STREAMS, tokens, stall: false, gaps: false });
  const after = await host.steps(Number.MAX_SAFE_INTEGER);
  return {
    tokensPerS: (answer.tokens / answer.us) * 1e6,
    notificationsPerToken: answer.notifications / answer.tokens,
    daemonUs: (after.cpuUs - before.cpuUs) / answer.tokens,
    clientUs: answer.cpuUs / answer.tokens,
  };
}

const PACED_STEP_US = 900;

const streams: Part = (setup) =>
  withHost(setup, STREAMS, async (host) => {
    const figures: Record<string, object> = {};
    const missed: string[] = [];
    for (const [pace, stepUs, tokens] of [
      ['paced', PACED_STEP_US, 3000],
      ['free', 0, 3000],
    ] as const) {
      await host.setStepUs(stepUs);
      for (const encoding of ['json', 'msgpack'] as const) {
        const rounds: StreamsFigures[] = [];
        for (let turn = 0; turn <= 5; turn++) {
          const round = await streamsOnce(setup, host, encoding, Math.round(tokens * setup.scale));
          if (turn > 0) rounds.push(round); // the first warms up
        }
        const rates = rounds.map((r) => Math.round(r.tokensPerS));
        const middle = (of: (r: StreamsFigures) => number): number => Math.round(median(rounds.map(of)) * 1000) / 1000;
        figures[`${pace}_${encoding}`] = {
          tokens_per_s: { median: median(rates), min: Math.min(...rates), max: Math.max(...rates) },
          notifications_per_token: middle((r) => r.notificationsPerToken),
          daemon_cpu_us_per_token: middle((r) => r.daemonUs),
          client_cpu_us_per_token: middle((r) => r.clientUs),
        };
        // Paced, notifications are counted: each token that shares one with another counts against the target.
        const reached = pace === 'paced' ? median(rounds.map((r) => r.tokensPerS * r.notificationsPerToken)) : median(rates);
        if (reached < targets.tokensPerS) missed.push(`tokens a second, ${pace}, ${encoding}`);
      }
    }
    return { figures: { streams: STREAMS, paced_step_us: PACED_STEP_US, ...figures }, missed };
  });

const SSE_STREAMS = 256;

const sse: Part = (setup) =>
  withHost(setup, SSE_STREAMS, async (host) => {
    await host.setStepUs(0);
    const tokens = Math.round(1000 * setup.scale);
    const rounds: { readonly perS: number; readonly eventsPerToken: number; readonly daemonUs: number; readonly clientUs: number }[] = [];
    for (let turn = 0; turn <= 5; turn++) {
      const before = await host.steps(Number.MAX_SAFE_INTEGER);
      const answer = await setup.clients.sse({ url: host.http, streams: SSE_STREAMS, tokens });
      const after = await host.steps(Number.MAX_SAFE_INTEGER);
      if (turn === 0) continue; // it warms up
      const { tokens: made, events, us, cpuUs } = answer;
      const daemonUs = (after.cpuUs - before.cpuUs) / made;
      rounds.push({ perS: (made / us) * 1e6, eventsPerToken: events / made, daemonUs, clientUs: cpuUs / made });
    }
    const rates = rounds.map(({ perS }) => Math.round(perS));
    const middle = (of: (round: (typeof rounds)[number]) => number): number => Math.round(median(rounds.map(of)) * 1000) / 1000;
    const figures = {
      streams: SSE_STREAMS,
      tokens_per_s: { median: median(rates), min: Math.min(...rates), max: Math.max(...rates) },
      events_per_token: middle((r) => r.eventsPerToken),
      daemon_cpu_us_per_token: middle((r) => r.daemonUs),
      client_cpu_us_per_token: middle((r) => r.clientUs),
    };
    return { figures, missed: median(rates) < targets.sseTokensPerS ? ['tokens a second, sse'] : [] };
  });

const STALL_STEP_US = 5000;
const kinds = ['all', 'fresh', 'full'] as const;
/** Streams of the client that fills all buffers, and their tokens: some 40 MB; the system's two buffers and the daemon's held 13. */
const FILL = { streams: 24, tokens: 4000 };

const stall: Part = (setup) =>
  withHost(setup, STREAMS + FILL.streams, async (host) => {
    const tokens = Math.round(500 * setup.scale);
    const p99s: Record<(typeof kinds)[number], number[]> = { all: [], fresh: [], full: [] };
    const gaps: Record<(typeof kinds)[number], Float64Array[]> = { all: [], fresh: [], full: [] };
    for (let turn = 0; turn <= 7; turn++) {
      for (const kind of turn % 2 === 0 ? kinds : kinds.toReversed()) {
        if (kind === 'full') await fillUp(setup.clients, host);
        await host.setStepUs(STALL_STEP_US);
        const number = kind === 'full' ? STREAMS - 1 : STREAMS;
        const round = { url: host.url, encoding: 'json' as const, streams: number + (kind === 'full' ? 1 : 0), tokens, gaps: true };
        const answer = await setup.clients.streams({ ...round, streams: round.streams, stall: kind === 'fresh' });
        if (kind === 'full') await setup.clients.unfill();
        if (turn === 0) continue;
        p99s[kind].push(percentiles(answer.gaps).p99);
        gaps[kind].push(answer.gaps);
      }
    }
    const ratio = (kind: 'fresh' | 'full'): number =>
      Math.round(median(p99s[kind].map((p99, turn) => p99 / (p99s.all[turn] ?? Number.NaN))) * 1000) / 1000;
    const pooled = (kind: (typeof kinds)[number]): object => percentiles(gaps[kind].flatMap((g) => [...g]));
    return {
      figures: {
        streams: STREAMS,
        step_us: STALL_STEP_US,
        gap_us: Object.fromEntries(kinds.map((kind) => [kind, pooled(kind)])),
        p99_by_turn_us: p99s,
        p99_ratio: { fresh: ratio('fresh'), full: ratio('full') },
      },
      missed: missedOf({ 'stalled client': Math.max(ratio('fresh'), ratio('full')) < targets.stallRatio }),
    };
  });

/** Returns when a client that reads nothing has filled everything, so that its streams are paused and no step runs any more. */
async function fillUp(clients: Clients, host: Host): Promise<void> {
  await host.setStepUs(0);
  const { count } = await host.steps(Number.MAX_SAFE_INTEGER);
  await clients.fill({ url: host.url, encoding: 'json', ...FILL });
  let steps = 0;
  for (let before = -1; steps !== before || steps === 0; ) {
    await sleep(300);
    before = steps;
    steps = (await host.steps(Number.MAX_SAFE_INTEGER)).count - count;
  }
  if (steps >= FILL.tokens) throw new Error('the client that reads nothing got all of its answers');
}

const steps: Part = async (setup) => {
  const figures: Record<string, object> = {};
  for (const sequences of [64, 256]) {
    for (const stepUs of [0, 2000]) {
      figures[`${sequences}_sequences_${stepUs}_us`] = await withHost(setup, sequences, async (host) => {
        await host.setStepUs(stepUs);
        const round = { url: host.url, encoding: 'json' as const, streams: sequences, tokens: Math.round(1000 * setup.scale) };
        const answer = await setup.clients.streams({ ...round, stall: false, gaps: false });
        const { times } = await host.steps(0);
        const middle = times.slice(times.length >> 2, -(times.length >> 3)); // all decode
        const [begin, end] = [middle[0]?.began ?? 0, middle.at(-1)?.began ?? 0];
        const idle = middle.slice(1).reduce((sum, step) => sum + step.idle, 0);
        return {
          steps: middle.length,
          period_us: Math.round(((end - begin) / (middle.length - 1)) * 10) / 10,
          idle_us: percentiles(middle.map((step) => step.idle)),
          idle_share: Math.round((idle / (end - begin)) * 1e4) / 1e4,
          tokens_per_s: Math.round((answer.tokens / answer.us) * 1e6),
        };
      });
    }
  }
  const line = execFileSync(execPath, [fileURLToPath(new URL('./scheduler.js', import.meta.url)), '256'], { encoding: 'utf8' });
  const { decode_us } = JSON.parse(line) as { readonly decode_us: { readonly p50: number } };
  return {
    figures: { engine: figures, scheduler_us_256_sequences: decode_us },
    missed: missedOf({ 'scheduler time': decode_us.p50 <= targets.schedulerUs }),
  };
};

const parts: Readonly<Record<string, Part>> = { first, streams, sse, stall, steps };

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      only: { type: 'string', default: Object.keys(parts).join(',') },
      'seconds-scale': { type: 'string', default: '1' },
      set: { type: 'string', multiple: true, default: [] },
      gates: { type: 'boolean', default: false },
      'cpu-prof': { type: 'string' },
    },
  });
  const folder = values['cpu-prof'];
  const nodeArgs = folder === undefined ? [] : ['--cpu-prof', `--cpu-prof-dir=${folder}`];
  const clients = await Clients.start();
  let missed: readonly string[] = [];
  for (const name of values.only.split(',')) {
    const part = parts[name];
    if (part === undefined) throw new Error(`--only takes ${Object.keys(parts).join(', ')}`);
    const done = await part({ clients, scale: Number(values['seconds-scale']), sets: values.set, nodeArgs });
    missed = [...missed, ...done.missed];
    stdout.write(`${JSON.stringify({ bench: `daemon ${name}`, sets: values.set, ...done.figures, missed: done.missed, ...origin() })}\n`);
  }
  await clients.end();
  if (values.gates && missed.length > 0) exit(1);
}

// The test runner loads every file below a folder called test; it must not run a benchmark.
if (argv[1] === fileURLToPath(import.meta.url) && env['NODE_TEST_CONTEXT'] === undefined) await main();
