/** Reading a pattern character by character. */
import { ConstraintError, type Path, quoted } from '../error.js';

/** A pattern's text with a position in it. */
export class PatternReader {
  readonly #points: readonly string[];
  readonly #source: string;
  readonly #path: Path;
  at = 0;

  constructor(source: string, path: Path) {
    this.#points = [...source];
    this.#source = source;
    this.#path = path;
  }

  get done(): boolean {
    return this.at >= this.#points.length;
  }

  peek(ahead = 0): string {
    return this.#points[this.at + ahead] ?? '';
  }

  next(): string {
    return this.#points[this.at++] ?? '';
  }

  take(word: string): boolean {
    if (![...word].every((c, i) => this.peek(i) === c)) return false;
    this.at += word.length;
    return true;
  }

  /** The text from here that `form` (sticky on the start) matches, taken; null when it does not. */
  takeMatch(form: RegExp): string | null {
    const found = form.exec(this.#points.slice(this.at, this.at + 32).join(''));
    if (found === null) return null;
    this.at += [...found[0]].length;
    return found[0];
  }

  fail(what: string): never {
    throw new ConstraintError(`The pattern ${quoted(this.#source)} ${what} (character ${this.at + 1}).`, this.#path);
  }
}
