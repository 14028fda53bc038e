/**
 * What the process does on signals and on errors nobody caught. Installed once per process, by daemon.ts, for a daemon that owns it.
 *
 *   SIGTERM, SIGINT   first: drain and exit 0. Second: exit at once with 128 + signal number, so that a forced stop can be told apart.
 *   SIGHUP            reload
 *   uncaught error    one fatal line, exit 70: state may be broken, and a service manager starts afresh
 */

import { constants } from 'node:os';
import { errorFields } from '../../actors/runtime/log.js';
import { EXIT } from '../exit-code.js';

export interface SignalTarget {
  stop(reason: string): Promise<void>;
  /** Gives locks and files back without waiting for anything. */
  abandon(): void;
  reload(): void;
  fatal(fields: Record<string, unknown>, message: string): void;
}

/** Installs the handlers; returns a function that removes them. */
export function installSignals(target: SignalTarget): () => void {
  let stopping = false;
  const stop = (signal: NodeJS.Signals): void => {
    if (stopping) {
      target.abandon();
      process.exit(128 + constants.signals[signal]);
    }
    stopping = true;
    void target.stop(signal);
  };
  const crash = (error: unknown): void => {
    target.fatal(errorFields(error), 'an error was not caught; the daemon ends');
    target.abandon();
    process.exit(EXIT.internal);
  };
  const reload = (): void => target.reload();
  process.on('SIGTERM', stop).on('SIGINT', stop).on('SIGHUP', reload);
  process.on('uncaughtException', crash).on('unhandledRejection', crash);
  return () => {
    process.off('SIGTERM', stop).off('SIGINT', stop).off('SIGHUP', reload);
    process.off('uncaughtException', crash).off('unhandledRejection', crash);
  };
}
