/**
 * One client of the soak: connects, asks a few questions in the ways below, one or several at a time, and goes away again, until told to
 * stop. Each way is one function; the table at the end says how often each is taken.
 */
import { request as httpRequest } from 'node:http';
import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Reply } from '../../helpers/wire/rpc-socket.js';
import { Connection, type Outcome } from './connection.js';
import { countingTask } from './counting.js';
import type { Figures } from './figures.js';
import type { Gate } from './gate.js';
import { type Deeds, judge } from './judge.js';
import type { Random } from './random.js';
import type { Life, Target } from './target.js';

const METHOD = 'chat.completions.create';
const QUESTIONS_PER_CONNECTION = 12;
const MAX_AT_ONCE = 3;
/** Longer than any answer may take; then the request counts as lost. */
const ANSWER_TIMEOUT_MS = 60_000;
/** Longer than server.slow_client_timeout_s of the target. */
const STALL_MS = 2500;

export class Client {
  readonly #target: Target;
  readonly #gate: Gate;
  readonly #figures: Figures;
  readonly #random: Random;

  constructor(target: Target, gate: Gate, figures: Figures, random: Random) {
    this.#target = target;
    this.#gate = gate;
    this.#figures = figures;
    this.#random = random;
  }

  /** Until `gate` is shut for good. */
  async run(): Promise<void> {
    while (await this.#gate.enter()) {
      try {
        await this.#visit();
      } finally {
        this.#gate.leave();
      }
    }
  }

  async #visit(): Promise<void> {
    const life = await this.#target.current();
    if (life === null) return;
    const way = this.#random.weighted(ways);
    if (typeof way !== 'string') {
      const connection = await Connection.open(life, this.#figures, this.#random.chance(0.5));
      if (connection === null) await sleep(50);
      else await this.#converse(connection, way);
    } else if (way === 'http') await this.#post(life);
    else await this.#tornFrame(life);
  }

  async #converse(connection: Connection, first: Way): Promise<void> {
    let way: Way | 'http' | 'torn frame' = first;
    for (let asked = 0; asked < QUESTIONS_PER_CONNECTION && !connection.closed && this.#gate.open; ) {
      const atOnce = way === stall ? 1 : this.#random.between(1, MAX_AT_ONCE);
      const batch = [way, ...Array.from({ length: atOnce - 1 }, () => this.#random.weighted(harmless))];
      await Promise.all(batch.map((one) => this.#ask(connection, one, batch)));
      asked += batch.length;
      // A daemon that missed a pong may still be about to drop the connection.
      if (way === stall) break;
      way = this.#random.weighted(ways);
      if (typeof way === 'string') break;
    }
    await connection.close();
  }

  async #ask(connection: Connection, way: Way, batch: readonly Way[]): Promise<void> {
    this.#figures.count('requests');
    this.#figures.count(`requests: ${way.name}`);
    const { want, prompt } = countingTask(this.#random);
    const body = { messages: [{ role: 'user', content: prompt }], temperature: 0 };
    const { deeds, outcome } = way(connection, body, this.#random, this.#figures);
    const done = await Promise.race([outcome, sleep(ANSWER_TIMEOUT_MS, null, { ref: false })]);
    if (done === null) {
      this.#figures.violation(`a request was not answered within ${ANSWER_TIMEOUT_MS} ms (${way.name})`);
      connection.ws.terminate();
      return;
    }
    // What one request of a connection does to the socket, it does to the others too.
    const disconnected = batch.includes(disconnect);
    await judge(done, { ...deeds, way: way.name, want, ...(disconnected ? { disconnected } : {}) }, connection.life, this.#figures);
  }

  /** One call over HTTP; one in four leaves before the answer. */
  async #post(life: Life): Promise<void> {
    this.#figures.count('requests');
    this.#figures.count('requests: http');
    const { want, prompt } = countingTask(this.#random);
    const params = { messages: [{ role: 'user', content: prompt }], temperature: 0 };
    const disconnected = this.#random.chance(0.25);
    const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: METHOD, params });
    const reply = await new Promise<Reply | null>((resolve) => {
      const headers = { 'content-type': 'application/json' };
      const call = httpRequest(`${life.http}/rpc`, { method: 'POST', headers, agent: false, timeout: ANSWER_TIMEOUT_MS }, (response) => {
        const parts: Buffer[] = [];
        response.on('data', (part: Buffer) => parts.push(part));
        response.on('error', () => resolve(null));
        response.on('end', () => resolve(JSON.parse(Buffer.concat(parts).toString('utf8')) as Reply));
      });
      call.on('timeout', () => call.destroy());
      call.on('error', () => resolve(null));
      call.end(body);
      if (disconnected) setTimeout(() => call.destroy(), this.#random.between(0, 150));
    });
    if (reply !== null && reply.jsonrpc === undefined) this.#figures.count('refused over HTTP');
    else
      await judge(
        { reply, texts: [], lastSeq: -1, closed: 'HTTP' },
        { way: 'http', want, streamed: false, disconnected },
        life,
        this.#figures,
      );
  }

  /** Sends a request in two frames and a half and cuts the connection inside the last one. */
  async #tornFrame(life: Life): Promise<void> {
    this.#figures.count('connections cut inside a frame');
    const { hostname, port } = new URL(life.http);
    const socket = connect(Number(port), hostname);
    socket.on('error', () => {});
    const head = `GET / HTTP/1.1\r\nHost: ${hostname}:${port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n`;
    socket.write(`${head}Sec-WebSocket-Key: ${Buffer.alloc(16, 7).toString('base64')}\r\nSec-WebSocket-Version: 13\r\n\r\n`);
    const { prompt } = countingTask(this.#random);
    const ask = (id: number) => {
      const params = { messages: [{ role: 'user', content: prompt }], stream: true };
      return maskedFrame(Buffer.from(JSON.stringify({ jsonrpc: '2.0', id, method: METHOD, params })));
    };
    const bytes = Buffer.concat([ask(1), ask(2), ask(3)]);
    socket.write(bytes.subarray(0, bytes.length - this.#random.between(1, ask(3).length - 1)));
    await sleep(this.#random.between(0, 120));
    if (this.#random.chance(0.5)) socket.resetAndDestroy();
    else socket.destroy();
  }
}

/** A masked text frame of 126 to 65,535 bytes (RFC 6455, 5.2); the mask is zero, so the bytes stay as they are. */
function maskedFrame(payload: Buffer): Buffer {
  const head = Buffer.from([0x81, 0x80 | 126, payload.length >> 8, payload.length & 0xff, 0, 0, 0, 0]);
  return Buffer.concat([head, payload]);
}

type Body = Readonly<Record<string, unknown>>;
type Way = (
  connection: Connection,
  body: Body,
  random: Random,
  figures: Figures,
) => { readonly deeds: Omit<Deeds, 'want' | 'way'>; readonly outcome: Promise<Outcome> };

const whole: Way = (connection, body) => ({ deeds: { streamed: false }, outcome: connection.ask(METHOD, body).outcome });

const streamed: Way = (connection, body) => ({
  deeds: { streamed: true },
  outcome: connection.ask(METHOD, { ...body, stream: true }, true).outcome,
});

/** Several choices want a temperature above 0; with one candidate they are all the likeliest text. */
const sampledAlike = { temperature: 1, top_k: 1 };

const severalChoices: Way = (connection, body) => ({
  deeds: { streamed: true },
  outcome: connection.ask(METHOD, { ...body, ...sampledAlike, n: 2, max_tokens: 200, stream: true }).outcome,
});

/** Grants little credit at a time, now and then. */
const dribble: Way = (connection, body, random) => {
  const { id, outcome } = connection.ask(METHOD, { ...body, stream: { credit: random.between(0, 8) } });
  let done = false;
  void outcome.finally(() => {
    done = true;
  });
  void (async () => {
    while (!done && !connection.closed) {
      connection.send({ jsonrpc: '2.0', method: '$/credit', params: { token: id, n: random.between(1, 30) } });
      await sleep(random.between(1, 100));
    }
  })();
  return { deeds: { streamed: true }, outcome };
};

const starve: Way = (connection, body, random) => ({
  deeds: { streamed: true, starved: true },
  outcome: connection.ask(METHOD, { ...body, stream: { credit: random.between(0, 4) } }).outcome,
});

const cancel: Way = (connection, body, random, figures) => {
  const streams = random.chance(0.5);
  const { id, outcome } = connection.ask(METHOD, { ...body, stream: streams });
  void sleep(random.between(0, 250)).then(() => {
    figures.count('cancels sent');
    connection.send({ jsonrpc: '2.0', method: '$/cancelRequest', params: { id } });
  });
  return { deeds: { streamed: streams, cancelled: true }, outcome };
};

const disconnect: Way = (connection, body, random, figures) => {
  const { outcome } = connection.ask(METHOD, { ...body, stream: true });
  const gone = sleep(random.between(0, 250)).then(() => {
    figures.count('disconnects');
    connection.ws.terminate();
  });
  return { deeds: { streamed: true, disconnected: true }, outcome: gone.then(() => outcome) };
};

/** Asks for megabytes and stops reading for longer than the daemon bears. */
const stall: Way = (connection, body, random, figures) => {
  const fat = { ...body, ...sampledAlike, n: 3, logprobs: true, top_logprobs: 20, ignore_eos: true, max_tokens: 480, stream: true };
  const { outcome } = connection.ask(METHOD, fat);
  const over = sleep(random.between(50, 300)).then(async () => {
    if (connection.closed) return;
    figures.count('stalls');
    connection.ws.pause();
    await sleep(STALL_MS);
    connection.ws.resume();
  });
  return { deeds: { streamed: true, stalled: true, goesOn: true }, outcome: over.then(() => outcome) };
};

const harmless: readonly (readonly [number, Way])[] = [
  [3, whole],
  [5, streamed],
  [1, severalChoices],
  [2, dribble],
  [2, cancel],
];
const ways: readonly (readonly [number, Way | 'http' | 'torn frame'])[] = [
  ...harmless,
  [1.5, disconnect],
  [0.3, starve],
  [0.12, stall],
  [2, 'http'],
  [1, 'torn frame'],
];
