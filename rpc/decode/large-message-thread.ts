/** The thread of large-messages.ts: decodes one large message after the other, and cuts what is certain to be refused. */

import { readlinkSync } from 'node:fs';
import { setPriority } from 'node:os';
import { parentPort } from 'node:worker_threads';
import { cutTexts } from './cut-texts.js';
import { decodeMessage, decodeValue } from './decode.js';
import type { DecodeAnswer, DecodeJob } from './large-messages.js';
import { joined } from './pieces.js';

/** Large messages wait for a processor rather than the answers to others. */
const NICE = 10;

/** Of this thread alone, where the system has such a thing (Linux). */
function giveWay(): void {
  try {
    setPriority(Number(readlinkSync('/proc/thread-self').split('/').at(-1)), NICE);
  } catch {
    // Then they share alike.
  }
}

function decode({ pieces, as, face, maxBytes, limits }: DecodeJob): DecodeAnswer['decoded'] {
  const bytes = joined(pieces);
  if (as === 'value') {
    const decoded = decodeValue(bytes);
    if (decoded.value !== undefined) cutTexts(face, decoded.value, limits);
    return decoded;
  }
  const message = decodeMessage(bytes, as, maxBytes);
  const members = message.kind === 'single' ? [message.member] : message.kind === 'batch' ? message.members : [];
  for (const member of members) if (member.kind === 'call') cutTexts(member.method, member.params, limits);
  return message;
}

giveWay();
parentPort?.on('message', (job: DecodeJob) => {
  parentPort?.postMessage({ id: job.id, decoded: decode(job) } satisfies DecodeAnswer);
});
