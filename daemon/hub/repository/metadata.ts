/**
 * What the hub says of a repository: the commit behind a revision, and its files with sizes and hashes. The only user of
 * @huggingface/hub, which gets a fetch of ours: its own would send the token wherever the hub's `Link` header points, takes a token only if
 * it begins with "hf_", and reads answers of any size.
 */
import { listFiles, modelInfo } from '@huggingface/hub';
import { PullError } from '../error.js';
import type { Patience } from '../web/patience.js';
import { refusalOf } from '../web/refusal.js';
import type { HubClient } from '../web/request.js';
import { hostileName, shownName } from './file-names.js';

/** The name of a file's content, which the cache uses too. */
export interface ContentHash {
  readonly algorithm: 'sha256' | 'git-sha1';
  /** Lower case. */
  readonly hex: string;
}

export interface RemoteFile {
  /** In the repository, with slashes. Not hostile. */
  readonly path: string;
  /** Bytes. */
  readonly size: number;
  readonly hash: ContentHash;
}

export interface RemoteRepository {
  readonly id: string;
  readonly revision: string;
  readonly commit: string;
  readonly files: readonly RemoteFile[];
}

/** Largest answer of the hub that is read, bytes: a page of the list has 1000 files at most. */
const maxAnswerBytes = 16 * 2 ** 20;

/** @throws PullError when there is no such model, the hub refuses it, or what it says cannot be. */
export async function readRepository(
  client: HubClient,
  asked: { readonly id: string; readonly revision: string; readonly maxFiles: number },
  patience: Patience,
  signal: AbortSignal,
): Promise<RemoteRepository> {
  const { id, revision, maxFiles } = asked;
  const hub = client.endpoint.url;
  const get = (input: string | URL | Request): Promise<Response> =>
    patience.persist(async () => {
      const url = new URL(input instanceof Request ? input.url : input);
      if (url.origin !== client.endpoint.origin)
        throw new PullError('bad_data', `${hub} continues the list of files of ${id} at ${url.host}, which is refused; check HF_ENDPOINT`);
      const response = await client.get(url.href, { headers: { accept: 'application/json' }, signal });
      if (response.status !== 200) {
        response.body.destroy();
        throw refusalOf(response.status, response.headers, { id, revision, hub, hasToken: client.endpoint.token !== null });
      }
      const text = await readText(response.body, hub);
      const link = response.headers['link'];
      return new Response(text, { headers: typeof link === 'string' ? { link } : {} });
    });
  try {
    const info = await modelInfo({ name: id, revision, hubUrl: hub, fetch: get, additionalFields: ['sha'] });
    const commit: unknown = info.sha;
    if (typeof commit !== 'string' || !/^[\w-]{7,128}$/.test(commit))
      throw new PullError('bad_data', `${hub} names no commit for ${id}; check HF_ENDPOINT`);
    const files: RemoteFile[] = [];
    let seen = 0;
    for await (const entry of listFiles({
      repo: { type: 'model', name: id },
      revision: commit,
      recursive: true,
      hubUrl: hub,
      fetch: get,
    })) {
      if (++seen > maxFiles) throw new PullError('bad_data', `${id} has more than ${maxFiles} files; raise hub.max_files if that is right`);
      if (entry.type === 'file') files.push(checkFile(entry, id));
    }
    return { id, revision, commit, files };
  } catch (error) {
    if (error instanceof SyntaxError || error instanceof TypeError || error instanceof RangeError)
      throw new PullError('bad_data', `${hub} did not answer as a hub does; check HF_ENDPOINT`, error);
    throw error;
  }
}

async function readText(body: AsyncIterable<Buffer>, hub: string): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of body) {
    bytes += chunk.length;
    if (bytes > maxAnswerBytes) throw new PullError('bad_data', `${hub} answers with more than ${maxAnswerBytes} bytes; check HF_ENDPOINT`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}

/** An entry of the list, from whoever runs the hub: nothing of it is taken on trust. */
function checkFile(
  entry: { readonly path: unknown; readonly size: unknown; readonly oid?: unknown; readonly lfs?: unknown },
  id: string,
): RemoteFile {
  const { path } = entry;
  if (typeof path !== 'string') throw new PullError('bad_data', `${id} lists a file without a name, so nothing of it is downloaded`);
  const reason = hostileName(path);
  if (reason !== null)
    throw new PullError('bad_data', `${id} lists a file ${shownName(path)} whose name ${reason}, so nothing of it is downloaded`);
  const lfs = entry.lfs as { readonly oid?: unknown; readonly size?: unknown } | null | undefined; // proof: fields are looked at below
  const size = lfs?.size ?? entry.size;
  if (typeof size !== 'number' || !Number.isSafeInteger(size) || size < 0)
    throw new PullError('bad_data', `${id} does not say how large its file ${shownName(path)} is, so nothing of it is downloaded`);
  const sha256 = typeof lfs?.oid === 'string' ? lfs.oid.replace(/^sha256:/, '').toLowerCase() : '';
  const sha1 = typeof entry.oid === 'string' ? entry.oid.toLowerCase() : '';
  if (/^[0-9a-f]{64}$/.test(sha256)) return { path, size, hash: { algorithm: 'sha256', hex: sha256 } };
  if (lfs === undefined || lfs === null) {
    if (/^[0-9a-f]{40}$/.test(sha1)) return { path, size, hash: { algorithm: 'git-sha1', hex: sha1 } };
  }
  throw new PullError('bad_data', `${id} gives no hash for its file ${shownName(path)}, so it could not be checked and is not downloaded`);
}
