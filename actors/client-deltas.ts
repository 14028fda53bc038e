/** The pieces of one step as the client's books take them: request by request. */
import type { RequestId } from './messages/ids.js';
import type { Delta } from './messages/requests.js';

/** Splits the pieces of one step by request, keeping their order. Almost always each request has one piece. */
export function byRequest(deltas: readonly Delta[]): Map<RequestId, Delta[]> {
  const groups = new Map<RequestId, Delta[]>();
  for (const delta of deltas) {
    const own = groups.get(delta.id);
    if (own === undefined) groups.set(delta.id, [delta]);
    else own.push(delta);
  }
  return groups;
}
