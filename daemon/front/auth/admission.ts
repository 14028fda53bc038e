/** What is asked of the credentials, and what they answer. */
import type { IncomingHttpHeaders } from 'node:http';
import type { HttpError } from '../http-reply.js';
import type { Peer } from '../route.js';

/** What a request tells of itself before its body. */
export interface AuthRequest {
  readonly method?: string | undefined;
  readonly url?: string | undefined;
  readonly headers: IncomingHttpHeaders;
  /** Its connection, which reads nothing while a refusal waits. */
  readonly socket?: { pause(): unknown; resume(): unknown };
}

/** Let in, or why not. */
export type Admission = { readonly peer: Peer } | { readonly refusal: HttpError };
