/**
 * The daemon's log: JSON lines on stderr, readable lines on a terminal. The only user of pino and pino-pretty.
 *
 * Runs on the main thread; actors send their lines here as messages. Writes are synchronous, so that the last line before an exit is
 * never lost. Nothing is logged per token, and nobody passes the text of a prompt or of an answer; headers that hold a token are
 * replaced by pino's redaction in case somebody logs a request's headers.
 */

import { type DestinationStream, type Logger, pino } from 'pino';
import { prettyFactory } from 'pino-pretty';
import type { Log } from '../actors/runtime/log.js';
import type { Config } from '../config/schema.js';

export type LogLevel = Config['log']['level'];

/** A log whose level can be changed while it runs; the change holds for all children, also those made before. */
export interface DaemonLog extends Log {
  child(fields: Record<string, unknown>): DaemonLog;
  /** For the last line before the process ends abnormally. */
  fatal(fields: Record<string, unknown>, message: string): void;
  setLevel(level: LogLevel): void;
}

const severity: Readonly<Record<LogLevel, number>> = { trace: 10, debug: 20, info: 30, warn: 40, error: 50, fatal: 60, silent: 100 };

const secretHeaders = ['authorization', '["proxy-authorization"]', '["sec-websocket-protocol"]', 'cookie', 'token'];
const redact = secretHeaders.flatMap((name) => [name, `headers${name.startsWith('[') ? name : `.${name}`}`]);

/** Makes the log of `config.log`. `stream` replaces stderr (tests, and callers that keep stderr for themselves); it is not closed here. */
export function createLog(config: Config['log'], stream?: DestinationStream): DaemonLog {
  const readable = config.pretty === 'always' || (config.pretty === 'auto' && stream === undefined && process.stderr.isTTY === true);
  const raw = stream ?? pino.destination({ fd: 2, sync: true });
  // The formatting function, not the stream of pino-pretty: a stream would write later, and lose the last lines at an exit.
  const colorize = stream === undefined && process.stderr.isTTY === true && !process.env['NO_COLOR'];
  const format = prettyFactory({ translateTime: 'HH:MM:ss.l', ignore: 'pid,hostname', colorize });
  const destination: DestinationStream = readable ? { write: (line) => raw.write(String(format(line))) } : raw;
  const options = {
    level: 'trace',
    base: { pid: process.pid },
    timestamp: pino.stdTimeFunctions.isoTime,
    formatters: { level: (label: string) => ({ level: label }) },
    redact: { paths: redact, censor: '[redacted]' },
  };
  return new LevelledLog(pino(options, destination), { least: severity[config.level] });
}

/** The level is kept outside pino because a pino child copies its parent's level when it is made. */
class LevelledLog implements DaemonLog {
  readonly #pino: Logger;
  readonly #state: { least: number };

  constructor(logger: Logger, state: { least: number }) {
    this.#pino = logger;
    this.#state = state;
  }

  debug(fields: Record<string, unknown>, message: string): void {
    if (this.#state.least <= severity.debug) this.#pino.debug(fields, message);
  }
  info(fields: Record<string, unknown>, message: string): void {
    if (this.#state.least <= severity.info) this.#pino.info(fields, message);
  }
  warn(fields: Record<string, unknown>, message: string): void {
    if (this.#state.least <= severity.warn) this.#pino.warn(fields, message);
  }
  error(fields: Record<string, unknown>, message: string): void {
    if (this.#state.least <= severity.error) this.#pino.error(fields, message);
  }
  fatal(fields: Record<string, unknown>, message: string): void {
    if (this.#state.least <= severity.fatal) this.#pino.fatal(fields, message);
  }
  child(fields: Record<string, unknown>): DaemonLog {
    return new LevelledLog(this.#pino.child(fields), this.#state);
  }
  setLevel(level: LogLevel): void {
    this.#state.least = severity[level];
  }
}
