/**
 * Who may come in: the one interface between the front and the credentials. `auth.mode` says which of them count; any that suffices is
 * enough. Made once, by daemon.ts; main thread.
 */
import type { Log } from '../../../actors/runtime/log.js';
import { authModes, type ShownMode } from '../../../config/auth-modes.js';
import { isLoopback } from '../../../config/check.js';
import type { Config } from '../../../config/schema.js';
import type { Scopes } from '../../../rpc/scope.js';
import { EXIT } from '../../exit-code.js';
import { StartError } from '../../start-error.js';
import type { Sender } from '../gate.js';
import type { HttpError } from '../http-reply.js';
import type { Admission, AuthRequest } from './admission.js';
import { everybody, unnamed } from './credential.js';
import { Keys } from './keys.js';
import { loadOrCreateToken } from './own-token.js';
import { RefusalPace } from './refusal-pace.js';
import { shownToken } from './shown-token.js';
import { ACCEPT_SIGNATURE, isSigned, Signatures } from './signature/signatures.js';
import { Tokens } from './tokens.js';

export interface Auth {
  /** The daemon's own token, for callers in this process; null where no tokens are asked for. */
  readonly token: string | null;
  /** What clients may show, for the documents; none: nobody is asked. */
  readonly modes: readonly ShownMode[];
  /** Judges a request that passed the gate. Never rejects. */
  authorize(request: AuthRequest, sender: Sender): Admission | Promise<Admission>;
  close(): void;
}

export interface AuthFiles {
  /** The daemon's own token. */
  readonly tokenFile: string;
  /** Records of the clients' tokens. */
  readonly tokensFolder: string;
  /** Keys of clients that sign. */
  readonly keysFolder: string;
  /** Paths of auth.trusted_keys. */
  readonly trustedKeys: readonly string[];
}

/**
 * What pages of listed origins may do where nobody shows who they are. Our own page may do all: no other page can send its Origin, and the
 * gate has checked the Host that makes it ours.
 */
const pageScopes: Scopes = new Set(['infer', 'metrics']);

/**
 * Prepares `config.auth.mode`. In mode token, reads the daemon's own token, or makes it (mode 0600) when it is not there.
 * @throws StartError when mode and bind address do not go together, or the token file cannot be trusted.
 */
export function createAuth(config: Config, files: AuthFiles, log: Log, pace = new RefusalPace()): Auth {
  const modes = authModes(config.auth.mode);
  if (modes.length === 0) {
    if (!isLoopback(config.server.host)) {
      throw new StartError(
        `server.host = "${config.server.host}" can be reached by others and auth.mode is "none"; set auth.mode = "token".`,
        EXIT.config,
      );
    }
    return openToAll;
  }
  const own = loadOrCreateToken(files.tokenFile);
  const [byToken, bySignature] = [modes.includes('token'), modes.includes('ed25519')];
  // The daemon's own token counts in every mode: by it the command line of the same user reaches the daemon.
  const tokens = new Tokens({ own, folder: byToken ? files.tokensFolder : null, log });
  const { keysFolder: folder, trustedKeys } = files;
  const keys = bySignature ? new Keys({ folder, files: trustedKeys, maxNonces: config.auth.max_nonces, log }) : null;
  const signatures = keys === null ? null : new Signatures({ keys });
  const refusal = nothingShown(byToken, bySignature);
  const paced = (request: AuthRequest, admission: Admission): Admission | Promise<Admission> => {
    const delayMs = 'peer' in admission ? 0 : pace.delayMs();
    return delayMs === 0 ? admission : pace.hold(admission, delayMs, request.socket);
  };
  return {
    token: own,
    modes,
    authorize(request) {
      const shown = shownToken(request.headers);
      const peer = shown === null ? null : tokens.find(shown);
      if (peer !== null) return { peer };
      if (signatures === null || !isSigned(request)) return paced(request, { refusal });
      return signatures.admit(request).then((admission) => paced(request, admission));
    },
    close() {
      tokens.close();
      keys?.close();
    },
  };
}

function nothingShown(token: boolean, signature: boolean): HttpError {
  const needed = token ? 'A valid token is required; send it in the header "authorization: Bearer TOKEN"' : 'The request must be signed';
  const other = token && signature ? ', or sign the request' : '';
  const signed = signature ? { 'accept-signature': ACCEPT_SIGNATURE } : {};
  const scheme = token ? 'Bearer' : 'Signature';
  return { status: 401, message: `${needed}${other}.`, headers: { 'www-authenticate': `${scheme} realm="inferd"`, ...signed } };
}

const ourPage: Admission = { peer: everybody };
const otherPage: Admission = { peer: unnamed(pageScopes) };

/** Mode none: nobody is asked. */
export const openToAll: Auth = {
  token: null,
  modes: [],
  authorize: (_, sender) => (sender === 'other page' ? otherPage : ourPage),
  close: () => {},
};
