/**
 * One file of a pull, from its first missing block to its place among the blobs: parts on several connections, the hash, and one more try of
 * a file that turns out rotten.
 */
import { setMaxListeners } from 'node:events';
import { rename } from 'node:fs/promises';
import type { CacheFolder } from '../cache/cache-folder.js';
import { cacheError } from '../cache/cache-folder.js';
import { discardPartial, PartialFile } from '../cache/partial-file.js';
import { fits } from '../cache/verify.js';
import { PullError } from '../error.js';
import { shownName } from '../repository/file-names.js';
import type { RemoteFile } from '../repository/metadata.js';
import type { Patience } from '../web/patience.js';
import type { Permits } from '../web/permits.js';
import type { Asked } from '../web/refusal.js';
import type { HubClient } from '../web/request.js';
import { type Cursor, type FileSource, fetchPart, RottenError } from './fetch-part.js';
import { type PartSize, Parts } from './parts.js';

/** What all files of a pull share. */
export interface Transfer {
  readonly client: HubClient;
  readonly folder: CacheFolder;
  readonly asked: Asked;
  readonly commit: string;
  readonly connections: Permits;
  readonly numConnections: number;
  readonly patience: Patience;
  readonly partSize: PartSize;
  readonly signal: AbortSignal;
  /** So many bytes of the file are there. */
  onBytes(file: RemoteFile, bytes: number): void;
  /** All is fetched again, and why. */
  onRotten(file: RemoteFile, why: string): void;
}

const tries = 2;

/** Brings a file's content into the cache. @throws PullError */
export async function fetchFile(transfer: Transfer, file: RemoteFile): Promise<void> {
  const { folder } = transfer;
  const blob = folder.blob(file.hash.hex);
  for (let n = 1; ; n++) {
    const rot = await tryFile(transfer, file);
    if (rot === null) return;
    await discardPartial(blob);
    transfer.onBytes(file, 0);
    if (n === tries)
      throw new PullError(
        'bad_data',
        `The file ${shownName(file.path)} of ${transfer.asked.id} came ${tries} times with other content than the hub promises (${rot}), so it was thrown away; try again later, or check HF_ENDPOINT`,
      );
    transfer.onRotten(file, rot);
  }
}

/** Fetches what is missing and checks all. Returns why it is of no use, or null. */
async function tryFile(transfer: Transfer, file: RemoteFile): Promise<string | null> {
  const { folder, signal } = transfer;
  const blob = folder.blob(file.hash.hex);
  const partial = await PartialFile.open(blob, file.size);
  try {
    transfer.onBytes(file, partial.received);
    await fetchMissing(transfer, file, partial);
    if (!(await fits(partial.path, file.size, file.hash, signal))) return 'its hash is another one';
    await partial.sync();
    await rename(partial.path, blob).catch((error: unknown) => {
      throw cacheError(error, blob);
    });
  } catch (error) {
    if (error instanceof RottenError) return error.message;
    throw error;
  } finally {
    await partial.close();
  }
  await discardPartial(blob);
  return null;
}

async function fetchMissing(transfer: Transfer, file: RemoteFile, partial: PartialFile): Promise<void> {
  const { client, asked, commit, partSize, patience, connections } = transfer;
  const path = file.path.split('/').map(encodeURIComponent).join('/');
  const source: FileSource = {
    client,
    file,
    url: `${asked.hub}/${asked.id}/resolve/${commit}/${path}`,
    asked: { ...asked, file: file.path },
    direct: null,
    etags: new Map(),
  };
  const parts = new Parts(file.size, (block) => partial.has(block));
  const failed = new AbortController();
  const signal = AbortSignal.any([transfer.signal, failed.signal]);
  setMaxListeners(0, signal);
  let bytes = partial.received;
  const onBytes = (count: number): void => {
    bytes += count;
    transfer.onBytes(file, bytes);
  };
  const one = async (): Promise<boolean> => {
    const part = parts.take(partSize.bytes);
    if (part === null) return false;
    const cursor: Cursor = { part, at: part.start, noted: part.start };
    await patience.persist(
      (progress) =>
        connections.use(signal, () =>
          fetchPart(source, partial, cursor, {
            signal,
            onBytes: (count) => {
              progress();
              onBytes(count);
            },
            onWhole: () => parts.takeRest(),
            onTimes: (waitMs, bodyMs) => partSize.came(waitMs, bodyMs),
          }),
        ),
      signal,
    );
    return true;
  };
  const worker = async (): Promise<void> => {
    try {
      while (await one());
    } catch (error) {
      // The others end with the first one; which of their errors came of that does not matter.
      if (!failed.signal.aborted) failed.abort(error);
    }
  };
  // Alone first: only its answer tells whether the hub sends parts, and where it keeps the file.
  await one();
  await Promise.all(Array.from({ length: transfer.numConnections }, worker));
  if (failed.signal.aborted) throw failed.signal.reason;
}
