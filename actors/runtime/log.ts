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
}

/** A log that hands its lines, each with `fields`, to `post`: the main thread drops those below its level, which may change. */
export function threadLog(post: (line: LogLine) => void, fields: Record<string, unknown>): Log {
  const at = (level: LogLevel) => (more: Record<string, unknown>, message: string) =>
    post({ k: 'log', level, fields: { ...fields, ...more }, message });
  return { debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') };
}

/** Swallows everything; for tests and tools. */
export const silentLog: Log = { debug() {}, info() {}, warn() {}, error() {} };

/** Message and stack of anything thrown, as log fields. A failure of the error table was foreseen: its sentence says it all. */
export function errorFields(error: unknown): Record<string, unknown> {
  if (error instanceof InferdError) return { error: error.message, kind: error.failure.kind };
  return error instanceof Error ? { error: error.message, stack: error.stack } : { error: String(error) };
}
