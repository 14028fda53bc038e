/**
 * The daemon of the benchmark in a process of its own: the real one with step-engine.ts in its executor thread. `fork`ed with the --set
 * values as arguments; sends { ready, http, bare } and then answers each command with one message:
 *   { stepUs }       from now on a step takes this long
 *   { steps: from }  the times of the steps after the first `from`; how many there were, and the processor time used so far
 *   { stamps: true } when each request since the last time passed the front (requests are stamped from the first of these on)
 * Beside the daemon it answers whatever comes to a plain TCP port (`bare`) with a few bytes: what the same sockets cost without a daemon.
 * Ends when the parent goes away.
 */
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { setEnvironmentData } from 'node:worker_threads';
import type { EngineClient, RequestSink } from '../../../actors/client-types.js';
import { nowMs } from '../../../actors/runtime/clock.js';
import { loadConfig } from '../../../config/load.js';
import { resolveModelFolder } from '../../../config/models/model-folder.js';
import { startDaemon } from '../../../daemon/daemon.js';
import { type EngineHandle, startEngine } from '../../../daemon/life/engine.js';
import { createLog } from '../../../daemon/log.js';
import { privateEnv } from '../../helpers/daemon/daemon.js';
import { clockUs, STEP_LOG, StepLog, type StepTimes } from './step-log.js';

export type HostCommand = { readonly stepUs: number } | { readonly steps: number } | { readonly stamps: true };

export interface StepsAnswer {
  readonly times: readonly StepTimes[];
  readonly count: number;
  /** Of all threads, user and system. */
  readonly cpuUs: number;
}

/** One request in the front, clockUs. */
export interface Stamp {
  /** It was checked and given to the engine. */
  readonly submitted: number;
  /** Its prompt was encoded, as the front heard. */
  encoded: number;
  /** The scheduler began the turn that planned its first step. */
  planned: number;
  /** The front got its first token. */
  token: number;
}

let stamps: Stamp[] | null = null;

/** The client with a stamp for each request, once stamps were asked for. */
function stamping(client: EngineClient): EngineClient {
  return {
    submit(prompt, params, sink, from) {
      if (stamps === null) return client.submit(prompt, params, sink, from);
      // nowMs is the clock of queueMs; its distance to clockUs is the same for a while.
      const aheadUs = clockUs() - nowMs() * 1000;
      const arrivalUs = nowMs() * 1000 + aheadUs;
      const stamp: Stamp = { submitted: arrivalUs, encoded: 0, planned: 0, token: 0 };
      stamps.push(stamp);
      const stamped: RequestSink = {
        ...sink,
        onEncoded(...args) {
          stamp.encoded = clockUs();
          sink.onEncoded(...args);
        },
        onStarted(started) {
          stamp.planned = arrivalUs + started.queueMs * 1000;
          sink.onStarted(started);
        },
        onDeltas(deltas) {
          if (stamp.token === 0) stamp.token = clockUs();
          sink.onDeltas(deltas);
        },
      };
      return client.submit(prompt, params, stamped, from);
    },
    encode: (prompt, asker) => client.encode(prompt, asker),
    learnTexts: (ids, asker) => client.learnTexts(ids, asker),
    decode: (ids, skip, asker) => client.decode(ids, skip, asker),
    ask: (name, params) => client.ask(name, params),
    tokenText: (id) => client.tokenText(id),
    requests: () => client.requests(),
    model: () => client.model(),
    textBounds: () => client.textBounds(),
    state: () => client.state(),
    healthy: () => client.healthy(),
  };
}

function stampingEngine(engine: EngineHandle): EngineHandle {
  return {
    client: stamping(engine.client),
    ready: engine.ready,
    failed: engine.failed,
    drain: (deadlineMs) => engine.drain(deadlineMs),
    stop: () => engine.stop(),
    recorders: () => engine.recorders(),
    killActor: (kind, index) => engine.killActor(kind, index),
  };
}

const log = new StepLog();
setEnvironmentData(STEP_LOG, log.memory);
const env = privateEnv();
const { config } = loadConfig({ sets: process.argv.slice(2), env });
const daemon = await startDaemon({
  config,
  model: resolveModelFolder(config, env),
  log: createLog(config.log),
  publish: false,
  env,
  startEngine: (c, model, hooks) =>
    stampingEngine(startEngine(c, model, hooks, { executorModule: new URL('./step-engine.js', import.meta.url).href })),
});

function answer(command: HostCommand): StepsAnswer | readonly Stamp[] | null {
  if ('stepUs' in command) {
    log.stepUs = command.stepUs;
    return null;
  }
  if ('steps' in command) {
    const { user, system } = process.cpuUsage();
    return { times: log.since(command.steps), count: log.steps, cpuUs: user + system };
  }
  const taken = stamps ?? [];
  stamps = [];
  return taken;
}

process.on('message', (command: HostCommand) => process.send?.(answer(command)));
process.on('disconnect', () => process.exit(0));

/** As long as the first event of a stream. */
const reply = Buffer.alloc(200, '.');
const bare = createServer({ noDelay: true }, (socket) => {
  socket.on('data', () => socket.write(reply));
  socket.on('error', () => socket.destroy());
}).listen(0, '127.0.0.1');
await once(bare, 'listening');
process.send?.({ ready: daemon.addresses.ws, http: daemon.addresses.http, bare: (bare.address() as AddressInfo).port }); // proof: it listens on TCP
