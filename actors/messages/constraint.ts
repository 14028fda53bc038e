/** What form an answer must have: what a request asks of it, and what the engine knows it by. */

/** At most one a request. Checked at the door only as far as its shape goes: who compiles it says what cannot be enforced. */
export type Constraint =
  /** Any JSON object. */
  | { readonly kind: 'json_object' }
  /** A value of a JSON schema: an object or a boolean. */
  | { readonly kind: 'json_schema'; readonly schema: unknown }
  /**
   * The same as JSON text, as schemas cross threads: a text costs the main thread nothing, however many values it is of, and its escapes
   * keep characters that UTF-8 cannot hold.
   */
  | { readonly kind: 'json_text'; readonly text: string }
  /** The whole answer matches the pattern. */
  | { readonly kind: 'regex'; readonly pattern: string }
  | { readonly kind: 'choice'; readonly choices: readonly string[] }
  /** A grammar in GBNF whose rule `root` the whole answer matches. */
  | { readonly kind: 'grammar'; readonly text: string };

/** A constraint, and the parameter that asks for it: refusals name it. */
export interface AskedConstraint {
  readonly param: string;
  readonly constraint: Constraint;
}

/** In SAMPLING_ROW: every token may follow. */
export const NO_GRAMMAR = 0;
