/** Reads whole answers and answers in pieces, for tests of readers. */
import fc from 'fast-check';
import type { CallPiece } from '../../../../actors/messages/requests.js';
import { AnswerReader, type AnswerReaderOptions } from '../../../../actors/tokenizer/answer/answer-reader.js';
import { callFormatOf, callFormats, reasoningFormatOf } from '../../../../actors/tokenizer/answer/formats/table.js';

export const formatNames = callFormats.map(({ name }) => name);

export interface Read {
  readonly content: string;
  readonly reasoning: string;
  /** Name and arguments of each. */
  readonly calls: readonly (readonly [string, string])[];
}

export interface Wish {
  /** Name of a format; none: nothing is a call. */
  readonly format?: string;
  readonly names?: readonly string[];
  readonly parallel?: boolean;
  /** Name of a format of reasoning; none: nothing is reasoning. */
  readonly reasoning?: string;
  readonly opened?: boolean;
}

export const offered = ['get_weather', 'add', 'now'];

export function newReader(wish: Wish): AnswerReader {
  const calls = wish.format === undefined ? null : callFormatOf('', wish.format);
  const reasoning = wish.reasoning === undefined ? null : reasoningFormatOf('', wish.reasoning);
  const options: AnswerReaderOptions = {
    calls: calls === null ? null : { format: calls, names: new Set(wish.names ?? offered), parallel: wish.parallel ?? true },
    reasoning: reasoning === null ? null : { format: reasoning, opened: wish.opened ?? false },
  };
  return new AnswerReader(options);
}

/** What an answer says that comes in these pieces. Each call must begin with its id and name, once. */
export function readPieces(wish: Wish, pieces: readonly string[]): Read {
  const reader = newReader(wish);
  let [content, reasoning] = ['', ''];
  const calls: [string, string][] = [];
  const add = (): void => {
    const parts = reader.take();
    content += parts.content;
    reasoning += parts.reasoning;
    for (const piece of parts.calls) addCall(calls, piece);
  };
  for (const piece of pieces) {
    reader.push(piece);
    add();
  }
  reader.end();
  add();
  return { content, reasoning, calls };
}

function addCall(calls: [string, string][], { index, id, name, arguments: text }: CallPiece): void {
  const begins = index === calls.length;
  if (begins !== (id !== undefined) || begins !== (name !== undefined) || index > calls.length) throw new Error(`piece of call ${index}`);
  if (name !== undefined) calls.push([name, '']);
  const call = calls[index];
  if (call !== undefined) call[1] += text;
}

export const read = (wish: Wish, text: string): Read => readPieces(wish, [text]);

/** Cuts between characters: decoded text comes in whole ones. */
export function cutAt(text: string, cuts: readonly number[]): string[] {
  const characters = [...text];
  const at = [...new Set(cuts.map((cut) => cut % (characters.length + 1)))].sort((a, b) => a - b);
  return [0, ...at].map((from, i) => characters.slice(from, at[i] ?? characters.length).join(''));
}

export const cuts = fc.array(fc.nat(1000), { maxLength: 12 });
