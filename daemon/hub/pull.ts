/**
 * A model from the hub into the cache, from its name to a snapshot that can be served:
 *
 *   metadata -> files that are wanted -> claim -> room on the disk -> contents, several at once -> links -> ref
 *
 * Whatever ends it on the way, what came is kept and the next pull goes on there. Called by the command line, and by the daemon for its
 * method; both get the same events. One pull holds the model's folder at a time, in all processes.
 */
import { setMaxListeners } from 'node:events';
import { statfs } from 'node:fs/promises';
import { type PullFile, receivedBytes } from '../../config/models/hub-cache.js';
import type { Config } from '../../config/schema.js';
import { CacheFolder, cacheError } from './cache/cache-folder.js';
import { claimFolder } from './cache/claim.js';
import { discardPartial } from './cache/partial-file.js';
import { cancelled, PullError } from './error.js';
import { Progress, type PullEvent } from './progress.js';
import { collision, shownName, unwritableName } from './repository/file-names.js';
import { type RemoteFile, type RemoteRepository, readRepository } from './repository/metadata.js';
import { selectFiles } from './repository/select.js';
import { checkSpec, type PullSpec } from './repository/spec.js';
import { fetchFile, type Transfer } from './transfer/fetch-file.js';
import { PartSize } from './transfer/parts.js';
import type { Endpoint } from './web/endpoint.js';
import { Patience } from './web/patience.js';
import { Permits } from './web/permits.js';
import { HubClient } from './web/request.js';

export interface PullOptions extends PullSpec {
  readonly include: readonly string[];
  readonly exclude: readonly string[];
  /** Folder of the Hugging Face cache. */
  readonly cache: string;
  readonly endpoint: Endpoint;
  readonly limits: Config['hub'];
  readonly signal: AbortSignal;
  onEvent(event: PullEvent): void;
}

export interface Pulled {
  readonly id: string;
  readonly revision: string;
  readonly commit: string;
  /** The snapshot, absolute. */
  readonly path: string;
  readonly numFiles: number;
  /** Of its files. */
  readonly bytes: number;
}

/** Room that is left on the disk beside the files, bytes. */
const spareBytes = 64 * 2 ** 20;

/** @throws PullError; with the reason "cancelled" when the signal comes */
export async function pullModel(options: PullOptions): Promise<Pulled> {
  const { endpoint, limits, signal, onEvent } = options;
  checkSpec(options);
  setMaxListeners(0, signal);
  const client = new HubClient(endpoint, { silenceMs: limits.timeout_s * 1000, maxSockets: limits.max_connections });
  const patience = new Patience({ maxRetries: limits.max_retries, maxWaitMs: limits.max_retry_wait_s * 1000 }, signal, (message, waitMs) =>
    onEvent({ kind: 'retry', message, waitMs }),
  );
  try {
    const repository = await readRepository(client, { ...options, maxFiles: limits.max_files }, patience, signal);
    const files = selectFiles(repository.files, options);
    checkNames(files, options.id);
    const folder = await CacheFolder.open(options.cache, options.id);
    const claim = await claimFolder(await folder.claims(), signal, (pid) => onEvent({ kind: 'waiting', pid }));
    try {
      await folder.prepare();
      await fetchAll(options, { client, patience, folder }, repository, files);
      for (const { path, hash } of files) await folder.link(repository.commit, path, hash.hex);
      await folder.writeRef(options.revision, repository.commit);
      await folder.endPull();
    } finally {
      await claim.release();
    }
    const bytes = sum(files.map(({ size }) => size));
    const { id, revision } = options;
    return { id, revision, commit: repository.commit, path: folder.snapshot(repository.commit), numFiles: files.length, bytes };
  } finally {
    client.close();
  }
}

function checkNames(files: readonly RemoteFile[], id: string): void {
  for (const { path } of files) {
    const reason = unwritableName(path);
    if (reason !== null)
      throw new PullError(
        'bad_data',
        `${id} has a file ${shownName(path)} whose name ${reason}, so nothing of it is downloaded; leave it out with --exclude`,
      );
  }
  const [one, other] = collision(files.map(({ path }) => path)) ?? [];
  if (one !== undefined && other !== undefined)
    throw new PullError(
      'bad_data',
      `${id} has the files ${shownName(one)} and ${shownName(other)}, which some systems cannot tell apart; leave one out with --exclude`,
    );
}

interface Means {
  readonly client: HubClient;
  readonly patience: Patience;
  readonly folder: CacheFolder;
}

/** Brings the contents of all files into the cache, each once. */
async function fetchAll(options: PullOptions, means: Means, repository: RemoteRepository, files: readonly RemoteFile[]): Promise<void> {
  const { limits, signal, onEvent, endpoint, id, revision } = options;
  const { folder } = means;
  const contents = [...new Map(files.map((file) => [file.hash.hex, file])).values()];
  const progress = new Progress(contents, onEvent);
  const missing: RemoteFile[] = [];
  for (const file of contents) {
    if (await folder.hasBlob(file.hash.hex, file.size)) {
      // A pull that was killed between the last rename and this leaves its journal.
      await discardPartial(folder.blob(file.hash.hex));
      progress.set(file, file.size);
    } else missing.push(file);
  }
  if (missing.length === 0) return;
  const blobs = contents.map(({ hash, size }) => ({ hash: hash.hex, size }));
  const left = sum(missing.map(({ hash, size }) => size - receivedBytes(folder.path, { hash: hash.hex, size })));
  await checkRoom(folder.cache, left);
  await folder.writePull({ id, revision, commit: repository.commit, blobs } satisfies PullFile);
  onEvent({ kind: 'plan', commit: repository.commit, numFiles: missing.length, bytes: left });
  const failed = new AbortController();
  const both = AbortSignal.any([signal, failed.signal]);
  setMaxListeners(0, both);
  const transfer: Transfer = {
    ...means,
    asked: { id, revision, hub: endpoint.url, hasToken: endpoint.token !== null },
    commit: repository.commit,
    connections: new Permits(limits.max_connections),
    numConnections: limits.max_connections,
    partSize: new PartSize(limits.max_connections, limits.max_part_bytes),
    signal: both,
    onBytes: (file, bytes) => progress.set(file, bytes),
    onRotten: (file, why) => onEvent({ kind: 'rotten', file: file.path, message: why }),
  };
  // Small ones first: they are what a look at the folder needs, and a wrong one ends the pull soon.
  const queue = missing.toSorted((a, b) => a.size - b.size);
  const worker = async (): Promise<void> => {
    for (let file = queue.shift(); file !== undefined && !both.aborted; file = queue.shift()) {
      try {
        await fetchFile(transfer, file);
      } catch (error) {
        if (!failed.signal.aborted) failed.abort(error);
      }
    }
  };
  await Promise.all(Array.from({ length: limits.max_parallel_files }, worker));
  if (failed.signal.aborted) throw failed.signal.reason;
  if (signal.aborted) throw cancelled();
}

async function checkRoom(cache: string, bytes: number): Promise<void> {
  const { bavail, bsize } = await statfs(cache).catch((error: unknown) => {
    throw cacheError(error, cache);
  });
  const free = bavail * bsize;
  if (bytes + spareBytes > free)
    throw new PullError(
      'no_space',
      `The download needs ${gigabytes(bytes)} on the disk of ${cache}, which has ${gigabytes(free)} left; make room, or set HF_HOME to another disk`,
    );
}

const gigabytes = (bytes: number): string => `${(bytes / 2 ** 30).toFixed(2)} GiB`;
const sum = (numbers: readonly number[]): number => numbers.reduce((all, one) => all + one, 0);
