/**
 * Runs StepPlan bodies in plain TypeScript, without a model: as strictly as the native engine may, and stricter.
 *
 * The "KV" of a position is a hash of its token, its position and everything before it, read THROUGH THE BLOCK TABLE. The sampled
 * token is a hash of all KV values up to the row's end, read the same way, plus the sampling row. So a wrong block, a missing copy,
 * a stale prefix or a row that was skipped changes the answer. `referenceAnswer` computes the same function from the tokens alone.
 *
 * A plan runs at once on `submit`; its result waits until `takeResult`, which is how two steps get in flight. Swaps run as late as
 * they may: what is swapped in holds nothing while the rows run, and what is swapped out is read after them, unless the plan's block
 * sets name it.
 */
import assert from 'node:assert/strict';
import { SAMPLING_ROW } from '../../../actors/messages/sampling.js';
import {
  LAYOUT_VERSION,
  RESULT,
  RESULT_POOLED,
  RESULT_PROMPT,
  RESULT_SAMPLE,
  RESULT_TOP,
  ROW_FLAG,
} from '../../../actors/messages/step.js';
import type { Pooling } from '../../../config/models/pooling.js';
import { type PlanBody, type PlanRow, type PlanSample, readPlan } from './plan-reader.js';

export interface PlanInterpreterOptions {
  readonly numBlocks: number;
  readonly numSwapBlocks: number;
  readonly blockSize: number;
  readonly maxSlots: number;
  readonly maxBatchTokens: number;
  readonly vocabSize: number;
  readonly epoch: number;
  /** 1 when not said. */
  readonly firstStep?: number;
  /** What it drafts; nothing when not said. */
  readonly drafter?: Drafter;
  /** Drafting writes to the places from the last token of the history on, but for that of the last draft, as a network does. */
  readonly draftsInBlocks?: boolean;
}

/** Drafts at most `count` tokens behind a history; `right` continues it by so many tokens as the model will. */
export type Drafter = (count: number, right: (count: number) => number[], vocabSize: number) => number[];

interface SlotState {
  readonly history: number[];
  readonly promptLen: number;
  readonly table: number[];
  readonly row: Int32Array;
  readonly bias: ArrayLike<number>;
  readonly masked: ArrayLike<number>;
  /** Sum of the states of positions 0 .. summed-1. */
  sum: number;
  summed: number;
  /** Drafts that the last sample asked for, and those that it got. */
  asked: number;
  drafts: readonly number[];
}

/** What decides the tokens of one sequence besides its prompt. */
export interface SampleParams {
  readonly promptLen: number;
  readonly row: Int32Array;
  readonly bias: ArrayLike<number>;
  readonly masked: ArrayLike<number>;
  readonly vocabSize: number;
}

/** Counts of what a plan held, for tests that look at plans. */
export interface PlanSummary {
  readonly step: number;
  readonly freed: readonly number[];
  readonly newSlots: readonly { readonly slot: number; readonly forkOf: number; readonly tokens: readonly number[] }[];
  readonly swapOuts: readonly (readonly [number, number])[];
  readonly copies: readonly (readonly [number, number])[];
  readonly swapIns: readonly (readonly [number, number])[];
  readonly rows: readonly { readonly slot: number; readonly start: number; readonly count: number; readonly flags?: number }[];
  readonly samples: readonly number[];
  readonly numTokens: number;
}

export class PlanInterpreter {
  /** What the last submitted plan held. */
  last: PlanSummary | null = null;
  private readonly options: PlanInterpreterOptions;
  private readonly slots = new Map<number, SlotState>();
  /** KV value of each position of each block. */
  private readonly kv: Int32Array;
  /** The same of the host. */
  private readonly host: Int32Array;
  private readonly results: Uint8Array[] = [];
  private nextStep: number;

  constructor(options: PlanInterpreterOptions) {
    this.options = options;
    this.nextStep = options.firstStep ?? 1;
    this.kv = new Int32Array(options.numBlocks * options.blockSize);
    this.host = new Int32Array(options.numSwapBlocks * options.blockSize);
  }

  /** Results not taken yet. */
  get pending(): number {
    return this.results.length;
  }

  /** The result of the oldest step not taken, or null. */
  takeResult(): Uint8Array | null {
    return this.results.shift() ?? null;
  }

  /** Checks and runs a plan. The bytes are not kept. */
  submit(bytes: Uint8Array): void {
    const plan = readPlan(bytes);
    const { step, swapOuts, swapIns } = plan;
    assert.equal(step, this.nextStep, 'steps count up by one');
    this.nextStep = new Int32Array([this.nextStep + 1])[0] ?? 0;
    assert.equal(plan.epoch, this.options.epoch);
    this.applyFreed(plan);
    this.applyNewSlots(plan);
    const given = this.applyBlockSets(plan);
    const { numBlocks, numSwapBlocks } = this.options;
    checkSwaps(swapOuts, numBlocks, numSwapBlocks);
    const urgent = swapOuts.filter(([source]) => given.has(source));
    this.move(this.kv, this.host, urgent);
    this.applyCopies(plan);
    checkSwaps(swapIns, numSwapBlocks, numBlocks);
    assert.ok(swapOuts.length === 0 || swapIns.length === 0, 'a plan does not swap both ways');
    for (const [, block] of swapIns) this.kv.fill(-1, block * this.options.blockSize, (block + 1) * this.options.blockSize);
    this.checkRows(plan);
    const rows = plan.rows.map((row) =>
      (row.flags & ROW_FLAG.fromDevice) === 0 ? row : { ...row, start: this.slot(row.slot).history.length - 1 },
    );
    assert.ok(rows.length + plan.newSlots.length + swapOuts.length > 0, 'a plan does something');
    this.checkTables(rows);
    const beside = new Set(swapOuts.filter((pair) => !urgent.includes(pair)).map(([source]) => source));
    for (const block of this.written(rows)) assert.ok(!beside.has(block), `block ${block} is written while it is swapped out`);
    this.last = { ...plan, samples: plan.samples.map((s) => s.slot) };
    this.run(step, rows, plan.samples);
    this.move(
      this.kv,
      this.host,
      swapOuts.filter((pair) => !urgent.includes(pair)),
    );
    this.move(this.host, this.kv, swapIns);
  }

  private applyFreed({ freed }: PlanBody): void {
    for (const slot of freed) assert.ok(this.slots.delete(slot), `slot ${slot} is freed but empty`);
  }

  private applyNewSlots({ newSlots }: PlanBody): void {
    for (const { slot, forkOf, promptLen, tokens, samplingRow: row, lists } of newSlots) {
      assert.ok(slot >= 0 && slot < this.options.maxSlots, 'slots stay in range');
      assert.ok(!this.slots.has(slot), `slot ${slot} is taken twice`);
      if (forkOf >= 0) assert.equal(tokens.length, 0, 'a fork brings no tokens');
      const history = forkOf >= 0 ? [...this.slot(forkOf).history] : [...tokens];
      this.slots.set(slot, { ...lists, history, promptLen, table: [], row, sum: 0, summed: 0, asked: 0, drafts: [] });
    }
  }

  /** Returns the blocks that tables got. */
  private applyBlockSets({ blockSets }: PlanBody): Set<number> {
    const given = new Set<number>();
    for (const { slot, index, block } of blockSets) {
      const { table } = this.slot(slot);
      assert.ok(index >= 0 && index <= table.length, 'block tables have no holes');
      assert.ok(block >= 0 && block < this.options.numBlocks, 'blocks stay in range');
      table[index] = block;
      given.add(block);
    }
    return given;
  }

  private move(from: Int32Array, to: Int32Array, pairs: readonly (readonly [number, number])[]): void {
    const size = this.options.blockSize;
    for (const [source, destination] of pairs) to.set(from.subarray(source * size, (source + 1) * size), destination * size);
  }

  private applyCopies({ copies }: PlanBody): void {
    const size = this.options.blockSize;
    const sources = new Set(copies.map(([src]) => src));
    assert.equal(new Set(copies.map(([, dst]) => dst)).size, copies.length, 'no block is copied to twice');
    for (const [, dst] of copies) assert.ok(!sources.has(dst), 'copies of a step do not depend on each other');
    for (const [src, dst] of copies) this.kv.copyWithin(dst * size, src * size, (src + 1) * size);
  }

  private checkRows({ rows, numTokens }: PlanBody): void {
    for (const row of rows) {
      const { history, table, asked } = this.slot(row.slot);
      assert.ok(row.count > 0 && row.start >= 0, 'a row has tokens');
      if ((row.flags & ROW_FLAG.fromDevice) === 0) {
        assert.ok(row.start + row.count <= history.length, 'a row reads only tokens that exist by then');
      } else {
        assert.equal(row.flags, ROW_FLAG.fromDevice);
        assert.ok(row.start >= history.length - 1, 'a row has room for the tokens that there are');
        assert.ok(row.count <= 1 + asked, 'a row computes no more drafts than were asked for');
      }
      assert.ok(table.length * this.options.blockSize >= row.start + row.count, 'the block table covers the row');
    }
    assert.equal(new Set(rows.map((r) => r.slot)).size, rows.length, 'a slot has one row in a step');
    const total = rows.reduce((sum, { count }) => sum + count, 0);
    assert.equal(numTokens, total);
    assert.ok(total <= this.options.maxBatchTokens, 'the token budget is kept');
  }

  private written(rows: readonly PlanRow[]): number[] {
    const size = this.options.blockSize;
    return rows.flatMap(({ slot, start, count }) => {
      return this.slot(slot).table.slice(Math.floor(start / size), Math.ceil((start + count) / size));
    });
  }

  /** No two slots may write one block, and nobody may write a block that another slot's table has. */
  private checkTables(rows: readonly PlanRow[]): void {
    const users = new Map<number, Set<number>>();
    for (const [slot, { table }] of this.slots) {
      assert.equal(new Set(table).size, table.length, 'a table names a block once');
      for (const block of table) users.set(block, (users.get(block) ?? new Set()).add(slot));
    }
    const size = this.options.blockSize;
    for (const { slot, start, count } of rows) {
      const { table, promptLen } = this.slot(slot);
      for (let index = Math.floor(start / size); index * size < start + count; index++) {
        const others = [...(users.get(at(table, index)) ?? [])].filter((s) => s !== slot);
        // Siblings forked in this very plan share the block that the leader's last prompt row fills.
        const sharers = others.filter((s) => !(start + count === promptLen && this.slot(s).history.length === promptLen));
        assert.deepEqual(sharers, [], `slot ${slot} writes a block of other slots`);
      }
    }
  }

  private run(step: number, rows: readonly PlanRow[], samples: readonly PlanSample[]): void {
    const { blockSize, vocabSize } = this.options;
    const prompts: { slot: number; position: number; token: number }[] = [];
    const pooled: PooledState[] = [];
    for (const row of rows) {
      const { history, table, promptLen, row: sampling, drafts } = this.slot(row.slot);
      for (let p = row.start; p < row.start + row.count; p++) {
        const value = kvValue(history[p] ?? drafts[p - history.length] ?? -1, p, p === 0 ? 0 : this.attend(table, p));
        this.kv[at(table, Math.floor(p / blockSize)) * blockSize + (p % blockSize)] = value;
        if ((row.flags & ROW_FLAG.promptLogprobs) !== 0 && p + 1 < promptLen) {
          assert.ok(at(sampling, SAMPLING_ROW.promptLogprobs) >= 0, 'prompt logprobs were asked for');
          prompts.push({ slot: row.slot, position: p + 1, token: at(history, p + 1) });
        }
      }
      const state = this.pool(row);
      if (state !== null) pooled.push(state);
    }
    const tokens: SampledToken[] = [];
    for (const sample of samples) {
      const row = rows[sample.row];
      assert.ok(row, 'a sample names a row');
      const slot = this.slot(sample.slot);
      const fromDevice = (row.flags & ROW_FLAG.fromDevice) !== 0;
      assert.equal(sample.count, fromDevice ? row.count : 1, 'a sample has a token for each place of its row that may have one');
      assert.equal(slot.history.length, fromDevice ? row.start + 1 : row.start + row.count, 'a sample follows the last token of its slot');
      const compared = slot.drafts.slice(0, sample.count - 1);
      for (let i = 0; i <= compared.length; i++) {
        const end = slot.history.length;
        // A sibling reads the leader's last row; through its own table that must be the same.
        const state = this.attend(slot.table, end);
        const token = sampleToken(state, end, { ...slot, vocabSize });
        const top = at(slot.row, SAMPLING_ROW.topLogprobs);
        const logprob = top >= 0 ? logprobOf(state, token) : Number.NaN;
        tokens.push({ slot: sample.slot, token, logprob, top: Math.max(0, top), drafted: i === 0 ? compared.length : 0 });
        slot.history.push(token);
        if (token !== compared[i]) break;
      }
      slot.asked = sample.drafts;
      slot.drafts = sample.drafts === 0 ? [] : this.draft(slot, sample.drafts);
    }
    assert.equal(new Set(samples.map((s) => s.slot)).size, samples.length, 'a slot samples once in a step');
    this.results.push(encodeResult(step, this.options.epoch, tokens, prompts, pooled));
  }

  private draft(slot: SlotState, count: number): readonly number[] {
    const { drafter, vocabSize, blockSize, draftsInBlocks } = this.options;
    const { history, promptLen, table } = slot;
    // Where it writes, nobody may read before it is computed.
    for (let p = history.length - 1; draftsInBlocks === true && p < history.length - 1 + count; p++) {
      assert.ok(p < table.length * blockSize, 'a draft has a block');
      this.kv[at(table, Math.floor(p / blockSize)) * blockSize + (p % blockSize)] = -1;
    }
    const right = (n: number): number[] => referenceAnswer(history, n, { ...slot, vocabSize, promptLen }).tokens;
    return drafter?.(count, right, vocabSize).slice(0, count) ?? [];
  }

  /** The hidden state of a position is made of the KV of all positions up to it. */
  private pool({ slot, start, count, flags }: PlanRow): PooledState | null {
    const state = this.slot(slot);
    const end = start + count;
    const hidden = (p: number): number => hiddenState(this.attend(state.table, p + 1));
    if ((flags & ROW_FLAG.poolSum) === 0) return (flags & ROW_FLAG.pool) === 0 ? null : { slot, value: hidden(end - 1) };
    if (start === 0) Object.assign(state, { sum: 0, summed: 0 });
    assert.equal(start, state.summed, 'a sum has no gaps');
    for (let p = start; p < end; p++) state.sum += hidden(p);
    state.summed = end;
    return (flags & ROW_FLAG.pool) === 0 ? null : { slot, value: state.sum / end };
  }

  /** Hash of the KV values of positions 0 .. end-1, through the table. */
  private attend(table: readonly number[], end: number): number {
    const { blockSize } = this.options;
    let h = 17;
    for (let p = 0; p < end; p++) h = mix(h, this.kv[at(table, Math.floor(p / blockSize)) * blockSize + (p % blockSize)] ?? 0);
    return h;
  }

  private slot(slot: number): SlotState {
    const state = this.slots.get(slot);
    assert.ok(state, `slot ${slot} is empty`);
    return state;
  }
}

/** (source, destination) pairs within these numbers of blocks; no destination twice. */
function checkSwaps(pairs: readonly (readonly [number, number])[], sources: number, destinations: number): void {
  for (const [source, destination] of pairs) {
    assert.ok(source >= 0 && source < sources && destination >= 0 && destination < destinations, 'swapped blocks stay in range');
  }
  assert.equal(new Set(pairs.map(([, destination]) => destination)).size, pairs.length, 'no block is swapped to twice');
}

interface SampledToken {
  readonly slot: number;
  readonly token: number;
  readonly logprob: number;
  readonly top: number;
  /** 0 when not said. */
  readonly drafted?: number;
}

interface PooledState {
  readonly slot: number;
  /** Its state has one number. */
  readonly value: number;
}

/** Builds the body of a StepResult. `top` entries are made up from the token. */
export function encodeResult(
  step: number,
  epoch: number,
  samples: readonly SampledToken[],
  prompts: readonly { slot: number; position: number; token: number }[] = [],
  pooled: readonly PooledState[] = [],
): Uint8Array {
  const numTops = samples.reduce((sum, s) => sum + s.top, 0);
  const pooledAt =
    RESULT.headerWords + samples.length * RESULT_SAMPLE.words + prompts.length * RESULT_PROMPT.words + numTops * RESULT_TOP.words;
  const pooledWords = RESULT_POOLED.values + 1;
  const length = pooledAt + pooled.length * pooledWords;
  const words = new Int32Array(length);
  const floats = new Float32Array(words.buffer);
  words[RESULT.layoutVersion] = LAYOUT_VERSION;
  words[RESULT.step] = step;
  words[RESULT.epoch] = epoch;
  words[RESULT.numSamples] = samples.length;
  words[RESULT.numPromptLogprobs] = prompts.length;
  words[RESULT.numTops] = numTops;
  words[RESULT.numPooled] = pooled.length;
  words[RESULT.execUs] = 1000;
  words[RESULT.words] = length;
  let base: number = RESULT.headerWords;
  let topAt = pooledAt - numTops * RESULT_TOP.words;
  let top = 0;
  for (const s of samples) {
    words[base + RESULT_SAMPLE.slot] = s.slot;
    words[base + RESULT_SAMPLE.token] = s.token;
    floats[base + RESULT_SAMPLE.logprob] = s.logprob;
    words[base + RESULT_SAMPLE.rank] = 1;
    words[base + RESULT_SAMPLE.topOffset] = top;
    words[base + RESULT_SAMPLE.topCount] = s.top;
    words[base + RESULT_SAMPLE.drafted] = s.drafted ?? 0;
    for (let i = 0; i < s.top; i++) {
      words[topAt + RESULT_TOP.id] = s.token + i;
      floats[topAt + RESULT_TOP.logprob] = s.logprob - i;
      topAt += RESULT_TOP.words;
    }
    top += s.top;
    base += RESULT_SAMPLE.words;
  }
  for (const p of prompts) {
    words[base + RESULT_PROMPT.slot] = p.slot;
    words[base + RESULT_PROMPT.position] = p.position;
    words[base + RESULT_PROMPT.token] = p.token;
    floats[base + RESULT_PROMPT.logprob] = -0.5;
    words[base + RESULT_PROMPT.rank] = 1;
    base += RESULT_PROMPT.words;
  }
  for (const [i, { slot, value }] of pooled.entries()) {
    const at = pooledAt + i * pooledWords;
    words[at + RESULT_POOLED.slot] = slot;
    words[at + RESULT_POOLED.width] = 1;
    floats[at + RESULT_POOLED.values] = value;
  }
  return new Uint8Array(words.buffer);
}

/** The first `count` tokens of sequence `row[sequenceIndex]`, and their logprobs, from the prompt alone: no blocks, slots or steps. */
export function referenceAnswer(
  prompt: readonly number[],
  count: number,
  params: Omit<SampleParams, 'promptLen'> & { readonly promptLen?: number },
): { tokens: number[]; logprobs: number[] } {
  const history = [...prompt];
  const logprobs: number[] = [];
  let state = 17;
  const advance = (p: number): void => {
    state = mix(state, kvValue(at(history, p), p, p === 0 ? 0 : state));
  };
  for (let p = 0; p < prompt.length; p++) advance(p);
  for (let i = 0; i < count; i++) {
    const token = sampleToken(state, history.length, { promptLen: prompt.length, ...params });
    logprobs.push(logprobOf(state, token));
    history.push(token);
    advance(history.length - 1);
  }
  return { tokens: history.slice(prompt.length), logprobs };
}

/** The pooled state of a prompt, from its tokens alone. */
export function referencePooled(prompt: readonly number[], pooling: Pooling): number {
  let state = 17;
  let sum = 0;
  for (let p = 0; p < prompt.length; p++) {
    state = mix(state, kvValue(at(prompt, p), p, p === 0 ? 0 : state));
    sum += hiddenState(state);
  }
  return pooling === 'mean' ? Math.fround(sum / prompt.length) : hiddenState(state);
}

/** An integer below 2^12, so that sums are exact. */
function hiddenState(state: number): number {
  return (state >>> 0) % 4096;
}

function kvValue(token: number, position: number, before: number): number {
  return mix(mix(mix(91, token), position), before);
}

function sampleToken(state: number, length: number, params: SampleParams): number {
  const { row, bias, masked, promptLen, vocabSize } = params;
  let h = mix(mix(state, at(row, SAMPLING_ROW.seedLo)), mix(at(row, SAMPLING_ROW.seedHi), at(row, SAMPLING_ROW.sequenceIndex)));
  for (const word of Array.from(bias)) h = mix(h, word);
  let token = (mix(h, length - promptLen) >>> 0) % vocabSize;
  if (length - promptLen < at(row, SAMPLING_ROW.minTokens)) while (Array.from(masked).includes(token)) token = (token + 1) % vocabSize;
  return token;
}

/** A multiple of 1/64, so that sums are exact. */
function logprobOf(state: number, token: number): number {
  return -((mix(state, token) >>> 0) % 512) / 64;
}

function mix(h: number, word: number): number {
  const x = Math.imul(h ^ Math.imul(word + 0x9e3779b9, 0x85ebca6b), 0xc2b2ae35);
  return (x ^ (x >>> 15)) | 0;
}

function at(words: ArrayLike<number>, index: number): number {
  const word = words[index];
  assert.ok(word !== undefined, 'an index is in range');
  return word;
}
