/**
 * HTTP message signatures (RFC 9421): the text that is signed. Used by the daemon, which checks signatures, and by the client, which makes
 * them; strings only, so that it runs in browsers too.
 */

/** The parts of a request that a signature can cover. */
export interface SignedParts {
  readonly method: string;
  /** As the Host header has it. */
  readonly authority: string;
  /** "/" where the target has none. Percent signs stay as they were sent. */
  readonly path: string;
  /** With its question mark, which stands alone where there is no query. */
  readonly query: string;
  /** A header by its lower-cased name; null when there is none. */
  header(name: string): string | null;
}

/** In the order in which they are written. */
export type SignatureParams = readonly (readonly [name: string, value: string | number])[];

/** What every signature of a request to inferd covers; one with a body covers `content-digest` as well. */
export const coveredAlways = ['@method', '@authority', '@path', '@query'] as const;
export const DIGEST = 'content-digest';
export const ALGORITHM = 'ed25519';

const quoted = (text: string): string => `"${text.replace(/[\\"]/g, '\\$&')}"`;

/** The value of `@signature-params`, and what stands behind the label in Signature-Input. */
export function paramsText(components: readonly string[], params: SignatureParams): string {
  const values = params.map(([name, value]) => `;${name}=${typeof value === 'number' ? value : quoted(value)}`);
  return `(${components.map(quoted).join(' ')})${values.join('')}`;
}

/** Null when the request has none of that name. */
function componentValue(component: string, parts: SignedParts): string | null {
  switch (component) {
    case '@method':
      return parts.method;
    case '@authority':
      return normalAuthority(parts.authority);
    case '@path':
      return parts.path;
    case '@query':
      return parts.query;
    default:
      return component.startsWith('@') ? null : (parts.header(component)?.trim() ?? null);
  }
}

/** Lower case, without the port that http has anyway. */
const normalAuthority = (authority: string): string => authority.toLowerCase().replace(/:80$/, '');

/** The text that is signed; null when a component is not there. `written`: what paramsText gives for the same. */
export function signatureBase(components: readonly string[], written: string, parts: SignedParts): string | null {
  const lines: string[] = [];
  for (const component of components) {
    const value = componentValue(component, parts);
    if (value === null || /[\r\n]/.test(value)) return null;
    lines.push(`${quoted(component)}: ${value}`);
  }
  return [...lines, `"@signature-params": ${written}`].join('\n');
}
