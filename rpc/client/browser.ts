/**
 * `inferd/client` in a browser: the page's own WebSocket. The token, if any, goes as a subprotocol, since a page cannot set headers;
 * it is never put in the URL.
 */
import type { Signer } from '../signature/sign.js';
import { InferdClient } from './client.js';
import { ConnectError } from './errors.js';
import type { OpenTransport } from './transport.js';

export { type Signer, signedFetch } from '../signature/sign.js';
export * from './client.js';

export interface ConnectOptions {
  /** The page's own origin when not given. */
  readonly url?: string;
  readonly token?: string;
  /** Who asks, for the daemon's log. */
  readonly name?: string;
}

/** CryptoKey, as the global `crypto` takes it. */
type WebCryptoKey = Parameters<typeof crypto.subtle.sign>[1];

/**
 * A private Ed25519 key of WebCrypto, for `signedFetch`. A page cannot sign its WebSocket: browsers let no page set headers there, so it
 * shows a token.
 */
export function browserSigner(keyid: string, privateKey: WebCryptoKey): Signer {
  return { keyid, sign: async (data) => new Uint8Array(await crypto.subtle.sign('Ed25519', privateKey, data)) };
}

/** @throws ConnectError when there is no daemon, or it refuses */
export async function connect(options: ConnectOptions = {}): Promise<InferdClient> {
  const protocols = options.token === undefined ? ['jsonrpc'] : ['jsonrpc', `bearer.${options.token}`];
  return InferdClient.open(openSocket((options.url ?? ownOrigin()).replace(/^http/, 'ws'), protocols), options.name);
}

function ownOrigin(): string {
  const page = (globalThis as { location?: { origin?: string } }).location?.origin;
  if (page === undefined || !page.startsWith('http'))
    throw new ConnectError('Say where the daemon is: connect({ url: "ws://127.0.0.1:8765" })');
  return page;
}

function openSocket(url: string, protocols: string[]): OpenTransport {
  return (events) =>
    new Promise((resolve, reject) => {
      const socket = new WebSocket(url, protocols);
      socket.onopen = () => resolve({ send: (frame) => socket.send(frame), close: () => socket.close(1000) });
      // A page is not told why: no daemon, a wrong token and a refused origin look the same.
      socket.onerror = () =>
        reject(new ConnectError(`No connection to ${url}: no daemon listens there, or it refused this page or its token.`));
      socket.onmessage = ({ data }: { readonly data: unknown }) => {
        if (typeof data === 'string') events.text(data);
      };
      socket.onclose = ({ reason }: { readonly reason: string }) =>
        events.closed(reason === '' ? 'The daemon closed the connection' : `The daemon closed the connection: ${reason}`);
    });
}
