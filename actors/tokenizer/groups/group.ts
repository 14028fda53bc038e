/** An engine group as requests of a tokenizer know it: where they are, or where they go. Types only. */
import type { Abort, Admit, Refused, Stopped, Tokens } from '../../messages/requests.js';

export type FromScheduler = Tokens | Refused;
export type ToScheduler = Admit | Abort | Stopped;

/** One life of an engine group. */
export interface Group {
  readonly index: number;
  /** False when it is over: what is posted to it is lost. */
  readonly alive: boolean;
  post(message: ToScheduler): void;
}

/** Where a request goes. */
export interface Placed {
  readonly group: Group;
  /** Tokens of its prompt that the group has to compute, about; absent where there is no choice. */
  readonly newTokens?: number;
}
