/**
 * Why a model could not be pulled or removed, as one plain sentence and a reason that the command line turns into an exit code and the
 * RPC method into an error. Thrown by everything in this folder; other errors are bugs.
 */

export type PullReason =
  /** What was asked for cannot be read or is ambiguous. */
  | 'usage'
  /** No such repository, revision or file. */
  | 'not_found'
  /** The hub wants a token, or an agreement with the author, or refuses the token. */
  | 'refused'
  /** What the hub sent is not what it promised, twice; or a repository that nobody may write to disk, or that inferd cannot serve. */
  | 'bad_data'
  /** The hub cannot be reached, or wants us to come back later than we wait. */
  | 'network'
  | 'no_space'
  /** The cache cannot be written, or something in it stands in the way. */
  | 'cache'
  /** Somebody uses the model. */
  | 'in_use'
  | 'cancelled';

export class PullError extends Error {
  readonly reason: PullReason;
  constructor(reason: PullReason, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = 'PullError';
    this.reason = reason;
  }
}

export const cancelled = (): PullError =>
  new PullError('cancelled', 'The download was stopped; what came is kept and the next pull goes on');

/** The code of a system error such as "ENOSPC"; null of any other value. */
export function systemCode(error: unknown): string | null {
  const code = (error as { code?: unknown } | null)?.code;
  return typeof code === 'string' ? code : null;
}
