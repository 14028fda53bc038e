/**
 * Where a streaming answer goes while it is made: all that a generating call knows of its door. A door brings a `SinkMaker` into the
 * context of its calls; the handler asks it for a way out, and the call opens that and writes events. A new way to stream is one more
 * implementation of these two interfaces, and no change in rpc/generation.
 *
 *   streamChoice --choose--> OpenSink --GenerationCall--> CallSink <--event-- AnswerStream
 *
 * The answer ends with the response of its call, good or bad, and not with an event: who runs the call writes that end. A reader that
 * leaves is told through the cancellation of the call. Main thread.
 */
import { type Failure, invalidParams } from '../actors/messages/errors.js';
import type { AnswerHead } from './client/chunk.js';
import type { Id } from './message.js';
import type { Usage } from './schemas/common.js';
import type { PullNews } from './schemas/hub.js';

/** What a call tells while its answer is made. */
export type SinkEvent =
  /** Of a download. */
  | PullNews
  | { readonly kind: 'queued' /** 0 is next. */; readonly position: number /** Which, of several. */; readonly prompt?: number }
  | { /** The model is being loaded. */ readonly kind: 'loading'; readonly phase: string; readonly done: number; readonly total: number }
  | { readonly kind: 'prefill' /** Tokens. */; readonly done: number; readonly total: number; readonly prompt?: number }
  | {
      readonly kind: 'delta';
      /** Of one chunk. */
      readonly choices: readonly object[];
      /** Gained by it. */
      readonly tokens: number;
      /** What the chunk has beside its choices; only where no answer follows the stream. */
      readonly fields?: object;
    };

/** One streaming answer on its way to its reader. */
export interface CallSink {
  /** There is no room for what can wait: the call holds it back, merged, until `onRoom`. */
  readonly full: boolean;
  /** Tokens that the reader takes before it grants more; infinite when it does not count them. A delta takes its tokens off. */
  readonly credit: number;
  /** Events sent so far. */
  readonly numEvents: number;
  /** Sends at once, or keeps what has no room behind what waits already. */
  event(event: SinkEvent): void;
  /** Begins to watch the reader of a full sink: the answer tells whether it took something since. */
  watch(): () => boolean;
  /** No event comes any more. Called once. */
  close(): void;
}

/**
 * Opens the sink of a call. `onRoom`: there may be room or credit again. `counted`: tokens and times until now.
 * @throws InferdError when this stream cannot be
 */
export type OpenSink = (head: AnswerHead, onRoom: () => void, counted: () => Usage) => CallSink;

/** What a call that wants a stream says of it. */
export interface StreamWish {
  /** `params.stream`. */
  readonly stream: true | { readonly token: string | number; readonly credit?: number | undefined };
  /** The usage is wanted as an event of its own, where a stream does not end with the answer (`stream_options.include_usage`). */
  readonly usage: boolean;
}

/** What a sink writes: $/progress notifications, the body of an HTTP answer, or nothing. */
export type SinkKind = 'progress' | 'http' | 'none';

/** The ways out that a door has for the answers of its calls, besides the response. */
export interface SinkMaker {
  readonly kind: SinkKind;
  /** `id`: of the call, absent in a notification. @throws InferdError invalid_params when this door cannot do what is wished */
  choose(wish: StreamWish, id: Id | undefined): OpenSink;
}

/** Of a door whose streams end with an end of their own, in place of the answer: whoever runs the call says which. */
export interface EndingSinkMaker extends SinkMaker {
  /** A stream was opened: its end is `end`, or `fail` when it has begun. */
  readonly opened: boolean;
  /** Something of it was written, so no other answer can be given. */
  readonly begun: boolean;
  /** `answer`: of the call, whole but for what was streamed. */
  end(answer: unknown): void;
  fail(failure: Failure): void;
}

/** Of a door where answers leave whole. */
export const wholeOnly: SinkMaker = {
  kind: 'none',
  choose() {
    throw refusedStream('Streaming needs a WebSocket, or a path of its own such as /v1/chat/completions; here leave stream out');
  },
};

export function refusedStream(message: string): Error {
  return invalidParams([{ path: 'stream', message }]);
}
