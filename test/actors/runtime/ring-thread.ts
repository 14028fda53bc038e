/** A worker thread that reads one ring to its end and posts a checksum of what it saw; used by the ring's thread test. */
import { parentPort, workerData } from 'node:worker_threads';
import { type Doorbell, listen, park } from '../../../actors/runtime/doorbell.js';
import { type RingMemory, RingReader } from '../../../actors/runtime/ring.js';

export interface RingThreadData {
  readonly ring: RingMemory;
  readonly reader: number;
  readonly bell: Doorbell;
  readonly writerBell: Doorbell;
  readonly entries: number;
}

/** Order-sensitive hash of an entry. */
export function checksum(hash: number, entry: Uint8Array): number {
  let h = Math.imul(hash ^ entry.byteLength, 0x01000193);
  for (const byte of entry) h = Math.imul(h ^ byte, 0x01000193);
  return h;
}

if (parentPort !== null && (workerData as RingThreadData | null)?.ring) {
  const data = workerData as RingThreadData;
  const reader = new RingReader(data.ring, data.reader, data.writerBell);
  let hash = 0;
  for (let seen = 0; seen < data.entries; ) {
    const heard = listen(data.bell);
    const entry = reader.read();
    if (entry === null) park(data.bell, heard, 500);
    else {
      hash = checksum(hash, entry);
      seen++;
    }
  }
  parentPort.postMessage(hash);
}
