/**
 * How a family of HTTP routes speaks: the shape of its errors, and how a streamed answer is written. A dialect is a value of these types;
 * server.ts and daemon/front know no other thing of it. Pure: nothing here knows a socket.
 */
import type { Failure, RefusalStatus } from '../../actors/messages/errors.js';
import type { AnswerHead } from '../client/chunk.js';
import type { JsonSchema } from '../documents/json-schema.js';
import type { Usage } from '../schemas/common.js';
import type { SinkEvent } from '../sink.js';

/** An error as it goes over HTTP. */
export interface ErrorReply {
  readonly status: number;
  /** JSON text. */
  readonly body: string;
  readonly headers?: Readonly<Record<string, string>>;
}

export interface Dialect {
  /** What its shape of errors is called in the documents, such as "Error". */
  readonly errorName: string;
  readonly errorSchema: JsonSchema;
  /**
   * Programs, but no web page, may send JSON under the type that curl gives to every body (`curl -d`), since that is how the examples of
   * this API are written.
   */
  readonly formTyped?: true;
  /** A call that failed. */
  failure(failure: Failure): ErrorReply;
  /** A request that was refused before there was a call. `message`: one plain sentence. */
  refusal(status: RefusalStatus, message: string): ErrorReply;
}

/** What a streamed answer begins with. */
export interface StreamStart {
  readonly head: AnswerHead;
  /** The client wants the usage as an event (`stream_options.include_usage`). */
  readonly usage: boolean;
  /** What was counted until now; the tokens of the prompt are known when the first delta comes. */
  readonly counted: () => Usage;
}

/** The text of one streamed answer, in the order in which things happen. "": nothing is to be written. */
export interface StreamWriter {
  event(event: SinkEvent): string;
  /** Nothing was written for a while. */
  keepAlive(): string;
  /** The last text of a good answer. `answer`: of the call, whole but for what was streamed. */
  end(answer: unknown): string;
  /** The last text of one that failed. */
  fail(failure: Failure): string;
}

export interface StreamFormat {
  readonly type: 'text/event-stream' | 'application/x-ndjson';
  /** Before anything of the answer is written. */
  open(start: StreamStart): StreamWriter;
}
