/**
 * The log as every part sees it. The main thread implements it over its logger; an actor's log posts to the main thread through its
 * control port. Fields are plain data; prompt text is never logged, and nothing is logged per token.
 */
import type { LogLevel, LogLine } from '../messages/control.js';
import { InferdError } from '../messages/errors.js';

export interface Log {
  debug(fields: Record<string, unknown>, message: string): void;
  info(fields: Record<string, unknown>, message: string): void;
  warn(fields: Record<string, unknown>, message: string): void;
  error(fields: Record<string, unknown>, message: string): void;
  /** A log whose lines also carry `fields`. */
  child(fields: Record<string, unknown>): Log;
}

const LEVELS: readonly LogLevel[] = ['debug', 'info', 'warn', 'error'];

/** A log that hands its lines to `post`; lines below `least` are dropped at the source. */
export function threadLog(post: (line: LogLine) => void, least: LogLevel, fields: Record<string, unknown> = {}): Log {
  const from = LEVELS.indexOf(least);
  const at = (level: LogLevel) => (more: Record<string, unknown>, message: string) => {
    if (LEVELS.indexOf(level) >= from) post({ k: 'log', level, fields: { ...fields, ...more }, message });
  };
  return {
    debug: at('debug'),
    info: at('info'),
    warn: at('warn'),
    error: at('error'),
    child: (more) => threadLog(post, least, { ...fields, ...more }),
  };
}

/** Swallows everything; for tests and tools. */
export const silentLog: Log = { debug() {}, info() {}, warn() {}, error() {}, child: () => silentLog };

/** Message and stack of anything thrown, as log fields. A failure of the error table was foreseen: its sentence says it all. */
export function errorFields(error: unknown): Record<string, unknown> {
  if (error instanceof InferdError) return { error: error.message, kind: error.failure.kind };
  return error instanceof Error ? { error: error.message, stack: error.stack } : { error: String(error) };
}
