/**
 * What a constraint may cost, and the meter that stops work past it. Everything here is synchronous work on a tokenizer thread that
 * other requests wait for, so that each loop over a client's input ticks the meter.
 */
import { ConstraintError } from './error.js';

/** The section `structured_output` of the options, in the names of this folder. */
export interface ConstraintLimits {
  /** Size of a schema, a pattern, choices or a grammar, in bytes of its JSON or text. */
  readonly maxBytes: number;
  /** Nesting of a schema's JSON, and of groups in a pattern. */
  readonly maxDepth: number;
  /** Different sub-schemas, and combinations of them, that get rules. */
  readonly maxRules: number;
  /** States of automata, with counted repetitions written out; also of the positions of a pattern. */
  readonly maxStates: number;
  /** Members of an enum, or choices. */
  readonly maxEnum: number;
  /** Characters of one pattern. */
  readonly maxPatternLength: number;
  /** Largest count of a pattern; longer strings and lists are cut to it where a schema allows more. */
  readonly maxRepeat: number;
  /** Nesting of values that no schema describes. */
  readonly maxValueDepth: number;
  /** Bytes of the grammar that is made. */
  readonly maxGrammarBytes: number;
  /** Time for one constraint, in ms. */
  readonly deadlineMs: number;
}

/** The keys of the options' section `structured_output` that limit constraints. */
export interface StructuredOutputOptions {
  readonly max_schema_bytes: number;
  readonly max_depth: number;
  readonly max_rules: number;
  readonly max_states: number;
  readonly max_enum: number;
  readonly max_pattern_length: number;
  readonly max_repeat: number;
  readonly max_value_depth: number;
  readonly max_grammar_bytes: number;
  readonly deadline_ms: number;
}

export function constraintLimits(options: StructuredOutputOptions): ConstraintLimits {
  return {
    maxBytes: options.max_schema_bytes,
    maxDepth: options.max_depth,
    maxRules: options.max_rules,
    maxStates: options.max_states,
    maxEnum: options.max_enum,
    maxPatternLength: options.max_pattern_length,
    maxRepeat: options.max_repeat,
    maxValueDepth: options.max_value_depth,
    maxGrammarBytes: options.max_grammar_bytes,
    deadlineMs: options.deadline_ms,
  };
}

/** Ticks between two looks at the clock: a look costs about as much as thirty ticks. */
const TICKS_PER_LOOK = 512;

/** Counts the work of one constraint. Every method throws ConstraintError once a limit is passed. */
export class Meter {
  readonly limits: ConstraintLimits;
  readonly #end: number;
  #ticks = 0;
  #states = 0;
  #rules = 0;

  /** @param endMs of performance.now() */
  constructor(limits: ConstraintLimits, endMs: number = performance.now() + limits.deadlineMs) {
    this.limits = limits;
    this.#end = endMs;
    this.#look();
  }

  /** Called at least once for each step of a loop whose length depends on the client. */
  tick(): void {
    if (++this.#ticks % TICKS_PER_LOOK === 0) this.#look();
  }

  #look(): void {
    if (performance.now() <= this.#end) return;
    throw new ConstraintError(
      `The constraint takes longer to prepare than structured_output.deadline_ms = ${this.limits.deadlineMs} allows.`,
    );
  }

  /** Counts states of automata; they add up over the whole constraint. */
  addStates(count: number): void {
    this.#states += count;
    if (this.#states > this.limits.maxStates) {
      throw new ConstraintError(
        `The patterns and counts of the constraint need more states than structured_output.max_states = ${this.limits.maxStates}.`,
      );
    }
    this.tick();
  }

  addRule(): void {
    if (++this.#rules > this.limits.maxRules) {
      throw new ConstraintError(
        `The schema has more different parts and combinations of them than structured_output.max_rules = ${this.limits.maxRules}.`,
      );
    }
    this.tick();
  }
}
