/**
 * A plain JSON-RPC client over `ws` that keeps every message in order, so that tests can check the protocol itself: one response per id,
 * numbering of events, nothing after a response. It knows nothing of inferd's own client.
 */
import { once } from 'node:events';
import { WebSocket } from 'ws';
import { packMessage, unpackMessage } from '../../../actors/messages/codec.js';
import { inTime } from '../eventually.js';

export interface Reply {
  readonly jsonrpc?: string;
  readonly id?: number | string | null;
  readonly method?: string;
  readonly params?: { readonly token?: number | string; readonly seq?: number; readonly kind?: string; readonly [key: string]: unknown };
  readonly result?: Answer;
  readonly error?: { readonly code: number; readonly message: string; readonly data?: Record<string, unknown> };
}

/** The fields of answers that tests look at. */
export interface Answer {
  readonly choices?: readonly Choice[];
  readonly usage?: { readonly prompt_tokens: number; readonly completion_tokens: number; readonly total_tokens: number };
  readonly kv?: Readonly<Record<'used_blocks' | 'free_blocks' | 'total_blocks' | 'swap_used' | 'swap_total', number>>;
  readonly requests?: Readonly<Record<'running' | 'waiting' | 'swapped' | 'preempted_total', number>>;
  readonly ended?: readonly { readonly request_id: string }[];
  readonly request?: { readonly prompts: readonly { readonly marks: readonly Mark[] }[] };
  readonly [key: string]: unknown;
}

interface Mark {
  readonly kind: string;
  readonly at_ms: number;
  readonly how?: string;
}

export interface Choice {
  readonly index: number;
  readonly text?: string;
  readonly message?: { readonly content?: string | null };
  readonly delta?: { readonly content?: string | null };
  readonly token_ids?: readonly number[];
  readonly finish_reason: string | null;
}

/** What a stream added up to, per choice. */
export interface Streamed {
  readonly texts: readonly string[];
  readonly tokenIds: readonly (readonly number[])[];
  readonly finishes: readonly (string | null)[];
}

export class RpcSocket {
  readonly ws: WebSocket;
  /** Everything received, in order. */
  readonly log: Reply[] = [];
  readonly #packed: boolean;
  readonly #waiting = new Set<() => void>();
  #nextId = 1;

  private constructor(ws: WebSocket) {
    this.ws = ws;
    this.#packed = ws.protocol === 'jsonrpc.msgpack';
    ws.on('error', () => {});
    ws.on('message', (data: Buffer) => {
      const message = (this.#packed ? unpackMessage(data) : JSON.parse(data.toString('utf8'))) as Reply | Reply[];
      this.log.push(...(Array.isArray(message) ? message : [message]));
      this.#wake();
    });
    ws.on('close', () => this.#wake());
  }

  static async open(url: string, protocols: string | string[] = [], headers: Record<string, string> = {}): Promise<RpcSocket> {
    const ws = new WebSocket(url, protocols, { headers });
    const socket = new Promise<RpcSocket>((resolve, reject) => {
      ws.once('open', () => resolve(new RpcSocket(ws)));
      ws.once('error', reject);
    });
    return socket;
  }

  /** Sends a request and returns its id at once. */
  send(method: string, params: object = {}, id: number | string = this.#nextId++): number | string {
    this.raw({ jsonrpc: '2.0', id, method, params });
    return id;
  }
  notify(method: string, params: object): void {
    this.raw({ jsonrpc: '2.0', method, params });
  }
  raw(message: unknown): void {
    this.ws.send(this.#packed ? packMessage(message) : JSON.stringify(message));
  }

  /** The response to `id`. */
  reply(id: number | string): Promise<Reply> {
    return this.until((m) => m.id === id && m.method === undefined);
  }
  /** The result of a call. @throws when it is an error. */
  async call(method: string, params: object = {}): Promise<Answer> {
    const reply = await this.reply(this.send(method, params));
    if (reply.result === undefined) throw new Error(`${method}: ${JSON.stringify(reply.error)}`);
    return reply.result;
  }
  /** The first message, past or future, that fits. @throws when the socket closes before. */
  until(fits: (message: Reply) => boolean): Promise<Reply> {
    return inTime('a message comes', this.#find(fits));
  }
  async #find(fits: (message: Reply) => boolean): Promise<Reply> {
    for (let seen = 0; ; ) {
      for (; seen < this.log.length; seen++) if (fits(this.log[seen]!)) return this.log[seen]!; // index is below length
      if (this.ws.readyState === this.ws.CLOSED) throw new Error('the socket closed before the message came');
      await new Promise<void>((resolve) => this.#waiting.add(resolve));
    }
  }
  /** An event of stream `token`. */
  event(token: number | string, kind: string): Promise<Reply> {
    return this.until((m) => m.method === '$/progress' && m.params?.token === token && m.params.kind === kind);
  }
  events(token: number | string): Reply[] {
    return this.log.filter((m) => m.method === '$/progress' && m.params?.token === token);
  }

  async close(): Promise<void> {
    if (this.ws.readyState === this.ws.CLOSED) return;
    const closed = once(this.ws, 'close');
    this.ws.close();
    await closed;
  }

  #wake(): void {
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const resolve of waiting) resolve();
  }
}

/** Adds up the delta events of a stream and checks their numbering. @throws when a seq is missing or out of order. */
export function addUp(events: readonly Reply[], numChoices: number): Streamed {
  for (const [i, event] of events.entries()) {
    if (event.params?.seq !== i) throw new Error(`event ${i} has seq ${event.params?.seq}`);
  }
  const deltas = events.filter((event) => event.params?.kind === 'delta');
  return addUpChoices(
    deltas.flatMap((event) => event.params?.['choices'] as readonly Choice[]),
    numChoices,
  );
}

/** What the deltas of a stream say together, in their order. */
export function addUpChoices(deltas: readonly Choice[], numChoices: number): Streamed {
  const texts = Array.from({ length: numChoices }, () => '');
  const tokenIds: number[][] = texts.map(() => []);
  const finishes: (string | null)[] = texts.map(() => null);
  for (const choice of deltas) {
    texts[choice.index] += choice.delta?.content ?? choice.text ?? '';
    tokenIds[choice.index]?.push(...(choice.token_ids ?? []));
    finishes[choice.index] = choice.finish_reason ?? finishes[choice.index] ?? null;
  }
  return { texts, tokenIds, finishes };
}
