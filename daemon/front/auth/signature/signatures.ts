/**
 * Requests that their senders signed with Ed25519 (RFC 9421), in place of showing a token.
 *
 * A signature covers method, authority, path and query, and the digest of the body where there is one; it says when it was made, once
 * (nonce), and with which key. It counts for WINDOW_S around its time, and not when it was made before this daemon started: nonces are
 * remembered in memory alone. The order below is that of the cost: nothing is computed for a request that could not be let in anyway, and
 * the signature itself is checked in another thread, a bounded number at a time. Main thread.
 */
import { type KeyObject, verify } from 'node:crypto';
import { ALGORITHM, coveredAlways, DIGEST, type SignedParts, signatureBase } from '../../../../rpc/signature/base.js';
import type { Admission, AuthRequest } from '../admission.js';
import type { Keys } from '../keys.js';
import { parseContentDigest } from './content-digest.js';
import { parseSignature, parseSignatureInput, SignatureFault, type SignatureInput } from './signature-input.js';

export const WINDOW_S = 60;
const SIGNATURE_BYTES = 64;
/** Signatures that are checked at the same time; each takes some 100 us of one of the runtime's four threads. */
const MAX_CHECKED = 64;
const NONCE = /^[!-~]{8,128}$/;
const KNOWN_PARAMS: ReadonlySet<string> = new Set(['created', 'expires', 'nonce', 'keyid', 'alg', 'tag']);

/** What a 401 asks for, in the words of RFC 9421, 5. */
export const ACCEPT_SIGNATURE = `sig1=(${[...coveredAlways, DIGEST].map((name) => `"${name}"`).join(' ')});created;nonce;keyid;alg="${ALGORITHM}"`;

export interface SignaturesOptions {
  readonly keys: Pick<Keys, 'get'>;
  /** Seconds since the epoch. */
  readonly now?: () => number;
}

export const isSigned = ({ headers }: AuthRequest): boolean =>
  headers['signature-input'] !== undefined || headers['signature'] !== undefined;

export class Signatures {
  readonly #keys: SignaturesOptions['keys'];
  readonly #now: () => number;
  readonly #startedS: number;
  #checking = 0;

  constructor({ keys, now = () => Date.now() / 1000 }: SignaturesOptions) {
    this.#keys = keys;
    this.#now = now;
    this.#startedS = Math.floor(now());
  }

  /** Never rejects. */
  async admit(request: AuthRequest): Promise<Admission> {
    try {
      return await this.#admit(request);
    } catch (error) {
      if (error instanceof SignatureFault) return refused(error.message);
      throw error;
    }
  }

  /** @throws SignatureFault */
  async #admit(request: AuthRequest): Promise<Admission> {
    const { headers } = request;
    const [inputText, signatureText] = [headers['signature-input'], headers['signature']];
    if (typeof inputText !== 'string' || typeof signatureText !== 'string')
      throw new SignatureFault('A signed request has both Signature-Input and Signature.');
    const input = parseSignatureInput(inputText);
    const signature = parseSignature(signatureText, input.label);
    const bodyDigest = digestOf(request, input);
    const { createdS, nonce, keyid } = this.#paramsOf(input);
    const base = signatureBase(input.components, input.written, partsOf(request));
    if (base === null) throw new SignatureFault('The signature covers something that the request does not have.');
    const known = this.#keys.get(keyid);
    if (known === null || signature.length !== SIGNATURE_BYTES) return refused(NOT_RIGHT);
    if (this.#checking >= MAX_CHECKED) return busy('Too many signatures are being checked.');
    this.#checking++;
    const good = await check(base, known.key, signature).finally(() => this.#checking--);
    if (!good || known.credential.ended) return refused(NOT_RIGHT);
    // Taken when all else is good, so that no request without the key can use up a nonce.
    const taken = known.nonces.take(nonce, createdS + WINDOW_S, this.#now());
    if (taken === 'seen') return refused('A request with this nonce has come before.');
    if (taken === 'full') return busy('This key has signed too many requests of the last minute (auth.max_nonces).');
    const { credential } = known;
    return { peer: { scopes: credential.scopes, bodyDigest, onEnd: (listener) => credential.onEnd(listener) } };
  }

  /** @throws SignatureFault */
  #paramsOf({ params }: SignatureInput): { readonly createdS: number; readonly nonce: string; readonly keyid: string } {
    const unknown = params.find(([name]) => !KNOWN_PARAMS.has(name));
    if (unknown !== undefined) throw new SignatureFault(`The parameter ${unknown[0]} of a signature is not known here.`);
    const { created, expires, nonce, keyid, alg } = Object.fromEntries(params);
    if (alg !== ALGORITHM) throw new SignatureFault(`A signature must say alg="${ALGORITHM}".`);
    if (typeof keyid !== 'string') throw new SignatureFault('A signature must name its keyid.');
    if (typeof nonce !== 'string' || !NONCE.test(nonce))
      throw new SignatureFault('A signature must have a nonce of 8 to 128 visible characters.');
    if (typeof created !== 'number') throw new SignatureFault('A signature must say when it was created.');
    const now = this.#now();
    if (Math.abs(now - created) > WINDOW_S)
      throw new SignatureFault(
        `The signature was created ${Math.abs(Math.round(now - created))} s from now; clocks must agree within ${WINDOW_S} s.`,
      );
    if (created <= this.#startedS)
      throw new SignatureFault('The signature was created before this daemon started; sign the request again.');
    if (expires !== undefined && !(typeof expires === 'number' && expires > now)) throw new SignatureFault('The signature has expired.');
    return { createdS: created, nonce, keyid };
  }
}

const NOT_RIGHT = 'The signature is not right, or its key is not known here.';

/**
 * What the body must hash to; null: the request has none, and nothing is said of it. RFC 9421 signs no header that is not there, so a request
 * without content need not have a digest; one that has it must have it covered, and it is then the digest of nothing.
 * @throws SignatureFault
 */
function digestOf({ headers }: AuthRequest, { components }: SignatureInput): Buffer | null {
  for (const name of coveredAlways) if (!components.includes(name)) throw new SignatureFault(`A signature must cover ${name}.`);
  const hasBody = headers['transfer-encoding'] !== undefined || !/^0*$/.test(headers['content-length'] ?? '');
  const digest = headers[DIGEST];
  if (!hasBody && digest === undefined && !components.includes(DIGEST)) return null;
  if (typeof digest !== 'string' || !components.includes(DIGEST))
    throw new SignatureFault('The signature of a request with a body must cover content-digest.');
  return parseContentDigest(digest);
}

function partsOf({ method = '', url = '', headers }: AuthRequest): SignedParts {
  const at = url.indexOf('?');
  return {
    method,
    authority: headers.host ?? '',
    path: at < 0 ? url : url.slice(0, at),
    query: at < 0 ? '?' : url.slice(at),
    header: (name) => {
      const value = headers[name];
      return value === undefined ? null : Array.isArray(value) ? value.join(', ') : value;
    },
  };
}

function check(base: string, key: KeyObject, signature: Buffer): Promise<boolean> {
  return new Promise((resolve) => {
    // Header values are bytes to Node, so its texts are latin1.
    verify(null, Buffer.from(base, 'latin1'), key, signature, (error, good) => resolve(error === null && good));
  });
}

const refused = (message: string): Admission => ({ refusal: { status: 401, message, headers: challenge } });
const challenge = { 'www-authenticate': 'Signature realm="inferd"', 'accept-signature': ACCEPT_SIGNATURE };
const busy = (message: string): Admission => ({ refusal: { status: 429, message, headers: { 'retry-after': '1' } } });
