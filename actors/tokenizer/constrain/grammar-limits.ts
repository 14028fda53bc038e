/** What the constraint of a request may cost, from its text to the compiled grammar. */
import type { Config } from '../../../config/schema.js';
import { type ConstraintLimits, constraintLimits } from '../../grammar/index.js';

/** See [structured_output] of the options. */
export type GrammarLimits = ConstraintLimits & {
  readonly maxCompiledStates: number;
  readonly maxCompiledBytes: number;
  readonly compileDeadlineMs: number;
};

export function grammarLimits(options: Config['structured_output']): GrammarLimits {
  return {
    ...constraintLimits(options),
    maxCompiledStates: options.max_compiled_states,
    maxCompiledBytes: options.max_compiled_bytes,
    compileDeadlineMs: options.compile_deadline_ms,
  };
}
