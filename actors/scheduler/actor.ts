/**
 * The scheduler actor: moves messages, plans and results between threads and the Scheduler, and holds no policy. A parked loop on its
 * own thread; one per engine group and epoch.
 *
 * One turn: mailboxes first (so aborts and stopped sequences take effect before the results that would feed them), then results, then
 * plans while fewer than two steps are in flight, and only then the tokens go out, since the executors never wait for text; but the first
 * token of an answer goes before plans for executors that have a step to run. What the supervisor says comes last: it is rare, and to look
 * for it costs as much as all of the others.
 * When a tokenizer is far behind, no further step is planned, which is the back-pressure of the whole token path.
 *
 * With `spinUs`, it is rung ahead of what is to come: by the front when a prompt goes to be encoded, by the executor when a step is about to
 * end. It then looks for that without sleeping; and when a request comes while nothing runs it wakes the executors before it plans.
 */
import type { CallReply, EngineCall, EngineCallHandlers, EngineCallName, RecentSteps } from '../messages/calls.js';
import type { LinkEnd, ProfileCall, ToActor } from '../messages/control.js';
import { engineFault, InferdError } from '../messages/errors.js';
import type { RequestId } from '../messages/ids.js';
import { NO_STEP, SPAN } from '../messages/profile.js';
import type { Abort, Admit, Flow, Notices, Refused, Stopped, Tokens } from '../messages/requests.js';
import { PLAN, RESULT } from '../messages/step.js';
import { type BoardMemory, BoardWriter } from '../routing/board.js';
import { Taken } from '../routing/on-the-way.js';
import { QueueRoom, type QueueRoomMemory } from '../routing/queue-room.js';
import { type Control, MAX_PARK_MS, runParked } from '../runtime/actor.js';
import { nowMs } from '../runtime/clock.js';
import { type Counters, SCHEDULER_COUNTER } from '../runtime/counters.js';
import { type Doorbell, ring } from '../runtime/doorbell.js';
import { unreachable } from '../runtime/invariant.js';
import { ParkedLink } from '../runtime/mailbox.js';
import { type RingMemory, RingReader, RingWriter } from '../runtime/ring.js';
import { buffersOf, SpanRecorder } from '../runtime/spans.js';
import type { SchedulerOptions } from './options.js';
import { Scheduler } from './scheduler.js';

export interface SchedulerStart {
  readonly options: SchedulerOptions;
  readonly bell: Doorbell;
  readonly front: LinkEnd;
  readonly plans: RingMemory;
  readonly results: RingMemory;
  readonly executorBells: readonly Doorbell[];
  readonly counters: Counters;
  /** Which of the groups of its engine this is. */
  readonly group: number;
  readonly room: QueueRoomMemory;
  /** What it shows to those who choose between groups; null where there is one. */
  readonly board: BoardMemory | null;
  /** How long it looks for what it was woken for before it sleeps again, microseconds; 0 = it sleeps at once. */
  readonly spinUs: number;
}

type FromTokenizer = Admit | Abort | Stopped;
type ToTokenizer = Tokens | Refused;
type FromFront = Flow | EngineCall;
type ToFront = Notices | CallReply;

/** A tokenizer, and what of its requests stands on the board. */
interface Peer {
  readonly link: ParkedLink<FromTokenizer, ToTokenizer>;
  readonly taken: Taken;
}

/** How soon to look again when a tokenizer is behind; it does not ring when it has caught up. */
const BEHIND_MS = 2;
/** A deadline that cannot be met yet (two steps are in flight) must not make the loop spin. */
const MIN_PARK_MS = 1;
/** Integrity of the block tables is checked when nothing has happened for this long: it takes milliseconds, and the next request may be near. */
const QUIET_MS = 200;

/** Runs until told to stop. @throws BrokenInvariant when the books do not add up. */
export function runScheduler(start: SchedulerStart, control: Control): void {
  const loop = new SchedulerLoop(start, control);
  control.ready(null);
  try {
    runParked(
      start.bell,
      control,
      () => loop.turn(),
      () => loop.spinUs(),
    );
  } finally {
    loop.close();
  }
}

class SchedulerLoop {
  readonly #scheduler: Scheduler;
  readonly #start: SchedulerStart;
  readonly #control: Control;
  readonly #front: ParkedLink<FromFront, ToFront>;
  /** By owner number; the supervisor attaches and detaches them. */
  readonly #tokenizers = new Map<number, Peer>();
  readonly #board: BoardWriter | null;
  readonly #plans: RingWriter;
  readonly #results: RingReader;
  /** When each step in flight was published; at most `maxStepsInFlight` entries. */
  readonly #published: number[] = [];
  /** Requests that were paused before they were admitted; at most as many as may be unfinished. */
  readonly #pausedEarly = new Set<RequestId>();
  readonly #handlers: EngineCallHandlers = {
    stats: () => this.#scheduler.stats(),
    steps: () => this.#scheduler.steps(),
    recent: ({ since }) => this.#recent(since),
    kvMap: ({ maxCells }) => this.#scheduler.kvMap(maxCells),
    adapterUse: () => this.#scheduler.adapterUse(),
    addAdapter: ({ adapter }) => {
      this.#scheduler.addAdapter(adapter);
      return null;
    },
    dropAdapter: ({ adapter }) => this.#scheduler.dropAdapter(adapter),
    timeline: ({ id }) => this.#scheduler.insight.timelines.of(id),
  };
  readonly #spans = new SpanRecorder();
  /** Messages handled in this turn. */
  #handled = 0;
  /** Results read in this turn. */
  #read = 0;
  /** Nothing could be planned while nothing was in flight: the next step comes after a pause that is not ours. */
  #idle = true;
  #faulted = false;
  #steps = 0;
  #meanStepMs = 0;
  /** When there last was something to do; null when the books were checked since. */
  #busyMs: number | null = null;

  constructor(start: SchedulerStart, control: Control) {
    this.#start = start;
    this.#control = control;
    this.#scheduler = new Scheduler(start.options, new QueueRoom(start.room, start.group));
    this.#board = start.board === null ? null : new BoardWriter(start.board);
    if (this.#board !== null) this.#scheduler.showOn(this.#board);
    this.#front = new ParkedLink(start.front);
    this.#plans = new RingWriter(start.plans, start.executorBells);
    this.#results = new RingReader(start.results, 0, start.bell);
  }

  /** Returns how long the loop may sleep. */
  turn(): number {
    const began = this.#spans.begin();
    this.#handled = 0;
    this.#read = 0;
    let more = this.#front.drain((message) => this.#onFront(message));
    for (const [owner, peer] of this.#tokenizers) more = peer.link.drain((message) => this.#onTokenizer(owner, peer, message)) || more;
    this.#spans.end(SPAN.drain, began, NO_STEP, this.#handled);
    const now = nowMs(); // behind the messages: no request starts before it was queued
    this.#rouseExecutors();
    this.#applyResults(now);
    if (this.#scheduler.hasFirstTokens && this.#scheduler.stepsInFlight > 0) this.#sendOutputs();
    const behind = this.#publishPlans(now);
    this.#sendOutputs();
    this.#publishCounters(now);
    this.#control.poll((message) => {
      more = true; // a tokenizer that was attached may have sent something already
      this.#onControl(message);
    });
    if (more || this.#control.stopping) return 0;
    if (behind) return BEHIND_MS;
    this.#checkWhenQuiet(now);
    return Math.min(Math.max(this.#scheduler.nextDeadlineMs(now), MIN_PARK_MS), MAX_PARK_MS);
  }

  /** After a turn that a ring began. One that found nothing was rung ahead; what this one has set going takes longer than is worth looking. */
  spinUs(): number {
    return this.#handled === 0 && this.#read === 0 ? this.#start.spinUs : 0;
  }

  close(): void {
    this.#front.close();
    for (const { link } of this.#tokenizers.values()) link.close();
  }

  /** They wake while the first step is planned. */
  #rouseExecutors(): void {
    if (this.#start.spinUs === 0 || this.#handled === 0 || this.#published.length > 0 || !this.#scheduler.hasWork()) return;
    for (const bell of this.#start.executorBells) ring(bell);
  }

  #applyResults(now: number): void {
    for (let result = this.#results.read(); result !== null; result = this.#results.read()) {
      this.#read++;
      const began = this.#spans.begin();
      const header = new Int32Array(result.buffer, result.byteOffset, RESULT.headerWords);
      // The executor reports the fault to the supervisor, which ends this group; until then nothing more may be planned.
      if (header[RESULT.errorCode] !== engineFault.none) this.#faulted = true;
      else this.#scheduler.update(result, now);
      const drafts = this.#scheduler.draftReport();
      if (drafts !== null) this.#control.log.info({ ...drafts }, 'drafts since the last such line');
      const stepMs = now - (this.#published.shift() ?? now);
      this.#meanStepMs = this.#steps === 0 ? stepMs : this.#meanStepMs * 0.9 + stepMs * 0.1;
      this.#steps++;
      this.#spans.end(SPAN.apply, began, header[RESULT.step] ?? NO_STEP, header[RESULT.numSamples]);
    }
  }

  /** True when a tokenizer is so far behind that nothing was planned. */
  #publishPlans(now: number): boolean {
    if (!this.#plans.resume() || this.#faulted) return false;
    for (const { link } of this.#tokenizers.values()) if (link.full) return true;
    while (!this.#plans.busy && this.#scheduler.stepsInFlight < this.#start.options.maxStepsInFlight) {
      const began = this.#spans.begin();
      const plan = this.#scheduler.schedule(now);
      if (plan === null) {
        if (this.#scheduler.stepsInFlight === 0) this.#idle = true;
        break;
      }
      this.#published.push(now);
      if (this.#spans.on) this.#writeRecorded(plan, began);
      else this.#plans.write(plan);
      this.#idle = false;
    }
    return false;
  }

  #writeRecorded(plan: Uint8Array, began: number): void {
    const header = new Int32Array(plan.buffer, plan.byteOffset, PLAN.headerWords);
    const step = header[PLAN.step] ?? NO_STEP;
    this.#spans.end(SPAN.plan, began, step, header[PLAN.numRows], header[PLAN.numTokens], this.#idle ? 1 : 0);
    const writing = this.#spans.begin();
    this.#plans.write(plan);
    this.#spans.end(SPAN.writePlan, writing, step, plan.byteLength);
  }

  #sendOutputs(): void {
    const { tokens, refused, notices } = this.#scheduler.takeOutputs();
    for (const [owner, message] of tokens) this.#tokenizers.get(owner)?.link.post(message);
    for (const { owner, message } of refused) this.#tokenizers.get(owner)?.link.post(message);
    // Notices only inform; a front that is behind does without them.
    if (notices.length > 0 && !this.#front.full) this.#front.post({ k: 'notices', notices });
    for (const { link } of this.#tokenizers.values()) link.flush();
    this.#front.flush();
  }

  #publishCounters(now: number): void {
    const { counters } = this.#start;
    const { requests, kv } = this.#scheduler.stats();
    this.#spans.count(SPAN.requests, requests.running, requests.waiting);
    this.#spans.count(SPAN.kv, kv.used_blocks);
    counters[SCHEDULER_COUNTER.steps] = this.#steps;
    counters[SCHEDULER_COUNTER.running] = requests.running;
    counters[SCHEDULER_COUNTER.waiting] = requests.waiting;
    counters[SCHEDULER_COUNTER.inFlightSinceMs] = this.#published[0] ?? 0;
    counters[SCHEDULER_COUNTER.meanStepMs] = this.#meanStepMs;
    counters[SCHEDULER_COUNTER.heartbeatMs] = now;
    this.#scheduler.tellRoom();
    this.#tellBoard();
  }

  /** The board first: what is on neither of the two would be counted by nobody. */
  #tellBoard(): void {
    if (this.#board === null) return;
    this.#board.tell(this.#scheduler.work());
    for (const { taken } of this.#tokenizers.values()) taken.tell();
  }

  #checkWhenQuiet(now: number): void {
    if (this.#handled > 0 || this.#scheduler.hasWork()) this.#busyMs = now;
    if (this.#busyMs === null || now - this.#busyMs < QUIET_MS) return;
    this.#busyMs = null;
    this.#scheduler.checkIntegrity();
  }

  #onTokenizer(owner: number, { taken }: Peer, message: FromTokenizer): void {
    const now = nowMs();
    this.#handled++;
    switch (message.k) {
      case 'admit':
        this.#scheduler.admit(message, owner, now);
        taken.take(message.newTokens ?? 0);
        if (this.#pausedEarly.delete(message.id)) this.#scheduler.setPaused(message.id, true);
        return;
      case 'abort':
        for (const id of message.ids) this.#pausedEarly.delete(id);
        this.#scheduler.abort(message.ids, now);
        return;
      case 'stopped':
        this.#scheduler.stopped(message.id, message.index, now);
        return;
      default:
        unreachable(message);
    }
  }

  #onFront(message: FromFront): void {
    this.#handled++;
    switch (message.k) {
      case 'flow':
        this.#setPaused(message);
        return;
      case 'ask':
        this.#answer(message);
        return;
      default:
        unreachable(message);
    }
  }

  /** The number of the own group has the place of that group. */
  #recent(since: readonly number[]): RecentSteps {
    const { group } = this.#start;
    const recent = this.#scheduler.insight.steps.since(since[group] ?? 0);
    return { ...recent, next: [...new Array<number>(group).fill(0), ...recent.next] };
  }

  #answer<N extends EngineCallName>({ call, name, params }: EngineCall<N>): void {
    try {
      this.#front.post({ k: 'reply', call, ok: true, value: this.#handlers[name](params) });
    } catch (error) {
      if (!(error instanceof InferdError)) throw error;
      this.#front.post({ k: 'reply', call, ok: false, failure: error.failure });
    }
  }

  /** A pause goes straight from the front and may overtake the admission, which comes by way of a tokenizer. */
  #setPaused({ id, paused }: Flow): void {
    if (this.#scheduler.setPaused(id, paused)) return;
    this.#pausedEarly.delete(id);
    if (!paused) return;
    this.#pausedEarly.add(id);
    const { maxQueue, maxSlots } = this.#start.options;
    if (this.#pausedEarly.size > maxQueue + maxSlots) {
      for (const oldest of this.#pausedEarly) {
        this.#pausedEarly.delete(oldest);
        break;
      }
    }
  }

  /** What goes wrong here, no memory for a recording for example, harms no request. */
  #onProfileCall(message: ProfileCall): void {
    try {
      if (message.k === 'record') {
        this.#spans.start(message.maxEvents);
        this.#control.answer(message.call, null);
      } else {
        const recording = this.#spans.stop();
        this.#control.answer(message.call, recording, buffersOf(recording));
      }
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      this.#control.refuse(message.call, { kind: 'request_failed', message: `The scheduler cannot record: ${reason}` });
    }
  }

  #onControl(message: ToActor): void {
    switch (message.k) {
      case 'attach':
        this.#tokenizers.set(message.owner, { link: new ParkedLink(message.link), taken: new Taken(message.taken) });
        return;
      case 'detach':
        this.#tokenizers.get(message.owner)?.link.close();
        this.#tokenizers.delete(message.owner);
        this.#scheduler.dropOwner(message.owner);
        return;
      case 'record':
      case 'handover':
        this.#onProfileCall(message);
        return;
      case 'stop':
      case 'give_up':
      case 'connect':
      case 'disconnect':
      case 'load_adapter':
      case 'unload_adapter':
        return; // the first two are the Control's; the others are for tokenizers and executors
      default:
        unreachable(message);
    }
  }
}
