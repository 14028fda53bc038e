/**
 * Signs requests to a daemon that asks for it (auth.mode = "ed25519"): the headers that a request must have besides. Runs in Node and in
 * browsers; who holds the key brings the way to sign with it.
 */
import { ALGORITHM, coveredAlways, DIGEST, paramsText, type SignedParts, signatureBase } from './base.js';

/** A private key, as its holder uses it. */
export interface Signer {
  /** The name that the daemon knows the key by (`inferd key add NAME`). */
  readonly keyid: string;
  /** The Ed25519 signature of these bytes. */
  sign(data: Uint8Array<ArrayBuffer>): Uint8Array | Promise<Uint8Array>;
}

export interface Unsigned {
  readonly method: string;
  /** http(s) or ws(s). */
  readonly url: URL;
  /** Null: none. */
  readonly body: Uint8Array<ArrayBuffer> | null;
}

const NONCE_BYTES = 16;

/** Headers that sign this request, once: each has a nonce and a time of its own. */
export async function signatureHeaders(signer: Signer, { method, url, body }: Unsigned): Promise<Record<string, string>> {
  const digest = body === null ? null : `sha-256=:${base64(new Uint8Array(await crypto.subtle.digest('SHA-256', body)))}:`;
  const parts: SignedParts = {
    method,
    authority: url.host,
    path: url.pathname,
    query: url.search === '' ? '?' : url.search,
    header: (name) => (name === DIGEST ? digest : null),
  };
  const components = [...coveredAlways, ...(digest === null ? [] : [DIGEST])];
  const written = paramsText(components, [
    ['created', Math.floor(Date.now() / 1000)],
    ['nonce', base64(crypto.getRandomValues(new Uint8Array(NONCE_BYTES)))],
    ['keyid', signer.keyid],
    ['alg', ALGORITHM],
  ]);
  const base = signatureBase(components, written, parts) ?? ''; // proof: all of its components are there
  const signature = await signer.sign(new TextEncoder().encode(base));
  return {
    'signature-input': `sig1=${written}`,
    signature: `sig1=:${base64(signature)}:`,
    ...(digest === null ? {} : { 'content-digest': digest }),
  };
}

/**
 * A `fetch` that signs what it sends, for clients that take one, as OpenAI's and Anthropic's do: `new OpenAI({ fetch: signedFetch(signer), ... })`.
 * The whole body is read before it is sent. Redirects are refused: a signature is for one address.
 */
export function signedFetch(signer: Signer, send: typeof fetch = fetch): typeof fetch {
  return async (input, init) => {
    const request = new Request(input, init);
    const body = request.body === null ? null : new Uint8Array(await request.arrayBuffer());
    const headers = new Headers(request.headers);
    const made = await signatureHeaders(signer, { method: request.method, url: new URL(request.url), body });
    for (const [name, value] of Object.entries(made)) headers.set(name, value);
    return send(request.url, { method: request.method, headers, body, signal: request.signal, redirect: 'error' });
  };
}

function base64(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes));
}
