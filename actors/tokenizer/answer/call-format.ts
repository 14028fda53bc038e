/**
 * A way in which models write calls of functions, as one value: which chat templates ask for it, how it is read, and how it is forced.
 * A format is a file in formats/ and a line in formats/table.ts.
 */
import { randomBytes } from 'node:crypto';
import type { ChatMessage } from '../../messages/requests.js';
import type { MakeCallReader } from './call-reader.js';
import type { Marker } from './marker.js';

export interface CallFormat {
  /** Value of inference.tool_call_parser. */
  readonly name: string;
  /** True for the chat templates of models that write calls so. Looks for the texts that the template shows the model as an example. */
  readonly fits: (template: string) => boolean;
  /** What must reach the reader even where it is a control token, which clients do not see. */
  readonly markers: readonly Marker[];
  readonly read: MakeCallReader;
  /** A fresh id for a call. */
  readonly newId: () => string;
  /** Letters and digits that an id must have for the template to take it; null where it takes any. */
  readonly idLength: number | null;
  /** How calls are written, for a grammar that forces them; null where that cannot be said with the grammar of a JSON Schema. */
  readonly shape: CallShape | null;
  /** Where a whole answer is messages in channels: its reader also finds reasoning and content, and is needed where no tool is offered. */
  readonly channels?: AnswerChannels;
}

/** What there is to know of answers in channels, besides how calls are written. */
export interface AnswerChannels {
  /** GBNF of the reasoning that may come first, and of what stands before a final answer; each with a space behind it. */
  readonly first: string;
  readonly final: string;
  /** GBNF of any text of a message. */
  readonly text: string;
  /** Control tokens that end an answer, whether the model's files say so or not. */
  readonly ends: readonly Marker[];
  /** Earlier messages as the template takes them. */
  readonly messages: (messages: readonly ChatMessage[]) => readonly ChatMessage[];
}

/** GBNF expressions. */
export interface CallShape {
  /** Stands before each call, or before a list of all, so that text may stand before it; null where nothing does. */
  readonly marker: { readonly text: string; readonly before: 'each' | 'all' } | null;
  /** One call. `args`: name of the rule of its arguments. `tool-space` is a rule of little white space. */
  readonly call: (name: string, args: string) => string;
  /** The whole of one call, or several when `parallel`. `call`: name of the rule of one. */
  readonly calls: (call: string, parallel: boolean) => string;
}

/** As OpenAI's ids look. */
export function callId(): string {
  return `call_${randomBytes(12).toString('hex')}`;
}

const ALPHANUMERIC = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789';
export const SHORT_ID = 9;

/** Nine letters and digits: Mistral's templates refuse any other. */
export function shortCallId(): string {
  return Array.from(randomBytes(SHORT_ID), (byte) => ALPHANUMERIC[byte % ALPHANUMERIC.length]).join('');
}

/** A JSON object with the name of the function and its arguments. */
export function jsonCall(name: string, argsKey: string, args: string): string {
  const s = 'tool-space';
  return `"{" ${s} "\\"name\\"" ${s} ":" ${s} "\\"${name}\\"" ${s} "," ${s} "\\"${argsKey}\\"" ${s} ":" ${s} ${args} ${s} "}"`;
}
