/**
 * Says in one sentence, with an exit code, why a call to a daemon failed. Errors of the client carry the JSON-RPC code of the answer;
 * a connection that broke has errors of its own. Pure.
 */
import { errorTable } from '../../actors/messages/errors.js';
import { ConnectError, ConnectionClosedError } from '../../rpc/client/errors.js';
import { CliError, EXIT, type ExitCode } from './verb.js';

/** The JSON-RPC code of an error of our client, or null. */
export function rpcCode(error: unknown): number | null {
  const code = (error as { code?: unknown } | null)?.code;
  return typeof code === 'number' ? code : null;
}

/** Milliseconds after which a daemon that is still loading wants to be asked again; null for any other error. */
export function retryAfterMs(error: unknown): number | null {
  if (rpcCode(error) !== errorTable.model_loading.code) return null;
  const after = (error as { data?: { retry_after_ms?: unknown } }).data?.retry_after_ms;
  return typeof after === 'number' && after > 0 ? Math.min(after, 5000) : 500;
}

const changeRequest = 'change the request';

/** Exit code and advice by kind of error; what is not here is an internal error. */
const outcomes: ReadonlyMap<number, { readonly exit: ExitCode; readonly advice: string }> = new Map([
  [errorTable.invalid_params.code, { exit: EXIT.usage, advice: changeRequest }],
  [
    errorTable.unauthorized.code,
    { exit: EXIT.unavailable, advice: 'the token file of the running daemon does not fit; restart the daemon' },
  ],
  [
    errorTable.model_not_found.code,
    { exit: EXIT.missing, advice: '"inferd list" shows the models on disk, and "inferd pull" fetches one' },
  ],
  [errorTable.model_loading.code, { exit: EXIT.unavailable, advice: 'try again in a moment' }],
  [errorTable.overloaded.code, { exit: EXIT.unavailable, advice: 'try again in a moment' }],
  [
    errorTable.context_length_exceeded.code,
    { exit: EXIT.badData, advice: 'shorten the prompt, or ask for fewer tokens with --max-tokens' },
  ],
  [errorTable.out_of_memory.code, { exit: EXIT.unavailable, advice: 'try again when other requests have finished' }],
  [errorTable.slow_consumer.code, { exit: EXIT.unavailable, advice: 'read the output faster' }],
  [errorTable.shutting_down.code, { exit: EXIT.unavailable, advice: 'start the daemon again with "inferd serve"' }],
  [errorTable.rate_limited.code, { exit: EXIT.unavailable, advice: 'try again in a moment' }],
  [errorTable.unsupported.code, { exit: EXIT.usage, advice: changeRequest }],
  [errorTable.engine_failure.code, { exit: EXIT.unavailable, advice: "try again; the daemon's log says what happened" }],
  [errorTable.method_not_found.code, { exit: EXIT.unavailable, advice: 'the running daemon is of another version; restart it' }],
  [errorTable.cancelled.code, { exit: EXIT.interrupted, advice: 'try again' }],
]);

/** `error` as a failure for the user. Errors that are one already are returned as they are. */
export function explain(error: unknown): Error {
  if (!(error instanceof Error)) return new CliError(String(error), EXIT.internal);
  const code = rpcCode(error);
  if (error instanceof ConnectError) return new CliError(sentence(error.message), EXIT.unavailable, error);
  if (error instanceof ConnectionClosedError)
    return new CliError(`${sentence(error.message)}; see the daemon's log, or start it again with "inferd serve"`, EXIT.unavailable, error);
  if (code === null) {
    const system = (error as NodeJS.ErrnoException).code;
    if (system === undefined || !/^E[A-Z]+$/.test(system)) return error;
    return new CliError(
      `The connection to the daemon broke (${system}); see its log, or start it again with "inferd serve"`,
      EXIT.unavailable,
      error,
    );
  }
  const outcome = outcomes.get(code);
  if (outcome === undefined) return new CliError(`The daemon answered: ${sentence(error.message)}`, EXIT.internal, error);
  // Some messages bring their own advice after a semicolon.
  const advice = outcome.advice === changeRequest && error.message.includes(';') ? '' : `; ${outcome.advice}`;
  return new CliError(`${sentence(error.message)}${advice}${details(error)}`, outcome.exit, error);
}

const sentence = (text: string): string => text.trim().replace(/\.$/, '').replace(/\s+/g, ' ');

/** The paths that the daemon named for parameters that are not valid. */
function details(error: Error): string {
  const { data } = error as { data?: unknown };
  if (!Array.isArray(data)) return '';
  const named = data.slice(0, 3).flatMap((entry: unknown) => {
    const { path, message } = (entry ?? {}) as { path?: unknown; message?: unknown };
    return typeof message === 'string' ? [`${typeof path === 'string' && path !== '' ? `${path}: ` : ''}${sentence(message)}`] : [];
  });
  return named.length === 0 ? '' : ` (${named.join('; ')})`;
}
