/**
 * One client connection of the soak and the rules of the protocol on it: events numbered without gaps, nothing after an answer, one
 * answer each. JSON or msgpack. A broken rule goes to the figures at once; the outcome of each request goes to whoever asked.
 */
import { once } from 'node:events';
import { WebSocket } from 'ws';
import { packMessage, unpackMessage } from '../../../actors/messages/codec.js';
import type { Choice, Reply } from '../../helpers/wire/rpc-socket.js';
import type { Figures } from './figures.js';
import type { Life } from './target.js';

export interface Outcome {
  /** Null: the connection closed before an answer. */
  readonly reply: Reply | null;
  /** What the events of a stream added up to, one text a choice. */
  readonly texts: readonly string[];
  /** How the connection closed, when it did before an answer. */
  readonly closed: string;
  /** Number of the last event, -1 when there was none. */
  readonly lastSeq: number;
}

interface Asked {
  readonly texts: string[];
  readonly timed: boolean;
  readonly sentAt: number;
  lastAt: number | null;
  nextSeq: number;
  readonly settle: (outcome: Outcome) => void;
}

const OPEN_TIMEOUT_MS = 10_000;

export class Connection {
  readonly ws: WebSocket;
  readonly life: Life;
  readonly #figures: Figures;
  readonly #packed: boolean;
  readonly #open = new Map<number, Asked>();
  #nextId = 1;
  #closedWith = '';

  private constructor(ws: WebSocket, life: Life, figures: Figures) {
    this.ws = ws;
    this.life = life;
    this.#figures = figures;
    this.#packed = ws.protocol === 'jsonrpc.msgpack';
    ws.on('error', () => {});
    ws.on('message', (data: Buffer) => this.#receive(data));
    ws.once('close', (code, reason) => {
      this.#closedWith = `${code} ${reason.toString()}`;
      for (const id of this.#open.keys()) this.#end(id, null);
    });
  }

  /** Null when the daemon cannot be reached. */
  static async open(life: Life, figures: Figures, packed: boolean): Promise<Connection | null> {
    const ws = new WebSocket(life.ws, packed ? ['jsonrpc.msgpack'] : [], { handshakeTimeout: OPEN_TIMEOUT_MS });
    try {
      await once(ws, 'open');
    } catch {
      return null;
    }
    figures.count('connections');
    return new Connection(ws, life, figures);
  }

  get closed(): boolean {
    return this.ws.readyState !== this.ws.OPEN;
  }

  /** Sends a request at once. `stream: { credit }` streams with counted credit. `timed`: its events count for the latency figures. */
  ask(
    method: string,
    params: Readonly<Record<string, unknown>>,
    timed = false,
  ): { readonly id: number; readonly outcome: Promise<Outcome> } {
    const id = this.#nextId++;
    const { stream } = params;
    const sent = typeof stream === 'object' ? { ...params, stream: { ...stream, token: id } } : params;
    const outcome = new Promise<Outcome>((settle) => {
      this.#open.set(id, { texts: [], timed, sentAt: performance.now(), lastAt: null, nextSeq: 0, settle });
    });
    if (this.closed) this.#end(id, null);
    else this.send({ jsonrpc: '2.0', id, method, params: sent });
    return { id, outcome };
  }

  send(message: object): void {
    if (this.closed) return;
    const frame = this.#packed ? packMessage(message) : JSON.stringify(message);
    this.#figures.count('bytes sent', frame.length);
    this.ws.send(frame);
  }

  /** Closes in order: whatever the daemon still had to say has then been heard and judged. */
  async close(): Promise<void> {
    if (this.ws.readyState === this.ws.CLOSED) return;
    const closed = once(this.ws, 'close');
    if (!this.closed) await this.ask('ping', {}).outcome;
    this.ws.close();
    await closed;
  }

  #receive(data: Buffer): void {
    this.#figures.count('bytes received', data.length);
    const frame = (this.#packed ? unpackMessage(data) : JSON.parse(data.toString('utf8'))) as Reply | Reply[];
    for (const message of Array.isArray(frame) ? frame : [frame]) {
      if (message.method === '$/progress') this.#event(message);
      else if (message.method === undefined) this.#answer(message);
    }
  }

  #event({ params }: Reply): void {
    const asked = this.#open.get(params?.token as number);
    if (asked === undefined) {
      this.#figures.violation(`an event of a request that is not open: token ${params?.token}, kind ${params?.kind}`);
      return;
    }
    if (params?.seq !== asked.nextSeq) this.#figures.violation(`event ${asked.nextSeq} of a stream has seq ${params?.seq}`);
    asked.nextSeq++;
    if (params?.kind !== 'delta') return;
    const now = performance.now();
    if (asked.timed) {
      if (asked.lastAt === null) this.#figures.ttft.add(now - asked.sentAt);
      else this.#figures.gap.add(now - asked.lastAt);
    }
    asked.lastAt = now;
    for (const choice of params['choices'] as readonly Choice[]) {
      asked.texts[choice.index] = (asked.texts[choice.index] ?? '') + (choice.delta?.content ?? '');
    }
  }

  #answer(reply: Reply): void {
    if (this.#open.has(reply.id as number)) this.#end(reply.id as number, reply);
    else this.#figures.violation(`an answer to a request that is not open: id ${reply.id}`);
  }

  #end(id: number, reply: Reply | null): void {
    const asked = this.#open.get(id);
    this.#open.delete(id);
    asked?.settle({ reply, closed: this.#closedWith, texts: Array.from(asked.texts, (text) => text ?? ''), lastSeq: asked.nextSeq - 1 });
  }
}
