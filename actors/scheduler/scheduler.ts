/**
 * The scheduler: continuous batching over paged KV blocks, without threads, clocks or native code. Runs in the scheduler thread;
 * actor.ts feeds it messages and results and sends away its plans and outputs. Every method is synchronous and bounded.
 *
 *   admit --> waiting --(planner)--> running --(results)--> finished          abort, stopped, timeout: from any state
 *                ^------ preempted ------'      its KV computed again, or swapped to the host and back
 *
 * Up to two plans are unanswered. Each has a record of the sequences it named; a result that comes for a sequence which has moved on
 * (finished, aborted, preempted) is dropped. Blocks and slots are given back at once: executors run plans in order, so the plan that
 * hands them out again runs after those that still use them.
 *
 * After the ideas of vLLM V1's scheduler (one budget, placeholders) and mini-sglang's overlap loop.
 */
import type { AdapterUse, SchedulerStats, StepHistograms } from '../messages/calls.js';
import type { Failure } from '../messages/errors.js';
import type { RequestId } from '../messages/ids.js';
import type { KvMap } from '../messages/kv-map.js';
import { type Admit, DRAFTED, FINISH } from '../messages/requests.js';
import { NO_TOKEN } from '../messages/step.js';
import type { BoardWriter, Work } from '../routing/board.js';
import { QueueRoom } from '../routing/queue-room.js';
import { BrokenInvariant, invariant } from '../runtime/invariant.js';
import { NO_ADAPTER_ID } from './adapter-places.js';
import { whyNever, whyNotNow } from './admission.js';
import { checkBooks } from './books.js';
import { DraftCounters, type DraftReport } from './draft-counts.js';
import type { DraftLength } from './drafts.js';
import { Events, type Outputs } from './events.js';
import { Insight } from './insight/insight.js';
import { drawKvMap } from './insight/kv-map.js';
import type { SchedulerOptions } from './options.js';
import { Planner } from './planner.js';
import { type OrderedList, rankOf } from './queue.js';
import { QueueNotices } from './queue-notices.js';
import { Request, type Sequence } from './request.js';
import { ResultReader } from './result-reader.js';
import type { Roster } from './roster.js';
import { StatsCounters } from './stats.js';
import { StepRecord } from './step-record.js';

export type { Outputs } from './events.js';
export type { SchedulerOptions } from './options.js';
export { planWordsLimit } from './plan-writer.js';

export class Scheduler {
  /** For those who look. */
  readonly insight: Insight;
  private readonly options: SchedulerOptions;
  private readonly room: QueueRoom;
  private readonly counters: StatsCounters;
  private readonly planner: Planner;
  private readonly roster: Roster;
  private readonly events = new Events();
  private readonly notices = new QueueNotices();
  private readonly reader = new ResultReader();
  /** Records of the steps in flight, oldest first, and the unused ones. */
  private readonly inFlight: StepRecord[] = [];
  private readonly spareRecords: StepRecord[] = [];
  /** As the plan's word holds it: wraps from 2^31 - 1 to -2^31, which takes weeks. */
  private nextStep: number;
  private nextOrdinal = 0;
  /** When this was last told the time. */
  private nowMs = 0;
  /** Those that executors have; as many as lora.max_adapters. */
  private readonly adapters = new Set<number>();
  /** Those that nobody names any more, and the last step that may still bring one to its place. */
  private readonly dropped = new Map<number, number>();
  /** No queue timeout is due before this. */
  private earliestTimeoutMs = Number.POSITIVE_INFINITY;

  /**
   * `room`: for those who wait, shared with the other groups of the engine. `firstStep`, `draftLength`: tests begin elsewhere, and draft by
   * other rules.
   */
  constructor(options: SchedulerOptions, room = QueueRoom.alone(options.maxQueue), firstStep = 1, draftLength?: DraftLength) {
    this.options = options;
    this.room = room;
    this.nextStep = firstStep;
    this.counters = new StatsCounters(options.drafts === null ? null : new DraftCounters(options.drafts.maxTokens));
    this.insight = new Insight(options.keptTimelines);
    this.planner = new Planner(options, this.counters, this.insight.timelines, draftLength);
    this.roster = this.planner.roster;
    for (let i = 0; i < options.maxStepsInFlight; i++) this.spareRecords.push(new StepRecord());
    this.tellRoom();
  }

  /** Shows the prefix cache to those who choose between groups. To be called before the first request. */
  showOn(board: BoardWriter): void {
    this.roster.kv.showOn(board);
  }

  /** Plans whose result has not come. */
  get stepsInFlight(): number {
    return this.inFlight.length;
  }

  /**
   * Takes a request into the queue, or refuses it: what can never run, and what finds the queue full. `owner` is the index of its
   * tokenizer. A request with generated tokens goes on where it was. `nowMs` must come from the clock that made `arrivalMs`.
   * @throws BrokenInvariant when the id is in use.
   */
  admit(message: Admit, owner: number, nowMs: number): void {
    const { roster, options } = this;
    this.nowMs = nowMs;
    if (roster.requests.has(message.id)) throw new BrokenInvariant(`request ${message.id} was admitted twice`);
    this.tellRoom();
    const failure = this.whyNoAdapter(message) ?? whyNever(message, options) ?? whyNotNow(message, this.room);
    if (failure !== null) {
      this.events.refuse(owner, message.id, failure);
      return;
    }
    const rank = rankOf(options.policy, message.priority);
    const request = new Request(message, { options, owner, rank, ordinal: this.nextOrdinal++, nowMs });
    if (request.unfinished === 0) return;
    roster.enqueue(request);
    this.insight.timelines.begin(request, nowMs);
    if (request.started) return;
    this.notices.joined(request);
    this.earliestTimeoutMs = Math.min(this.earliestTimeoutMs, nowMs + options.queueTimeoutMs);
  }

  /** Executors have this adapter: requests may name it from now on. */
  addAdapter(adapter: number): void {
    this.adapters.add(adapter);
  }

  /** No request may name it any more. Executors may forget it when this returns 0: no request does, and no plan on its way places it. */
  dropAdapter(adapter: number): number {
    this.adapters.delete(adapter);
    let users = 0;
    for (const request of this.roster.requests.values()) if (request.adapter === adapter) users++;
    if (users > 0) return users;
    const last = this.dropped.get(adapter) ?? (this.nextStep - 1) | 0;
    const [oldest] = this.inFlight;
    this.roster.adapters.forget(adapter);
    if (oldest !== undefined && ((oldest.step - last) | 0) <= 0) {
      this.dropped.set(adapter, last);
      return 1;
    }
    this.dropped.delete(adapter);
    return 0;
  }

  /** Adapters of requests that run, and of those that wait. */
  adapterUse(): AdapterUse {
    const of = ({ items }: OrderedList): number[] =>
      [...new Set(items.map(({ request }) => request.adapter))].filter((id) => id !== NO_ADAPTER_ID);
    return { running: of(this.roster.running), waiting: of(this.roster.waiting) };
  }

  /** Ends requests without an answer and frees what they hold; unknown ids are ignored. */
  abort(ids: readonly RequestId[], nowMs: number): void {
    this.nowMs = nowMs;
    for (const id of ids) {
      const request = this.roster.requests.get(id);
      if (request !== undefined) this.drop(request);
    }
  }

  /** A stop string ended a sequence; its further tokens are dropped. Unknown or finished sequences are ignored. */
  stopped(id: RequestId, index: number, nowMs: number): void {
    this.nowMs = nowMs;
    const sequence = this.roster.requests.get(id)?.sequence(index);
    if (sequence !== undefined) this.finish(sequence);
  }

  /** Stops or continues the scheduling of a request, which keeps slots and blocks. Returns false for an unknown id. */
  setPaused(id: RequestId, paused: boolean): boolean {
    const request = this.roster.requests.get(id);
    if (request === undefined) return false;
    request.paused = paused;
    return true;
  }

  /** A tokenizer is gone: its requests end and nothing more is told about them. */
  dropOwner(owner: number): void {
    for (const request of [...this.roster.requests.values()]) if (request.owner === owner) this.drop(request);
    this.events.dropOwner(owner);
  }

  /**
   * Plans the next step: the plan's bytes, a view that is valid until the next call, or null when nothing can run now or enough
   * steps are in flight. Every returned plan must be run, in order.
   */
  schedule(nowMs: number): Uint8Array | null {
    this.nowMs = nowMs;
    if (nowMs >= this.earliestTimeoutMs) this.expire(nowMs);
    const record = this.spareRecords.at(-1);
    if (record === undefined) return null;
    const plan = this.planner.plan(this.nextStep, record, this.inFlight.length, nowMs);
    this.notices.scheduled(this.roster, this.events, nowMs);
    if (plan === null) return null;
    this.nextStep = (this.nextStep + 1) | 0;
    this.spareRecords.pop();
    this.inFlight.push(record);
    return plan;
  }

  /**
   * Takes the result of the oldest step in flight. Results of another epoch are ignored.
   * @throws BrokenInvariant when it is not that step's, or reports a fault: the actor has to look at `errorCode` before.
   */
  update(result: Uint8Array, nowMs: number): void {
    const { reader } = this;
    this.nowMs = nowMs;
    reader.load(result);
    if (reader.epoch !== this.options.epoch) return;
    const record = this.inFlight.shift();
    invariant(record !== undefined && record.step === reader.step, 'a step result comes out of order');
    invariant(reader.errorCode === 0, 'a failed step cannot be applied');
    this.counters.step(reader.execUs, record.numTokens);
    const { numTokens, promptTokens } = record;
    this.insight.steps.add({ nowMs, execUs: reader.execUs, numTokens, promptTokens, running: this.roster.numRunning });
    if (record.hasPrompt) this.planner.lastPromptMs = nowMs - record.plannedMs;
    this.advance(record);
    if (reader.numPromptLogprobs > 0) this.takePromptLogprobs(record);
    this.takeSamples(record);
    this.takePooled(record);
    record.begin(0, 0); // drops its references
    this.spareRecords.push(record);
  }

  /** Milliseconds from now until a queue timeout or the end of an admission delay; Infinity when there is none. */
  nextDeadlineMs(nowMs: number): number {
    const timeout = this.roster.numUnstarted > 0 ? this.earliestTimeoutMs : Number.POSITIVE_INFINITY;
    const admission = this.planner.admissionMs();
    return Math.max(0, Math.min(timeout, admission > nowMs ? admission : Number.POSITIVE_INFINITY) - nowMs);
  }

  /** Somebody waits for what there is to send: the first token of an answer is among it. */
  get hasFirstTokens(): boolean {
    return this.events.hasFirst;
  }

  /** Everything to send since the last call. */
  takeOutputs(): Outputs {
    return this.events.take();
  }

  /** A snapshot of counters; cheap. */
  stats(): SchedulerStats {
    const { requests, numRunning, kv } = this.roster;
    return this.counters.snapshot({ requests: requests.size, running: numRunning, kv });
  }

  /** What there is to do, for those who choose between groups; in time proportional to the number of sequences. */
  work(): Work {
    const { running, waiting } = this.roster;
    let promptTokens = 0;
    for (const sequence of running.items) if (sequence.remaining > 1) promptTokens += sequence.remaining;
    for (const { request, numKnown, saved } of waiting.items)
      promptTokens += request.started ? numKnown - (saved?.numTokens ?? 0) : request.newTokens;
    return { promptTokens, running: running.size, waiting: waiting.size };
  }

  /** Tells the other groups what room there is here; also done by each `admit`. */
  tellRoom(): void {
    this.room.tell(Math.max(0, this.roster.slotsLeft), this.roster.numUnstarted);
  }

  /** Of all steps. */
  steps(): StepHistograms {
    return this.counters.histograms();
  }

  /** Whose each KV block is, in at most `maxCells` cells. */
  kvMap(maxCells: number): KvMap {
    return drawKvMap(this.roster, maxCells);
  }

  /** True while a request is unfinished or a step is in flight. */
  hasWork(): boolean {
    return this.roster.requests.size > 0 || this.inFlight.length > 0;
  }

  /** Checks all books against each other; slow. @throws BrokenInvariant when they disagree. */
  checkIntegrity(): void {
    checkBooks(this.roster, this.inFlight);
    invariant(this.inFlight.length + this.spareRecords.length === this.options.maxStepsInFlight, 'a step record is lost');
  }

  /** Publishes what the step computed; before its samples, which may end a sequence and release its blocks. */
  private advance({ advances, plannedMs: ms }: StepRecord): void {
    const { kv } = this.roster;
    const { timelines } = this.insight;
    const untilMs = this.nowMs;
    for (let i = 0; i < advances.size; i++) {
      const sequence = advances.live(i);
      if (sequence === null) continue;
      const end = advances.number(i);
      const { numRetired: from, request } = sequence;
      if (end - from > 1 || end <= request.promptLen) {
        const { index, generation } = sequence;
        const forked = index > 0 && generation === 0 && end === request.promptLen; // its leader computed that
        if (!forked) timelines.mark(request.id, { kind: 'prefill', ms, untilMs, sequence: index, from, to: end });
      }
      kv.retire(sequence, end);
      if (!request.announced) this.tellPrefill(sequence, end);
    }
  }

  private tellPrefill({ request, index }: Sequence, done: number): void {
    const total = request.promptLen;
    const inChunks = done < total || request.prefillNoticed > 0;
    if (index !== 0 || !inChunks || done <= request.prefillNoticed) return;
    request.prefillNoticed = done;
    this.events.notice({ kind: 'prefill', id: request.id, done, total });
  }

  private takePromptLogprobs({ advances }: StepRecord): void {
    const { reader } = this;
    const bySlot = new Map<number, Sequence>();
    for (let i = 0; i < advances.size; i++) {
      const sequence = advances.live(i);
      if (sequence !== null) bySlot.set(advances.slot(i), sequence);
    }
    for (let i = 0; i < reader.numPromptLogprobs; i++) {
      const request = bySlot.get(reader.promptSlot(i))?.request;
      if (request === undefined) continue;
      const position = reader.promptPosition(i);
      // A prompt that was preempted is computed again, but told once.
      if (position <= request.promptLogprobsSent) continue;
      request.promptLogprobsSent = position;
      this.events.promptLogprob(request.owner, request.id, position, reader.promptRecord(i));
    }
  }

  private takeSamples(record: StepRecord): void {
    if (this.options.drafts === null) this.takePlain(record);
    else this.takeSpans(record);
  }

  /** Without drafts a sample is one token. */
  private takePlain({ samples }: StepRecord): void {
    const { reader } = this;
    const { size } = samples;
    invariant(reader.numTokens === size, 'a step result has other tokens than its plan');
    for (let i = 0; i < size; i++) {
      invariant(reader.tokenSlot(i) === samples.slot(i), 'a sample has other tokens than its plan');
      const sequence = samples.live(i);
      if (sequence !== null) this.takeToken(sequence, i, 0);
    }
  }

  /** A sample is the token behind the history, and those behind drafts that turned out right. */
  private takeSpans({ samples }: StepRecord): void {
    const { reader } = this;
    let at = 0;
    for (let i = 0; i < samples.size; i++) {
      const slot = samples.slot(i);
      const most = at + samples.number(i);
      const first = at;
      invariant(first < reader.numTokens && reader.tokenSlot(first) === slot, 'a sample has other tokens than its plan');
      let end = first + 1;
      while (end < most && end < reader.numTokens && reader.tokenSlot(end) === slot) end++;
      const drafting = samples.live(i);
      if (drafting !== null) this.takeDrafted(drafting, most - first, end - first, reader.drafted(first));
      for (; at < end; at++) {
        const sequence = samples.live(i); // null behind the token that ended it
        const refused = reader.drafted(first) - (end - first - 1);
        if (sequence !== null) this.takeToken(sequence, at, at < end - 1 ? DRAFTED : refused);
      }
    }
    invariant(at === reader.numTokens, 'a step result has more tokens than its plan');
  }

  /** How drafts fared, whenever that is worth a line of the log; null in between. */
  draftReport(): DraftReport | null {
    return this.counters.speculation?.report() ?? null;
  }

  /** Of `planned` tokens `given` came, the first behind the history and the others behind drafts that turned out right. */
  private takeDrafted(sequence: Sequence, planned: number, given: number, drafted: number): void {
    if (this.options.drafts === null) return;
    sequence.takeBack(planned - given);
    sequence.draftHistory.note(planned - 1, drafted, given - 1);
    if (drafted > 0) this.counters.speculation?.note(drafted, given - 1);
  }

  /** `at`: which token of the result. `drafted`: as in Tokens. */
  private takeToken(sequence: Sequence, at: number, drafted: number): void {
    const { reader, events } = this;
    const { request } = sequence;
    const token = reader.token(at);
    if (token === NO_TOKEN) {
      this.failStuck(request);
      return;
    }
    sequence.push(token);
    // All but the new token is computed; where samples are one token each, `advance` has said so.
    if (this.options.drafts !== null) this.roster.kv.retire(sequence, sequence.numKnown - 1);
    this.counters.generatedTokens++;
    if (request.sumsLogprobs) sequence.cumulativeLogprob += reader.tokenLogprob(at);
    if (!request.announced) this.announce(request);
    const finish = this.finishOf(sequence, token);
    events.token(sequence, token, finish, request.wantsLogprobs ? reader.tokenRecord(at) : null, drafted);
    if (finish !== FINISH.none) this.finish(sequence);
  }

  private whyNoAdapter({ adapter = NO_ADAPTER_ID }: Admit): Failure | null {
    if (adapter === NO_ADAPTER_ID || this.adapters.has(adapter)) return null;
    return { kind: 'model_not_found', message: 'The adapter of the request was unloaded meanwhile.' };
  }

  /** Its vocabulary lacks what the grammar asks for next, or the grammar has too many readings at once to be followed. */
  private failStuck(request: Request): void {
    this.drop(request);
    this.events.refuse(request.owner, request.id, {
      kind: 'unsupported',
      message: 'No token can go on in the form that was asked for: its grammar can be read in too many ways, or the model cannot spell it.',
    });
  }

  private takePooled({ pools }: StepRecord): void {
    const { reader, events } = this;
    invariant(reader.numPooled === pools.size, 'a step result has other pooled states than its plan');
    for (let i = 0; i < pools.size; i++) {
      const state = reader.nextPooled();
      invariant(state.slot === pools.slot(i), 'a pooled state is of another slot');
      const sequence = pools.live(i);
      if (sequence === null) continue;
      if (!sequence.request.announced) this.announce(sequence.request);
      events.pooled(sequence.request, state.values);
      this.finish(sequence);
    }
  }

  /** Once, before the first thing that a request is answered. */
  private announce(request: Request): void {
    request.announced = true;
    this.insight.timelines.mark(request.id, { kind: 'first_token', ms: this.nowMs });
    const { id, owner, queueMs, cachedTokens } = request;
    this.events.started(owner, { id, queueMs, cachedTokens });
  }

  /** A stop on the last allowed token is a stop, not a length. */
  private finishOf(sequence: Sequence, token: number): number {
    const { request } = sequence;
    if (holds(request.stopTokenIds, token)) return FINISH.stopToken;
    if (!request.ignoreEos && holds(this.options.eosTokenIds, token)) return FINISH.eos;
    return sequence.numGenerated === request.maxTokens ? FINISH.length : FINISH.none;
  }

  private finish(sequence: Sequence): void {
    const { request, index } = sequence;
    this.roster.end(sequence);
    this.insight.timelines.mark(request.id, { kind: 'sequence_ended', ms: this.nowMs, sequence: index, tokens: sequence.numGenerated });
    if (request.unfinished > 0) return;
    this.counters.finished++;
    this.insight.timelines.end(request.id, 'finished', this.nowMs);
  }

  private drop(request: Request): void {
    this.roster.endAll(request);
    this.counters.aborted++;
    this.insight.timelines.end(request.id, 'aborted', this.nowMs);
  }

  /** Refuses the requests that have waited too long for their first step. */
  private expire(nowMs: number): void {
    const { roster, options } = this;
    let next = Number.POSITIVE_INFINITY;
    for (const { request } of [...roster.waiting.items]) {
      if (request.started) continue;
      const dueMs = request.enqueuedMs + options.queueTimeoutMs;
      if (dueMs > nowMs) {
        next = Math.min(next, dueMs);
        continue;
      }
      roster.endAll(request);
      this.insight.timelines.end(request.id, 'refused', nowMs);
      const seconds = ((nowMs - request.enqueuedMs) / 1000).toFixed(1);
      this.events.refuse(request.owner, request.id, {
        kind: 'overloaded',
        message: `The request waited ${seconds} s for its turn; scheduler.queue_timeout_s is ${options.queueTimeoutMs / 1000}.`,
      });
    }
    this.earliestTimeoutMs = next;
  }
}

/** As `list.includes`, which is a call for each token; lists of a few ids are compared in place. */
function holds(list: readonly number[], token: number): boolean {
  for (let i = 0; i < list.length; i++) if (list[i] === token) return true;
  return false;
}
