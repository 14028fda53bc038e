/**
 * Why the daemon could not start, with the exit code for the shell. Thrown by the parts of daemon/ before the daemon is ready; the command
 * line prints the sentence and exits with the code.
 */
import type { ExitCode } from './exit-code.js';

export class StartError extends Error {
  readonly exitCode: ExitCode;
  constructor(message: string, exitCode: ExitCode, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = 'StartError';
    this.exitCode = exitCode;
  }
}
