/**
 * A hub in the test process: what of Hugging Face's API a pull uses, on real sockets, with a second server as the CDN that large files are
 * redirected to. It can misbehave in every way that networks and strangers do, and counts what it sends.
 */
import { createHash } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

export type Fault =
  /** The connection ends after so many bytes of the body. */
  | { readonly kind: 'drop'; readonly after: number }
  | { readonly kind: 'status'; readonly status: number; readonly headers?: Readonly<Record<string, string>> }
  /** The byte of the file at this place is another one. */
  | { readonly kind: 'flip'; readonly at: number }
  | { readonly kind: 'ignore range' }
  /** More bytes than were asked for, without saying so. */
  | { readonly kind: 'excess'; readonly bytes: number }
  | { readonly kind: 'redirect'; readonly to: string }
  /** The answers of this one and later ones have another name and content. */
  | { readonly kind: 'headers'; readonly headers: Readonly<Record<string, string>> }
  /** Nothing is ever sent. */
  | { readonly kind: 'silence' };

/** A request for the content of a file. */
export interface FileRequest {
  readonly path: string;
  /** At the second server. */
  readonly atCdn: boolean;
  /** First byte and the one behind the last; the whole file where no range was asked for. */
  readonly start: number;
  readonly end: number;
  /** Requests for contents before this one. */
  readonly number: number;
  readonly headers: IncomingMessage['headers'];
}

export interface HubOptions {
  readonly id?: string;
  readonly commit?: string;
  readonly files: Readonly<Record<string, Buffer | string>>;
  /** Files from this size on are LFS files, on the second server; default 1 KiB. */
  readonly lfsFrom?: number;
  /** What goes wrong with a request for a file. */
  readonly fault?: (request: FileRequest) => Fault | null;
  /** What goes wrong with a request for metadata, the `number`th. */
  readonly apiFault?: (number: number, path: string) => Fault | null;
  /** Only this token may have anything. */
  readonly token?: string;
  /** Entries in a page of the list of files; all when not given. */
  readonly pageSize?: number;
  /** Entries of the list of files as they are sent, made of honest ones. */
  readonly list?: (entries: readonly ListEntry[]) => readonly object[];
  /** Bytes that a connection sends in a millisecond; default: as many as it takes. */
  readonly bytesPerMs?: number;
}

export interface ListEntry {
  readonly type: 'file';
  readonly path: string;
  readonly size: number;
  readonly oid: string;
  readonly lfs?: { readonly oid: string; readonly size: number; readonly pointerSize: number };
}

export interface StandInHub {
  /** For HF_ENDPOINT. */
  readonly url: string;
  readonly cdn: string;
  readonly commit: string;
  readonly requests: FileRequest[];
  /** Headers of all requests that came to the second server. */
  readonly cdnHeaders: IncomingMessage['headers'][];
  readonly apiPaths: string[];
  /** Bytes of contents that were sent. */
  readonly sentBytes: number;
  close(): Promise<void>;
}

export const sha256 = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');
export const gitSha1 = (bytes: Buffer): string => createHash('sha1').update(`blob ${bytes.length}\0`).update(bytes).digest('hex');
export const standInCommit = '0123456789abcdef0123456789abcdef01234567';
const chunkBytes = 16 * 1024;

export async function startHub(options: HubOptions): Promise<StandInHub> {
  const { id = 'org/model', commit = standInCommit, lfsFrom = 1024 } = options;
  const files = new Map(Object.entries(options.files).map(([path, content]) => [path, Buffer.from(content)]));
  const requests: FileRequest[] = [];
  const cdnHeaders: IncomingMessage['headers'][] = [];
  const apiPaths: string[] = [];
  let sentBytes = 0;

  const entries = (): readonly ListEntry[] =>
    [...files].map(([path, content]) => ({
      type: 'file',
      path,
      size: content.length,
      oid: gitSha1(content),
      ...(content.length < lfsFrom ? {} : { lfs: { oid: sha256(content), size: content.length, pointerSize: 130 } }),
    }));

  const send = async (res: ServerResponse, body: Buffer, dropAfter: number): Promise<void> => {
    for (let at = 0; at < body.length && !res.destroyed; at += chunkBytes) {
      const chunk = body.subarray(at, Math.min(at + chunkBytes, dropAfter));
      if (chunk.length > 0) {
        await new Promise<void>((resolve) => {
          res.once('close', resolve);
          res.write(chunk, (error) => {
            if (!error) sentBytes += chunk.length;
            res.off('close', resolve);
            resolve();
          });
        });
      }
      if (at + chunkBytes >= dropAfter && dropAfter < body.length) {
        res.destroy();
        return;
      }
      if (options.bytesPerMs !== undefined) await sleep(chunk.length / options.bytesPerMs);
    }
    res.end();
  };

  const content = (req: IncomingMessage, res: ServerResponse, path: string, atCdn: boolean): void => {
    const whole = files.get(path);
    if (whole === undefined) {
      res.writeHead(404, { 'x-error-code': 'EntryNotFound' }).end();
      return;
    }
    const [, from, to] = /^bytes=(\d+)-(\d*)$/.exec(req.headers.range ?? '') ?? [];
    const start = Number(from ?? 0);
    const end = to === undefined || to === '' ? whole.length : Math.min(Number(to) + 1, whole.length);
    const request = { path, atCdn, start, end, number: requests.length, headers: req.headers };
    const lfs = whole.length >= lfsFrom;
    const name = lfs ? sha256(whole) : gitSha1(whole);
    if (lfs && !atCdn) {
      const fault = options.fault?.({ ...request, number: -1 }) ?? null;
      if (fault?.kind === 'redirect') {
        res.writeHead(302, { location: fault.to }).end();
        return;
      }
      if (fault?.kind === 'headers') for (const [key, value] of Object.entries(fault.headers)) res.setHeader(key, value);
      else res.setHeader('x-linked-etag', `"${name}"`);
      res.writeHead(302, { location: `${cdn}/${encodeURIComponent(path)}?signature=abc` }).end();
      return;
    }
    requests.push(request);
    const fault = options.fault?.(request) ?? null;
    if (fault?.kind === 'silence') return;
    if (fault?.kind === 'status') {
      res.writeHead(fault.status, fault.headers).end();
      return;
    }
    if (fault?.kind === 'redirect') {
      res.writeHead(302, { location: fault.to }).end();
      return;
    }
    const ranged = from !== undefined && fault?.kind !== 'ignore range';
    let body = Buffer.from(ranged ? whole.subarray(start, end) : whole);
    const base = ranged ? start : 0;
    if (fault?.kind === 'flip' && fault.at >= base && fault.at < base + body.length)
      body[fault.at - base] = (body[fault.at - base] ?? 0) ^ 1;
    res.setHeader('etag', `"${name}"`);
    if (ranged) res.setHeader('content-range', `bytes ${start}-${end - 1}/${whole.length}`);
    if (fault?.kind === 'excess') body = Buffer.concat([body, Buffer.alloc(fault.bytes, 0x21)]);
    else res.setHeader('content-length', body.length);
    if (fault?.kind === 'headers') for (const [key, value] of Object.entries(fault.headers)) res.setHeader(key, value);
    res.writeHead(ranged ? 206 : 200);
    void send(res, body, fault?.kind === 'drop' ? fault.after : Number.POSITIVE_INFINITY);
  };

  const api = (req: IncomingMessage, res: ServerResponse, path: string): void => {
    const number = apiPaths.push(path) - 1;
    const fault = options.apiFault?.(number, path) ?? null;
    if (fault?.kind === 'drop') res.destroy();
    else if (fault?.kind === 'status') res.writeHead(fault.status, fault.headers).end('{"error":"no"}');
    else if (fault?.kind === 'redirect') res.writeHead(302, { location: fault.to }).end();
    else if (options.token !== undefined && req.headers.authorization !== `Bearer ${options.token}`)
      res.writeHead(req.headers.authorization === undefined ? 401 : 403, { 'x-error-code': 'GatedRepo' }).end();
    else if (!path.startsWith(`/api/models/${id}/`))
      res.writeHead(401, { 'x-error-message': 'Invalid username or password.' }).end('{"error":"Invalid username or password."}');
    else if (path.startsWith(`/api/models/${id}/tree/${commit}`)) {
      if (fault?.kind === 'headers') for (const [key, value] of Object.entries(fault.headers)) res.setHeader(key, value);
      const all = (options.list ?? ((list) => list))(entries());
      const from = Number(new URL(req.url ?? '/', 'http://hub').searchParams.get('cursor') ?? 0);
      const to = from + (options.pageSize ?? all.length);
      if (to < all.length) res.setHeader('link', `<http://${req.headers.host}${path}?cursor=${to}>; rel="next"`);
      res.setHeader('content-type', 'application/json').end(JSON.stringify(all.slice(from, to)));
    } else if (/\/revision\/(main|refs%2Fpr%2F1|v1\.0|[0-9a-f]{40})$/.test(path))
      res
        .setHeader('content-type', 'application/json')
        .end(JSON.stringify({ _id: '1', id, sha: commit, lastModified: '2026-01-01', gated: false }));
    else res.writeHead(404, { 'x-error-code': 'RevisionNotFound' }).end('{"error":"Invalid rev id"}');
  };

  const hub = await listen((req, res) => {
    const { pathname } = new URL(req.url ?? '/', 'http://hub');
    const prefix = `/${id}/resolve/${commit}/`;
    if (pathname.startsWith('/api/')) api(req, res, pathname);
    else if (options.token !== undefined && req.headers.authorization !== `Bearer ${options.token}`)
      res.writeHead(401, { 'x-error-code': 'GatedRepo' }).end();
    else if (pathname.startsWith(prefix)) content(req, res, decodeURIComponent(pathname.slice(prefix.length)), false);
    else res.writeHead(404, { 'x-error-code': 'RepoNotFound' }).end();
  });
  const cdnServer = await listen((req, res) => {
    cdnHeaders.push(req.headers);
    content(req, res, decodeURIComponent(new URL(req.url ?? '/', 'http://cdn').pathname.slice(1)), true);
  });
  const cdn = addressOf(cdnServer);
  return {
    url: addressOf(hub),
    cdn,
    commit,
    requests,
    cdnHeaders,
    apiPaths,
    get sentBytes() {
      return sentBytes;
    },
    async close() {
      for (const server of [hub, cdnServer]) {
        server.closeAllConnections();
        await new Promise((resolve) => server.close(resolve));
      }
    },
  };
}

const addressOf = (server: Server): string => `http://127.0.0.1:${(server.address() as AddressInfo).port}`; // proof: listens on TCP

function listen(handler: (req: IncomingMessage, res: ServerResponse) => void): Promise<Server> {
  const server = createServer(handler);
  return new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(server)));
}
