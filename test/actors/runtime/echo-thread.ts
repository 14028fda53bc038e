/** A parked thread that sends back what it gets, over a link and over a pair of rings; the other end of test/bench/actors.ts. */
import { parentPort, workerData } from 'node:worker_threads';
import type { LinkEnd } from '../../../actors/messages/control.js';
import { type Doorbell, listen, park } from '../../../actors/runtime/doorbell.js';
import { ParkedLink } from '../../../actors/runtime/mailbox.js';
import { type RingMemory, RingReader, RingWriter } from '../../../actors/runtime/ring.js';

export interface EchoThreadData {
  readonly link: LinkEnd;
  readonly bell: Doorbell;
  readonly peerBell: Doorbell;
  readonly toEcho: RingMemory;
  readonly fromEcho: RingMemory;
  /** As `park` takes it. */
  readonly spinUs: number;
}

interface EchoMessage {
  readonly k: string;
}

if (parentPort !== null && (workerData as EchoThreadData | null)?.toEcho) {
  const data = workerData as EchoThreadData;
  const link = new ParkedLink<EchoMessage, EchoMessage>(data.link);
  const reader = new RingReader(data.toEcho, 0, data.peerBell);
  const writer = new RingWriter(data.fromEcho, [data.peerBell]);
  for (let running = true; running; ) {
    const heard = listen(data.bell);
    link.drain((message) => {
      if (message.k === 'end') running = false;
      else link.post(message);
    });
    link.flush();
    for (let entry = reader.read(); entry !== null; entry = reader.read()) writer.write(entry);
    if (running) park(data.bell, heard, 500, data.spinUs);
  }
  link.close();
}
