/**
 * The tokenizers as the client sees them: a link to each while it lives, which of them takes a request, and the calls that they are asked.
 * Bounds what they hold and how far they may be behind. Main thread; used by client.ts, told of tokenizers by the engine
 * (daemon/life/engine.ts).
 */
import { asError, type Calls } from './client-calls.js';
import type { RequestIds } from './client-ids.js';
import { TokenizerLoad } from './client-load.js';
import type { Asker, ClientKey } from './client-types.js';
import type { CallReply, TokenizerCall } from './messages/calls.js';
import type { LinkEnd } from './messages/control.js';
import type { Failure } from './messages/errors.js';
import type { RequestId } from './messages/ids.js';
import type { Abort, Deltas, Encoded, Failed, Handed, Routed, Submit, TokenIds } from './messages/requests.js';
import type { TextBounds } from './messages/text-bounds.js';
import type { Counters } from './runtime/counters.js';
import { errorFields, type Log } from './runtime/log.js';
import { EventLink } from './runtime/mailbox.js';

export type FromTokenizer = TextBounds | Encoded | Routed | Deltas | Failed | CallReply;
type TokenizerLink = EventLink<FromTokenizer, Submit | Abort | TokenizerCall>;

export interface TokenizersOptions {
  /** Numbers of requests and calls. */
  readonly ids: RequestIds;
  readonly calls: Calls;
  /** As in ClientOptions. */
  readonly maxHeldSize: number;
  readonly background: boolean;
  readonly log: Log;
  readonly onMessage: (message: FromTokenizer) => void;
  /** A request that cannot go to another thread. */
  readonly onUnsendable: (id: RequestId, failure: Failure) => void;
  /** Why no tokenizer is there. */
  readonly absence: () => Failure;
}

export const RETRY_AFTER_MS = 1000;
/** Whose a request is that names no client. */
export const ANYBODY = {};
/** Batches a tokenizer may be behind before requests are refused. */
const MAX_BEHIND = 8192;
const ENCODE_DEADLINE_MS = 30_000;

/** Size of a prompt above which it goes to its tokenizer as a large message. */
const LARGE_SIZE = 128 * 1024;

export const overloaded: Failure = { kind: 'overloaded', data: { retry_after_ms: RETRY_AFTER_MS } };
export const died: Failure = {
  kind: 'engine_failure',
  message: 'The tokenizer of this request failed; send it again',
  data: { retriable: true },
};

export class Tokenizers {
  readonly #options: TokenizersOptions;
  readonly #calls: Calls;
  /** Of those that live, by index. */
  readonly #links = new Map<number, TokenizerLink>();
  readonly #load: TokenizerLoad;
  /** The number by which tokenizers know a client; goes with it. */
  readonly #clientNumbers = new WeakMap<ClientKey, number>();
  #nextClientNumber = 1;

  constructor(options: TokenizersOptions) {
    this.#options = options;
    this.#calls = options.calls;
    this.#load = new TokenizerLoad(options.maxHeldSize);
  }

  attach(index: number, end: LinkEnd, counters: Counters): void {
    const onUnsendable = (message: Submit | Abort | TokenizerCall, error: unknown) => this.#onUnsendable(index, message, error);
    const { onMessage, background } = this.#options;
    this.#links.set(index, new EventLink(end, onMessage, { onUnsendable, background }));
    this.#load.attach(index, counters);
  }

  /** Ends its calls, retriable. */
  detach(index: number): void {
    this.#links.get(index)?.close();
    this.#links.delete(index);
    this.#load.detach(index);
    this.#calls.fail(tokenizerName(index), died);
  }

  /** Drops all links. */
  close(): void {
    for (const link of this.#links.values()) {
      link.flush();
      link.close();
    }
    this.#links.clear();
  }

  /** Why tokenizers can take no prompt of `size` now, or null. */
  crowded(size: number): Failure | null {
    // When a tokenizer hangs while clients submit and cancel, its mailbox must not grow without end.
    for (const link of this.#links.values()) if (link.behind() > MAX_BEHIND) return overloaded;
    return this.#load.hasRoom(size) ? null : { ...overloaded, message: 'Too much text waits to be encoded; try again later' };
  }

  /** One of those with the least to do, by hash of the id: a prompt that takes long to encode holds up nobody while another is free. */
  pick(id: number): number | null {
    const loads = [...this.#links.keys()].map((index) => ({ index, load: this.#load.held(index) }));
    const least = Math.min(...loads.map((one) => one.load));
    const free = loads.filter((one) => one.load === least);
    return free[(Math.imul(id, 0x9e3779b1) >>> 8) % free.length]?.index ?? null;
  }

  submit(index: number, message: Submit): void {
    this.#load.handOut(index, message.size);
    const link = this.#links.get(index);
    if (link === undefined) return;
    handOver(link, message);
    link.flush(); // now: what the caller still has to do in this turn takes as long as the way there
  }

  abort(index: number, id: RequestId): void {
    this.#links.get(index)?.post({ k: 'abort', ids: [id] });
  }

  numberOf(client: ClientKey): number {
    const known = this.#clientNumbers.get(client);
    if (known !== undefined) return known;
    const number = this.#nextClientNumber++;
    this.#clientNumbers.set(client, number);
    return number;
  }

  /**
   * When the asker leaves, or the deadline passes, the tokenizer drops the call: nothing is worked on that nobody waits for.
   * @throws InferdError
   */
  ask(
    { client = ANYBODY, cancellation }: Asker,
    size: number,
    make: (handed: Handed & { readonly call: RequestId }) => TokenizerCall,
  ): Promise<unknown> {
    const index = this.pick(this.#options.ids.next);
    const link = index === null ? undefined : this.#links.get(index);
    if (index === null || link === undefined) return Promise.reject(asError(this.#options.absence()));
    const crowded = this.crowded(size);
    if (crowded !== null) return Promise.reject(asError(crowded));
    const send = (call: number): void => {
      this.#load.handOut(index, size);
      handOver(link, make({ call: call as RequestId, client: this.numberOf(client), size })); // numbered with the requests
    };
    const drop = (call: number): void => link.post({ k: 'abort', ids: [call as RequestId] }); // as above
    return this.#calls.ask(tokenizerName(index), ENCODE_DEADLINE_MS, send, (call) => ({ cancellation, onLeft: () => drop(call) }));
  }

  /** Something of a client's that cannot go to another thread: nests too deep, most likely. */
  #onUnsendable(tokenizer: number, message: Submit | Abort | TokenizerCall, error: unknown): void {
    if (message.k !== 'abort') this.#load.takeBack(tokenizer, message.size);
    this.#options.log.warn(errorFields(error), 'a message could not be packed');
    const failure: Failure = { kind: 'invalid_params', message: 'The request nests too deep' };
    if (message.k === 'submit') this.#options.onUnsendable(message.id, failure);
    else if (message.k !== 'abort') this.#calls.answer({ k: 'reply', call: message.call, ok: false, failure });
  }
}

const tokenizerName = (index: number): string => `tokenizer ${index}`;

function handOver(link: TokenizerLink, message: Submit | TokenizerCall): void {
  if (message.size > LARGE_SIZE) link.postLarge(inOnePiece(message));
  else link.post(message);
}

/** Many token ids as one piece of memory: half a million that are copied one by one keep the event loop for 25 ms. */
function inOnePiece(message: Submit | TokenizerCall): Submit | TokenizerCall {
  const packed = (ids: TokenIds): TokenIds => (ids instanceof Int32Array ? ids : Int32Array.from(ids));
  if (message.k === 'decode') return { ...message, ids: packed(message.ids) };
  if (!('prompt' in message) || message.prompt.kind !== 'ids') return message;
  return { ...message, prompt: { ...message.prompt, ids: packed(message.prompt.ids) } };
}
