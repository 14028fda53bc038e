/** What the writers of arrays and objects ask of the emitter. */
import type { Layout } from '../text/space.js';
import type { GrammarWriter } from '../text/writer.js';
import type { Conditions } from './alternatives.js';
import type { Language } from './language.js';
import type { Parts } from './parts.js';

/** `canonical`: equal values are equal bytes, as `%distinct` needs them. */
export interface ValueWriter {
  readonly parts: Parts;
  readonly writer: GrammarWriter;
  layout(canonical: boolean): Layout;
  /** A fragment for the values of inhabited conditions. */
  value(conditions: Conditions, canonical: boolean): string;
  /** A string with its quotes. */
  string(language: Language, canonical: boolean): string;
}
