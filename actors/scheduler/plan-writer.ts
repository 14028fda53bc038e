/**
 * Writes the plan of a step from the scheduler's sequences. Runs in the scheduler thread.
 *
 * Freed slots outlive a step that came to nothing: they go out with the next plan, before its new slots, so a slot can be freed
 * and taken again within one plan.
 */
import { PlanBuilder } from '../messages/plan-builder.js';
import { ADAPTER, BLOCK_SET, COPY, NEW_SLOT, PLAN, PLAN_SECTIONS, ROW, SAMPLE } from '../messages/step.js';
import type { SchedulerOptions } from './options.js';
import type { Sequence } from './request.js';

export class PlanWriter extends PlanBuilder {
  get numRows(): number {
    return this.sections.rows.count;
  }

  /** Words of new slots, block tables and swaps in so far; see `planWordsLimit`. */
  get admissionWords(): number {
    const { newSlots, blockSets, swapIns } = this.sections;
    return newSlots.length + blockSets.length + swapIns.length;
  }

  /** True when no section but the freed slots holds anything. */
  get empty(): boolean {
    const { copies, swapOuts } = this.sections;
    return this.numRows + this.admissionWords + copies.length + swapOuts.length === 0;
  }

  /** A sequence that was admitted: its known tokens go along, or `forkOf` (a slot) gives them. Then its whole block table. */
  sequence(sequence: Sequence, forkOf: number): void {
    const { request } = sequence;
    this.newSlot({
      slot: sequence.slot,
      forkOf,
      promptLen: request.promptLen,
      tokens: sequence.tokens.subarray(0, forkOf >= 0 ? 0 : sequence.numKnown),
      samplingRow: request.samplingRow,
      sequenceIndex: sequence.index,
      adapter: sequence.adapterPlace,
      lists: request.lists,
    });
    for (let index = 0; index < sequence.numBlocks; index++) this.tableEntry(sequence, index);
  }

  /** Entry `index` of the sequence's block table. */
  tableEntry(sequence: Sequence, index: number): void {
    this.blockSet(sequence.slot, index, sequence.blocks[index]!); // index < numBlocks
  }
}

/** Admissions stop once a plan has this many words of new slots, block tables and swaps in; the first one always goes. 1 MiB. */
export const ADMISSION_WORDS = 2 ** 18;

type PlanLimits = Pick<SchedulerOptions, 'maxSlots' | 'maxModelLen' | 'blockSize' | 'numBlocks' | 'drafts'>;

/**
 * Words that no plan exceeds, for sizing the ring: the admissions up to ADMISSION_WORDS and the one that passes it, the forks or the
 * swap out of every slot, and one row, copy and sample a slot, and the blocks it begins. `extraWords`: lists of one slot, at most.
 */
export function planWordsLimit(options: PlanLimits, extraWords: number): number {
  const { maxSlots, maxModelLen, blockSize, numBlocks, drafts } = options;
  const blocks = Math.min(Math.ceil(maxModelLen / blockSize), numBlocks);
  const table = blocks * (BLOCK_SET.words + COPY.words);
  const slot = NEW_SLOT.fixedWords + extraWords;
  const written = 1 + Math.ceil((drafts?.maxTokens ?? 0) / blockSize);
  const perSlot = PLAN_SECTIONS.freed + slot + table + written * BLOCK_SET.words + COPY.words + ROW.words + SAMPLE.words + ADAPTER.words;
  return PLAN.headerWords + ADMISSION_WORDS + slot + maxModelLen + table + maxSlots * perSlot;
}
