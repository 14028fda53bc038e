/**
 * Layout of StepPlan and StepResult bodies: columns of 32-bit words. Mirror of native/core/plan/step_plan.h; a test compares both.
 *
 * A plan carries only what changed (the idea of vLLM's SchedulerOutput): executors keep token history, block tables and sampling
 * state of every slot. Plans run strictly in the order of submission, so a block or slot freed by plan N may be used again by
 * plan N+1 while N is still running. All integers are int32; floats are stored as their IEEE-754 bits.
 *
 * Swaps run beside the rows of their own plan and are done before the next one begins. So the rows of a plan keep off the blocks
 * that it swaps in, and of those that it swaps out they write only what its blockSets name (executors copy these first).
 *
 *   plan   = header | the sections of PLAN_SECTIONS, applied in this order
 *   result = header | samples | promptLogprobs | tops | pooled | logits
 */

import { SAMPLING_ROW } from './sampling.js';

export const LAYOUT_VERSION = 8;

/**
 * The lists that a new slot may bring beside its tokens, in their order, and the words of an entry; the first is a token id. A new kind
 * is a line here and one in native/core/plan/slot_lists.h, whoever gives it (Request) and whoever reads it (the samplers).
 */
export const SLOT_LISTS = {
  /** (id, f32 bits): added to the logit. */
  bias: 2,
  /** Ids that cannot be sampled while fewer than min_tokens were generated: end-of-sequence and stop ids. */
  masked: 1,
} as const;

export type SlotList = keyof typeof SLOT_LISTS;
/** The words of each list's entries. */
export type SlotLists = Readonly<Record<SlotList, ArrayLike<number>>>;

const LIST_COUNTS = 5;
const SAMPLING_AT = LIST_COUNTS + Object.keys(SLOT_LISTS).length;

/**
 * A new slot: fixed part, then tokens[numTokens], then the entries of each list. `forkOf >= 0` copies the token history of that slot
 * (as it is when this plan runs, before its rows) and has numTokens 0. Block tables are always sent as blockSets, also after a fork.
 */
export const NEW_SLOT = {
  slot: 0,
  forkOf: 1,
  /** Tokens of history that follow: the prompt, and after a preemption or restart also what was generated. */
  numTokens: 2,
  /** Tokens of the history that are prompt; the others count as output for penalties and positions of the random numbers. */
  promptLen: 3,
  /** The place of its adapter, or NO_ADAPTER. */
  adapter: 4,
  /** The number of entries of each of SLOT_LISTS. */
  listCounts: LIST_COUNTS,
  samplingRow: SAMPLING_AT,
  fixedWords: SAMPLING_AT + SAMPLING_ROW.words,
} as const;

/** Of a sequence that uses no adapter. */
export const NO_ADAPTER = -1;
/**
 * (place, adapter): from this plan on a place of the executor holds this one of the adapters that were loaded. No sequence uses the
 * place as the plan begins, but for those that it frees.
 */
export const ADAPTER = { place: 0, adapter: 1, words: 2 } as const;
/** (slot, index in the block table, block). */
export const BLOCK_SET = { slot: 0, index: 1, block: 2, words: 3 } as const;
/**
 * (source, destination) block, in every layer. Copies are within the device and done before any row of the step runs; swapOuts go
 * from a block of the device to one of the host, swapIns the other way.
 */
export const COPY = { src: 0, dst: 1, words: 2 } as const;
/**
 * A row computes tokens history[start .. start+count) of a slot and writes their KV. With fromDevice it starts at the last token that the
 * executor has when the plan runs, which a sample still in flight decides; `start` is then the largest that this may be, and behind the
 * history come drafts.
 */
export const ROW = { slot: 0, start: 1, count: 2, flags: 3, words: 4 } as const;
export const ROW_FLAG = {
  /** Return the logits of all positions of the row (tests only). */
  rawLogits: 1,
  /** Return log-probabilities of the prompt tokens that follow the row's positions. */
  promptLogprobs: 2,
  /** Start at the last token of the executor's history. */
  fromDevice: 4,
  /**
   * Add the hidden states of all positions (after the final norm) to the sum of the slot. A row from position 0 begins the sum anew, any
   * other goes on where the one before it ended.
   */
  poolSum: 8,
  /** Return one hidden state: with poolSum the mean of those added, without it that of the row's last position. */
  pool: 16,
} as const;
/**
 * Sample from the logits of `row`'s last `count` positions with the state of `slot`; append the tokens to `slot`'s history. More than
 * one only behind a row that starts from the device: its drafts are compared with the tokens, and the first that differs ends the
 * sample, which gives at least one token. Then up to `drafts` tokens are drafted, for the slot's next row, which may compute no more.
 */
export const SAMPLE = { row: 0, slot: 1, count: 2, drafts: 3, words: 4 } as const;

/**
 * The sections of a plan in their order, and the words of an entry. Entries of newSlots go on behind these words (see NEW_SLOT), the
 * others end with them. A new section is a line here and one in native/core/plan/step_plan.h, a method of PlanBuilder (plan-builder.ts)
 * that writes an entry, and what an executor does with it.
 */
export const PLAN_SECTIONS = {
  /** Slots whose sequences have ended. */
  freed: 1,
  adapters: ADAPTER.words,
  newSlots: NEW_SLOT.fixedWords,
  blockSets: BLOCK_SET.words,
  swapOuts: COPY.words,
  copies: COPY.words,
  swapIns: COPY.words,
  rows: ROW.words,
  samples: SAMPLE.words,
} as const;

export type PlanSection = keyof typeof PLAN_SECTIONS;
/** "rows" -> "numRows" */
type CountOf<Section extends PlanSection> = `num${Capitalize<Section>}`;

/** The header word that counts the entries of a section. */
export function countOf<Section extends PlanSection>(section: Section): CountOf<Section> {
  return `num${section.charAt(0).toUpperCase()}${section.slice(1)}` as CountOf<Section>; // what Capitalize does
}

const FIRST_COUNT = 6;
const counts = Object.keys(PLAN_SECTIONS).map((section, i) => [countOf(section as PlanSection), FIRST_COUNT + i]);

/** Word offsets in the plan header; behind those listed here numFreed, numNewSlots and so on: the entries of each section. */
export const PLAN = {
  layoutVersion: 0,
  step: 1,
  epoch: 2,
  /** Length of the whole body in words. */
  words: 3,
  /** Sum of `count` over all rows. */
  numTokens: 4,
  /**
   * How many of the steps before had no result yet that the scheduler had read. What the plan says of lengths counts on the results of all
   * others, so an executor runs it only once no more than these are in flight there: of several ranks, one may be behind the first, whose
   * results the scheduler reads.
   */
  unread: 5,
  ...(Object.fromEntries(counts) as { readonly [Section in PlanSection as CountOf<Section>]: number }), // of every section
  headerWords: 16,
} as const;

/** A plan without entries, as bytes: it changes nothing. */
export function emptyPlan(): Uint8Array {
  const words = new Int32Array(PLAN.headerWords);
  words[PLAN.layoutVersion] = LAYOUT_VERSION;
  words[PLAN.words] = PLAN.headerWords;
  words[PLAN.unread] = 2 ** 31 - 1; // it counts on no result
  return new Uint8Array(words.buffer);
}

/** Word offsets in the result header. */
export const RESULT = {
  layoutVersion: 0,
  step: 1,
  epoch: 2,
  /** 0, or an engine fault code (see errors.ts); the other sections are then empty. */
  errorCode: 3,
  numSamples: 4,
  numPromptLogprobs: 5,
  numTops: 6,
  numLogitRows: 7,
  /** Time between submit and the start of the step, microseconds. */
  queueUs: 8,
  /** Time the step ran, microseconds. */
  execUs: 9,
  words: 10,
  numPooled: 11,
  headerWords: 16,
} as const;
/** In place of a sampled token: the sequence has a grammar, and nothing of the vocabulary can go on in it. */
export const NO_TOKEN = -1;
/** One sampled token, in the order of the plan's samples; those of one sample follow each other. `logprob` is of the raw distribution, NaN when not asked for. `drafted`, of the first token of a sample: the drafts that were compared. */
export const RESULT_SAMPLE = { slot: 0, token: 1, logprob: 2, rank: 3, topOffset: 4, topCount: 5, drafted: 6, words: 7 } as const;
/** Logprob of the prompt token at `position` (1 .. promptLen-1). topOffset counts entries of the tops section. */
export const RESULT_PROMPT = { slot: 0, position: 1, token: 2, logprob: 3, rank: 4, topOffset: 5, topCount: 6, words: 7 } as const;
/** (token id, logprob), best first. */
export const RESULT_TOP = { id: 0, logprob: 1, words: 2 } as const;
/** Slot and hidden size, then as many float32: the pooled hidden state of a row that asked for one, in the order of the plan's rows. */
export const RESULT_POOLED = { slot: 0, width: 1, values: 2 } as const;
/** (slot, position) then vocabSize float32. */
export const RESULT_LOGITS = { slot: 0, position: 1, logits: 2 } as const;
