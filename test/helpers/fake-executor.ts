/**
 * An executor without a model: runs StepPlan bodies in plain TypeScript, as strictly as the native engine may and stricter.
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
import {
  BLOCK_SET,
  COPY,
  LAYOUT_VERSION,
  NEW_SLOT,
  PLAN,
  RESULT,
  RESULT_PROMPT,
  RESULT_SAMPLE,
  RESULT_TOP,
  ROW,
  ROW_FLAG,
  SAMPLE,
  SAMPLING_ROW,
} from '../../actors/messages/step.js';

export interface FakeExecutorOptions {
  readonly numBlocks: number;
  readonly numSwapBlocks: number;
  readonly blockSize: number;
  readonly maxSlots: number;
  readonly maxBatchTokens: number;
  readonly vocabSize: number;
  readonly epoch: number;
  /** 1 when not said. */
  readonly firstStep?: number;
}

interface SlotState {
  readonly history: number[];
  readonly promptLen: number;
  readonly table: number[];
  readonly row: Int32Array;
  readonly bias: Int32Array;
  readonly masked: readonly number[];
}

/** What decides the tokens of one sequence besides its prompt. */
export interface SampleParams {
  readonly promptLen: number;
  readonly row: Int32Array;
  readonly bias: Int32Array;
  readonly masked: readonly number[];
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
  readonly rows: readonly { readonly slot: number; readonly start: number; readonly count: number }[];
  readonly samples: readonly number[];
  readonly numTokens: number;
}

export class FakeExecutor {
  /** What the last submitted plan held. */
  last: PlanSummary | null = null;
  private readonly options: FakeExecutorOptions;
  private readonly slots = new Map<number, SlotState>();
  /** KV value of each position of each block. */
  private readonly kv: Int32Array;
  /** The same of the host. */
  private readonly host: Int32Array;
  private readonly results: Uint8Array[] = [];
  private nextStep: number;

  constructor(options: FakeExecutorOptions) {
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
  submit(plan: Uint8Array): void {
    const words = new Int32Array(plan.slice().buffer);
    assert.equal(words[PLAN.layoutVersion], LAYOUT_VERSION);
    assert.equal(words[PLAN.step], this.nextStep, 'steps count up by one');
    this.nextStep = new Int32Array([this.nextStep + 1])[0] ?? 0;
    assert.equal(words[PLAN.epoch], this.options.epoch);
    assert.equal(words[PLAN.words], words.length);
    const reader = new PlanReader(words);
    const freed = this.applyFreed(reader);
    const newSlots = this.applyNewSlots(reader);
    const given = this.applyBlockSets(reader);
    const { numBlocks, numSwapBlocks } = this.options;
    const swapOuts = this.readSwaps(reader, at(words, PLAN.numSwapOuts), [numBlocks, numSwapBlocks]);
    const urgent = swapOuts.filter(([source]) => given.has(source));
    this.move(this.kv, this.host, urgent);
    const copies = this.applyCopies(reader);
    const swapIns = this.readSwaps(reader, at(words, PLAN.numSwapIns), [numSwapBlocks, numBlocks]);
    assert.ok(swapOuts.length === 0 || swapIns.length === 0, 'a plan does not swap both ways');
    for (const [, block] of swapIns) this.kv.fill(-1, block * this.options.blockSize, (block + 1) * this.options.blockSize);
    const rows = this.readRows(reader);
    const samples: { row: number; slot: number }[] = [];
    for (let i = 0; i < at(words, PLAN.numSamples); i++) {
      const base = reader.take(SAMPLE.words);
      samples.push({ row: at(words, base + SAMPLE.row), slot: at(words, base + SAMPLE.slot) });
    }
    assert.equal(reader.position, words.length, 'the sections fill the plan');
    assert.ok(rows.length + newSlots.length + swapOuts.length > 0, 'a plan does something');
    this.checkTables(rows);
    const beside = new Set(swapOuts.filter((pair) => !urgent.includes(pair)).map(([source]) => source));
    for (const block of this.written(rows)) assert.ok(!beside.has(block), `block ${block} is written while it is swapped out`);
    this.last = {
      step: at(words, PLAN.step),
      freed,
      newSlots,
      swapOuts,
      copies,
      swapIns,
      rows,
      samples: samples.map((s) => s.slot),
      numTokens: at(words, PLAN.numTokens),
    };
    this.run(at(words, PLAN.step), rows, samples);
    this.move(
      this.kv,
      this.host,
      swapOuts.filter((pair) => !urgent.includes(pair)),
    );
    this.move(this.host, this.kv, swapIns);
  }

  private applyFreed(reader: PlanReader): number[] {
    const freed: number[] = [];
    for (let i = 0; i < at(reader.words, PLAN.numFreed); i++) {
      const slot = at(reader.words, reader.take(1));
      assert.ok(this.slots.delete(slot), `slot ${slot} is freed but empty`);
      freed.push(slot);
    }
    return freed;
  }

  private applyNewSlots(reader: PlanReader): { slot: number; forkOf: number; tokens: number[] }[] {
    const { words } = reader;
    const made: { slot: number; forkOf: number; tokens: number[] }[] = [];
    for (let i = 0; i < at(words, PLAN.numNewSlots); i++) {
      const base = reader.take(NEW_SLOT.fixedWords);
      const slot = at(words, base + NEW_SLOT.slot);
      const forkOf = at(words, base + NEW_SLOT.forkOf);
      assert.ok(slot >= 0 && slot < this.options.maxSlots, 'slots stay in range');
      assert.ok(!this.slots.has(slot), `slot ${slot} is taken twice`);
      const tokens = reader.slice(at(words, base + NEW_SLOT.numTokens));
      const bias = Int32Array.from(reader.slice(at(words, base + NEW_SLOT.numBias) * 2));
      const masked = reader.slice(at(words, base + NEW_SLOT.numMasked));
      let history = [...tokens];
      if (forkOf >= 0) {
        assert.equal(tokens.length, 0, 'a fork brings no tokens');
        history = [...this.slot(forkOf).history];
      }
      const row = words.slice(base + NEW_SLOT.samplingRow, base + NEW_SLOT.samplingRow + SAMPLING_ROW.words);
      this.slots.set(slot, { history, promptLen: at(words, base + NEW_SLOT.promptLen), table: [], row, bias, masked });
      made.push({ slot, forkOf, tokens });
    }
    return made;
  }

  /** Returns the blocks that tables got. */
  private applyBlockSets(reader: PlanReader): Set<number> {
    const { words } = reader;
    const given = new Set<number>();
    for (let i = 0; i < at(words, PLAN.numBlockSets); i++) {
      const base = reader.take(BLOCK_SET.words);
      const { table } = this.slot(at(words, base + BLOCK_SET.slot));
      const index = at(words, base + BLOCK_SET.index);
      const block = at(words, base + BLOCK_SET.block);
      assert.ok(index >= 0 && index <= table.length, 'block tables have no holes');
      assert.ok(block >= 0 && block < this.options.numBlocks, 'blocks stay in range');
      table[index] = block;
      given.add(block);
    }
    return given;
  }

  /** (source, destination) pairs within these numbers of blocks; no destination twice. */
  private readSwaps(reader: PlanReader, count: number, [sources, destinations]: readonly [number, number]): [number, number][] {
    const pairs = Array.from({ length: count }, (): [number, number] => {
      const base = reader.take(COPY.words);
      return [at(reader.words, base + COPY.src), at(reader.words, base + COPY.dst)];
    });
    for (const [source, destination] of pairs) {
      assert.ok(source >= 0 && source < sources && destination >= 0 && destination < destinations, 'swapped blocks stay in range');
    }
    assert.equal(new Set(pairs.map(([, destination]) => destination)).size, count, 'no block is swapped to twice');
    return pairs;
  }

  private move(from: Int32Array, to: Int32Array, pairs: readonly (readonly [number, number])[]): void {
    const size = this.options.blockSize;
    for (const [source, destination] of pairs) to.set(from.subarray(source * size, (source + 1) * size), destination * size);
  }

  private applyCopies(reader: PlanReader): (readonly [number, number])[] {
    const { words } = reader;
    const size = this.options.blockSize;
    const copies: (readonly [number, number])[] = [];
    for (let i = 0; i < at(words, PLAN.numCopies); i++) {
      const base = reader.take(COPY.words);
      const src = at(words, base + COPY.src);
      const dst = at(words, base + COPY.dst);
      assert.notEqual(src, dst);
      copies.push([src, dst]);
    }
    const sources = new Set(copies.map(([src]) => src));
    assert.equal(new Set(copies.map(([, dst]) => dst)).size, copies.length, 'no block is copied to twice');
    for (const [, dst] of copies) assert.ok(!sources.has(dst), 'copies of a step do not depend on each other');
    for (const [src, dst] of copies) this.kv.copyWithin(dst * size, src * size, (src + 1) * size);
    return copies;
  }

  private readRows(reader: PlanReader): { slot: number; start: number; count: number; flags: number }[] {
    const { words } = reader;
    const rows: { slot: number; start: number; count: number; flags: number }[] = [];
    let numTokens = 0;
    for (let i = 0; i < at(words, PLAN.numRows); i++) {
      const base = reader.take(ROW.words);
      const row = {
        slot: at(words, base + ROW.slot),
        start: at(words, base + ROW.start),
        count: at(words, base + ROW.count),
        flags: at(words, base + ROW.flags),
      };
      const { history, table } = this.slot(row.slot);
      assert.ok(row.count > 0 && row.start >= 0, 'a row has tokens');
      assert.ok(row.start + row.count <= history.length, 'a row reads only tokens that exist by then');
      assert.ok(table.length * this.options.blockSize >= row.start + row.count, 'the block table covers the row');
      numTokens += row.count;
      rows.push(row);
    }
    assert.equal(new Set(rows.map((r) => r.slot)).size, rows.length, 'a slot has one row in a step');
    assert.equal(numTokens, words[PLAN.numTokens]);
    assert.ok(numTokens <= this.options.maxBatchTokens, 'the token budget is kept');
    return rows;
  }

  private written(rows: readonly { slot: number; start: number; count: number }[]): number[] {
    const size = this.options.blockSize;
    return rows.flatMap(({ slot, start, count }) => {
      return this.slot(slot).table.slice(Math.floor(start / size), Math.ceil((start + count) / size));
    });
  }

  /** No two slots may write one block, and nobody may write a block that another slot's table has. */
  private checkTables(rows: readonly { slot: number; start: number; count: number }[]): void {
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

  private run(
    step: number,
    rows: readonly { slot: number; start: number; count: number; flags: number }[],
    samples: readonly { row: number; slot: number }[],
  ): void {
    const { blockSize, vocabSize } = this.options;
    const prompts: { slot: number; position: number; token: number }[] = [];
    for (const row of rows) {
      const { history, table, promptLen, row: sampling } = this.slot(row.slot);
      for (let p = row.start; p < row.start + row.count; p++) {
        const value = kvValue(at(history, p), p, p === 0 ? 0 : this.attend(table, p));
        this.kv[at(table, Math.floor(p / blockSize)) * blockSize + (p % blockSize)] = value;
        if ((row.flags & ROW_FLAG.promptLogprobs) !== 0 && p + 1 < promptLen) {
          assert.ok(at(sampling, SAMPLING_ROW.promptLogprobs) >= 0, 'prompt logprobs were asked for');
          prompts.push({ slot: row.slot, position: p + 1, token: at(history, p + 1) });
        }
      }
    }
    const tokens: { slot: number; token: number; logprob: number; top: number }[] = [];
    for (const sample of samples) {
      const row = rows[sample.row];
      assert.ok(row, 'a sample names a row');
      const slot = this.slot(sample.slot);
      const end = row.start + row.count;
      assert.equal(slot.history.length, end, 'a sample follows the last token of its slot');
      // A sibling reads the leader's last row; through its own table that must be the same.
      const state = this.attend(slot.table, end);
      const token = sampleToken(state, end, { ...slot, vocabSize });
      const top = at(slot.row, SAMPLING_ROW.topLogprobs);
      tokens.push({ slot: sample.slot, token, logprob: top >= 0 ? logprobOf(state, token) : Number.NaN, top: Math.max(0, top) });
      slot.history.push(token);
    }
    assert.equal(new Set(tokens.map((t) => t.slot)).size, tokens.length, 'a slot samples once in a step');
    this.results.push(encodeResult(step, this.options.epoch, tokens, prompts));
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

class PlanReader {
  readonly words: Int32Array;
  position: number = PLAN.headerWords;

  constructor(words: Int32Array) {
    this.words = words;
  }

  take(count: number): number {
    const base = this.position;
    this.position += count;
    assert.ok(this.position <= this.words.length, 'a section runs past the plan');
    return base;
  }

  slice(count: number): number[] {
    const base = this.take(count);
    return [...this.words.subarray(base, base + count)];
  }
}

/** Builds the body of a StepResult. `top` entries are made up from the token. */
export function encodeResult(
  step: number,
  epoch: number,
  samples: readonly { slot: number; token: number; logprob: number; top: number }[],
  prompts: readonly { slot: number; position: number; token: number }[] = [],
): Uint8Array {
  const numTops = samples.reduce((sum, s) => sum + s.top, 0);
  const length =
    RESULT.headerWords + samples.length * RESULT_SAMPLE.words + prompts.length * RESULT_PROMPT.words + numTops * RESULT_TOP.words;
  const words = new Int32Array(length);
  const floats = new Float32Array(words.buffer);
  words[RESULT.layoutVersion] = LAYOUT_VERSION;
  words[RESULT.step] = step;
  words[RESULT.epoch] = epoch;
  words[RESULT.numSamples] = samples.length;
  words[RESULT.numPromptLogprobs] = prompts.length;
  words[RESULT.numTops] = numTops;
  words[RESULT.execUs] = 1000;
  words[RESULT.words] = length;
  let base: number = RESULT.headerWords;
  let topAt = length - numTops * RESULT_TOP.words;
  let top = 0;
  for (const s of samples) {
    words[base + RESULT_SAMPLE.slot] = s.slot;
    words[base + RESULT_SAMPLE.token] = s.token;
    floats[base + RESULT_SAMPLE.logprob] = s.logprob;
    words[base + RESULT_SAMPLE.rank] = 1;
    words[base + RESULT_SAMPLE.topOffset] = top;
    words[base + RESULT_SAMPLE.topCount] = s.top;
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
  return new Uint8Array(words.buffer);
}

/** The first `count` tokens of sequence `row[sequenceIndex]`, and their logprobs, from the prompt alone: no blocks, slots or steps. */
export function referenceAnswer(
  prompt: readonly number[],
  count: number,
  params: Omit<SampleParams, 'promptLen'>,
): { tokens: number[]; logprobs: number[] } {
  const history = [...prompt];
  const logprobs: number[] = [];
  let state = 17;
  const advance = (p: number): void => {
    state = mix(state, kvValue(at(history, p), p, p === 0 ? 0 : state));
  };
  for (let p = 0; p < prompt.length; p++) advance(p);
  for (let i = 0; i < count; i++) {
    const token = sampleToken(state, history.length, { ...params, promptLen: prompt.length });
    logprobs.push(logprobOf(state, token));
    history.push(token);
    advance(history.length - 1);
  }
  return { tokens: history.slice(prompt.length), logprobs };
}

function kvValue(token: number, position: number, before: number): number {
  return mix(mix(mix(91, token), position), before);
}

function sampleToken(state: number, length: number, params: SampleParams): number {
  const { row, bias, masked, promptLen, vocabSize } = params;
  let h = mix(mix(state, at(row, SAMPLING_ROW.seedLo)), mix(at(row, SAMPLING_ROW.seedHi), at(row, SAMPLING_ROW.sequenceIndex)));
  for (const word of bias) h = mix(h, word);
  let token = (mix(h, length - promptLen) >>> 0) % vocabSize;
  if (length - promptLen < at(row, SAMPLING_ROW.minTokens)) while (masked.includes(token)) token = (token + 1) % vocabSize;
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
