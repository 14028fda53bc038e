/**
 * The exit codes of the process, those of sysexits.h and 130 for a Ctrl-C, and which of them a start that failed ends with. The only such
 * list; used by the daemon and the command line.
 */
import type { ErrorKind } from '../actors/messages/errors.js';

export const EXIT = {
  ok: 0,
  usage: 64,
  /** A file holds what it must not: a damaged model, an evaluation set that is no JSON. */
  badData: 65,
  /** A file or a model is not there, or cannot be read. */
  missing: 66,
  /** Another daemon, or another program, holds what we need; or there is no daemon. */
  unavailable: 69,
  /** A bug, or an engine that could not be kept alive. */
  internal: 70,
  /** The device is spoiled for this process (a sticky GPU error); a fresh process may find it well. */
  device: 71,
  /** A file or folder has the wrong owner, mode or kind. */
  noPermission: 77,
  config: 78,
  interrupted: 130,
} as const;
export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

/** Other files of the model, or another configuration, would have prevented these. */
const ofStart: { readonly [K in ErrorKind]?: ExitCode } = {
  bad_model: EXIT.badData,
  missing_file: EXIT.missing,
  unsupported: EXIT.config,
  invalid_params: EXIT.config,
  out_of_memory: EXIT.config,
  request_failed: EXIT.config,
};

/** Exit code of a start that failed with an error of this kind. */
export const startExit = (kind: ErrorKind): ExitCode => ofStart[kind] ?? EXIT.internal;
