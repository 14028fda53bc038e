/**
 * What a request asks of its answer's form, to a grammar in GBNF that the engine compiles. Pure and synchronous; runs on a tokenizer's
 * thread. Fails closed: a text of the grammar always has the form, and what cannot be enforced is refused with a sentence that names it.
 */
import type { Constraint } from '../messages/constraint.js';
import { ConstraintError } from './error.js';
import { type ConstraintLimits, Meter } from './limits.js';
import { isNever } from './pattern/expr.js';
import { parsePattern } from './pattern/parse.js';
import { wholeExpr } from './pattern/whole.js';
import { writeExpr } from './pattern/write.js';
import { schemaGrammar } from './schema/index.js';
import { PLAIN_ALPHABET } from './text/json-text.js';
import { anyOf, GrammarWriter, literal } from './text/writer.js';
import { anyObject } from './value/any.js';

export type { Constraint } from '../messages/constraint.js';
export { ConstraintError } from './error.js';
export { type ConstraintLimits, constraintLimits, type StructuredOutputOptions } from './limits.js';

export interface ConstraintGrammar {
  readonly text: string;
  /** Whether the text uses `%scope` and `%distinct`, which clients may not. */
  readonly extensions: boolean;
}

/**
 * `rootName` (default `root`) names the root rule and begins the names of all others, so that several grammars can stand in one text.
 * `endMs` (of performance.now(), default `limits.deadlineMs` from now) is when the work has to be done: one for all of such a text.
 * Throws ConstraintError for a constraint that is malformed, cannot be enforced, matches nothing or is over a limit.
 */
export function constraintGrammar(
  constraint: Constraint,
  limits: ConstraintLimits,
  options: { readonly rootName?: string; readonly endMs?: number } = {},
): ConstraintGrammar {
  const rootName = options.rootName ?? 'root';
  if (constraint.kind === 'grammar') return clientGrammar(constraint.text, limits, rootName);
  const writer = new GrammarWriter(rootName, new Meter(limits, options.endMs));
  const root = rootOf(constraint, writer);
  const text = writer.finish(root);
  return { text, extensions: writer.extensions };
}

function rootOf(constraint: Exclude<Constraint, { kind: 'grammar' }>, writer: GrammarWriter): string {
  switch (constraint.kind) {
    case 'json_object':
      return anyObject(writer);
    case 'json_schema':
      return schemaGrammar(constraint.schema, writer);
    case 'json_text':
      return schemaGrammar(parsedSchema(constraint.text, writer.meter.limits), writer);
    case 'regex':
      return regexGrammar(constraint.pattern, writer);
    case 'choice':
      return choiceGrammar(constraint.choices, writer);
    default:
      return constraint satisfies never;
  }
}

/** Nothing looks at a text over the limit, which may be of millions of values. */
function parsedSchema(text: string, { maxBytes }: ConstraintLimits): unknown {
  if (text.length > maxBytes) throw new ConstraintError(`The schema is larger than structured_output.max_schema_bytes = ${maxBytes}.`);
  try {
    return JSON.parse(text) as unknown;
  } catch {
    throw new ConstraintError('The text is not JSON, as a schema must be.');
  }
}

function regexGrammar(pattern: string, writer: GrammarWriter): string {
  const expr = wholeExpr(parsePattern(pattern, writer.meter.limits, []), false, writer.meter);
  if (isNever(expr)) throw new ConstraintError('The pattern matches no text.');
  return writeExpr(expr, writer, PLAIN_ALPHABET);
}

/** A choice that is given twice counts once. */
function choiceGrammar(choices: readonly string[], writer: GrammarWriter): string {
  const { maxEnum, maxBytes } = writer.meter.limits;
  if (choices.length === 0) throw new ConstraintError('The list of choices is empty.');
  if (choices.length > maxEnum)
    throw new ConstraintError(`There are ${choices.length} choices, more than structured_output.max_enum = ${maxEnum}.`);
  if (choices.reduce((sum, c) => sum + c.length, 0) > maxBytes) {
    throw new ConstraintError(`The choices are larger than structured_output.max_schema_bytes = ${maxBytes}.`);
  }
  const broken = choices.findIndex((c) => !c.isWellFormed());
  if (broken >= 0) throw new ConstraintError('A choice holds half of a surrogate pair.', [broken]);
  return anyOf([...new Set(choices)].map(literal));
}

function clientGrammar(text: string, limits: ConstraintLimits, rootName: string): ConstraintGrammar {
  const bytes = Buffer.byteLength(text);
  if (bytes > limits.maxBytes)
    throw new ConstraintError(`The grammar has ${bytes} bytes, more than structured_output.max_schema_bytes = ${limits.maxBytes}.`);
  if (text.trim() === '') throw new ConstraintError('The grammar is empty.');
  if (!text.isWellFormed()) throw new ConstraintError('The grammar holds half of a surrogate pair.');
  if (rootName !== 'root') throw new ConstraintError('A grammar of a client cannot be a part of another one.');
  return { text, extensions: false };
}
