/**
 * `inferd/client` in Node: finds the running daemon through its daemon.json, shows the token, and speaks over the package ws.
 */
import { createPrivateKey, type KeyObject, sign } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { connect as connectSocket } from 'node:net';
import { WebSocket } from 'ws';
import { daemonFilePath, readDaemonFile } from '../../config/paths.js';
import { type Signer, signatureHeaders } from '../signature/sign.js';
import { InferdClient } from './client.js';
import { ConnectError } from './errors.js';
import type { OpenTransport } from './transport.js';

export { type Signer, signedFetch } from '../signature/sign.js';
export * from './client.js';

export interface ConnectOptions {
  /** For example "ws://127.0.0.1:8765"; the running daemon of this user when not given. */
  readonly url?: string;
  /** The daemon's token; read from its token file when neither url nor token is given. */
  readonly token?: string;
  /** Signs the connection, where auth.mode has "ed25519"; see `nodeSigner`. */
  readonly signer?: Signer;
  /** Who asks, for the daemon's log. */
  readonly name?: string;
  readonly env?: NodeJS.ProcessEnv;
}

interface Target {
  readonly url: string;
  readonly token: string | null;
  /** What to say when nobody listens there. */
  readonly absent: string;
}

const handshakeTimeoutMs = 10_000;
/** Largest frame of a daemon: an answer with the log-probabilities of a long prompt. */
const maxFrameBytes = 256 * 2 ** 20;

/** @throws ConnectError when there is no daemon, or it refuses */
export async function connect(options: ConnectOptions = {}): Promise<InferdClient> {
  const target = findDaemon(options);
  const headers = await headersOf(target, options.signer);
  return InferdClient.open(openSocket(target, headers), options.name);
}

function findDaemon({ url, token, env = process.env }: ConnectOptions): Target {
  if (url !== undefined) {
    const socketUrl = url.replace(/^http/, 'ws');
    if (!URL.canParse(socketUrl) || !/^wss?(\+unix)?:$/.test(new URL(socketUrl).protocol))
      throw new ConnectError(`${JSON.stringify(url)} is not the address of a daemon. Write it like ws://127.0.0.1:8765.`);
    return { url: socketUrl, token: token ?? null, absent: `No daemon answers at ${socketUrl}. Start one with "inferd serve".` };
  }
  const daemon = readDaemonFile(env);
  if (daemon === null) {
    throw new ConnectError(`No inferd daemon is running (${daemonFilePath(env)} is not there). Start one with "inferd serve".`);
  }
  return {
    url: daemon.address,
    token: token ?? (daemon.tokenFile === null ? null : readToken(daemon.tokenFile)),
    absent: `The inferd daemon with pid ${daemon.pid} does not answer at ${daemon.address} any more. Start one with "inferd serve".`,
  };
}

function readToken(path: string): string {
  try {
    return readFileSync(path, 'utf8').trim();
  } catch (error) {
    const why = (error as NodeJS.ErrnoException).code ?? 'unknown error';
    throw new ConnectError(`The daemon asks for a token and its file ${path} cannot be read (${why}). Give the token yourself.`);
  }
}

/** A private Ed25519 key as PEM, or as Node's KeyObject, under the name that the daemon knows it by. @throws when it is no such key */
export function nodeSigner(keyid: string, privateKey: string | KeyObject): Signer {
  const key = typeof privateKey === 'string' ? createPrivateKey(privateKey) : privateKey;
  if (key.type !== 'private' || key.asymmetricKeyType !== 'ed25519') throw new TypeError('A signer needs a private Ed25519 key.');
  return { keyid, sign: (data) => sign(null, data, key) };
}

async function headersOf({ url, token }: Target, signer: Signer | undefined): Promise<Record<string, string>> {
  const shown = token === null ? {} : { authorization: `Bearer ${token}` };
  if (signer === undefined) return shown;
  // Over a Unix socket ws asks for "localhost"; else for what the address says.
  const asked = url.startsWith('ws+unix:') ? new URL('ws://localhost/') : new URL(url);
  return { ...shown, ...(await signatureHeaders(signer, { method: 'GET', url: asked, body: null })) };
}

function openSocket(target: Target, headers: Record<string, string>): OpenTransport {
  return (events) =>
    new Promise((resolve, reject) => {
      const socket = new WebSocket(target.url, ['jsonrpc'], {
        headers,
        handshakeTimeout: handshakeTimeoutMs,
        maxPayload: maxFrameBytes,
        perMessageDeflate: false,
        ...overUnixSocket(target.url),
      });
      let problem = 'The daemon closed the connection';
      socket.on('unexpected-response', (request, response) => {
        reject(new ConnectError(refusal(response.statusCode ?? 0, target)));
        request.destroy();
      });
      socket.on('error', (error: NodeJS.ErrnoException) => {
        problem = `The connection to the daemon failed: ${error.message}`;
        const absent = error.code === 'ECONNREFUSED' || error.code === 'ENOENT' || error.code === 'ENOTFOUND';
        reject(new ConnectError(absent ? target.absent : `No connection to ${target.url}: ${error.message}`));
      });
      socket.on('open', () => resolve({ send: (frame) => socket.send(frame), close: () => socket.close(1000) }));
      socket.on('message', (data) => events.text(data.toString()));
      socket.on('close', (_code, reason) => events.closed(reason.length > 0 ? `${problem}: ${reason.toString()}` : problem));
    });
}

/** For `ws+unix:PATH:/`: ws would take the path as it is written in the URL, where spaces and colons are escaped. */
function overUnixSocket(url: string): { readonly createConnection?: typeof connectSocket } {
  const { protocol, pathname } = new URL(url);
  if (protocol !== 'ws+unix:') return {};
  const path = decodeURIComponent(pathname.slice(0, pathname.lastIndexOf(':')));
  // proof: ws calls it with options and without a listener
  return { createConnection: (() => connectSocket({ path })) as typeof connectSocket };
}

function refusal(status: number, { url, token }: Target): string {
  if (status === 401)
    return token === null
      ? `The daemon at ${url} asks for a token. Give it as token, or leave the url out to use the running daemon's own.`
      : `The daemon at ${url} asks for a token, and the one given is not right.`;
  if (status === 503) return `The daemon at ${url} takes no more connections right now.`;
  return `The daemon at ${url} refused the connection with HTTP status ${status}.`;
}
