/**
 * Bare clients of POST /v1/completions for the benchmark: so many connections with one stream of server-sent events each, all begun
 * together. Events are counted in the bytes as they come, and nothing of them is parsed but the counts at their end.
 */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { clockUs } from './step-log.js';

export interface SseRound {
  /** http://host:port */
  readonly url: string;
  readonly streams: number;
  readonly tokens: number;
}

export interface SseAnswer {
  /** Events with text; those that two reads cut in the middle of their first word are missing. */
  readonly events: number;
  /** By `usage`. */
  readonly tokens: number;
  /** From the first request to the last byte. */
  readonly us: number;
  /** Processor time of this process meanwhile. */
  readonly cpuUs: number;
}

const EVENT = Buffer.from('data: {');
const DONE = 'data: [DONE]';
/** Holds the last two events. */
const TAIL_BYTES = 2048;
const READ_BYTES = 65_536;

class Stream {
  readonly #socket: Socket;
  readonly #buffer = Buffer.allocUnsafe(READ_BYTES);
  #tail = Buffer.alloc(0);
  #end: (error?: Error) => void = () => {};
  events = 0;

  constructor(host: string, port: number) {
    const onread = { buffer: this.#buffer, callback: (bytes: number) => this.#read(bytes) };
    this.#socket = connect({ host, port, noDelay: true, onread });
  }

  async open(): Promise<void> {
    await once(this.#socket, 'connect');
  }

  /** Sends the request; resolves with the tokens of the answer once it has ended. */
  async run(host: string, number: number, tokens: number): Promise<number> {
    const prompt = Array.from({ length: 16 }, (_, i) => 300 + ((number * 37 + i * 11) % 512));
    const body = JSON.stringify({
      ...{ model: 'demo', prompt, max_tokens: tokens, ignore_eos: true },
      ...{ stream: true, stream_options: { include_usage: true } },
    });
    const ended = new Promise<void>((resolve, reject) => {
      this.#end = (error) => (error === undefined ? resolve() : reject(error));
    });
    this.#socket.once('close', () => this.#end(new Error(`the daemon closed a stream: ${this.#tail}`)));
    const head = `POST /v1/completions HTTP/1.1\r\nhost: ${host}\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n`;
    this.#socket.write(head + body);
    await ended;
    const counted = /"completion_tokens":(\d+)/.exec(this.#tail.toString());
    return Number(counted?.[1]);
  }

  close(): void {
    this.#socket.destroy();
  }

  #read(bytes: number): boolean {
    const read = this.#buffer.subarray(0, bytes);
    for (let at = read.indexOf(EVENT); at !== -1; at = read.indexOf(EVENT, at + EVENT.length)) this.events++;
    this.#tail = Buffer.concat([this.#tail, read]).subarray(-TAIL_BYTES);
    if (this.#tail.includes(DONE)) this.#end();
    return true;
  }
}

/** @throws when a stream ends otherwise than it should */
export async function sseStreams({ url, streams: count, tokens }: SseRound): Promise<SseAnswer> {
  const { host, hostname, port } = new URL(url);
  const streams = Array.from({ length: count }, () => new Stream(hostname, Number(port)));
  await Promise.all(streams.map((stream) => stream.open()));
  const cpu = process.cpuUsage();
  const began = clockUs();
  const counts = await Promise.all(streams.map((stream, i) => stream.run(host, i, tokens)));
  const us = clockUs() - began;
  const { user, system } = process.cpuUsage(cpu);
  for (const stream of streams) stream.close();
  const events = streams.reduce((sum, stream) => sum + stream.events, 0);
  return { events, tokens: counts.reduce((sum, n) => sum + n, 0), us, cpuUs: user + system };
}
