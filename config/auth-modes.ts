/** What `auth.mode` asks clients for: one kind of credential, any of several, or none. */
import type { Config } from './schema.js';

export type AuthMode = Config['auth']['mode'];
/** A kind of credential that a client can show. */
export type ShownMode = 'token' | 'ed25519';

/** Any of these suffices; an empty list: nobody is asked. */
export function authModes(mode: AuthMode): readonly ShownMode[] {
  const listed = typeof mode === 'string' ? [mode] : mode;
  return listed.filter((one) => one !== 'none');
}

/** True where clients may show a token. */
export const asksForToken = (mode: AuthMode): boolean => authModes(mode).includes('token');
