/**
 * What an observer is told of the calls that generate: when one begins, and how it ended. Between the two it hears nothing, so that it costs
 * a token nothing. Used by server.ts; the daemon makes spans of it.
 */
import { type Failure, InferdError } from '../actors/messages/errors.js';

/** What OpenTelemetry's conventions for generative AI call a method that has one. */
export type Operation = 'chat' | 'text_completion' | 'embeddings';

/** The span that a call belongs to, as the W3C's headers `traceparent` and `tracestate` name it; not checked. */
export interface TraceHeaders {
  readonly parent: string;
  readonly state?: string;
}

export interface ObservedCall {
  readonly operation: Operation;
  /** The one asked for, or the default one. */
  readonly model: string;
  /** As the client sent them: not checked. */
  readonly params: Readonly<Record<string, unknown>>;
  readonly trace: TraceHeaders | null;
}

/** Hears one end of one call: exactly one of the two is called, once. Neither may throw. */
export interface CallWatch {
  /** `result`: of the method, as the client gets it. */
  done(result: unknown): void;
  failed(failure: Failure): void;
}

/** Told of each such call; null when it does not care. May not throw. */
export type Observe = (call: ObservedCall) => CallWatch | null;

/** Does `work` and tells how it ended. */
export function watched(work: () => unknown, watch: CallWatch): unknown {
  const done = (result: unknown): unknown => {
    watch.done(result);
    return result;
  };
  const failed = (error: unknown): never => {
    watch.failed(error instanceof InferdError ? error.failure : { kind: 'internal' });
    throw error;
  };
  let answer: unknown;
  try {
    answer = work();
  } catch (error) {
    return failed(error);
  }
  return answer instanceof Promise ? answer.then(done, failed) : done(answer);
}
