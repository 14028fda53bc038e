/**
 * What a status of the hub means: come back later, or a sentence for the user. The hub answers 401 for repositories that are not there as
 * well as for private ones, so its header x-error-code counts more than the status, as in Hugging Face's own tools. Pure.
 */
import type { IncomingHttpHeaders } from 'node:http';
import { PullError } from '../error.js';
import { oneHeader } from './request.js';

/** The request may do better later: the connection broke, or the hub is busy. */
export class TryLater extends Error {
  /** How long the hub wants us to wait, ms; null: it does not say. */
  readonly afterMs: number | null;
  constructor(message: string, afterMs: number | null = null, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.afterMs = afterMs;
  }
}

export interface Asked {
  readonly id: string;
  readonly revision: string;
  /** Absent: the repository itself. */
  readonly file?: string;
  readonly hub: string;
  readonly hasToken: boolean;
}

const busy = new Set([408, 425, 429, 500, 502, 503, 504]);

/** The error for a status that is no success. */
export function refusalOf(status: number, headers: IncomingHttpHeaders, asked: Asked): PullError | TryLater {
  const { id, revision, file, hub, hasToken } = asked;
  const code = oneHeader(headers['x-error-code']) ?? '';
  const said = oneHeader(headers['x-error-message']) ?? '';
  if (busy.has(status)) return new TryLater(`${hub} answers ${status}`, retryAfterMs(headers, Date.now()));
  if (code === 'GatedRepo' || (status === 403 && code !== 'RepoNotFound'))
    return new PullError(
      'refused',
      hasToken
        ? `The hub does not let this token have ${id}; agree to its terms at ${hub}/${id}, or use a token of somebody who has`
        : `${id} is gated; agree to its terms at ${hub}/${id} and set HF_TOKEN to a token of yours`,
    );
  if (code === 'RevisionNotFound')
    return new PullError('not_found', `${id} has no revision ${revision}; name one that its page on the hub lists`);
  if (code === 'EntryNotFound') return new PullError('not_found', `${id} has no file ${file ?? ''} at ${revision}; pull it again`);
  if (status === 404 || code === 'RepoNotFound' || (status === 401 && !hasToken && /Invalid username or password/.test(said)))
    return new PullError(
      'not_found',
      `There is no model ${id} with a revision ${revision} at ${hub}, or it is private; check the name${hasToken ? '' : ', or set HF_TOKEN if it is yours'}`,
    );
  if (status === 401)
    return new PullError(
      'refused',
      hasToken
        ? `${hub} refuses the token; check inference.api_key or HF_TOKEN`
        : `${hub} wants a token for ${id}; set HF_TOKEN to one of yours`,
    );
  return new PullError('network', `${hub} answered ${status} for ${id}; check HF_ENDPOINT, or try again later`);
}

/** How long an answer asks us to wait: `Retry-After`, else the `t` of the hub's `RateLimit`. */
export function retryAfterMs(headers: IncomingHttpHeaders, now: number): number | null {
  const after = headers['retry-after']?.trim() ?? '';
  if (/^\d{1,9}(\.\d+)?$/.test(after)) return Number(after) * 1000;
  const date = after === '' ? Number.NaN : Date.parse(after);
  if (!Number.isNaN(date)) return Math.max(0, date - now);
  const window = /(?:^|;)\s*t=(\d{1,9})/.exec(oneHeader(headers['ratelimit']) ?? '');
  return window === null ? null : Number(window[1]) * 1000;
}
