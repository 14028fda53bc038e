/**
 * One chunk of a streamed answer, in OpenAI's shape. Made by the daemon's sinks that send chunks, and by the client, whose events leave
 * out what every chunk repeats. It is the client's, because that loads nothing but its own files.
 */

/** `object` of the chunks of each method that streams. */
export const chunkObjects = {
  'chat.completions.create': 'chat.completion.chunk',
  'completions.create': 'text_completion',
} as const;

/** What every chunk of one answer repeats. */
export interface AnswerHead<O extends string = string> {
  /** Of the answer: "chatcmpl-…". */
  readonly id: string;
  readonly object: O;
  /** Seconds since the epoch. */
  readonly created: number;
  readonly model: string;
}

export interface Chunk<C = unknown, U = unknown, O extends string = string> extends AnswerHead<O> {
  readonly choices: readonly C[];
  /** Only in the last chunk. */
  readonly usage: U | null;
}

export function chunkOf<C, U>({ id, object, created, model }: AnswerHead, choices: readonly C[], usage: U | null = null): Chunk<C, U> {
  return { id, object, created, model, choices, usage };
}
