/**
 * Puts a tokenizer actor on its links: the front on one side, the schedulers of the engine groups on the other. Event loop of the
 * tokenizer's own thread.
 *
 * - While a scheduler is away (it is being restarted), messages to it are dropped: when the next one connects, the tokenizer admits
 *   the live requests of its group to it, with the tokens they already have.
 * - When the front is far behind, tokens are left in the schedulers' links, which makes the schedulers stop planning in their turn.
 * - What it works on is published (work/workload.ts), and a heartbeat of the event loop, so that the main thread can end a tokenizer that
 *   hangs.
 */
import type { CallReply, TokenizerCall } from '../messages/calls.js';
import type { LinkEnd, ToActor } from '../messages/control.js';
import type { Abort, Deltas, Encoded, Failed, Routed, Submit } from '../messages/requests.js';
import type { TextBounds } from '../messages/text-bounds.js';
import type { Control } from '../runtime/actor.js';
import { nowMs } from '../runtime/clock.js';
import { type Counters, TOKENIZER_COUNTER } from '../runtime/counters.js';
import { errorFields } from '../runtime/log.js';
import { EventLink } from '../runtime/mailbox.js';
import { createTokenizerActor, type TokenizerHandlers, type TokenizerOut, type TokenizerStart } from './actor.js';
import type { Placed } from './groups/group.js';
import { Groups } from './groups/links.js';
import { Workload } from './work/workload.js';

export interface TokenizerHostStart {
  readonly tokenizer: TokenizerStart;
  readonly front: LinkEnd;
  readonly counters: Counters;
}

type FromFront = Submit | Abort | TokenizerCall;
type ToFront = TextBounds | Encoded | Routed | Deltas | Failed | CallReply;

/** How soon to look again whether the front has caught up. */
const BEHIND_MS = 2;
/** Age of the heartbeat of a tokenizer that has nothing to do; well below the shortest scheduler.hang_timeout_s. */
const HEARTBEAT_MS = 400;

/** Resolves when it was told to stop. @throws when the tokenizer cannot be made (bad files). */
export async function runTokenizer(start: TokenizerHostStart, control: Control): Promise<void> {
  const host = new TokenizerHost(start, control);
  try {
    await host.run();
  } finally {
    host.close();
  }
}

class TokenizerHost {
  readonly #start: TokenizerHostStart;
  readonly #control: Control;
  readonly #workload: Workload;
  #front: EventLink<FromFront, ToFront> | null = null;
  readonly #groups: Groups;
  #handlers: TokenizerHandlers | null = null;
  #catchUp: NodeJS.Timeout | null = null;
  #heartbeat: NodeJS.Timeout | null = null;
  #stop: () => void = () => {};

  constructor(start: TokenizerHostStart, control: Control) {
    this.#start = start;
    this.#control = control;
    this.#workload = new Workload(start.counters);
    this.#groups = new Groups(start.tokenizer.blockSize, (message, group) => {
      this.#guarded(() => this.#handlers?.fromScheduler(message, group));
      if (this.#catchUp === null && this.#front?.full) this.#pause();
    });
  }

  async run(): Promise<void> {
    // The control port is listened to first: a stop, or a scheduler, may come while the tokenizer loads.
    const stopped = new Promise<void>((resolve) => {
      this.#stop = resolve;
      this.#control.listen((message) => this.#onControl(message));
    });
    const handlers = await this.#load();
    this.#handlers = handlers;
    this.#front = new EventLink(this.#start.front, (message) => this.#guarded(() => handlers.fromFront(message)));
    this.#front.post(handlers.bounds);
    this.#heartbeat = setInterval(() => this.#beat(), HEARTBEAT_MS);
    this.#beat();
    this.#control.ready(null);
    await stopped;
  }

  /** @throws after it has reported a fault. */
  async #load(): Promise<TokenizerHandlers> {
    try {
      const out: TokenizerOut = {
        place: (promptIds, adapter) => this.#place(promptIds, adapter),
        toFront: (message) => this.#front?.post(message),
      };
      return await createTokenizerActor(this.#start.tokenizer, out, this.#workload);
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      this.#control.log.debug(errorFields(error), 'the tokenizer did not start');
      this.#control.fault({ failure: { kind: 'bad_model', message }, fatal: false });
      throw error;
    }
  }

  close(): void {
    if (this.#catchUp !== null) clearTimeout(this.#catchUp);
    if (this.#heartbeat !== null) clearInterval(this.#heartbeat);
    this.#front?.flush();
    this.#front?.close();
    this.#groups.close();
    this.#handlers?.close();
    this.#control.close();
  }

  #beat(): void {
    this.#start.counters[TOKENIZER_COUNTER.heartbeatMs] = nowMs();
  }

  #onControl(message: ToActor): void {
    if (message.k === 'stop') this.#stop();
    else if (message.k === 'disconnect') this.#disconnect(message.groups);
    else if (message.k === 'connect') {
      this.#disconnect([message.group.index]);
      const group = this.#groups.connect(message.group, message.link);
      this.#guarded(() => this.#handlers?.groupCame(group));
    }
  }

  /** All links first, so that no request of one goes to another that is over as well. */
  #disconnect(indices: readonly number[]): void {
    const left = indices.flatMap((index) => this.#groups.disconnect(index) ?? []);
    for (const group of left) this.#guarded(() => this.#handlers?.groupLeft(group));
  }

  #place(promptIds: Int32Array, adapter?: number): Placed | null {
    if (this.#groups.none) {
      // A request overtakes the control message that came before it, and must not wait for the next one.
      this.#control.poll((earlier) => this.#onControl(earlier));
      if (this.#control.stopping) this.#stop();
    }
    return this.#groups.place(promptIds, adapter);
  }

  #pause(): void {
    this.#groups.setPaused(true);
    this.#catchUp = setTimeout(() => {
      this.#catchUp = null;
      if (this.#front?.full) this.#pause();
      else this.#groups.setPaused(false);
    }, BEHIND_MS);
  }

  #guarded(work: () => void): void {
    this.#workload.during(work);
    this.#start.counters[TOKENIZER_COUNTER.size] = this.#handlers?.size() ?? 0;
  }
}
