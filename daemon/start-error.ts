/**
 * Why the daemon could not start, with the exit code for the shell (codes of sysexits.h). Thrown by the parts of daemon/ before the
 * daemon is ready; the command line prints the sentence and exits with the code.
 */

export const EXIT = {
  ok: 0,
  /** Another daemon, or another program, holds what we need. */
  unavailable: 69,
  /** A bug, or an engine that could not be kept alive. */
  software: 70,
  /** The device is spoiled for this process (a sticky GPU error); a fresh process may find it well. */
  device: 71,
  /** A file or folder has the wrong owner, mode or kind. */
  noPermission: 77,
  config: 78,
} as const;

export class StartError extends Error {
  readonly exitCode: number;
  constructor(message: string, exitCode: number, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = 'StartError';
    this.exitCode = exitCode;
  }
}
