/**
 * Numbers of requests, counted up from 1. Clients of several engines share one counter, so that a request's number names it alone in the
 * whole daemon. Main thread.
 */
import type { RequestId } from './messages/ids.js';

export class RequestIds {
  #last = 0;

  /** The number that `take` gives next. */
  get next(): RequestId {
    return (this.#last + 1) as RequestId;
  }

  take(): RequestId {
    return ++this.#last as RequestId;
  }
}
