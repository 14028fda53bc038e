/**
 * A scheduler wired to the plan interpreter, with a clock of its own, and a ledger of everything that was told about each sequence.
 */
import assert from 'node:assert/strict';
import type { RequestId } from '../../../actors/messages/ids.js';
import { type Admit, FINISH, type Notice, type Refused, type Started } from '../../../actors/messages/requests.js';
import { packSamplingRow, SAMPLING_ROW } from '../../../actors/messages/sampling.js';
import type { QueueRoom } from '../../../actors/routing/queue-room.js';
import type { DraftLength } from '../../../actors/scheduler/drafts.js';
import { planWordsLimit, Scheduler, type SchedulerOptions } from '../../../actors/scheduler/scheduler.js';
import type { Pooling } from '../../../config/models/pooling.js';
import { generation } from '../../helpers/engine/generation.js';
import { readRecords, type TokenLogprob } from '../../helpers/engine/logprobs.js';
import {
  type Drafter,
  PlanInterpreter,
  type PlanSummary,
  referenceAnswer,
  referencePooled,
} from '../../helpers/engine/plan-interpreter.js';

const VOCAB = 50;
export const EOS = 7;

export const defaultOptions: SchedulerOptions = {
  blockSize: 4,
  numBlocks: 64,
  numSwapBlocks: 0,
  swapCostTokens: 1,
  maxSlots: 8,
  maxBatchTokens: 32,
  mixedStepTokens: Number.MAX_SAFE_INTEGER,
  maxModelLen: 128,
  enableChunkedPrefill: true,
  enablePrefixCaching: true,
  delayFactor: 0,
  policy: 'fcfs',
  preemptionMode: 'auto',
  drafts: null,
  adapterPlaces: 2,
  maxQueue: 1000,
  queueTimeoutMs: 1e9,
  keptTimelines: 8,
  eosTokenIds: [EOS],
  epoch: 3,
  maxStepsInFlight: 2,
};

export interface Ask {
  readonly prompt: readonly number[];
  readonly maxTokens?: number;
  readonly bestOf?: number;
  readonly priority?: number;
  readonly seed?: number;
  readonly minTokens?: number;
  readonly stopTokenIds?: readonly number[];
  readonly ignoreEos?: boolean;
  readonly topLogprobs?: number;
  readonly promptLogprobs?: number;
  readonly bias?: readonly number[];
  readonly owner?: number;
  readonly arrivalMs?: number;
  readonly turn?: number;
  readonly newTokens?: number;
  readonly again?: boolean;
  readonly generated?: readonly (readonly number[])[];
  readonly finished?: readonly boolean[];
  readonly cumulative?: readonly number[];
  /** In place of tokens. */
  readonly pooling?: Pooling;
  readonly adapter?: number;
}

/** What was told about one sequence. */
export interface Told {
  readonly tokens: number[];
  readonly logprobs: (TokenLogprob | null)[];
  /** A FINISH code once it has finished. */
  finish: number;
  cumulative: number | null;
}

/** What was told about one request. */
export interface Entry {
  readonly ask: Ask;
  readonly sequences: Map<number, Told>;
  readonly started: Started[];
  readonly promptPositions: number[];
  /** The one number of a pooled state. */
  pooled: number | null;
  refused: Refused | null;
  aborted: boolean;
}

export const bytes = (words: readonly number[]): Uint8Array => new Uint8Array(Int32Array.from(words).buffer);

export function samplingRow(ask: Ask): Int32Array {
  return packSamplingRow(
    { ...generation().sampling, temperature: 1, min_tokens: ask.minTokens ?? 0 },
    { seedLo: ask.seed ?? 1, seedHi: 0, topLogprobs: ask.topLogprobs ?? -1, promptLogprobs: ask.promptLogprobs ?? -1 },
  );
}

/** What sequence `index` of a request must answer, computed from the request alone. */
export function expected(ask: Ask, index: number): { tokens: number[]; finish: number; cumulative: number } {
  const maxTokens = ask.maxTokens ?? 8;
  const row = samplingRow(ask);
  row[SAMPLING_ROW.sequenceIndex] = index;
  const stops = ask.stopTokenIds ?? [];
  const eos = ask.ignoreEos === true ? [] : [EOS];
  const bias = Int32Array.from(ask.bias ?? []);
  const all = referenceAnswer(ask.prompt, maxTokens, { row, bias, masked: [...stops, ...eos], vocabSize: VOCAB });
  let count = all.tokens.findIndex((t) => stops.includes(t) || eos.includes(t)) + 1;
  let finish: number = FINISH.length;
  if (count > 0) finish = stops.includes(all.tokens[count - 1] ?? -1) ? FINISH.stopToken : FINISH.eos;
  else count = maxTokens;
  return { tokens: all.tokens.slice(0, count), finish, cumulative: all.logprobs.slice(0, count).reduce((a, b) => a + b, 0) };
}

/** In place of the daemon's rules; only where the options say that there are drafts. */
export interface Drafting {
  readonly length?: DraftLength;
  readonly drafter?: Drafter;
}

export class Rig {
  readonly options: SchedulerOptions;
  readonly scheduler: Scheduler;
  readonly executor: PlanInterpreter;
  readonly entries = new Map<number, Entry>();
  readonly notices: Notice[] = [];
  readonly plans: PlanSummary[] = [];
  now = 1000;
  private nextId = 1;

  /** `room`: where it is one of several groups. */
  constructor(options: Partial<SchedulerOptions> = {}, firstStep = 1, room?: QueueRoom, drafting: Drafting = {}) {
    this.options = { ...defaultOptions, ...options };
    this.scheduler = new Scheduler(this.options, room, firstStep, drafting.length);
    this.executor = new PlanInterpreter({
      ...this.options,
      vocabSize: VOCAB,
      firstStep,
      ...(drafting.drafter && { drafter: drafting.drafter }),
      draftsInBlocks: this.options.drafts?.inBlocks === true,
    });
  }

  /** Admits a request; returns its id. */
  admit(ask: Ask): RequestId {
    const id = this.nextId++ as RequestId;
    const message: Admit = {
      k: 'admit',
      id,
      promptIds: bytes(ask.prompt),
      generated: (ask.generated ?? []).map(bytes),
      finished: ask.finished ?? [],
      ...(ask.cumulative === undefined ? {} : { cumulative: ask.cumulative }),
      samplingRow: new Uint8Array(samplingRow(ask).buffer),
      bias: bytes(ask.bias ?? []),
      maxTokens: ask.pooling === undefined ? (ask.maxTokens ?? 8) : 0,
      stopTokenIds: ask.stopTokenIds ?? [],
      ignoreEos: ask.ignoreEos ?? false,
      bestOf: ask.bestOf ?? 1,
      priority: ask.priority ?? 0,
      arrivalMs: ask.arrivalMs ?? this.now,
      turn: ask.turn ?? 0,
      ...(ask.newTokens === undefined ? {} : { newTokens: ask.newTokens }),
      ...(ask.again === undefined ? {} : { again: ask.again }),
      ...(ask.pooling === undefined ? {} : { pooling: ask.pooling }),
      ...(ask.adapter === undefined ? {} : { adapter: ask.adapter }),
    };
    const entry: Entry = { ask, sequences: new Map(), started: [], promptPositions: [], pooled: null, refused: null, aborted: false };
    for (let index = 0; index < (ask.pooling === undefined ? (ask.bestOf ?? 1) : 0); index++) {
      if (ask.finished?.[index] === true) continue;
      entry.sequences.set(index, { tokens: [...(ask.generated?.[index] ?? [])], logprobs: [], finish: FINISH.none, cumulative: null });
    }
    this.entries.set(id, entry);
    this.scheduler.admit(message, ask.owner ?? 0, this.now);
    this.collect();
    return id;
  }

  abort(id: RequestId): void {
    this.entry(id).aborted = true;
    this.scheduler.abort([id], this.now);
    this.collect();
  }

  /** Plans and runs one step without reading its result. Returns what the plan held, or null. */
  schedule(): PlanSummary | null {
    const plan = this.scheduler.schedule(this.now);
    this.collect();
    if (plan === null) return null;
    assert.ok(plan.byteLength <= planWordsLimit(this.options, 32) * 4, 'a plan stays within its bound');
    this.executor.submit(plan);
    assert.ok(this.executor.last);
    this.plans.push(this.executor.last);
    return this.executor.last;
  }

  /** Reads the oldest result. Returns false when there is none. */
  update(): boolean {
    const result = this.executor.takeResult();
    if (result === null) return false;
    this.scheduler.update(result, this.now);
    this.collect();
    return true;
  }

  /** Goes on until nothing moves any more. */
  run(): void {
    for (let i = 0; i < 100_000; i++) {
      this.now += 1;
      const planned = this.schedule() !== null;
      if (planned && this.scheduler.stepsInFlight < this.options.maxStepsInFlight) continue;
      const updated = this.update();
      this.scheduler.checkIntegrity();
      if (!planned && !updated) return;
    }
    assert.fail('the scheduler does not come to rest');
  }

  entry(id: number): Entry {
    const entry = this.entries.get(id);
    assert.ok(entry, `request ${id} is known`);
    return entry;
  }

  told(id: number, index = 0): Told {
    const told = this.entry(id).sequences.get(index);
    assert.ok(told, `sequence ${index} of request ${id} is known`);
    return told;
  }

  /** Asserts that every sequence of a request answered as it would alone. */
  assertAnswered(id: number): void {
    const { ask, sequences, refused } = this.entry(id);
    assert.equal(refused, null, `request ${id} was refused: ${refused?.failure.message}`);
    if (ask.pooling !== undefined) assert.equal(this.entry(id).pooled, referencePooled(ask.prompt, ask.pooling), `state of request ${id}`);
    for (const [index, told] of sequences) {
      const want = expected(ask, index);
      assert.deepEqual(told.tokens, want.tokens, `tokens of request ${id}, sequence ${index}`);
      assert.equal(told.finish, want.finish, `finish of request ${id}, sequence ${index}`);
      if ((ask.bestOf ?? 1) > 1 || (ask.topLogprobs ?? -1) >= 0) assert.equal(told.cumulative, want.cumulative);
    }
  }

  /** Asserts that nothing is held any more. */
  assertIdle(): void {
    this.scheduler.checkIntegrity();
    assert.equal(this.scheduler.hasWork(), false);
    const { kv, requests } = this.scheduler.stats();
    assert.equal(kv.used_blocks, 0);
    assert.equal(kv.cached_blocks + kv.free_blocks, kv.total_blocks);
    assert.deepEqual([requests.running, requests.waiting, requests.swapped, kv.swap_used], [0, 0, 0, 0]);
  }

  private collect(): void {
    const { tokens, refused, notices } = this.scheduler.takeOutputs();
    this.notices.push(...notices);
    for (const { owner, message } of refused) {
      const entry = this.entry(message.id);
      assert.equal(owner, entry.ask.owner ?? 0);
      assert.equal(entry.refused, null, 'a request is refused once');
      assert.ok(!entry.aborted, 'an aborted request is not refused');
      entry.refused = message;
    }
    for (const [owner, message] of tokens) {
      for (const column of [message.indices, message.tokens, message.finishes, message.logprobWords, message.cumulative]) {
        if (column !== undefined) assert.equal(column.length, message.ids.length, 'columns are parallel');
      }
      for (const started of message.started ?? []) this.entry(started.id).started.push(started);
      for (const { id, first, logprobs } of message.prompt ?? [])
        this.entry(id).promptPositions.push(...readRecords(logprobs).map((_, i) => first + i));
      for (const { id, state } of message.pooled ?? []) {
        const entry = this.entry(id);
        assert.equal(owner, entry.ask.owner ?? 0, 'a state goes to the owner');
        assert.ok(!entry.aborted && entry.refused === null && entry.pooled === null, 'a request ends once');
        entry.pooled = new Float32Array(state.buffer)[0] ?? Number.NaN;
      }
      const records = message.logprobs === undefined ? [] : readRecords(message.logprobs);
      message.ids.forEach((id, i) => {
        const entry = this.entry(id);
        assert.equal(owner, entry.ask.owner ?? 0, 'tokens go to the owner');
        assert.ok(!entry.aborted && entry.refused === null, 'an ended request gets no tokens');
        const told = this.told(id, message.indices[i]);
        assert.equal(told.finish, FINISH.none, 'a finished sequence gets no tokens');
        told.tokens.push(message.tokens[i] ?? -1);
        told.logprobs.push((message.logprobWords?.[i] ?? 0) > 0 ? (records.shift() ?? null) : null);
        told.finish = message.finishes[i] ?? -1;
        told.cumulative = message.cumulative?.[i] ?? null;
      });
    }
  }
}
