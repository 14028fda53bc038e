/**
 * One GET to the hub, with its redirects followed by our own rules: the token goes to the endpoint's own origin and nowhere else, nothing
 * goes from https to http, and no redirect leads to an address of a local network unless the endpoint itself is in one of that kind. The
 * address is judged where the connection is made (address.ts). Connections are kept and used again.
 */
import { lookup as dnsLookup, type LookupAddress, type LookupOptions } from 'node:dns';
import { Agent as HttpAgent, request as httpRequest, type IncomingHttpHeaders, type IncomingMessage } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { packageVersion } from '../../version.js';
import { cancelled, PullError } from '../error.js';
import { type AddressKind, addressKind, isAddress } from './address.js';
import type { Endpoint } from './endpoint.js';

/** An answer whose status is no redirect. Whoever gets it reads or destroys the body. */
export interface HubResponse {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly url: URL;
  /** Does it come from the endpoint itself, and not from where that sent us? */
  readonly fromEndpoint: boolean;
  /** What the endpoint says of the file behind a redirect: the name of its content. */
  readonly linkedEtag: string | null;
  readonly body: IncomingMessage;
}

export interface GetOptions {
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal: AbortSignal;
}

/** No byte came for so long. */
export class SilenceError extends Error {
  readonly code = 'ETIMEDOUT';
}

/** How names are resolved; tests put another in its place. */
export type Resolve = (host: string, options: LookupOptions, done: (error: Error | null, found: LookupAddress[]) => void) => void;

const maxRedirects = 6;
const systemLookup: Resolve = (host, options, done) =>
  dnsLookup(host, { ...options, all: true }, (error, found) => done(error, found ?? []));

export class HubClient {
  readonly endpoint: Endpoint;
  readonly #silenceMs: number;
  readonly #resolve: Resolve;
  readonly #http: HttpAgent;
  readonly #https: HttpsAgent;
  /** Kinds of addresses that the endpoint was reached at. */
  readonly #home = new Set<AddressKind>();

  /** `maxSockets`: connections kept to each host. */
  constructor(endpoint: Endpoint, options: { readonly silenceMs: number; readonly maxSockets: number; readonly resolve?: Resolve }) {
    this.endpoint = endpoint;
    this.#silenceMs = options.silenceMs;
    this.#resolve = options.resolve ?? systemLookup;
    const keep = { keepAlive: true, maxSockets: options.maxSockets, scheduling: 'lifo' as const };
    this.#http = new HttpAgent(keep);
    this.#https = new HttpsAgent(keep);
  }

  /** @throws PullError for a redirect that is refused, the system's error for a connection that fails. */
  async get(address: string, { headers = {}, signal }: GetOptions): Promise<HubResponse> {
    let url = new URL(address);
    let linkedEtag: string | null = null;
    for (let hops = 0; hops <= maxRedirects; hops++) {
      const fromEndpoint = url.origin === this.endpoint.origin;
      const body = await this.#send(url, headers, fromEndpoint, signal);
      if (fromEndpoint) {
        this.#home.add(addressKind(body.socket.remoteAddress ?? ''));
        linkedEtag = oneHeader(body.headers['x-linked-etag']) ?? linkedEtag;
      }
      const status = body.statusCode ?? 0;
      const location = [301, 302, 303, 307, 308].includes(status) ? body.headers.location : undefined;
      if (location === undefined) return { status, headers: body.headers, url, fromEndpoint, linkedEtag, body };
      body.destroy();
      url = this.#next(url, location);
    }
    throw new PullError('network', `The hub ${this.endpoint.url} redirects in a circle; check HF_ENDPOINT`);
  }

  close(): void {
    this.#http.destroy();
    this.#https.destroy();
  }

  #next(from: URL, location: string): URL {
    const url = URL.canParse(location, from.href) ? new URL(location, from.href) : null;
    if (url === null || !/^https?:$/.test(url.protocol))
      throw new PullError('network', `${from.host} redirects to something that is no web address; check HF_ENDPOINT`);
    if (from.protocol === 'https:' && url.protocol === 'http:')
      throw new PullError('network', `${from.host} redirects from https to http at ${url.host}, which is refused; check HF_ENDPOINT`);
    return url;
  }

  #send(url: URL, headers: Readonly<Record<string, string>>, fromEndpoint: boolean, signal: AbortSignal): Promise<IncomingMessage> {
    const { token } = this.endpoint;
    const host = url.hostname.replace(/^\[|\]$/g, '');
    if (!fromEndpoint && isAddress(host)) this.#judge(url.host, host);
    const secure = url.protocol === 'https:';
    return new Promise((resolve, reject) => {
      if (signal.aborted) {
        reject(cancelled());
        return;
      }
      const options = {
        host,
        path: `${url.pathname}${url.search}`,
        headers: {
          'user-agent': `inferd/${packageVersion()}`,
          'accept-encoding': 'identity',
          ...headers,
          ...(fromEndpoint && token !== null ? { authorization: `Bearer ${token}` } : {}),
        },
        // Nagle's algorithm has nothing to join here, and no user name of an address may become a header: hence no URL object.
        ...(url.port === '' ? {} : { port: Number(url.port) }),
        lookup: this.#lookup(url.host, fromEndpoint),
      };
      const request = secure ? httpsRequest({ ...options, agent: this.#https }) : httpRequest({ ...options, agent: this.#http });
      const stop = (): void => void request.destroy(cancelled());
      signal.addEventListener('abort', stop, { once: true });
      request.setTimeout(this.#silenceMs, () => {
        request.destroy(new SilenceError(`${url.host} sent nothing for ${this.#silenceMs / 1000} s`));
      });
      request.once('close', () => signal.removeEventListener('abort', stop));
      // An error after the answer is one of its body, and whoever reads that hears of it.
      request.on('error', reject);
      request.once('response', resolve);
      request.end();
    });
  }

  /** Resolves a name, and fails where an address of it may not be asked. */
  #lookup(shown: string, fromEndpoint: boolean) {
    return (
      host: string,
      options: LookupOptions,
      done: (error: Error | null, address: string | LookupAddress[], family?: number) => void,
    ): void => {
      this.#resolve(host, options, (error, found) => {
        const [first] = found;
        if (error !== null || first === undefined) {
          done(error ?? Object.assign(new Error(`${host} has no address`), { code: 'ENOTFOUND' }), '');
          return;
        }
        try {
          if (!fromEndpoint) for (const { address } of found) this.#judge(shown, address);
        } catch (refusal) {
          done(refusal as Error, '');
          return;
        }
        if (options.all === true) done(null, found);
        else done(null, first.address, first.family);
      });
    };
  }

  #judge(shown: string, address: string): void {
    const kind = addressKind(address);
    if (kind === 'public' || this.#home.has(kind)) return;
    throw new PullError(
      'network',
      `The hub ${this.endpoint.url} redirects to ${shown}, a ${kind} address (${address}), which is refused; check HF_ENDPOINT`,
    );
  }
}

/** A header's one value. */
export function oneHeader(value: string | readonly string[] | undefined): string | null {
  return typeof value === 'string' ? value : (value?.[0] ?? null);
}
