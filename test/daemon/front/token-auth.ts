/** Who may come in, for tests of the front: everybody, or whoever shows one token. */
import { type Auth, openToAll } from '../../../daemon/front/auth/auth.js';
import { unnamed } from '../../../daemon/front/auth/credential.js';
import { allScopes, type Scopes } from '../../../rpc/scope.js';

export { openToAll };

/** Lets in who sends `token` as a bearer, with these scopes. */
export function tokenAuth(token: string, scopes: Scopes = allScopes): Auth {
  const refusal = { status: 401, message: 'No.', headers: { 'www-authenticate': 'Bearer' } } as const;
  return {
    token,
    modes: ['token'],
    authorize: ({ headers }) => (headers.authorization === `Bearer ${token}` ? { peer: unnamed(scopes) } : { refusal }),
    close: () => {},
  };
}
