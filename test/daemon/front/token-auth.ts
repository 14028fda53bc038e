/** Who may come in, for tests of the front: everybody, or whoever shows one token. */
import type { Auth } from '../../../daemon/front/auth.js';
import { allScopes, type Scopes } from '../../../rpc/scope.js';

export const openAuth: Auth = { token: null, authorize: () => allScopes };

/** Lets in who sends `token` as a bearer, with these scopes. */
export function tokenAuth(token: string, scopes: Scopes = allScopes): Auth {
  return { token, authorize: ({ authorization }) => (authorization === `Bearer ${token}` ? scopes : null) };
}
