/**
 * One request for a part of a file: the answer is checked against what was asked, and its bytes go to their place as they come. A part that
 * breaks off is asked for again from where it broke. An answer that says the file is another one by now, or has other bounds, ends the try
 * of the whole file; more bytes than were asked for are never written.
 */

import type { PartialFile } from '../cache/partial-file.js';
import { PullError, systemCode } from '../error.js';
import type { RemoteFile } from '../repository/metadata.js';
import { type Asked, refusalOf, TryLater } from '../web/refusal.js';
import { type HubClient, type HubResponse, oneHeader } from '../web/request.js';
import type { Part } from './parts.js';

/** What came is not the file that was promised: all of it has to be fetched again. */
export class RottenError extends Error {}

/** What the requests for one file share. */
export interface FileSource {
  readonly client: HubClient;
  readonly file: RemoteFile;
  /** At the endpoint. */
  readonly url: string;
  readonly asked: Asked;
  /** Where the endpoint sent us for it, to ask there at once; null: ask the endpoint. */
  direct: string | null;
  /** The content's name at each host that was asked, as its answers say. */
  readonly etags: Map<string, string>;
}

export interface PartHooks {
  readonly signal: AbortSignal;
  /** Bytes were written. */
  onBytes(count: number): void;
  /** The answer brings everything to the end of the file. */
  onWhole(): void;
  /** First byte after `waitMs`, the rest in `bodyMs`. */
  onTimes(waitMs: number, bodyMs: number): void;
}

/** How far a part has come; kept from one try to the next. */
export interface Cursor {
  readonly part: Part;
  at: number;
  /** Blocks before this byte are in the journal. */
  noted: number;
}

/** @throws RottenError, PullError, TryLater, or the error of the connection; the cursor says what came. */
export async function fetchPart(source: FileSource, target: PartialFile, cursor: Cursor, hooks: PartHooks): Promise<void> {
  const { size } = source.file;
  const began = performance.now();
  const range = `bytes=${cursor.at}-${cursor.part.end - 1}`;
  const response = await source.client.get(source.direct ?? source.url, { headers: { range }, signal: hooks.signal });
  const { body } = response;
  try {
    checkAnswer(response, source, cursor.at);
    if (!response.fromEndpoint) source.direct = response.url.href;
    let skip = 0;
    if (response.status === 200) {
      skip = cursor.at;
      cursor.part.end = size;
      hooks.onWhole();
    }
    const headAt = performance.now();
    for await (const chunk of body as AsyncIterable<Buffer>) {
      const cut = chunk.subarray(Math.min(skip, chunk.length), skip + cursor.part.end - cursor.at);
      skip -= Math.min(skip, chunk.length);
      if (cut.length === 0) {
        if (cursor.at >= cursor.part.end) break;
        continue;
      }
      await target.write(cursor.at, cut);
      cursor.at += cut.length;
      cursor.noted = await target.note(cursor.noted, cursor.at);
      hooks.onBytes(cut.length);
    }
    if (cursor.at < cursor.part.end) throw new TryLater('The connection to the hub broke off');
    hooks.onTimes(headAt - began, performance.now() - headAt);
  } catch (error) {
    // A body that ends early on purpose is no fault of the connection.
    if (systemCode(error) === 'ECONNRESET' && cursor.at >= cursor.part.end) return;
    throw error;
  } finally {
    if (!body.readableEnded) body.destroy();
  }
}

/** Is this answer the part that was asked for, of the file that was promised? */
function checkAnswer(response: HubResponse, source: FileSource, at: number): void {
  const { status, headers, fromEndpoint, url } = response;
  const { file, asked } = source;
  if (status === 416) throw new RottenError('the hub has less of it than it said');
  if (status !== 200 && status !== 206) {
    const refusal = refusalOf(status, headers, asked);
    if (source.direct === null || fromEndpoint || refusal instanceof TryLater) throw refusal;
    // The address that the endpoint gave us was good for a while only.
    source.direct = null;
    throw new TryLater(`${url.host} answers ${status}`, 0);
  }
  checkName(response, source);
  const encoding = headers['content-encoding'];
  if (encoding !== undefined && encoding !== 'identity')
    throw new PullError('network', `${url.host} sends files in another encoding than asked for; check HF_ENDPOINT`);
  if (status === 206) {
    const [, first, total] = /^bytes (\d+)-\d+\/(\d+|\*)$/.exec(headers['content-range'] ?? '') ?? [];
    if (first === undefined || Number(first) !== at) throw new RottenError('the hub sends another part than asked for');
    if (total !== '*' && Number(total) !== file.size) throw new RottenError('the hub has another length of it than it said');
  } else if (headers['content-length'] !== undefined && Number(headers['content-length']) !== file.size) {
    throw new RottenError('the hub has another length of it than it said');
  }
}

/** Two answers of one host for one file name the same content, and the endpoint's is the one that the list of files names. */
function checkName({ headers, linkedEtag, fromEndpoint, url }: HubResponse, { file, etags }: FileSource): void {
  const own = oneHeader(headers.etag);
  const named = plain(linkedEtag ?? (fromEndpoint ? own : null));
  if (named !== null && named.length === file.hash.hex.length && /^[0-9a-f]+$/.test(named) && named !== file.hash.hex)
    throw new RottenError('the hub has another file there by now');
  if (own === null || own.startsWith('W/')) return;
  const before = etags.get(url.host);
  if (before !== undefined && before !== own) throw new RottenError('it changed while it was downloaded');
  etags.set(url.host, own);
}

const plain = (etag: string | null): string | null => etag?.replace(/^W\//, '').replaceAll('"', '').toLowerCase() ?? null;
