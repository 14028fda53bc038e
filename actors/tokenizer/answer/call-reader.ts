/**
 * What a reader of calls is: it takes an answer's text in pieces of any size and says what of it is text and what are calls. How the text
 * is cut into pieces makes no difference to what is said, only to when. One reader a sequence; tokenizer thread.
 */

/** Where a reader says what it read, in order. */
export interface CallSink {
  /** Text of the answer, or of a call that turned out to be none. Never empty. */
  content(text: string): void;
  /** A call begins; all arguments that follow are its own. `name` is one of those offered. */
  call(name: string): void;
  /** More of the JSON text of its arguments. Never empty. */
  arguments(text: string): void;
}

/** The same for a reader that also finds what comes before the answer. */
export interface AnswerSink extends CallSink {
  /** Never empty. */
  reasoning(text: string): void;
}

export interface CallReader {
  /** What comes next is reasoning; absent where a reader finds none. */
  readonly reasons?: boolean;
  push(text: string): void;
  /** The answer is over: what was held back is said now. */
  end(): void;
}

/** Names of the functions that may be called. */
export type Names = ReadonlySet<string>;

export type MakeCallReader = (names: Names, out: AnswerSink) => CallReader;

/** A call that is known as a whole. */
export interface WholeCall {
  readonly name: string;
  /** JSON text of an object. */
  readonly arguments: string;
}

export function tellCall(out: CallSink, call: WholeCall): void {
  out.call(call.name);
  out.arguments(call.arguments);
}

export function isJsonObject(text: string): boolean {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null && !Array.isArray(value);
  } catch {
    return false;
  }
}
