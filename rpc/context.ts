/**
 * What a method's handler gets besides its params: who calls, how to be cancelled, and the parts of the daemon it may use.
 */
import type { ClientKey } from '../actors/client-types.js';
import type { HistogramCounts } from '../actors/messages/calls.js';
import type { Failure } from '../actors/messages/errors.js';
import type { RequestId } from '../actors/messages/ids.js';
import type { Cancellation } from '../actors/runtime/cancellation.js';
import type { Log } from '../actors/runtime/log.js';
import type { Config } from '../config/schema.js';
import type { CallTable } from './calls.js';
import type { Holding } from './holding.js';
import type { EndedAnswers } from './insight/ended-answers.js';
import type { Id } from './message.js';
import type { Models } from './models.js';
import type { Observe, TraceHeaders } from './observe.js';
import type { ModelHub } from './schemas/hub.js';
import type { Profiler } from './schemas/profile.js';
import type { Scopes } from './scope.js';
import type { Session } from './session.js';
import type { SinkMaker } from './sink.js';

/** Everything rpc needs from outside; made once by the daemon. */
export interface RpcDeps {
  readonly models: Models;
  readonly profiler: Profiler;
  readonly hub: ModelHub;
  readonly config: Config;
  readonly version: string;
  readonly log: Log;
  /** Milliseconds since the epoch when the daemon started. */
  readonly startedAt: number;
  /** A client with admin scope asked the daemon to drain and stop. */
  onDrain(): void;
  /** Times to the first token of a model since the start, seconds; null when nobody keeps books of it. */
  firstTokens?(model: string): HistogramCounts | null;
  /** Told of each error that a call is answered with, by code. */
  onError?(code: number): void;
  /** Told of each call that generates. */
  readonly observe?: Observe;
}

/** A generating call that is not answered yet, by each engine request that works for it. */
export interface LiveRequest {
  /** Id of the answer, as clients see it: "chatcmpl-…". */
  readonly answerId: string;
  readonly model: string;
  /** `null`: it came over HTTP. */
  readonly session: Session | null;
  cancel(): void;
}

export interface CallContext {
  /** Absent: a notification. */
  readonly id?: Id;
  /** `null` over HTTP, where nothing can be sent but the response. */
  readonly session: Session | null;
  /** Where answers may go while they are made. */
  readonly sinks: SinkMaker;
  /** Stands for the caller's connection: waiting requests of different ones take turns. */
  readonly client: ClientKey;
  /** Unanswered calls of the same caller. */
  readonly calls: CallTable;
  /** What the caller may do. */
  readonly scopes: Scopes;
  /** The caller's span, where it names one. */
  readonly trace: TraceHeaders | null;
  readonly inBatch: boolean;
  /** The daemon holds too many messages to begin with this one. */
  readonly crowded: boolean;
  /** What the tokenizer would answer to the text of this call, of which hardly anything is left (decode/cut-texts.ts). */
  readonly refused?: Failure;
  /** No new work is taken. */
  readonly draining: boolean;
  /** Fires when the caller cancels or goes away. */
  readonly cancellation: Cancellation;
  /** What the answers to the caller's message hold until they are written. */
  readonly holding: Holding;
  /** When that message had been read whole, before it was decoded; performance.now(). */
  readonly arrivalMs: number;
  /** Calls of all clients; handlers add theirs while it runs. */
  readonly live: Map<RequestId, LiveRequest>;
  /** The last ones that ended; handlers add theirs. */
  readonly ended: EndedAnswers;
}
