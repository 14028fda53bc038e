/**
 * Cost of the actor runtime: round trips between threads that sleep meanwhile or look at their bells (which needs a core for each), packing
 * against raw bodies, cloning against transferring, and the wall time of a step through scheduler, executor, tokenizer and front with a model
 * that takes no time. Prints one JSON line:
 *
 *   node dist/test/bench/actors.js [round trips] [requests]
 */
import { argv, env, stdout } from 'node:process';
import { fileURLToPath } from 'node:url';
import { MessageChannel, receiveMessageOnPort, Worker } from 'node:worker_threads';
import { Codec } from '../../actors/messages/codec.js';
import { createDoorbell, listen, park } from '../../actors/runtime/doorbell.js';
import { silentLog } from '../../actors/runtime/log.js';
import { createLink, EventLink } from '../../actors/runtime/mailbox.js';
import { createRing, RingReader, RingWriter } from '../../actors/runtime/ring.js';
import { loadConfig } from '../../config/load.js';
import { resolveModelFolder } from '../../config/models/model-folder.js';
import { startEngine } from '../../daemon/life/engine.js';
import type { EchoThreadData } from '../actors/runtime/echo-thread.js';
import { fakeNativeEngineModule } from '../helpers/engine/fake-native-engine.js';
import { generation } from '../helpers/engine/generation.js';
import { origin, percentiles } from './report.js';

/** A plan of 16 decoding rows, roughly. */
const PLAN_BYTES = 832;
const RING = { capacityBytes: 2 ** 18, readers: 1, maxEntryBytes: 2 ** 16 };

/** Microseconds a call, after a warm-up. */
function perCall(times: number, work: () => void): number {
  for (let i = 0; i < times / 10; i++) work();
  const t = performance.now();
  for (let i = 0; i < times; i++) work();
  return Math.round(((performance.now() - t) / times) * 1e5) / 100;
}

/** A round trip is two hops. `spinUs`: as `park` takes it. */
async function roundTrips(times: number, spinUs: number): Promise<Record<string, unknown>> {
  const bell = createDoorbell();
  const peerBell = createDoorbell();
  const [own, link] = createLink(null, bell);
  const toEcho = createRing(RING);
  const fromEcho = createRing(RING);
  const workerData: EchoThreadData = { link, bell, peerBell, toEcho, fromEcho, spinUs };
  const worker = new Worker(new URL('../actors/runtime/echo-thread.js', import.meta.url), { workerData, transferList: [link.port] });
  let arrived: () => void = () => {};
  const front = new EventLink<object, object>(own, () => arrived());
  const links: number[] = [];
  const body = new Uint8Array(PLAN_BYTES);
  for (let i = 0; i < times; i++) {
    const t = performance.now();
    await new Promise<void>((resolve) => {
      arrived = resolve;
      front.post({ k: 'echo', body });
    });
    links.push((performance.now() - t) * 1000);
  }
  const writer = new RingWriter(toEcho, [bell]);
  const reader = new RingReader(fromEcho, 0, bell);
  const rings: number[] = [];
  for (let i = 0; i < times; i++) {
    const t = performance.now();
    writer.write(body);
    for (let heard = listen(peerBell); reader.read() === null; heard = listen(peerBell)) park(peerBell, heard, 500, spinUs);
    rings.push((performance.now() - t) * 1000);
  }
  front.post({ k: 'end' });
  front.flush();
  await new Promise((resolve) => worker.once('exit', resolve));
  front.close();
  const skip = Math.floor(times / 10);
  return { event_loop_to_parked_us: percentiles(links.slice(skip)), parked_to_parked_ring_us: percentiles(rings.slice(skip)) };
}

function bodies(times: number): Record<string, unknown> {
  const body = new Uint8Array(PLAN_BYTES);
  const codec = new Codec();
  const packed = perCall(times, () => {
    codec.decode(codec.encode([{ step: 1, epoch: 1, body }]));
  });
  const memory = createRing(RING);
  const bell = createDoorbell();
  const writer = new RingWriter(memory, [bell]);
  const reader = new RingReader(memory, 0, bell);
  const raw = perCall(times, () => {
    writer.write(body);
    reader.read();
  });
  const { port1, port2 } = new MessageChannel();
  const post = (bytes: number, transfer: boolean): number =>
    perCall(times / 10, () => {
      const own = new Uint8Array(bytes);
      port1.postMessage(own, transfer ? [own.buffer] : []);
      receiveMessageOnPort(port2);
    });
  const sizes = [256, 2048, 4096, 16_384, 65_536];
  const cloneOrTransfer = Object.fromEntries(sizes.map((n) => [n, { clone: post(n, false), transfer: post(n, true) }]));
  port1.close();
  return { plan_bytes: PLAN_BYTES, envelope_pack_unpack_us: packed, ring_write_read_raw_us: raw, post_us: cloneOrTransfer };
}

/** Wall time of a step of the whole engine when the model takes none, and the time from submit to the first token. */
async function steps(requests: number): Promise<Record<string, unknown>> {
  const { config } = loadConfig({ env: {}, sets: ['scheduler.max_model_len=256'] });
  const model = resolveModelFolder(config, {});
  const executorModule = fakeNativeEngineModule({ vocab: model.vocabSize });
  const engine = startEngine(config, model, { log: silentLog }, { executorModule });
  await engine.ready;
  const maxTokens = 200;
  const firsts: number[] = [];
  const ask = (): Promise<void> =>
    new Promise((resolve) => {
      const t = performance.now();
      engine.client.submit({ kind: 'ids', ids: [1, 2, 3, 4] }, generation({ ignoreEos: true, maxTokens }), {
        onEncoded() {},
        onNotice() {},
        onStarted: () => firsts.push((performance.now() - t) * 1000),
        onPromptLogprobs() {},
        onDeltas() {},
        onEnd: () => resolve(),
      });
    });
  await Promise.all(Array.from({ length: requests }, ask));
  firsts.length = 0;
  const before = (await engine.client.ask('stats', null)).step.count;
  const t = performance.now();
  for (let round = 0; round < 3; round++) await Promise.all(Array.from({ length: requests }, ask));
  const ms = performance.now() - t;
  const count = (await engine.client.ask('stats', null)).step.count - before;
  await engine.stop();
  return { requests, steps: count, wall_us_per_step: Math.round((ms * 1000) / count), submit_to_first_token_us: percentiles(firsts) };
}

// The test runner loads every file below a folder called test; it must not run a benchmark.
if (argv[1] === fileURLToPath(import.meta.url) && env['NODE_TEST_CONTEXT'] === undefined) {
  const trips = Number(argv[2] ?? 5000);
  const result = {
    bench: 'actors',
    round_trip: await roundTrips(trips, 0),
    looking_round_trip: await roundTrips(trips, 1000),
    body: bodies(trips * 4),
    engine_alone: await steps(1),
    engine_batch: await steps(Number(argv[3] ?? 16)),
    ...origin(),
  };
  stdout.write(`${JSON.stringify(result)}\n`);
}
