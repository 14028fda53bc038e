/** A JSON schema to the rules of a grammar. */
import { ConstraintError } from '../error.js';
import type { GrammarWriter } from '../text/writer.js';
import type { Conditions } from './alternatives.js';
import { SchemaDocument } from './document.js';
import { Emitter } from './emit.js';
import { Expander } from './expand.js';
import { negative } from './negative.js';
import { Parts } from './parts.js';
import { positive } from './positive.js';

/** Returns the body of the root rule. Throws ConstraintError for what cannot be enforced. */
export function schemaGrammar(schema: unknown, writer: GrammarWriter): string {
  const { meter } = writer;
  const document = new SchemaDocument(schema, meter);
  const expander = new Expander(document, { positive, negative }, meter);
  const root: Conditions = [{ schema: document.root, negated: false }];
  const parts = new Parts(root, expander, meter);
  if (!parts.isInhabited(root)) {
    const { list, exact } = expander.expand(root);
    throw new ConstraintError(
      exact || list.length > 0
        ? 'The schema allows no value.'
        : 'The schema allows no value, or only such as cannot be told apart from those that it forbids ("oneOf", "not" or "if").',
    );
  }
  return new Emitter(parts, writer).value(root, false);
}
