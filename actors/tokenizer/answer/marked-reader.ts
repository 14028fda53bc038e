/**
 * Reads calls that stand behind a marker. Arguments are told while they come.
 *
 *   text <tool_call> {"name": …, "arguments": {…}} </tool_call> text        object
 *   text [TOOL_CALLS] [{"name": …, "arguments": {…}}, …] text               list of objects
 *   text [TOOL_CALLS] name [CALL_ID] id [ARGS] {…} [TOOL_CALLS] …           named
 *
 * What is no call stays text, and the text behind it is read on. White space beside a call is the format's own and is dropped, up to
 * MAX_SPACE characters before a marker; so are markers that closed a call. A marker that opened no call is text again.
 */
import type { CallReader, CallSink, Names } from './call-reader.js';
import { JsonCall } from './json-call.js';
import { JsonNest } from './json-nest.js';
import { findMarker, isSpace, type Marker, markerLength, partialMarker, skipSpace, startsWithMarker } from './marker.js';

export interface MarkedForm {
  readonly open: Marker;
  /** Behind each call; null where nothing ends it. */
  readonly close: Marker | null;
  /** A list of objects may stand behind `open`. */
  readonly list: boolean;
  /** The name may stand before its arguments, with these markers between; null where it may not. */
  readonly named: { readonly id: Marker; readonly arguments: Marker } | null;
}

/** White space before a marker that is dropped with it, and is held back as long as a marker may follow. */
const MAX_SPACE = 64;
/** Characters of a name with what may stand between it and its arguments. */
const MAX_HEAD = 512;

type State = 'text' | 'opened' | 'head' | 'object' | 'arguments' | 'listed' | 'closing';

export class MarkedReader implements CallReader {
  readonly #form: MarkedForm;
  readonly #names: Names;
  readonly #out: CallSink;
  readonly #head: RegExp | null;
  #state: State = 'text';
  /** Text that is not decided yet. */
  #rest = '';
  /** What becomes text again when no call follows: the marker and what stands around it. */
  #given = '';
  /** Behind a call: white space is dropped. */
  #trims = false;
  /** A call waits for the marker that closes it. */
  #closes = false;
  #inList = false;
  #call: JsonCall;
  #nest = new JsonNest();

  constructor(form: MarkedForm, names: Names, out: CallSink) {
    this.#form = form;
    this.#names = names;
    this.#out = out;
    this.#call = new JsonCall(names, out, false);
    this.#head = form.named === null ? null : headPattern(form.named.id, form.named.arguments);
  }

  push(text: string): void {
    this.#rest += text;
    while (this.#rest !== '' && this.#step());
  }

  end(): void {
    const text = this.#undecided();
    this.#rest = '';
    if (text !== '') this.#out.content(text);
  }

  /** What is text after all when the answer ends here. */
  #undecided(): string {
    switch (this.#state) {
      case 'text':
        return this.#trims && skipSpace(this.#rest) === this.#rest.length ? '' : this.#rest;
      case 'object':
        return this.#call.begun ? '' : this.#given + this.#call.raw;
      case 'listed':
        return /[^\s,]/.test(this.#given) ? this.#given + this.#rest : '';
      case 'arguments':
      case 'closing':
        return '';
      default:
        return this.#given + this.#rest;
    }
  }

  /** @returns false when nothing more can be decided */
  #step(): boolean {
    switch (this.#state) {
      case 'text':
        return this.#text();
      case 'opened':
        return this.#opened();
      case 'head':
        return this.#name();
      case 'object':
        return this.#object();
      case 'arguments':
        return this.#arguments();
      case 'listed':
        return this.#listed();
      case 'closing':
        return this.#closing();
      default:
        return this.#state satisfies never;
    }
  }

  #text(): boolean {
    if (this.#trims) {
      this.#rest = this.#rest.slice(skipSpace(this.#rest));
      if (this.#rest === '') return false;
    }
    const { open, close } = this.#form;
    const markers = this.#closes && close !== null ? [open, close] : [open];
    const found = findMarker(this.#rest, markers);
    const until = found === null ? this.#rest.length - partialMarker(this.#rest, markers) : found.at;
    const shown = withoutSpace(this.#rest, until);
    if (shown > 0) {
      this.#out.content(this.#rest.slice(0, shown));
      this.#trims = false;
    }
    if (found === null) {
      this.#rest = this.#rest.slice(shown);
      return false;
    }
    this.#given = this.#rest.slice(shown, found.end);
    this.#rest = this.#rest.slice(found.end);
    if (found.marker === open) this.#state = 'opened';
    else {
      this.#closes = false;
      this.#trims = true;
    }
    return true;
  }

  /** Behind the marker: what kind of call is it? */
  #opened(): boolean {
    const space = skipSpace(this.#rest);
    this.#given += this.#rest.slice(0, space);
    this.#rest = this.#rest.slice(space);
    if (this.#rest === '') return false;
    const { list } = this.#form;
    if (this.#rest.startsWith('{')) this.#begin();
    else if (list && this.#rest.startsWith('[')) {
      this.#given += '[';
      this.#rest = this.#rest.slice(1);
      this.#inList = true;
      this.#state = 'listed';
    } else if (this.#head !== null) this.#state = 'head';
    else this.#giveUp();
    return true;
  }

  #begin(): void {
    this.#call = new JsonCall(this.#names, this.#out, false);
    this.#state = 'object';
  }

  #object(): boolean {
    const call = this.#call;
    this.#rest = this.#rest.slice(call.read(this.#rest));
    if (call.state === 'open') return false;
    if (call.state === 'failed') {
      this.#given += call.raw;
      this.#giveUp();
    } else this.#called();
    return true;
  }

  /** A call is over. */
  #called(): void {
    this.#given = '';
    this.#trims = true;
    this.#closes = this.#form.close !== null;
    this.#state = this.#inList ? 'listed' : this.#closes ? 'closing' : 'text';
  }

  /** In a list, before an object or behind one. */
  #listed(): boolean {
    const at = skipSpace(this.#rest);
    if (at === this.#rest.length) {
      this.#given += this.#rest;
      this.#rest = '';
      return false;
    }
    const c = this.#rest[at];
    const first = this.#given.trimEnd().endsWith('[');
    this.#given += this.#rest.slice(0, at);
    this.#rest = this.#rest.slice(at);
    if (c === '{') this.#begin();
    else if (c === ',' && !first) {
      this.#given += ',';
      this.#rest = this.#rest.slice(1);
    } else if (c === ']') {
      this.#inList = false;
      if (first) this.#giveUp();
      else {
        this.#rest = this.#rest.slice(1);
        this.#called();
      }
    } else this.#giveUp();
    return true;
  }

  /** Before the closing marker. */
  #closing(): boolean {
    const { close } = this.#form;
    this.#rest = this.#rest.slice(skipSpace(this.#rest));
    if (this.#rest === '') return false;
    const closed = close === null ? false : startsWithMarker(this.#rest, close);
    if (closed === null) return false;
    if (closed && close !== null) {
      this.#rest = this.#rest.slice(markerLength(this.#rest, close));
      this.#closes = false;
    }
    this.#state = 'text';
    return true;
  }

  /** A name and what stands between it and its arguments. */
  #name(): boolean {
    const found = this.#head?.exec(this.#rest) ?? null;
    const name = found?.groups?.['name'];
    if (found !== null && name !== undefined && this.#names.has(name)) {
      this.#rest = this.#rest.slice(found[0].length - 1);
      this.#nest = new JsonNest();
      this.#state = 'arguments';
      this.#out.call(name);
      return true;
    }
    if (found === null && this.#rest.length < MAX_HEAD && !this.#rest.includes('{')) return false;
    this.#giveUp();
    return true;
  }

  #arguments(): boolean {
    const end = this.#nest.read(this.#rest, 0);
    if (end > 0) this.#out.arguments(this.#rest.slice(0, end));
    this.#rest = this.#rest.slice(end);
    if (this.#nest.state === 'open') return false;
    this.#called();
    return true;
  }

  /** No call: what led here is text. */
  #giveUp(): void {
    const text = this.#given;
    this.#given = '';
    this.#inList = false;
    this.#trims = false;
    this.#state = 'text';
    if (text !== '') this.#out.content(text);
  }
}

/** Where the text before `until` ends without its last white space. */
function withoutSpace(text: string, until: number): number {
  let at = until;
  while (at > 0 && until - at < MAX_SPACE && isSpace(text[at - 1])) at--;
  return at;
}

/** `name`, `name[ARGS]` or `name[CALL_ID]id[ARGS]`, up to the brace that opens the arguments. */
function headPattern(id: Marker, args: Marker): RegExp {
  const either = ({ text, unit }: Marker): string => `(?:${text.replace(/[[\]]/g, '\\$&')}|${unit})`;
  return new RegExp(`^(?<name>[\\w.-]{1,128})(?:${either(id)}\\s{0,16}[\\w.-]{1,64})?\\s{0,16}${either(args)}?\\s{0,16}\\{`);
}
