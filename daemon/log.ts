/**
 * The daemon's log: JSON lines on stderr, readable lines on a terminal. The only user of pino and pino-pretty.
 *
 * Runs on the main thread; actors send their lines here as messages. Writes are synchronous, so that the last line before an exit is
 * never lost. Nothing is logged per token, and nobody passes the text of a prompt or of an answer; headers that hold a token are
 * replaced by pino's redaction in case somebody logs a request's headers.
 */

import { type DestinationStream, pino } from 'pino';
import { prettyFactory } from 'pino-pretty';
import type { Log } from '../actors/runtime/log.js';
import type { Config } from '../config/schema.js';

export type LogLevel = Config['log']['level'];

/** A log whose level can be changed while it runs. */
export interface DaemonLog extends Log {
  /** For the last line before the process ends abnormally. */
  fatal(fields: Record<string, unknown>, message: string): void;
  setLevel(level: LogLevel): void;
}

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
  const logger = pino(
    {
      level: config.level,
      base: { pid: process.pid },
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label: string) => ({ level: label }) },
      redact: { paths: redact, censor: '[redacted]' },
    },
    destination,
  );
  return {
    debug: (fields, message) => logger.debug(fields, message),
    info: (fields, message) => logger.info(fields, message),
    warn: (fields, message) => logger.warn(fields, message),
    error: (fields, message) => logger.error(fields, message),
    fatal: (fields, message) => logger.fatal(fields, message),
    setLevel: (level) => {
      logger.level = level;
    },
  };
}
