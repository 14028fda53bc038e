/**
 * What the scheduler remembers of a step in flight: which sequence, in which generation, each row and sample belongs to. Runs in
 * the scheduler thread; records are reused, at most `maxStepsInFlight` exist.
 *
 * A result counts only while the sequence is still in the generation it was planned under: sequences that finished, were aborted
 * or preempted meanwhile have moved on, and so has their slot.
 */
import type { Sequence } from './request.js';

/** A growing column of (sequence, generation, slot, number). */
class Column {
  size = 0;
  private readonly sequences: (Sequence | null)[] = [];
  private readonly generations: number[] = [];
  private readonly slots: number[] = [];
  private readonly numbers: number[] = [];

  add(sequence: Sequence, number: number): void {
    const at = this.size++;
    this.sequences[at] = sequence;
    this.generations[at] = sequence.generation;
    this.slots[at] = sequence.slot;
    this.numbers[at] = number;
  }

  /** The sequence of entry `i` if it still is what it was when the step was planned, else null. */
  live(i: number): Sequence | null {
    const sequence = this.sequences[i] ?? null;
    return sequence !== null && sequence.generation === this.generations[i] ? sequence : null;
  }

  /** Slot that entry `i` had. */
  slot(i: number): number {
    return this.slots[i] ?? -1;
  }

  number(i: number): number {
    return this.numbers[i] ?? 0;
  }

  clear(): void {
    this.sequences.fill(null, 0, this.size); // so that ended sequences can be collected
    this.size = 0;
  }
}

export class StepRecord {
  step = 0;
  plannedMs = 0;
  /** Whose KV the step computes. */
  numTokens = 0;
  /** Of them, tokens of prompts and tokens that are computed again. */
  promptTokens = 0;
  /** The step had a row of a prompt (or of recomputed tokens). */
  hasPrompt = false;
  /** Number: position up to which the sequence's KV is written once the step has run. Siblings of a fork have an entry, too. */
  readonly advances = new Column();
  /** Rows that start from the device. Number: tokens they compute, of which those behind a draft that is refused come to nothing. */
  readonly decodes = new Column();
  /** In the order of the plan's samples. Number: the most tokens that it may give. */
  readonly samples = new Column();
  /** Whose pooled states the step gives, in the order of the plan's rows. Number: 1, the place that it takes. */
  readonly pools = new Column();

  begin(step: number, nowMs: number): void {
    this.step = step;
    this.plannedMs = nowMs;
    this.numTokens = 0;
    this.promptTokens = 0;
    this.hasPrompt = false;
    this.advances.clear();
    this.decodes.clear();
    this.samples.clear();
    this.pools.clear();
  }
}
