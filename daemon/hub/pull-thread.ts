/** The thread of pull-apart.ts: runs one pull and ends. */
import { parentPort, workerData } from 'node:worker_threads';
import { PullError } from './error.js';
import { pullModel } from './pull.js';
import type { ApartMessage, ApartOptions } from './pull-apart.js';

const stop = new AbortController();
const options = workerData as ApartOptions; // proof: pull-apart.ts gives it
const say = (message: ApartMessage): void => parentPort?.postMessage(message);

parentPort?.on('message', () => stop.abort());
try {
  const pulled = await pullModel({ ...options, signal: stop.signal, onEvent: (event) => say({ kind: 'event', event }) });
  say({ kind: 'done', pulled });
} catch (error) {
  // Anything else is a bug, and ends the thread with it.
  if (!(error instanceof PullError)) throw error;
  say({ kind: 'failed', reason: error.reason, message: error.message });
} finally {
  parentPort?.close();
}
