/**
 * The engine groups as the client sees them: a link to the scheduler of each, while it lives, and the calls that it is asked. Main thread;
 * used by client.ts, told of groups by the engine (daemon/life/engine.ts).
 */
import { asError, type Calls } from './client-calls.js';
import { partOf, sumOf } from './client-sums.js';
import { type CallReply, type EngineCall, type EngineCallName, type EngineCalls, engineCallDeadlineMs } from './messages/calls.js';
import type { LinkEnd } from './messages/control.js';
import type { Failure } from './messages/errors.js';
import type { RequestId } from './messages/ids.js';
import type { Flow, Notices } from './messages/requests.js';
import { nowMs } from './runtime/clock.js';
import { type Counters, SCHEDULER_COUNTER, stepLimitMs } from './runtime/counters.js';
import { EventLink } from './runtime/mailbox.js';

interface Group {
  readonly link: EventLink<Notices | CallReply, Flow | EngineCall>;
  readonly counters: Counters;
  /** Its scheduler looks for what it is woken for. */
  readonly spins: boolean;
}

/** The scheduler's loop turns at least twice a second; this leaves room for a busy machine. */
const HEARTBEAT_LIMIT_MS = 10_000;
const gone: Failure = { kind: 'engine_failure', message: 'The engine restarts', data: { retriable: true } };

export class EngineGroups {
  readonly #calls: Calls;
  readonly #onMessage: (message: Notices | CallReply) => void;
  readonly #background: boolean;
  /** Those that live, by index. */
  readonly #groups = new Map<number, Group>();

  constructor(calls: Calls, background: boolean, onMessage: (message: Notices | CallReply) => void) {
    this.#calls = calls;
    this.#background = background;
    this.#onMessage = onMessage;
  }

  attach(index: number, end: LinkEnd, counters: Counters, spins: boolean): void {
    const link: Group['link'] = new EventLink(end, this.#onMessage, { background: this.#background });
    this.#groups.set(index, { link, counters, spins });
  }

  /** Wakes a group that has no step to run, for a request on its way to it; one that has is woken by what comes, in time for its next step. */
  rouse(index: number): void {
    const group = this.#groups.get(index);
    if (group?.spins === true && group.counters[SCHEDULER_COUNTER.inFlightSinceMs] === 0) group.link.rouse();
  }

  /** Ends its calls, retriable. */
  detach(index: number): void {
    this.#groups.get(index)?.link.close();
    this.#groups.delete(index);
    this.#calls.fail(schedulerName(index), gone);
  }

  detachAll(): void {
    for (const index of [...this.#groups.keys()]) this.detach(index);
  }

  setPaused(index: number, id: RequestId, paused: boolean): void {
    this.#groups.get(index)?.link.post({ k: 'flow', id, paused });
  }

  /**
   * Asks one group, or all that live and sums up what they answer. `absent`: the failure where none does.
   * @throws InferdError
   */
  async ask<N extends EngineCallName>(
    name: N,
    params: EngineCalls[N]['params'],
    { group, absent }: { readonly group: number | undefined; readonly absent: () => Failure },
  ): Promise<EngineCalls[N]['reply']> {
    const asked = group === undefined ? [...this.#groups.keys()].sort((a, b) => a - b) : [group].filter((one) => this.#groups.has(one));
    if (asked.length === 0) throw asError(absent());
    const part = partOf(name, params, asked.length);
    const settled = await Promise.allSettled(asked.map((index) => this.#askOne(index, name, part)));
    // One that ends meanwhile is left out, as one that had ended before.
    const replies = settled.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []));
    const [failed] = settled.flatMap((one) => (one.status === 'rejected' ? [one.reason as unknown] : []));
    if (replies.length === 0) throw failed;
    return replies.length === 1 ? (replies[0] as EngineCalls[N]['reply']) : sumOf(name, replies); // proof: it has one
  }

  /** True while a group makes progress; `hangTimeoutMs` as in ClientOptions. */
  healthy(hangTimeoutMs: number): boolean {
    const now = nowMs();
    return [...this.#groups.values()].some(({ counters }) => {
      if (now - (counters[SCHEDULER_COUNTER.heartbeatMs] ?? 0) > HEARTBEAT_LIMIT_MS) return false;
      const since = counters[SCHEDULER_COUNTER.inFlightSinceMs] ?? 0;
      return since === 0 || now - since < stepLimitMs(counters, hangTimeoutMs);
    });
  }

  async #askOne<N extends EngineCallName>(index: number, name: N, params: EngineCalls[N]['params']): Promise<EngineCalls[N]['reply']> {
    const send = (call: number): void => {
      this.#groups.get(index)?.link.post({ k: 'ask', call, name, params } as EngineCall); // proof: name and params are one row's
    };
    const value = await this.#calls.ask(schedulerName(index), engineCallDeadlineMs[name], send);
    return value as EngineCalls[N]['reply']; // proof: the type of the scheduler's handlers
  }
}

const schedulerName = (index: number): string => `scheduler ${index}`;
