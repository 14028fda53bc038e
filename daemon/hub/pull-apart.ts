/**
 * A pull in a thread of its own, for the daemon: a fast line keeps a core busy with decrypting, writing and hashing, and the main thread of
 * a daemon carries every client's tokens. The same events and errors come out as of pullModel.
 */
import { Worker } from 'node:worker_threads';
import { PullError } from './error.js';
import type { PullEvent } from './progress.js';
import type { Pulled, PullOptions } from './pull.js';

/** What the thread is given: plain data. */
export type ApartOptions = Omit<PullOptions, 'signal' | 'onEvent'>;

/** What the thread says. Its last word is `done` or `failed`. */
export type ApartMessage =
  | { readonly kind: 'event'; readonly event: PullEvent }
  | { readonly kind: 'done'; readonly pulled: Pulled }
  | { readonly kind: 'failed'; readonly reason: PullError['reason']; readonly message: string };

/** @throws PullError; another Error when the thread died */
export function pullApart({ signal, onEvent, ...options }: PullOptions): Promise<Pulled> {
  return new Promise((resolve, reject) => {
    const worker = new Worker(new URL('./pull-thread.js', import.meta.url), { workerData: options satisfies ApartOptions });
    const stop = (): void => worker.postMessage('stop');
    signal.addEventListener('abort', stop, { once: true });
    if (signal.aborted) stop();
    worker.on('message', (message: ApartMessage) => {
      if (message.kind === 'event') onEvent(message.event);
      else if (message.kind === 'done') resolve(message.pulled);
      else reject(new PullError(message.reason, message.message));
    });
    worker.once('error', reject);
    worker.once('exit', (code) => {
      signal.removeEventListener('abort', stop);
      reject(new Error(`The thread of the download ended with ${code}`));
    });
  });
}
