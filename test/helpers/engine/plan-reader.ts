/** Reads step plan bodies back: the counterpart of PlanBuilder, for the executors that tests put in place of the native engine. */
import assert from 'node:assert/strict';
import { SAMPLING_ROW } from '../../../actors/messages/sampling.js';
import {
  ADAPTER,
  BLOCK_SET,
  COPY,
  countOf,
  LAYOUT_VERSION,
  NEW_SLOT,
  PLAN,
  PLAN_SECTIONS,
  type PlanSection,
  ROW,
  SAMPLE,
  SLOT_LISTS,
  type SlotList,
} from '../../../actors/messages/step.js';

export interface PlanRow {
  readonly slot: number;
  readonly start: number;
  readonly count: number;
  readonly flags: number;
}

export interface PlanSample {
  readonly row: number;
  readonly slot: number;
  readonly count: number;
  readonly drafts: number;
}

export interface PlanNewSlot {
  readonly slot: number;
  readonly forkOf: number;
  readonly promptLen: number;
  /** The place of its adapter, or NO_ADAPTER. */
  readonly adapter: number;
  readonly tokens: readonly number[];
  readonly samplingRow: Int32Array;
  /** The words of each list's entries. */
  readonly lists: Readonly<Record<SlotList, Int32Array>>;
}

/** The entries of all sections. */
export interface PlanBody {
  readonly step: number;
  readonly epoch: number;
  readonly numTokens: number;
  readonly freed: readonly number[];
  readonly adapters: readonly { readonly place: number; readonly adapter: number }[];
  readonly newSlots: readonly PlanNewSlot[];
  readonly blockSets: readonly { readonly slot: number; readonly index: number; readonly block: number }[];
  /** (source, destination) */
  readonly swapOuts: readonly (readonly [number, number])[];
  readonly copies: readonly (readonly [number, number])[];
  readonly swapIns: readonly (readonly [number, number])[];
  readonly rows: readonly PlanRow[];
  readonly samples: readonly PlanSample[];
}

/** The words of a plan, which may lie anywhere in a buffer. */
export function planWords(plan: Uint8Array): Int32Array {
  const bytes = plan.byteOffset % 4 === 0 ? plan : plan.slice();
  return new Int32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength >> 2);
}

/** The slots that a plan samples, in order; reads nothing else. By a loop: benchmarks of daemons and schedulers call it at each step. */
export function sampledSlots(words: Int32Array): Int32Array {
  const count = words[PLAN.numSamples] ?? 0;
  const first = words.length - count * SAMPLE.words; // the last section
  const slots = new Int32Array(count);
  for (let i = 0; i < count; i++) slots[i] = words[first + i * SAMPLE.words + SAMPLE.slot] ?? -1;
  return slots;
}

/** Reads a whole plan. @throws AssertionError when it is of another layout or its sections do not fill it. */
export function readPlan(plan: Uint8Array): PlanBody {
  const words = planWords(plan);
  const at = (index: number): number => {
    const word = words[index];
    assert.ok(word !== undefined, 'a section runs past the plan');
    return word;
  };
  const list = (from: number, length: number): Int32Array => {
    assert.ok(length >= 0 && from + length <= words.length, 'a list runs past the plan');
    return words.slice(from, from + length);
  };
  assert.equal(at(PLAN.layoutVersion), LAYOUT_VERSION);
  assert.equal(at(PLAN.words), words.length);

  let position: number = PLAN.headerWords;
  /** Reads the entries of the section that comes next; `entry` moves on behind what follows an entry's fixed words. */
  const section = <T>(name: PlanSection, entry: (base: number) => T): T[] =>
    Array.from({ length: at(PLAN[countOf(name)]) }, () => {
      const base = position;
      position += PLAN_SECTIONS[name];
      return entry(base);
    });
  const pair = (base: number): readonly [number, number] => [at(base + COPY.src), at(base + COPY.dst)];
  const following = (length: number): Int32Array => {
    const from = position;
    position += length;
    return list(from, length);
  };
  const body = {
    step: at(PLAN.step),
    epoch: at(PLAN.epoch),
    numTokens: at(PLAN.numTokens),
    // In the order of PLAN_SECTIONS.
    freed: section('freed', at),
    adapters: section('adapters', (base) => ({ place: at(base + ADAPTER.place), adapter: at(base + ADAPTER.adapter) })),
    newSlots: section('newSlots', (base) => ({
      slot: at(base + NEW_SLOT.slot),
      forkOf: at(base + NEW_SLOT.forkOf),
      promptLen: at(base + NEW_SLOT.promptLen),
      adapter: at(base + NEW_SLOT.adapter),
      samplingRow: list(base + NEW_SLOT.samplingRow, SAMPLING_ROW.words),
      tokens: [...following(at(base + NEW_SLOT.numTokens))],
      lists: Object.fromEntries(
        Object.entries(SLOT_LISTS).map(([name, entryWords], i) => [name, following(at(base + NEW_SLOT.listCounts + i) * entryWords)]),
      ) as Record<SlotList, Int32Array>, // of every name
    })),
    blockSets: section('blockSets', (base) => ({
      slot: at(base + BLOCK_SET.slot),
      index: at(base + BLOCK_SET.index),
      block: at(base + BLOCK_SET.block),
    })),
    swapOuts: section('swapOuts', pair),
    copies: section('copies', pair),
    swapIns: section('swapIns', pair),
    rows: section('rows', (base) => ({
      slot: at(base + ROW.slot),
      start: at(base + ROW.start),
      count: at(base + ROW.count),
      flags: at(base + ROW.flags),
    })),
    samples: section('samples', (base) => ({
      row: at(base + SAMPLE.row),
      slot: at(base + SAMPLE.slot),
      count: at(base + SAMPLE.count),
      drafts: at(base + SAMPLE.drafts),
    })),
  };
  assert.equal(position, words.length, 'the sections fill the plan');
  return body;
}
