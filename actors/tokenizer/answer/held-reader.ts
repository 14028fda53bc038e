/**
 * Reads calls that nothing marks: the answer, or what follows a marker, must consist of calls and of nothing else, up to its end. So it is
 * held back as long as it may, and told when it is over; what can be no call any more is text from there on, and is told at once.
 */
import { type CallReader, type CallSink, type Names, tellCall, type WholeCall } from './call-reader.js';
import { findMarker, type Marker, partialMarker, visible } from './marker.js';

/** Reads what may be calls. */
export interface HeldCalls {
  /** @returns false when this cannot be calls: it is asked nothing more. */
  read(text: string): boolean;
  /** The calls, or null when it was something else. */
  end(): readonly WholeCall[] | null;
}

export interface HeldForm {
  /** May stand before calls; text before it is the answer's. */
  readonly open: Marker;
  readonly calls: (names: Names) => HeldCalls;
}

export class HeldReader implements CallReader {
  readonly #form: HeldForm;
  readonly #names: Names;
  readonly #out: CallSink;
  /** Null: this is text. */
  #calls: HeldCalls | null;
  #held = '';
  /** Text that may be the beginning of a marker. */
  #rest = '';

  constructor(form: HeldForm, names: Names, out: CallSink) {
    this.#form = form;
    this.#names = names;
    this.#out = out;
    this.#calls = form.calls(names);
  }

  push(text: string): void {
    this.#rest += text;
    const { open } = this.#form;
    for (;;) {
      const found = findMarker(this.#rest, [open]);
      const until = found === null ? this.#rest.length - partialMarker(this.#rest, [open]) : found.at;
      if (until > 0) this.#take(this.#rest.slice(0, until));
      if (found === null) {
        this.#rest = this.#rest.slice(until);
        return;
      }
      this.#giveBack();
      this.#held = this.#rest.slice(found.at, found.end);
      this.#calls = this.#form.calls(this.#names);
      this.#rest = this.#rest.slice(found.end);
    }
  }

  end(): void {
    if (this.#rest !== '') this.#take(this.#rest);
    this.#rest = '';
    const calls = this.#calls?.end() ?? null;
    if (calls === null) this.#giveBack();
    else for (const call of calls) tellCall(this.#out, call);
    this.#calls = null;
  }

  #take(text: string): void {
    if (this.#calls === null) this.#out.content(text);
    else {
      this.#held += text;
      if (!this.#calls.read(visible(text))) this.#giveBack();
    }
  }

  /** What was held is text. */
  #giveBack(): void {
    this.#calls = null;
    const text = this.#held;
    this.#held = '';
    if (text !== '') this.#out.content(text);
  }
}
