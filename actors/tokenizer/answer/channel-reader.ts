/**
 * Reads answers that are written as messages, each with a header that says which channel it is in and whom it is for, as gpt-oss does:
 *
 *   <|channel|>analysis<|message|> reasoning <|end|>
 *   <|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|> arguments <|call|>
 *   <|start|>assistant<|channel|>final<|message|> content <|return|>
 *
 * The prompt ends inside the header of the first one. A message to a function that was offered is a call, whatever its channel; of the
 * others, those in the analysis channel are reasoning and all else is content. Messages of one kind have a line end between them. An answer
 * that does not begin with a header is content as it is. One a sequence; tokenizer thread.
 */
import type { AnswerSink, CallReader, Names } from './call-reader.js';
import { findMarker, type Marker, partialMarker } from './marker.js';

/** Texts of the control tokens of such a format. */
export interface ChannelForm {
  readonly start: Marker;
  readonly channel: Marker;
  readonly message: Marker;
  /** What ends a message, and mostly also the answer. */
  readonly ends: readonly Marker[];
  /** What may stand in a header besides. */
  readonly others: readonly Marker[];
  /** The channel that is reasoning. */
  readonly reasoning: string;
  /** Stands before the names of functions. */
  readonly namespace: string;
}

/** What a message is. */
type Kind = 'content' | 'reasoning' | 'call';

/** A header is shorter; longer ones are content. */
const MAX_HEADER = 512;
const noArguments = '{}';

export class ChannelReader implements CallReader {
  readonly #form: ChannelForm;
  readonly #names: Names;
  readonly #out: AnswerSink;
  /** Null: in a header. */
  #kind: Kind | null = null;
  /** A header was read to its end. */
  #begun = false;
  /** Not said yet. */
  #rest = '';
  /** A call has arguments. */
  #told = false;
  /** Kinds of which something was said in a message before this one, and in this one. */
  readonly #before = new Set<Kind>();
  #now: Kind | null = null;

  constructor(form: ChannelForm, names: Names, out: AnswerSink) {
    this.#form = form;
    this.#names = names;
    this.#out = out;
  }

  get reasons(): boolean {
    return this.#kind === 'reasoning';
  }

  push(text: string): void {
    this.#rest += text;
    for (let goesOn = true; goesOn; ) goesOn = this.#kind === null ? this.#header() : this.#body(this.#kind);
  }

  end(): void {
    const rest = this.#rest;
    this.#rest = '';
    // Between messages nothing is said; a first header that never ended was none.
    if (this.#kind !== null) this.#say(this.#kind, rest);
    else if (!this.#begun) this.#say('content', rest);
    this.#close();
  }

  /** @returns true when there is more to read. */
  #header(): boolean {
    const { message } = this.#form;
    if (!this.#begun && !this.#mayBegin()) {
      this.#begin('content');
      return true;
    }
    const found = findMarker(this.#rest, [message]);
    if (found === null) {
      if (this.#rest.length <= MAX_HEADER) return false;
      this.#begin('content');
      return true;
    }
    const header = this.#spelled(this.#rest.slice(0, found.at));
    this.#rest = this.#rest.slice(found.end);
    const name = this.#recipient(header);
    if (name !== null) {
      this.#begin('call');
      this.#out.call(name);
    } else {
      const [, channel] = header.split(this.#form.channel.text);
      this.#begin(channel?.trimStart().startsWith(this.#form.reasoning) ? 'reasoning' : 'content');
    }
    return true;
  }

  /** What there is may be the beginning of a header. */
  #mayBegin(): boolean {
    const { start, channel, message } = this.#form;
    const text = this.#spelled(this.#rest).trimStart();
    return [start.text, channel.text, message.text, 'to='].some((first) => text.startsWith(first) || first.startsWith(text));
  }

  /** With control tokens as text. */
  #spelled(text: string): string {
    const { start, channel, others } = this.#form;
    return [start, channel, ...others].reduce((spelled, { text: whole, unit }) => spelled.replaceAll(unit, whole), text);
  }

  /** The function that a header names; null where it is for somebody else. */
  #recipient(header: string): string | null {
    const { namespace } = this.#form;
    const [, recipient = ''] = /(?:^|[\s>])to=([\w.-]+)/.exec(header) ?? [];
    const name = recipient.startsWith(namespace) ? recipient.slice(namespace.length) : recipient;
    return this.#names.has(name) ? name : null;
  }

  #body(kind: Kind): boolean {
    const { ends, start } = this.#form;
    const markers = [...ends, start];
    const found = findMarker(this.#rest, markers);
    const until = found === null ? this.#rest.length - partialMarker(this.#rest, markers) : found.at;
    this.#say(kind, this.#rest.slice(0, until));
    this.#rest = this.#rest.slice(found?.end ?? until);
    if (found === null) return false;
    this.#close();
    return true;
  }

  #begin(kind: Kind): void {
    this.#begun = true;
    this.#kind = kind;
    this.#told = false;
    this.#now = null;
  }

  #close(): void {
    if (this.#kind === 'call' && !this.#told) this.#out.arguments(noArguments);
    if (this.#now !== null) this.#before.add(this.#now);
    this.#kind = null;
    this.#now = null;
  }

  #say(kind: Kind, text: string): void {
    if (text === '') return;
    if (kind === 'call') {
      this.#told = true;
      this.#out.arguments(text);
      return;
    }
    const own = this.#now === null && this.#before.has(kind) ? `\n${text}` : text;
    this.#now = kind;
    if (kind === 'reasoning') this.#out.reasoning(own);
    else this.#out.content(own);
  }
}
