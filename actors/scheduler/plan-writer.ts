/**
 * Writes the body of a StepPlan (actors/messages/step.ts): sections are filled in any order while a step is planned, then joined.
 * Runs in the scheduler thread; all buffers are reused, so planning allocates nothing once they have grown.
 *
 * Freed slots outlive a step that came to nothing: they go out with the next plan, before its new slots, so a slot can be freed
 * and taken again within one plan.
 */
import { BLOCK_SET, COPY, LAYOUT_VERSION, NEW_SLOT, PLAN, ROW, SAMPLE, SAMPLING_ROW } from '../messages/step.js';
import { invariant } from '../runtime/invariant.js';
import type { SchedulerOptions } from './options.js';
import type { Sequence } from './request.js';

/** A growing array of words. */
class Words {
  data: Int32Array;
  length = 0;

  constructor(capacity: number) {
    this.data = new Int32Array(capacity);
  }

  /** Makes room for `count` words and returns the offset of the first. */
  extend(count: number): number {
    const at = this.length;
    this.length += count;
    if (this.length > this.data.length) {
      const grown = new Int32Array(Math.max(this.length, this.data.length * 2));
      grown.set(this.data);
      this.data = grown;
    }
    return at;
  }
}

export class PlanWriter {
  numRows = 0;
  numSamples = 0;
  numTokens = 0;
  private step = 0;
  private readonly epoch: number;
  private readonly freed: Words;
  private readonly newSlots = new Words(1024);
  private numNewSlots = 0;
  private readonly blockSets: Words;
  private readonly swapOuts = new Words(64);
  private readonly copies: Words;
  private readonly swapIns = new Words(64);
  private readonly rows: Words;
  private readonly samples: Words;
  private body = new Int32Array(1024);

  constructor(maxSlots: number, epoch: number) {
    this.epoch = epoch;
    this.freed = new Words(maxSlots);
    this.blockSets = new Words(maxSlots * BLOCK_SET.words);
    this.copies = new Words(maxSlots * COPY.words);
    this.rows = new Words(maxSlots * ROW.words);
    this.samples = new Words(maxSlots * SAMPLE.words);
  }

  /** Words of new slots, block tables and swaps in so far; see `planWordsLimit`. */
  get admissionWords(): number {
    return this.newSlots.length + this.blockSets.length + this.swapIns.length;
  }

  begin(step: number): void {
    this.step = step;
    this.numRows = 0;
    this.numSamples = 0;
    this.numTokens = 0;
    this.numNewSlots = 0;
    this.newSlots.length = 0;
    this.blockSets.length = 0;
    this.swapOuts.length = 0;
    this.copies.length = 0;
    this.swapIns.length = 0;
    this.rows.length = 0;
    this.samples.length = 0;
  }

  free(slot: number): void {
    this.freed.data[this.freed.extend(1)] = slot;
  }

  /** A sequence that was admitted: its known tokens go along, or `forkOf` (a slot) gives them. Then its whole block table. */
  newSlot(sequence: Sequence, forkOf: number): void {
    const { request } = sequence;
    const numTokens = forkOf >= 0 ? 0 : sequence.numKnown;
    const numBias = request.bias.length >> 1;
    const numMasked = request.maskedIds.length;
    let at = this.newSlots.extend(NEW_SLOT.fixedWords + numTokens + request.bias.length + numMasked);
    const { data } = this.newSlots;
    data[at + NEW_SLOT.slot] = sequence.slot;
    data[at + NEW_SLOT.forkOf] = forkOf;
    data[at + NEW_SLOT.numTokens] = numTokens;
    data[at + NEW_SLOT.promptLen] = request.promptLen;
    data[at + NEW_SLOT.numBias] = numBias;
    data[at + NEW_SLOT.numMasked] = numMasked;
    data.set(request.samplingRow, at + NEW_SLOT.samplingRow);
    data[at + NEW_SLOT.samplingRow + SAMPLING_ROW.sequenceIndex] = sequence.index;
    at += NEW_SLOT.fixedWords;
    data.set(sequence.tokens.subarray(0, numTokens), at);
    data.set(request.bias, at + numTokens);
    data.set(request.maskedIds, at + numTokens + request.bias.length);
    this.numNewSlots++;
    for (let index = 0; index < sequence.numBlocks; index++) this.blockSet(sequence, index);
  }

  /** Sends entry `index` of the sequence's block table. */
  blockSet(sequence: Sequence, index: number): void {
    const at = this.blockSets.extend(BLOCK_SET.words);
    const { data } = this.blockSets;
    data[at + BLOCK_SET.slot] = sequence.slot;
    data[at + BLOCK_SET.index] = index;
    data[at + BLOCK_SET.block] = sequence.blocks[index]!; // index < numBlocks
  }

  copy(source: number, destination: number): void {
    addCopy(this.copies, source, destination);
  }

  /** From a block of the device to one of the host. */
  swapOut(source: number, destination: number): void {
    addCopy(this.swapOuts, source, destination);
  }

  /** From a block of the host to one of the device, for rows of the next plan. */
  swapIn(source: number, destination: number): void {
    addCopy(this.swapIns, source, destination);
  }

  row(slot: number, start: number, count: number, flags: number): void {
    const at = this.rows.extend(ROW.words);
    const { data } = this.rows;
    data[at + ROW.slot] = slot;
    data[at + ROW.start] = start;
    data[at + ROW.count] = count;
    data[at + ROW.flags] = flags;
    this.numRows++;
    this.numTokens += count;
  }

  /** Samples for `slot` from the last position of the last row. */
  sample(slot: number): void {
    const at = this.samples.extend(SAMPLE.words);
    this.samples.data[at + SAMPLE.row] = this.numRows - 1;
    this.samples.data[at + SAMPLE.slot] = slot;
    this.numSamples++;
  }

  /** True when no section but the freed slots holds anything. */
  get empty(): boolean {
    return this.numRows + this.admissionWords + this.copies.length + this.swapOuts.length === 0;
  }

  /** Joins the sections. The returned bytes are a view, valid until the next `finish`. */
  finish(): Uint8Array {
    const { freed, newSlots, blockSets, swapOuts, copies, swapIns, rows, samples } = this;
    const sections = [freed, newSlots, blockSets, swapOuts, copies, swapIns, rows, samples];
    let words: number = PLAN.headerWords;
    for (const section of sections) words += section.length;
    if (words > this.body.length) this.body = new Int32Array(words * 2);
    const { body } = this;
    body.fill(0, 0, PLAN.headerWords);
    body[PLAN.layoutVersion] = LAYOUT_VERSION;
    body[PLAN.step] = this.step;
    body[PLAN.epoch] = this.epoch;
    body[PLAN.numFreed] = freed.length;
    body[PLAN.numNewSlots] = this.numNewSlots;
    body[PLAN.numBlockSets] = blockSets.length / BLOCK_SET.words;
    body[PLAN.numSwapOuts] = swapOuts.length / COPY.words;
    body[PLAN.numCopies] = copies.length / COPY.words;
    body[PLAN.numSwapIns] = swapIns.length / COPY.words;
    body[PLAN.numRows] = this.numRows;
    body[PLAN.numSamples] = this.numSamples;
    body[PLAN.numTokens] = this.numTokens;
    body[PLAN.words] = words;
    let at: number = PLAN.headerWords;
    for (const section of sections) {
      body.set(section.data.subarray(0, section.length), at);
      at += section.length;
    }
    invariant(at === words, 'the sections of a plan do not fill it');
    freed.length = 0;
    return new Uint8Array(body.buffer, 0, words * 4);
  }
}

function addCopy(section: Words, source: number, destination: number): void {
  const at = section.extend(COPY.words);
  section.data[at + COPY.src] = source;
  section.data[at + COPY.dst] = destination;
}

/** Admissions stop once a plan has this many words of new slots, block tables and swaps in; the first one always goes. 1 MiB. */
export const ADMISSION_WORDS = 2 ** 18;

type PlanLimits = Pick<SchedulerOptions, 'maxSlots' | 'maxModelLen' | 'blockSize' | 'numBlocks'>;

/**
 * Words that no plan exceeds, for sizing the ring: the admissions up to ADMISSION_WORDS and the one that passes it, the forks or the
 * swap out of every slot, and one row, block, copy and sample a slot. `extraWords`: logit bias and masked ids of one slot, at most.
 */
export function planWordsLimit(options: PlanLimits, extraWords: number): number {
  const { maxSlots, maxModelLen, blockSize, numBlocks } = options;
  const blocks = Math.min(Math.ceil(maxModelLen / blockSize), numBlocks);
  const table = blocks * (BLOCK_SET.words + COPY.words);
  const slot = NEW_SLOT.fixedWords + extraWords;
  const perSlot = 1 + slot + table + BLOCK_SET.words + COPY.words + ROW.words + SAMPLE.words;
  return PLAN.headerWords + ADMISSION_WORDS + slot + maxModelLen + table + maxSlots * perSlot;
}
