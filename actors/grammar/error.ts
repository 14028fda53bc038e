/** The one error of this folder: what a request asks of its answer's form cannot be enforced. Maps to HTTP 400 and -32602. */

export type Path = readonly (string | number)[];

/** Longest place that a sentence quotes; a path of a hostile schema can be as long as the schema. */
const MAX_PLACE = 200;

/** A place in a schema as a JSON pointer fragment: `#/properties/a`. */
export function placeOf(path: Path): string {
  const text = `#${path.map((part) => `/${String(part).replaceAll('~', '~0').replaceAll('/', '~1')}`).join('')}`;
  return text.length > MAX_PLACE ? `${text.slice(0, MAX_PLACE)}…` : text;
}

/** A name or value of the client's as it is quoted in a sentence: JSON, cut. */
export function quoted(value: unknown): string {
  const text =
    typeof value === 'string' && value.length > 100 ? `${JSON.stringify(value.slice(0, 100))}…` : (JSON.stringify(value) ?? 'undefined');
  return text.length > 120 ? `${text.slice(0, 120)}…` : text;
}

/** `message` is one sentence for the client; `path` leads to the place within the constraint (within the schema: keys and indices). */
export class ConstraintError extends Error {
  override readonly name = 'ConstraintError';
  readonly path: Path;

  constructor(sentence: string, path: Path = []) {
    super(sentence);
    this.path = path;
  }
}

/** The refusal of a keyword: its name, its place, and why. */
export function refusal(keyword: string, path: Path, why: string): ConstraintError {
  return new ConstraintError(`The keyword ${quoted(keyword)} at ${placeOf(path)} ${why}.`, [...path, keyword]);
}
