/**
 * The gate: Host, Origin and Sec-Fetch-Site of every request and upgrade, on every listener, before anything else looks at it.
 *
 * It keeps web pages out. A page on another site can make a browser connect to a loopback port (cross-site WebSocket hijacking), and a
 * name under its control can be made to resolve to 127.0.0.1 (DNS rebinding). Native clients send no Origin and are let through here;
 * who they are is the business of auth.ts. Pure: headers in, verdict out.
 *
 * Invariant: the answer depends on nothing but the rules, the headers and, where clients have to show who they are, the address that the
 * connection was accepted on.
 */

import type { IncomingHttpHeaders } from 'node:http';
import { BlockList, isIP, isIPv4, isIPv6 } from 'node:net';
import type { Config } from '../../config/schema.js';

/** What the configuration allows besides loopback; replaced as a whole by a reload. */
export interface GateRules {
  /** Lower-cased names without port. */
  readonly hosts: ReadonlySet<string>;
  /** Addresses of ranges such as 192.168.1.0/24. */
  readonly networks: BlockList;
  /** Exact serialised origins, lower-cased. */
  readonly origins: ReadonlySet<string>;
}

/** What sends a request, as its headers tell: a program; a page that this daemon served; or any other page. */
export type Sender = 'program' | 'own page' | 'other page';

export type Verdict =
  | {
      readonly ok: true;
      /** The listed foreign origin to name in Access-Control-Allow-Origin; `null` for native clients and our own pages. */
      readonly corsOrigin: string | null;
      readonly sender: Sender;
    }
  | { readonly ok: false; readonly status: 400 | 403; readonly message: string };

export interface GateRequest {
  readonly headers: IncomingHttpHeaders;
  /** Name, value, name, value ... as received: shows repeated headers. */
  readonly rawHeaders: readonly string[];
}

export function gateRules(auth: Pick<Config['auth'], 'allowed_hosts' | 'allowed_origins'>): GateRules {
  const networks = new BlockList();
  for (const range of auth.allowed_hosts.filter(isRange)) {
    const [address = '', bits] = range.split('/');
    networks.addSubnet(address, Number(bits), isIPv6(address) ? 'ipv6' : 'ipv4');
  }
  return {
    networks,
    hosts: new Set(auth.allowed_hosts.filter((h) => !isRange(h)).map((h) => hostName(h) ?? h.toLowerCase())),
    origins: new Set(auth.allowed_origins.map((o) => o.toLowerCase().replace(/\/$/, ''))),
  };
}

/**
 * Checks one request. `unix`: it came over the Unix socket, where Host means nothing. `acceptedAt`: the address that its connection was
 * accepted on, where that is a good Host too, as for a probe of a pod; null where it is not.
 */
export function checkGate(request: GateRequest, rules: GateRules, unix: boolean, acceptedAt: string | null = null): Verdict {
  const { headers } = request;
  if (count(request.rawHeaders, 'host') > 1 || count(request.rawHeaders, 'origin') > 1) {
    return refuse(400, 'A request must not repeat its Host or Origin header.');
  }
  const host = headers.host;
  if (!unix) {
    if (host === undefined || host === '') return refuse(400, 'A request must have a Host header.');
    const name = hostName(host);
    if (name === null || !(isLoopbackName(name) || isAllowed(name, rules) || isAddress(name, acceptedAt))) {
      return refuse(403, 'This Host is not allowed; use a loopback address or list the name in auth.allowed_hosts.');
    }
  }
  const origin = headers.origin?.toLowerCase();
  if (origin === undefined) {
    if (headers['sec-fetch-site'] === 'cross-site') return refuse(403, 'Requests of other web sites are not allowed.');
    return { ok: true, corsOrigin: null, sender: senderBySite(headers['sec-fetch-site']) };
  }
  if (rules.origins.has(origin)) return { ok: true, corsOrigin: origin, sender: 'other page' };
  // A page that this daemon served: its origin is the Host it was fetched from, and that Host has just passed.
  const own = !unix && host !== undefined && origin === `http://${host.toLowerCase()}`;
  if (own && headers['sec-fetch-site'] !== 'cross-site') return { ok: true, corsOrigin: null, sender: 'own page' };
  return refuse(403, 'This Origin is not allowed; list it in auth.allowed_origins.');
}

/** Without an Origin: a page's own GET says "same-origin"; "same-site" is another port of this machine, "none" an address typed by hand. */
function senderBySite(site: string | string[] | undefined): Sender {
  if (site === undefined) return 'program';
  return site === 'same-origin' ? 'own page' : 'other page';
}

/**
 * Whether a web page may have made a browser send a request that changes something. Browsers name the origin of every POST and DELETE, of
 * forms, beacons and `fetch` in any mode alike; to loopback and over TLS they also say what kind of site asks. An old or reconfigured one
 * that leaves these out names the page as `Referer`, or gives itself away as all have since the nineties: by `Mozilla/` in its name.
 */
export function mayBePage(headers: IncomingHttpHeaders): boolean {
  const told = ['origin', 'referer', 'cookie', ...Object.keys(headers).filter((name) => name.startsWith('sec-'))];
  return told.some((name) => headers[name] !== undefined) || /^\s*mozilla\//i.test(headers['user-agent'] ?? '');
}

/** Host header -> lower-cased name without port and trailing dot; `null` when it is not a well-formed Host. Brackets stay. */
export function hostName(host: string): string | null {
  const m = /^(\[[0-9a-f:.]+\]|[a-z0-9._-]+?)\.?(?::(\d{1,5}))?$/.exec(host.toLowerCase());
  if (m?.[1] === undefined) return null;
  if (m[2] !== undefined && Number(m[2]) > 65_535) return null;
  return m[1];
}

const isRange = (host: string): boolean => host.includes('/');
const withoutBrackets = (name: string): string => name.replace(/^\[|\]$/g, '');

function isAllowed(name: string, { hosts, networks }: GateRules): boolean {
  const address = withoutBrackets(name);
  return hosts.has(name) || (isIP(address) > 0 && networks.check(address, isIPv6(address) ? 'ipv6' : 'ipv4'));
}

/** An address in Host cannot be the doing of DNS: a page that has it as its own was served from there. */
function isAddress(name: string, acceptedAt: string | null): boolean {
  return acceptedAt !== null && withoutBrackets(name) === acceptedAt.replace(/^::ffff:(?=\d+\.)/, '');
}

/** `localhost`, 127.0.0.0/8 in canonical dotted form, or `[::1]`. */
function isLoopbackName(name: string): boolean {
  return name === 'localhost' || name === '[::1]' || (isIPv4(name) && name.startsWith('127.'));
}

function refuse(status: 400 | 403, message: string): Verdict {
  return { ok: false, status, message };
}

function count(rawHeaders: readonly string[], name: string): number {
  let n = 0;
  for (let i = 0; i < rawHeaders.length; i += 2) if (rawHeaders[i]?.toLowerCase() === name) n++;
  return n;
}
