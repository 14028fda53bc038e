/** What a route is: its verbs, who answers them, and who may ask. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Dialect } from '../../rpc/dialects/dialect.js';
import type { About, Access } from '../../rpc/documents/operation.js';
import type { Scopes } from '../../rpc/scope.js';

/** Who sent a request that was let in. */
export interface Peer {
  readonly scopes: Scopes;
  /** The SHA-256 that its sender signed for the body; null where nothing was signed. */
  readonly bodyDigest: Buffer | null;
  /** `listener` runs once, when the credential was revoked or has expired. Returns how to stop waiting. */
  onEnd(listener: () => void): () => void;
}

export type Handler = (request: IncomingMessage, response: ServerResponse, peer: Peer) => void | Promise<void>;

/** A handler and who may ask it. */
export interface Served {
  readonly access: Access;
  readonly answer: Handler;
}

export interface Route {
  /** Answers HEAD as well. */
  readonly GET?: Served;
  readonly POST?: Served;
  readonly DELETE?: Served;
  /** Whose shape its refusals have; OpenAI's when absent. */
  readonly dialect?: Dialect;
}

/** A handler and what the documents say about it: nothing is served that they do not tell of. */
export interface Described extends Served {
  readonly about: About;
}

/** A route of the daemon's own, that no method answers. */
export interface OwnRoute {
  readonly path: string;
  readonly GET?: Described;
  readonly POST?: Described;
}
