/**
 * Builds the body of a StepPlan (step.ts): sections are filled in any order, then joined. Used by the scheduler for every step, by the
 * benchmarks of the native engine and by tests, which also write nonsense: nothing is checked here. All buffers are reused, so building
 * allocates nothing once they have grown.
 */
import { SAMPLING_ROW } from './sampling.js';
import {
  ADAPTER,
  BLOCK_SET,
  COPY,
  countOf,
  LAYOUT_VERSION,
  NEW_SLOT,
  NO_ADAPTER,
  PLAN,
  PLAN_SECTIONS,
  type PlanSection,
  ROW,
  SAMPLE,
  SLOT_LISTS,
  type SlotList,
  type SlotLists,
} from './step.js';

/** Words that a section has room for at first. */
const FIRST_WORDS = 256;

/** One section: a growing array of words. */
class Section {
  data = new Int32Array(FIRST_WORDS);
  /** Words in use. */
  length = 0;
  /** Entries. */
  count = 0;
  /** The header word that counts the entries. */
  readonly countAt: number;
  private readonly entryWords: number;

  constructor(name: PlanSection) {
    this.countAt = PLAN[countOf(name)];
    this.entryWords = PLAN_SECTIONS[name];
  }

  /** Makes room for one more entry, with `more` words behind its fixed ones; returns the offset of its first word. */
  add(more = 0): number {
    const at = this.length;
    this.length = at + this.entryWords + more;
    this.count++;
    if (this.length > this.data.length) {
      const grown = new Int32Array(Math.max(this.length, this.data.length * 2));
      grown.set(this.data);
      this.data = grown;
    }
    return at;
  }
}

/** A sequence that takes a slot; see NEW_SLOT. */
export interface NewSlot {
  readonly slot: number;
  /** -1: `tokens` are its history. */
  readonly forkOf: number;
  readonly promptLen: number;
  readonly tokens: Int32Array;
  /** SAMPLING_ROW, less sequenceIndex. */
  readonly samplingRow: Int32Array;
  readonly sequenceIndex: number;
  /** The place of its adapter; none when absent. */
  readonly adapter?: number;
  readonly lists: SlotLists;
}

const lists = Object.entries(SLOT_LISTS) as [SlotList, number][]; // the entries of a constant

export class PlanBuilder {
  /** Sum of `count` over all rows. */
  numTokens = 0;
  private readonly epoch: number;
  /** For their counts and lengths; filled by the methods below. */
  readonly sections = sectionsOf((name) => new Section(name));
  private readonly inOrder = Object.values(this.sections);
  private body = new Int32Array(1024);

  constructor(epoch: number) {
    this.epoch = epoch;
  }

  free(slot: number): void {
    const { freed } = this.sections;
    const at = freed.add();
    freed.data[at] = slot;
  }

  newSlot(entry: NewSlot): void {
    const { newSlots } = this.sections;
    const { tokens } = entry;
    let words = tokens.length;
    for (const [name] of lists) words += entry.lists[name].length;
    let at = newSlots.add(words);
    const { data } = newSlots;
    data[at + NEW_SLOT.slot] = entry.slot;
    data[at + NEW_SLOT.forkOf] = entry.forkOf;
    data[at + NEW_SLOT.numTokens] = tokens.length;
    data[at + NEW_SLOT.promptLen] = entry.promptLen;
    data[at + NEW_SLOT.adapter] = entry.adapter ?? NO_ADAPTER;
    for (const [i, [name, entryWords]] of lists.entries()) data[at + NEW_SLOT.listCounts + i] = entry.lists[name].length / entryWords;
    data.set(entry.samplingRow, at + NEW_SLOT.samplingRow);
    data[at + NEW_SLOT.samplingRow + SAMPLING_ROW.sequenceIndex] = entry.sequenceIndex;
    at += NEW_SLOT.fixedWords;
    data.set(tokens, at);
    at += tokens.length;
    for (const [name] of lists) {
      data.set(entry.lists[name], at);
      at += entry.lists[name].length;
    }
  }

  placeAdapter(place: number, adapter: number): void {
    const { adapters } = this.sections;
    const at = adapters.add();
    adapters.data[at + ADAPTER.place] = place;
    adapters.data[at + ADAPTER.adapter] = adapter;
  }

  blockSet(slot: number, index: number, block: number): void {
    const { blockSets } = this.sections;
    const at = blockSets.add();
    blockSets.data[at + BLOCK_SET.slot] = slot;
    blockSets.data[at + BLOCK_SET.index] = index;
    blockSets.data[at + BLOCK_SET.block] = block;
  }

  /** From a block of the device to one of the host. */
  swapOut(source: number, destination: number): void {
    addCopy(this.sections.swapOuts, source, destination);
  }

  copy(source: number, destination: number): void {
    addCopy(this.sections.copies, source, destination);
  }

  /** From a block of the host to one of the device, for rows of the next plan. */
  swapIn(source: number, destination: number): void {
    addCopy(this.sections.swapIns, source, destination);
  }

  row(slot: number, start: number, count: number, flags: number): void {
    const { rows } = this.sections;
    const at = rows.add();
    rows.data[at + ROW.slot] = slot;
    rows.data[at + ROW.start] = start;
    rows.data[at + ROW.count] = count;
    rows.data[at + ROW.flags] = flags;
    this.numTokens += count;
  }

  sample(row: number, slot: number, count: number, drafts = 0): void {
    const { samples } = this.sections;
    const at = samples.add();
    samples.data[at + SAMPLE.row] = row;
    samples.data[at + SAMPLE.slot] = slot;
    samples.data[at + SAMPLE.count] = count;
    samples.data[at + SAMPLE.drafts] = drafts;
  }

  /** Joins the sections and empties them. `unread`: as in PLAN. The returned bytes are a view, valid until the next `finish`. */
  finish(step: number, unread: number): Uint8Array {
    const { inOrder } = this;
    let words: number = PLAN.headerWords;
    for (const section of inOrder) words += section.length;
    if (words > this.body.length) this.body = new Int32Array(words * 2);
    const { body } = this;
    body.fill(0, 0, PLAN.headerWords);
    body[PLAN.layoutVersion] = LAYOUT_VERSION;
    body[PLAN.step] = step;
    body[PLAN.epoch] = this.epoch;
    body[PLAN.words] = words;
    body[PLAN.numTokens] = this.numTokens;
    body[PLAN.unread] = unread;
    let at: number = PLAN.headerWords;
    for (const section of inOrder) {
      body[section.countAt] = section.count;
      body.set(section.data.subarray(0, section.length), at);
      at += section.length;
      section.length = 0;
      section.count = 0;
    }
    this.numTokens = 0;
    return new Uint8Array(body.buffer, 0, words * 4);
  }
}

/** One of `make` for every section, in their order. */
function sectionsOf<T>(make: (name: PlanSection) => T): Readonly<Record<PlanSection, T>> {
  const names = Object.keys(PLAN_SECTIONS) as PlanSection[]; // the keys of a constant
  return Object.fromEntries(names.map((name) => [name, make(name)])) as Record<PlanSection, T>; // of every name
}

function addCopy(section: Section, source: number, destination: number): void {
  const at = section.add();
  section.data[at + COPY.src] = source;
  section.data[at + COPY.dst] = destination;
}
