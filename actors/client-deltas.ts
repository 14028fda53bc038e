/** The pieces of one step as the client's books take them: request by request. */
import type { RequestId } from './messages/ids.js';
import type { Delta } from './messages/requests.js';

/** A request that may gain something. */
export interface Gaining {
  /** With the step that is being told; null between steps. */
  gained: Delta[] | null;
}

/** Lays the pieces of one step to their requests, keeping their order; the requests that gained something. Pieces of unknown ones are dropped. */
export function gather<Request extends Gaining>(
  deltas: readonly Delta[],
  find: (id: RequestId) => Request | undefined,
): readonly Request[] {
  const gaining: Request[] = [];
  for (const delta of deltas) {
    const request = find(delta.id);
    if (request === undefined) continue;
    if (request.gained === null) {
      request.gained = [delta];
      gaining.push(request);
    } else request.gained.push(delta);
  }
  return gaining;
}
