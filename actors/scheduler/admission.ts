/**
 * What can never run is refused at the door, with the arithmetic in one sentence: a function of the message and the settings.
 * Runs in the scheduler thread. Whatever passes here fits an otherwise empty engine, which is what makes strict order safe.
 */
import type { Failure } from '../messages/errors.js';
import type { Admit } from '../messages/requests.js';
import type { QueueRoom } from '../routing/queue-room.js';
import { maxRunning, type SchedulerOptions } from './options.js';
import { wasRunning } from './request.js';

/** Why `message` can never be served, or null. */
export function whyNever(message: Admit, options: SchedulerOptions): Failure | null {
  const promptLen = message.promptIds.byteLength >> 2;
  const { bestOf, maxTokens } = message;
  const { blockSize, numBlocks, maxModelLen, maxBatchTokens } = options;
  if (promptLen === 0) return { kind: 'invalid_params', message: 'The prompt has no tokens.' };
  if (maxTokens < 0) return { kind: 'invalid_params', message: `max_tokens is ${maxTokens}; it must be at least 0.` };
  if (promptLen + maxTokens > maxModelLen) {
    return tooLong(
      message,
      maxModelLen,
      `The prompt has ${promptLen} tokens and max_tokens is ${maxTokens}: ${promptLen + maxTokens} exceeds the limit of ${maxModelLen}.`,
    );
  }
  if (!options.enableChunkedPrefill && promptLen > maxBatchTokens) {
    return tooLong(
      message,
      maxBatchTokens,
      `The prompt has ${promptLen} tokens; without chunked prefill a step takes at most ${maxBatchTokens}.`,
    );
  }
  const slots = maxRunning(options);
  if (bestOf > slots) {
    return {
      kind: 'invalid_params',
      message: `The request makes ${bestOf} sequences (n or best_of), but only ${slots} can run at the same time.`,
    };
  }
  const needed = blocksNeeded(promptLen, maxTokens, bestOf, blockSize);
  if (needed > numBlocks) {
    const sequences = bestOf === 1 ? '' : ` in ${bestOf} sequences`;
    return {
      kind: 'out_of_memory',
      message: `${promptLen} prompt tokens and ${maxTokens} new tokens${sequences} need ${needed} KV blocks of ${blockSize} tokens, but there are ${numBlocks}.`,
    };
  }
  return null;
}

/** Blocks of a request at its longest: the full prompt blocks once, the rest for every sequence. */
export function blocksNeeded(promptLen: number, maxTokens: number, bestOf: number, blockSize: number): number {
  const shared = bestOf === 1 ? 0 : Math.floor(promptLen / blockSize);
  return shared + bestOf * (Math.ceil((promptLen + maxTokens) / blockSize) - shared);
}

/** Takes a place in the queue, or refuses one more request than may wait. One that was admitted before is never refused for this. */
export function whyNotNow(message: Admit, room: QueueRoom): Failure | null {
  if (message.again || wasRunning(message) || room.take()) return null;
  const { waiting } = room;
  return { kind: 'overloaded', message: `${waiting} requests are waiting already, as many as scheduler.max_queue and free slots allow.` };
}

function tooLong(message: Admit, limit: number, sentence: string): Failure {
  return {
    kind: 'context_length_exceeded',
    message: sentence,
    data: { prompt_tokens: message.promptIds.byteLength >> 2, max_tokens: message.maxTokens, limit },
  };
}
