/** A failed call as the error of its face: in the shape of its dialect, with the names that its bodies have for params. */
import { errorTable, type Failure, invalidParams, type ParamIssue } from '../../actors/messages/errors.js';
import type { Face } from '../face.js';
import type { Dialect, ErrorReply } from './dialect.js';

/** The failure with the names that a face has for the params of its methods. */
export function renamed(failure: Failure, names: Face['names']): Failure {
  const { kind, data } = failure;
  if (names === undefined || kind !== 'invalid_params' || !Array.isArray(data)) return failure;
  const issues = data as readonly ParamIssue[]; // proof: only invalidParams gives a list to this kind
  return invalidParams(issues.map(({ path, message }) => ({ path: renamedPath(path, names), message }))).failure;
}

/** "max_tokens" or "messages[0].content" by the longest name that it begins with; "[]" in a name stands for any index. */
function renamedPath(path: string, names: NonNullable<Face['names']>): string {
  const longestFirst = Object.entries(names).sort(([a], [b]) => b.length - a.length);
  for (const [name, shown] of longestFirst) {
    const begins = new RegExp(`^${name.replace(/[.[\]]/g, '\\$&').replaceAll('\\[\\]', '\\[(\\d+)\\]')}(?=[.[]|$)`);
    if (begins.test(path)) return path.replace(begins, shown.replace('[]', '[$1]'));
  }
  return path;
}

/** `retryAfterS`: a client may try again after so many seconds. */
export function errorReply(failure: Failure, dialect: Dialect): ErrorReply & { readonly retryAfterS?: number } {
  const { status } = errorTable[failure.kind];
  return { ...dialect.failure(failure), ...(status === 429 || status === 503 ? { retryAfterS: retryAfterS(failure) } : {}) };
}

function retryAfterS({ data }: Failure): number {
  const ms = data !== undefined && 'retry_after_ms' in data ? Number(data['retry_after_ms']) : 1000;
  return Math.max(1, Math.ceil(ms / 1000));
}
