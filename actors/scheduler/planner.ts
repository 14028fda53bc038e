/**
 * Plans one step. Runs in the scheduler thread, called by scheduler.ts; changes the roster and writes plan and record.
 *
 * There are no phases: every sequence has tokens whose KV is not computed (`remaining`), and a step spends a token budget on catching
 * up (the idea of vLLM V1). A sequence with one remaining token decodes, one with more prefills; a row that reaches the end of the
 * sequence samples. With chunked prefill a step takes
 *   1. the decodes, oldest first; for a missing block the youngest running sequence gives way,
 *   2. running prefills with what is left of the budget, which is smaller where sequences decode, as they wait for what is beside them
 *      (Sarathi-Serve, Agrawal et al. 2024),
 *   3. waiting sequences in order; the first that does not fit ends the step.
 * Without it (Atoma's default mode) prompts run whole: a step is prefills when one can be admitted, else decodes.
 *
 * What gives way is computed again or swapped to the host (preemption.ts). A swapped sequence waits in the same order as the others;
 * when its turn comes it takes a slot and blocks, and the swap in runs beside this step, so that its first row is in the next one.
 * Nothing swapped comes in in a step in which something gave way.
 *
 * No sequence is ever preempted for a younger one, so the oldest always gets on. Slots are bounded by the token budget, so in 1.
 * nobody is left out. A row planned before the token it feeds is known starts at that token's position: executors take it from
 * their own history. With drafts that position is not known either, and the row computes what was drafted behind the token, too; drafts
 * take only budget and blocks that nobody else needs.
 */
import { ROW_FLAG } from '../messages/step.js';
import { invariant } from '../runtime/invariant.js';
import { NO_ADAPTER_ID } from './adapter-places.js';
import { adaptiveLength, type DraftLength } from './drafts.js';
import type { Timelines } from './insight/timelines.js';
import { WRITABLE } from './kv-cache.js';
import { leastPromptTokens, type SchedulerOptions, watermarkBlocks } from './options.js';
import { ADMISSION_WORDS, PlanWriter } from './plan-writer.js';
import { prefersSwap } from './preemption.js';
import type { Sequence } from './request.js';
import { Roster } from './roster.js';
import type { StatsCounters } from './stats.js';
import { StepRecord } from './step-record.js';

/** So long others may go on taking the places of adapters ahead of one that waits for a place. */
const MAX_PLACE_WAIT_MS = 1000;
/** Steps in which sequences decode are as large as it takes to compute in so many of them what waits, */
const WAITING_STEPS = 4;
/** but no more than so many times `mixedStepTokens`. */
const MOST_MIXED = 2;

export class Planner {
  readonly roster: Roster;
  /** Time the last prompt step took, from plan to result; for the delay of admissions. */
  lastPromptMs = 0;
  private readonly options: SchedulerOptions;
  private readonly stats: StatsCounters;
  private readonly timelines: Timelines;
  private readonly draftLength: DraftLength;
  private readonly writer: PlanWriter;
  private record = new StepRecord();
  /** Tokens this step may still take. */
  private budget = 0;
  private nowMs = 0;
  /** Something gave way in this step. */
  private preempting = false;
  /** Head of the queue that did not fit, and `kv.releases` at that time: not tried again before a block was released. */
  private blocked: Sequence | null = null;
  private blockedAt = 0;

  constructor(options: SchedulerOptions, stats: StatsCounters, timelines: Timelines, draftLength?: DraftLength) {
    this.options = options;
    this.stats = stats;
    this.timelines = timelines;
    this.draftLength = options.drafts === null ? () => 0 : (draftLength ?? adaptiveLength(options.drafts));
    const writer = new PlanWriter(options.epoch);
    this.writer = writer;
    this.roster = new Roster(
      options,
      (slot) => writer.free(slot),
      (place, adapter) => writer.placeAdapter(place, adapter),
    );
  }

  /**
   * Plans step `step` into `record`, while the results of `unread` steps before it are still to come; returns the plan's bytes (a view,
   * valid until the next call), or null when nothing can run.
   */
  plan(step: number, record: StepRecord, unread: number, nowMs: number): Uint8Array | null {
    this.record = record;
    this.nowMs = nowMs;
    this.budget = this.options.maxBatchTokens;
    this.preempting = false;
    record.begin(step, nowMs);
    if (this.options.enableChunkedPrefill) {
      const firstPrefill = this.planDecodes();
      this.leavePrompts();
      this.planPrefills(firstPrefill);
      this.admit({ prompts: true, swapped: true });
    } else {
      this.planPrefills(0);
      this.admit({ prompts: true, swapped: false });
      if (this.writer.numRows === 0) {
        this.planDecodes();
        this.admit({ prompts: false, swapped: true });
      }
    }
    // Without a row, a plan may still swap.
    return this.writer.empty ? null : this.writer.finish(step, unread);
  }

  /** When the delay factor lets the queue in; 0 when it does not hold anything back. */
  admissionMs(): number {
    const { waiting, running } = this.roster;
    if (this.options.delayFactor === 0 || waiting.size === 0 || running.size === 0) return 0;
    let earliest = Number.POSITIVE_INFINITY;
    for (const sequence of waiting.items) earliest = Math.min(earliest, sequence.request.arrivalMs);
    return earliest + this.options.delayFactor * this.lastPromptMs;
  }

  /** Rows of sequences that lack one token. Returns where in `running` the first one stands that lacks more, or its end. */
  private planDecodes(): number {
    const { items } = this.roster.running;
    let firstPrefill = -1;
    // Preemption takes from the end of the list, at or behind `i`, and forks come behind `i`: what was passed stays where it is.
    for (let i = 0; i < items.length; i++) {
      const sequence = items[i]!; // i < length
      if (sequence.remaining !== 1 || !runnable(sequence)) {
        if (firstPrefill === -1 && sequence.remaining > 1) firstPrefill = i;
        continue;
      }
      const done = this.roster.kv.makeWritable(sequence, sequence.numComputed);
      if (done !== WRITABLE.already && !this.makeRoom(sequence, done)) break;
      if (sequence.numComputed < sequence.request.promptLen) {
        i += this.planRow(sequence, 1); // siblings forked by the row are listed next and have their sample already
      } else if (this.options.drafts === null) {
        this.planDecoded(sequence);
      } else {
        this.planDrafted(sequence, this.takeDrafts(sequence, this.budget - (items.length - i)));
      }
    }
    return firstPrefill === -1 ? items.length : firstPrefill;
  }

  /**
   * Makes the sequence's next position writable, of which `done` is what became of the first attempt; the youngest running sequences are
   * preempted until it is. Returns false when it was the youngest itself and had to go: then nothing comes behind it.
   */
  private makeRoom(sequence: Sequence, done: number): boolean {
    const { roster, writer } = this;
    for (; ; done = roster.kv.makeWritable(sequence, sequence.numComputed)) {
      if (done === WRITABLE.already) return true;
      if (done !== WRITABLE.noBlock) {
        const last = sequence.numBlocks - 1;
        if (done === WRITABLE.copied) writer.copy(roster.kv.copySource, sequence.blocks[last]!); // the table has a last block
        writer.tableEntry(sequence, last);
        return true;
      }
      const victim = roster.running.items.at(-1);
      invariant(victim !== undefined, 'a running sequence is not listed');
      this.preempt(victim);
      if (victim === sequence) return false;
    }
  }

  private preempt(victim: Sequence): void {
    const { roster, writer, stats } = this;
    const { preemptionMode, swapCostTokens, blockSize } = this.options;
    const part = roster.kv.ownPart(victim);
    const numTokens = part.numTokens - part.first * blockSize;
    const swapped =
      !needsWholePrompt(victim) &&
      prefersSwap(preemptionMode, numTokens, part.end - part.first, swapCostTokens) &&
      roster.kv.swap.save(victim, part, (device, host) => writer.swapOut(device, host));
    roster.preempt(victim);
    stats.preempted++;
    this.timelines.mark(victim.request.id, {
      kind: 'preempted',
      ms: this.nowMs,
      sequence: victim.index,
      how: swapped ? 'swap' : 'recompute',
    });
    this.preempting = true;
  }

  /** How many of its drafts the next row of a decoding sequence may compute, `most` at most; takes their blocks. */
  private takeDrafts(sequence: Sequence, most: number): number {
    const count = Math.max(0, Math.min(sequence.drafts, sequence.room - 1, most));
    return this.takeBlocks(sequence, 1 + count) - 1;
  }

  /** How many positions from the next on that is computed have blocks, `count` at most; takes blocks for them, all but the first. */
  private takeBlocks(sequence: Sequence, count: number): number {
    const { roster, writer } = this;
    const { kv } = roster;
    for (;;) {
      const held = sequence.numBlocks * kv.blockSize - sequence.numComputed;
      if (held >= count) return count;
      // Nobody shall give way for a draft, now or in the next step.
      if (kv.pool.numFree <= roster.running.size) return held;
      kv.makeWritable(sequence, sequence.numBlocks * kv.blockSize);
      writer.tableEntry(sequence, sequence.numBlocks - 1);
    }
  }

  /**
   * How many drafts the next row shall compute. A network that drafts writes to the places from the next on, all but the last draft's; not
   * to a block that others hold, too, as after a fork, or will hold at once.
   */
  private draftsFor(sequence: Sequence): number {
    const wanted = this.draftLength(sequence.draftHistory, this.roster.running.size);
    const most = Math.max(0, Math.min(wanted, sequence.room - 1));
    if (most === 0 || this.options.drafts?.inBlocks !== true) return most;
    const shared = sequence.request.forkPending || this.roster.kv.isShared(sequence, sequence.numComputed);
    return shared ? 0 : this.takeBlocks(sequence, most);
  }

  /** The last token of a sequence behind its prompt: the row that most steps consist of. */
  private planDecoded(sequence: Sequence): void {
    const start = sequence.numComputed;
    this.writer.row(sequence.slot, start, 1, 0);
    this.record.advances.add(sequence, start + 1);
    sequence.numComputed = start + 1;
    this.budget--;
    this.record.numTokens++;
    this.planSample(sequence);
  }

  /** The last token of a sequence, which the device knows, and so many drafts behind it. */
  private planDrafted(sequence: Sequence, drafts: number): void {
    const count = 1 + drafts;
    this.writer.row(sequence.slot, sequence.numComputed, count, ROW_FLAG.fromDevice);
    this.record.decodes.add(sequence, count);
    sequence.numComputed += count;
    this.budget -= count;
    this.record.numTokens += count;
    this.planSample(sequence, count);
  }

  /** Lowers the budget to what prompts get beside the rows of sequences that decode. */
  private leavePrompts(): void {
    const decoded = this.options.maxBatchTokens - this.budget;
    if (decoded > 0) this.budget = Math.min(this.budget, Math.max(this.mixedTokens() - decoded, leastPromptTokens(this.options)));
  }

  /**
   * Tokens of a step in which sequences decode. Where much waits these gain little from small steps: they get through later because
   * fewer of them run at a time.
   */
  private mixedTokens(): number {
    const least = this.options.mixedStepTokens;
    if (least >= this.options.maxBatchTokens) return least;
    const most = MOST_MIXED * least;
    let waiting = 0;
    for (const { remaining } of this.roster.waiting.items) {
      waiting += remaining;
      if (waiting >= most * WAITING_STEPS) return most;
    }
    return Math.max(least, Math.floor(waiting / WAITING_STEPS));
  }

  /** Rows of running sequences that lack more than one token, from the one at `first`; their blocks were taken at admission. */
  private planPrefills(first: number): void {
    const { items } = this.roster.running;
    for (let i = first; i < items.length && this.budget > 0; i++) {
      const sequence = items[i]!; // i < length
      if (sequence.remaining > 1 && runnable(sequence)) i += this.planRow(sequence, Math.min(sequence.remaining, this.budget));
    }
  }

  /**
   * Starts waiting sequences of these kinds in order until one does not fit. Those of paused requests are passed over, and so are those
   * whose adapters find no place; once one of these has waited for long, no other one behind it starts with an adapter, so that places
   * become free.
   */
  private admit(kinds: { readonly prompts: boolean; readonly swapped: boolean }): void {
    const { items } = this.roster.waiting;
    if (items.length === 0) return;
    if (this.options.delayFactor > 0 && this.nowMs <= this.admissionMs()) return;
    let kept = false; // places are, for one that has waited for long
    for (let i = 0; i < items.length && this.budget > 0; ) {
      const sequence = items[i]!; // i < length
      const { request } = sequence;
      const placeless = request.adapter !== NO_ADAPTER_ID && (kept || !this.roster.adapters.hasRoomFor(request.adapter));
      if (placeless && this.nowMs - request.enqueuedMs > MAX_PLACE_WAIT_MS) kept = true;
      if (request.paused || placeless) i++;
      else if (!(sequence.saved === null ? kinds.prompts : kinds.swapped) || !this.start(sequence)) return;
    }
  }

  /** Starts a waiting sequence if slots, blocks and budget allow, with its first row unless it was swapped. */
  private start(sequence: Sequence): boolean {
    const { roster, writer } = this;
    const { kv } = roster;
    const { request } = sequence;
    const swapped = sequence.saved !== null;
    if (swapped && this.preempting) return false;
    const alone = roster.running.size === 0;
    if (request.slotsNeeded > roster.slotsLeft || writer.admissionWords > ADMISSION_WORDS) return false;
    if (!alone && this.blocked === sequence && this.blockedAt === kv.releases) return false;

    const numHits = needsWholePrompt(sequence) ? 0 : kv.match(sequence);
    const cached = numHits * kv.blockSize;
    // Without chunks a prompt waits for a step that takes it whole. Only what was preempted or resumed can have outgrown a step;
    // it is computed again over several.
    if (!this.options.enableChunkedPrefill && !swapped && sequence.numKnown - cached > this.budget && writer.numRows > 0) return false;
    // A resumed sequence keeps one block free: what just gave way does not come back for the blocks it left.
    const spare = alone ? 0 : request.started ? 1 : watermarkBlocks(kv.pool.size) + (request.bestOf > 1 ? request.bestOf : 0);
    if (!kv.admit(sequence, numHits, spare)) {
      this.blocked = sequence;
      this.blockedAt = kv.releases;
      return false;
    }
    this.blocked = null;
    if (!request.started) {
      request.queueMs = Math.max(0, this.nowMs - request.arrivalMs);
      request.cachedTokens = cached;
      this.stats.promptTokens += request.promptLen;
      this.stats.prefixHitTokens += cached;
      this.timelines.mark(request.id, { kind: 'started', ms: this.nowMs, cachedTokens: cached });
    } else this.timelines.mark(request.id, { kind: 'resumed', ms: this.nowMs, sequence: sequence.index });
    kv.swap.restore(sequence, numHits, (host, device) => writer.swapIn(host, device));
    roster.start(sequence);
    writer.sequence(sequence, -1);
    if (!swapped) this.planRow(sequence, Math.min(sequence.remaining, this.budget));
    return true;
  }

  /**
   * Plans the next `count` tokens of a running sequence, and a sample if they are its last. At the end of a prompt the siblings
   * appear, right behind their leader in `running`; returns how many.
   */
  private planRow(sequence: Sequence, count: number): number {
    const { request } = sequence;
    const start = sequence.numComputed;
    const end = start + count;
    const reports = start + 1 < request.promptLen && reportsPrompt(sequence);
    const pools = poolFlags(sequence, end);
    this.writer.row(sequence.slot, start, count, (reports ? ROW_FLAG.promptLogprobs : 0) | pools);
    this.record.advances.add(sequence, end);
    if (count > 1 || end <= request.promptLen) {
      this.record.hasPrompt = true;
      this.record.promptTokens += count;
    }
    sequence.numComputed = end;
    this.budget -= count;
    this.record.numTokens += count;
    if (end < sequence.length) return 0;
    if (request.pooling === null) this.planSample(sequence);
    else this.planPooled(sequence);
    return request.forkPending ? this.fork(sequence) : 0;
  }

  /** Every sibling samples its own first token from the last row of the prompt. */
  private fork(leader: Sequence): number {
    const siblings = this.roster.fork(leader);
    for (const sibling of siblings) {
      this.writer.sequence(sibling, leader.slot);
      this.record.advances.add(sibling, sibling.numComputed);
      this.planSample(sibling);
    }
    return siblings.length;
  }

  /** Its state comes with the last row, in the place of a token. */
  private planPooled(sequence: Sequence): void {
    this.record.pools.add(sequence, 1);
    sequence.length++;
  }

  /** From the last positions of the last row. */
  private planSample(sequence: Sequence, count = 1): void {
    this.record.samples.add(sequence, count);
    sequence.length += count;
    if (this.options.drafts !== null) sequence.drafts = this.draftsFor(sequence);
    this.writer.sample(this.writer.numRows - 1, sequence.slot, count, sequence.drafts);
  }
}

/** A sequence all of whose tokens are planned waits for its last results. */
function runnable(sequence: Sequence): boolean {
  return !sequence.request.paused && sequence.maySample;
}

/** The leader tells the prompt's logprobs, once. */
function reportsPrompt(sequence: Sequence): boolean {
  return sequence.index === 0 && sequence.request.promptLogprobsSent < sequence.request.promptLen - 1;
}

/** A mean takes every row, in order; the row that ends the prompt brings the answer. */
function poolFlags({ request }: Sequence, end: number): number {
  if (request.pooling === null) return 0;
  return (request.pooling === 'mean' ? ROW_FLAG.poolSum : 0) | (end === request.promptLen ? ROW_FLAG.pool : 0);
}

/**
 * Log-probabilities of a prompt and the mean of its hidden states come only from computing every position, in one slot: nothing may be
 * skipped or swapped until they were told.
 */
function needsWholePrompt(sequence: Sequence): boolean {
  return reportsPrompt(sequence) || sequence.request.pooling === 'mean';
}
