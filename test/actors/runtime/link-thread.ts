/** A thread that sends back what it gets over a link, from a loop of its own that sleeps until it is rung, or from its event loop. */
import { workerData } from 'node:worker_threads';
import type { LinkEnd } from '../../../actors/messages/control.js';
import { listen, park } from '../../../actors/runtime/doorbell.js';
import { EventLink, ParkedLink } from '../../../actors/runtime/mailbox.js';

export interface LinkThreadData {
  readonly link: LinkEnd;
  readonly parked: boolean;
  /** It ends after so many messages. */
  readonly messages: number;
}

function echoParked({ link: end, messages }: LinkThreadData): void {
  const link = new ParkedLink<unknown, unknown>(end);
  for (let left = messages; left > 0; ) {
    const heard = listen(end.bell);
    const more = link.drain((message) => {
      link.post(message);
      left--;
    });
    link.flush();
    // Without a limit, so that a lost ring is a hang.
    if (!more && left > 0) park(end.bell, heard, Number.POSITIVE_INFINITY);
  }
  link.close();
}

function echoEvents({ link: end, messages }: LinkThreadData): void {
  let left = messages;
  const link = new EventLink<unknown, unknown>(end, (message) => {
    link.post(message);
    if (--left > 0) return;
    link.flush();
    link.close();
  });
}

const data = workerData as LinkThreadData | null;
if (data !== null && 'messages' in data) (data.parked ? echoParked : echoEvents)(data);
