/** The way out of a connection that has no socket. */
import type { Slices } from '../../../rpc/slices.js';
import type { Wire } from '../../../rpc/wire.js';

/** Whole messages go to `send`; those that come in slices are put together, a slice a turn of the event loop. */
export function wireTo(send: (data: string | Uint8Array) => void): Wire {
  return { send, bufferedBytes: () => 0, sendSlices: (slices, done) => void sendWhole(slices, send).then(done) };
}

/** Puts slices together and closes them. */
export async function sendWhole(slices: Slices, send: (data: string | Uint8Array) => void): Promise<void> {
  const parts: (string | Uint8Array)[] = [];
  for (let slice = slices.next(); slice !== null; slice = slices.next()) {
    parts.push(slice);
    await new Promise((resolve) => setImmediate(resolve));
  }
  slices.close();
  send(typeof parts[0] === 'string' ? parts.join('') : Buffer.concat(parts as Uint8Array[])); // all are of one kind
}
