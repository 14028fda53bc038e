/** A thread that rings a bell whenever it is told to. */
import { parentPort, workerData } from 'node:worker_threads';
import { type Doorbell, ring } from '../../../actors/runtime/doorbell.js';

if (parentPort !== null && (workerData as { bell?: Doorbell } | null)?.bell) {
  const { bell } = workerData as { readonly bell: Doorbell };
  parentPort.on('message', () => ring(bell));
}
