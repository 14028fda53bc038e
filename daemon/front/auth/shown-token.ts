/**
 * The token that a request shows: `Authorization: Bearer ...`, `x-api-key` as Anthropic's clients send it, or, for browsers, which cannot
 * set a header on a WebSocket, the subprotocol `bearer.<token>`. Never in a URL: those end up in logs and histories. Pure.
 */
import type { IncomingHttpHeaders } from 'node:http';

const BEARER_PROTOCOL = 'bearer.';

/** Null when it shows none. The first of the three that is there counts. */
export function shownToken(headers: IncomingHttpHeaders): string | null {
  const bearer = /^bearer +(\S+) *$/i.exec(headers.authorization ?? '')?.[1];
  if (bearer !== undefined) return bearer;
  const key = headers['x-api-key'];
  if (typeof key === 'string' && /^\S+$/.test(key)) return key;
  const protocols = headers['sec-websocket-protocol']?.split(',').map((p) => p.trim()) ?? [];
  return protocols.find((p) => p.startsWith(BEARER_PROTOCOL))?.slice(BEARER_PROTOCOL.length) ?? null;
}
