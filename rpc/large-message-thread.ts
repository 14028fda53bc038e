/** The thread of large-messages.ts: decodes one large message after the other. */
import { parentPort } from 'node:worker_threads';
import { decodeMessage, decodeValue } from './decode.js';
import type { DecodeAnswer, DecodeJob } from './large-messages.js';
import { joined } from './pieces.js';

parentPort?.on('message', ({ id, pieces, as, maxBytes }: DecodeJob) => {
  const bytes = joined(pieces);
  const decoded = as === 'value' ? decodeValue(bytes) : decodeMessage(bytes, as, maxBytes);
  parentPort?.postMessage({ id, decoded } satisfies DecodeAnswer);
});
