/**
 * Where every sequence is: waiting, running in a slot, or gone; and the moves between these. Runs in the scheduler thread. Each move
 * keeps slots, blocks, lists and counts in step, so that the callers (scheduler.ts for what clients do, planner.ts for what steps
 * need) cannot forget one.
 */
import type { RequestId } from '../messages/ids.js';
import { NO_ADAPTER } from '../messages/step.js';
import { invariant } from '../runtime/invariant.js';
import { AdapterPlaces, NO_ADAPTER_ID } from './adapter-places.js';
import { KvCache } from './kv-cache.js';
import { maxRunning, type SchedulerOptions } from './options.js';
import { byAge, byTurn, OrderedList } from './queue.js';
import { FINISHED, type Request, RUNNING, Sequence, WAITING } from './request.js';

export class Roster {
  readonly requests = new Map<RequestId, Request>();
  readonly running = new OrderedList(byAge);
  readonly waiting = new OrderedList(byTurn);
  readonly kv: KvCache;
  readonly adapters: AdapterPlaces;
  /** Requests with a sequence in a slot. */
  numRunning = 0;
  /** Waiting requests that have never run: what `max_queue` and the queue timeout are about. */
  numUnstarted = 0;
  private readonly numSlots: number;
  /** A stack, lowest slot on top at first, so that executors touch few slots. */
  private readonly freeSlots: number[] = [];
  /** Slots kept for the siblings of leaders that have not forked. */
  private reserved = 0;
  /** Told of each slot that was left, so that the next plan tells the executors. */
  private readonly onSlotFreed: (slot: number) => void;

  /** `onPlaced` as of AdapterPlaces. */
  constructor(options: SchedulerOptions, onSlotFreed: (slot: number) => void, onPlaced: (place: number, adapter: number) => void) {
    this.kv = new KvCache(options);
    this.adapters = new AdapterPlaces(options.adapterPlaces, onPlaced);
    this.numSlots = maxRunning(options);
    for (let slot = this.numSlots - 1; slot >= 0; slot--) this.freeSlots.push(slot);
    this.onSlotFreed = onSlotFreed;
  }

  /** Slots that are neither taken nor reserved. */
  get slotsLeft(): number {
    return this.freeSlots.length - this.reserved;
  }

  /** A new request joins the queue with all its unfinished sequences. */
  enqueue(request: Request): void {
    this.requests.set(request.id, request);
    for (const sequence of request.sequences) this.waiting.add(sequence);
    if (!request.started) this.numUnstarted++;
  }

  /** A waiting sequence, which has its blocks by now, takes a slot; a leader reserves those of its siblings. */
  start(sequence: Sequence): void {
    const { request } = sequence;
    invariant(this.slotsLeft >= request.slotsNeeded, 'a sequence starts without a slot');
    invariant(this.waiting.remove(sequence), 'a sequence starts that does not wait');
    this.reserved += request.slotsNeeded - 1;
    if (!request.started) {
      // Changes the order of waiting, where this request has nothing else while it is unstarted.
      request.started = true;
      this.numUnstarted--;
    }
    this.enter(sequence);
  }

  /** Makes the siblings of a leader whose prompt is planned to its end; they share its blocks. Returns them in order of index. */
  fork(leader: Sequence): readonly Sequence[] {
    const { request } = leader;
    const prompt = leader.tokens.subarray(0, request.promptLen);
    const siblings: Sequence[] = [];
    request.forkPending = false;
    for (let index = 1; index < request.bestOf; index++) {
      const sibling = new Sequence(request, index, prompt, new Int32Array(0), 0);
      this.kv.fork(leader, sibling);
      sibling.numComputed = request.promptLen;
      request.add(sibling);
      this.reserved--;
      this.enter(sibling);
      siblings.push(sibling);
    }
    return siblings;
  }

  /** A running sequence gives up slot and blocks at once and waits; what it has generated is kept, and computed again unless saved. */
  preempt(sequence: Sequence): void {
    this.leave(sequence);
    sequence.state = WAITING;
    this.waiting.add(sequence);
  }

  /** An unfinished sequence ends, wherever it is; with the last one the request goes. */
  end(sequence: Sequence): void {
    const { request } = sequence;
    if (sequence.state === RUNNING) {
      this.leave(sequence);
    } else {
      invariant(this.waiting.remove(sequence), 'a sequence ends that is nowhere');
      if (!request.started) this.numUnstarted--;
      this.kv.swap.discard(sequence);
      sequence.reset();
    }
    sequence.state = FINISHED;
    request.unfinished--;
    if (request.unfinished === 0) this.requests.delete(request.id);
  }

  /** Ends all sequences of a request. */
  endAll(request: Request): void {
    for (const sequence of request.sequences) if (sequence.state !== FINISHED) this.end(sequence);
  }

  /** @throws BrokenInvariant when slots, lists, counts or blocks disagree. */
  checkIntegrity(): void {
    const slots = new Set(this.freeSlots);
    let reserved = 0;
    for (const sequence of this.running.items) {
      const { request } = sequence;
      invariant(sequence.state === RUNNING && !slots.has(sequence.slot), 'two sequences have one slot');
      invariant(sequence.saved === null, 'a running sequence has a copy on the host');
      slots.add(sequence.slot);
      reserved += request.slotsNeeded - 1;
      invariant(
        sequence.numRetired <= sequence.numComputed && sequence.numComputed < sequence.length,
        'a running sequence has nothing left',
      );
      invariant(sequence.numRetired <= sequence.numKnown && sequence.numKnown <= sequence.length, 'unknown tokens have retired');
      invariant(sequence.length <= request.promptLen + request.maxTokens, 'max_tokens is exceeded');
      invariant(this.running.indexOf(sequence) !== -1, 'the running sequences are out of order');
    }
    invariant(slots.size === this.numSlots && this.running.size + this.freeSlots.length === this.numSlots, 'a slot is lost');
    invariant(reserved === this.reserved && this.slotsLeft >= 0, 'reserved slots do not add up');
    for (const sequence of this.waiting.items) {
      invariant(sequence.state === WAITING && sequence.slot === -1 && sequence.numBlocks === 0, 'a waiting sequence holds something');
      invariant(this.waiting.indexOf(sequence) !== -1, 'the waiting sequences are out of order');
    }
    this.checkCounts();
    const using = this.running.items.filter(({ request }) => request.adapter !== NO_ADAPTER_ID);
    this.adapters.checkIntegrity(using.map(({ adapterPlace, request }) => [adapterPlace, request.adapter] as const));
    this.kv.checkIntegrity(this.running.items, this.waiting.items);
  }

  private checkCounts(): void {
    let unfinished = 0;
    let running = 0;
    let unstarted = 0;
    for (const request of this.requests.values()) {
      const live = request.sequences.filter((s) => s.state !== FINISHED);
      const inSlots = live.filter((s) => s.state === RUNNING).length;
      invariant(live.length === request.unfinished && live.length > 0, 'a request lost a sequence');
      invariant(inSlots === request.numRunning, 'a request counts its running sequences wrongly');
      unfinished += live.length;
      if (inSlots > 0) running++;
      if (!request.started) unstarted++;
    }
    invariant(unfinished === this.running.size + this.waiting.size, 'a sequence is neither running nor waiting');
    invariant(running === this.numRunning && unstarted === this.numUnstarted, 'requests are counted wrongly');
  }

  private enter(sequence: Sequence): void {
    const slot = this.freeSlots.pop();
    invariant(slot !== undefined, 'no slot is free');
    sequence.slot = slot;
    if (sequence.request.adapter !== NO_ADAPTER_ID) sequence.adapterPlace = this.adapters.take(sequence.request.adapter);
    sequence.state = RUNNING;
    this.running.add(sequence);
    if (sequence.request.numRunning++ === 0) this.numRunning++;
  }

  private leave(sequence: Sequence): void {
    const { request } = sequence;
    invariant(this.running.remove(sequence), 'a sequence leaves that does not run');
    this.reserved -= request.slotsNeeded - 1;
    this.kv.release(sequence);
    if (sequence.adapterPlace !== NO_ADAPTER) this.adapters.release(sequence.adapterPlace);
    sequence.adapterPlace = NO_ADAPTER;
    this.freeSlots.push(sequence.slot);
    this.onSlotFreed(sequence.slot);
    if (--request.numRunning === 0) this.numRunning--;
    sequence.reset();
  }
}
