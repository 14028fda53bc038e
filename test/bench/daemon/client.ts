/**
 * The clients of the benchmark, all in one process of their own; `fork`ed by daemon.ts, answers each command with one message.
 *   { first }    one request after the other: when each was sent and when its first token came
 *   { bare }     the same bytes over a plain socket to somebody who answers at once
 *   { streams }  so many connections with one stream each, all begun together: frames, time, gaps between two tokens
 *   { sse }      the same over HTTP
 * Ends when the parent goes away.
 */
import { once } from 'node:events';
import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { BareSocket, type Encoding } from './bare-socket.js';
import { type SseRound, sseStreams } from './sse-clients.js';
import { clockUs } from './step-log.js';

export interface FirstRound {
  readonly url: string;
  readonly encoding: Encoding;
  readonly requests: number;
  readonly promptTokens: number;
  readonly answerTokens: number;
  /** Between the end of an answer and the next request; up to as much again is added at random. */
  readonly pauseMs: number;
}

export interface BareRound {
  readonly port: number;
  readonly requests: number;
  /** As long as a request of the daemon's. */
  readonly bytes: number;
  /** Between two of them, as long as the daemon and the client sleep between two requests; up to as much again is added at random. */
  readonly pauseMs: number;
}

export interface FirstToken {
  readonly sent: number;
  readonly received: number;
  readonly promptTokens: number;
}

export interface StreamsRound {
  readonly url: string;
  readonly encoding: Encoding;
  readonly streams: number;
  readonly tokens: number;
  /** The last of them stops reading at its first token. */
  readonly stall: boolean;
  /** Keep the gaps between tokens of the others; else only frames are counted. */
  readonly gaps: boolean;
}

export interface StreamsAnswer {
  readonly notifications: number;
  /** By the responses. */
  readonly tokens: number;
  /** From the first request to the last response. */
  readonly us: number;
  /** Processor time of this process meanwhile. */
  readonly cpuUs: number;
  /** Microseconds between two tokens of a stream, all streams but the last. */
  readonly gaps: Float64Array;
}

export type ClientCommand =
  | { readonly first: FirstRound }
  | { readonly bare: BareRound }
  | { readonly streams: StreamsRound }
  | { readonly sse: SseRound }
  | { readonly fill: FillRound }
  | { readonly unfill: true };

/** A client that opens streams, reads nothing of them and stays until { unfill }. */
export interface FillRound {
  readonly url: string;
  readonly encoding: Encoding;
  readonly streams: number;
  readonly tokens: number;
}

interface Result {
  readonly usage: { readonly prompt_tokens: number; readonly completion_tokens: number };
}

/** Longest token of a stream that the protocol takes: it is repeated in every event, and so fills buffers fast. */
const LONG_TOKEN = 256;

let filling: BareSocket | null = null;

function responded(socket: BareSocket): Promise<Result> {
  return new Promise((resolve, reject) => {
    socket.onResponse = (message) => {
      if (message['error'] === undefined)
        resolve(message['result'] as Result); // by the contract
      else reject(new Error(JSON.stringify(message['error'])));
    };
  });
}

const words = 'The old fox walked over the hill and told a story about the sea to nobody but the wind in the tall grass'.split(' ');

async function tokensOf(socket: BareSocket, content: string): Promise<number> {
  const counted = responded(socket) as Promise<unknown>;
  socket.send({
    jsonrpc: '2.0',
    id: 0,
    method: 'tokenize',
    params: { messages: [{ role: 'user', content }], add_generation_prompt: true },
  });
  return ((await counted) as { readonly count: number }).count;
}

/** Different text for each request, so that nothing of it is in a cache; as many words as give the wanted number of tokens. */
const text = (request: number, numWords: number): string =>
  Array.from({ length: numWords }, (_, i) => words[(i * 7 + request * 3 + (request >> 4) * i) % words.length]).join(' ');

async function first(round: FirstRound): Promise<FirstToken[]> {
  const socket = await BareSocket.open(round.url, round.encoding);
  let numWords = 10;
  while ((await tokensOf(socket, text(0, numWords))) < round.promptTokens) numWords++;
  const times: FirstToken[] = [];
  for (let id = 1; id <= round.requests; id++) {
    let received = 0;
    socket.onNotification = (readUs) => {
      if (received === 0) received = readUs;
    };
    const over = responded(socket);
    const messages = [{ role: 'user', content: text(id, numWords) }];
    const sent = socket.send({
      jsonrpc: '2.0',
      id,
      method: 'chat.completions.create',
      params: { messages, max_tokens: round.answerTokens, ignore_eos: true, stream: true },
    });
    const { usage } = await over;
    times.push({ sent, received, promptTokens: usage.prompt_tokens });
    await sleep(round.pauseMs * (1 + Math.random()));
  }
  socket.close();
  return times;
}

async function bare(round: BareRound): Promise<number[]> {
  const buffer = Buffer.allocUnsafe(4096);
  let read: (atUs: number) => void = () => {};
  const onread = { buffer, callback: () => read(clockUs()) as unknown as boolean }; // the answer is optional
  const socket = connect({ host: '127.0.0.1', port: round.port, noDelay: true, onread });
  await once(socket, 'connect');
  const times: number[] = [];
  for (let i = 0; i < round.requests; i++) {
    const answered = new Promise<number>((resolve) => {
      read = resolve;
    });
    const bytes = Buffer.alloc(round.bytes, '.');
    const sent = clockUs();
    socket.write(bytes);
    times.push((await answered) - sent);
    await sleep(round.pauseMs * (1 + Math.random()));
  }
  socket.destroy();
  return times;
}

/** A text completion of 16 token ids. */
function completion(id: number, tokens: number, token: string | number): object {
  const prompt = Array.from({ length: 16 }, (_, i) => 300 + ((id * 37 + i * 11) % 512));
  return { jsonrpc: '2.0', id, method: 'completions.create', params: { prompt, max_tokens: tokens, ignore_eos: true, stream: { token } } };
}

async function streams(round: StreamsRound): Promise<StreamsAnswer> {
  const sockets = await Promise.all(Array.from({ length: round.streams }, () => BareSocket.open(round.url, round.encoding)));
  const reading = round.stall ? sockets.slice(0, -1) : sockets;
  const gaps = round.gaps ? new Float64Array((round.streams - 1) * round.tokens) : new Float64Array(0);
  let numGaps = 0;
  let notifications = 0;
  sockets.forEach((socket, i) => {
    let last = 0;
    const timed = round.gaps && i < round.streams - 1;
    socket.onNotification = (readUs) => {
      notifications++;
      if (!timed) return;
      if (last !== 0) gaps[numGaps++] = readUs - last;
      last = readUs;
    };
  });
  const stalled = round.stall ? sockets.at(-1) : undefined;
  if (stalled !== undefined) stalled.onNotification = () => stalled.stall();
  const cpu = process.cpuUsage();
  const began = clockUs();
  const over = reading.map(responded);
  sockets.forEach((socket, i) => {
    socket.send(completion(i + 1, round.tokens, i + 1));
  });
  const results = await Promise.all(over);
  const us = clockUs() - began;
  const { user, system } = process.cpuUsage(cpu);
  for (const socket of sockets) socket.close();
  const tokens = results.reduce((sum, result) => sum + result.usage.completion_tokens, 0);
  return { notifications, tokens, us, cpuUs: user + system, gaps: gaps.subarray(0, numGaps) };
}

async function fill(round: FillRound): Promise<null> {
  filling = await BareSocket.open(round.url, round.encoding);
  filling.stall();
  for (let id = 1; id <= round.streams; id++) filling.send(completion(id, round.tokens, `${id}`.padEnd(LONG_TOKEN, '.')));
  return null;
}

function run(command: ClientCommand): Promise<unknown> {
  if ('first' in command) return first(command.first);
  if ('bare' in command) return bare(command.bare);
  if ('streams' in command) return streams(command.streams);
  if ('sse' in command) return sseStreams(command.sse);
  if ('fill' in command) return fill(command.fill);
  filling?.close();
  filling = null;
  return Promise.resolve(null);
}

process.on('message', (command: ClientCommand) => {
  void run(command).then((answer) => process.send?.(answer));
});
process.on('disconnect', () => process.exit(0));
process.send?.({ ready: true });
