/** What a route is: its verbs, and who answers them. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { About } from '../../rpc/documents/operation.js';

/** What the gate found out about the sender. */
export interface Peer {
  /** A web page, ours or one of a listed origin: it gets no admin scope. */
  readonly browser: boolean;
}

export type Handler = (request: IncomingMessage, response: ServerResponse, peer: Peer) => void | Promise<void>;

export interface Route {
  /** Answers HEAD as well. */
  readonly GET?: Handler;
  readonly POST?: Handler;
  /** Answered without a token. */
  readonly open?: true;
}

/** A handler and what the documents say about it: nothing is served that they do not tell of. */
export interface Described {
  readonly answer: Handler;
  readonly about: About;
}

/** A route of the daemon's own, that no method answers. */
export interface OwnRoute {
  readonly path: string;
  readonly open?: true;
  readonly GET?: Described;
  readonly POST?: Described;
}
