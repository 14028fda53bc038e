/**
 * What a verb of the command line is: plain data that program.ts turns into a parser and help, and one function. Verbs therefore know
 * nothing of the parser, and tests can call them with streams of their own.
 *
 * A verb returns its exit code or throws; the sentence of what it throws goes to stderr. Runs on the main thread.
 */
import type { Readable, Writable } from 'node:stream';
import { EXIT, type ExitCode } from '../exit-code.js';

export { EXIT, type ExitCode };

/** A failure for the user: one plain sentence that says what to do. */
export class CliError extends Error {
  readonly exitCode: ExitCode;
  constructor(message: string, exitCode: ExitCode, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = 'CliError';
    this.exitCode = exitCode;
  }
}

/** The streams and the environment of a command; `process` in real life. */
export interface Io {
  readonly stdin: Readable & { readonly isTTY?: boolean };
  readonly stdout: Writable & { readonly isTTY?: boolean; readonly columns?: number };
  readonly stderr: Writable & { readonly isTTY?: boolean; readonly columns?: number };
  readonly env: NodeJS.ProcessEnv;
}

export interface VerbOption {
  /** For example "--max-tokens <n>"; without <...> it is a switch. */
  readonly flags: string;
  readonly doc: string;
  /** `list` may be repeated. A switch has no kind. */
  readonly kind?: 'text' | 'list' | 'int' | 'float';
  /** For int and float. */
  readonly range?: readonly [number, number];
}

/** What the user typed, by option name ("--max-tokens" is "max-tokens"). Checked against the option's kind. */
export interface VerbInput {
  readonly args: readonly string[];
  readonly io: Io;
  flag(name: string): boolean;
  text(name: string): string | undefined;
  number(name: string): number | undefined;
  list(name: string): readonly string[];
}

export interface Verb {
  readonly name: string;
  /** One line for the list of verbs. */
  readonly summary: string;
  /** More for `--help`, sentences. */
  readonly details?: string;
  /** For example [{ name: "<prompt...>", doc: "..." }]. */
  readonly args?: readonly { readonly name: string; readonly doc: string }[];
  readonly options?: readonly VerbOption[];
  /** Command lines for `--help`. */
  readonly examples: readonly string[];
  readonly verbs?: readonly Verb[];
  run?(input: VerbInput): Promise<ExitCode>;
}

export const jsonOption: VerbOption = { flags: '--json', doc: 'print JSON for machines' };

export const configOptions: readonly VerbOption[] = [
  { flags: '--config <file>', doc: 'TOML file to use', kind: 'text' },
  { flags: '--set <section.key=value>', doc: 'set one option; may be repeated', kind: 'list' },
];

/** Prints a value as JSON: one line into a pipe, indented on a terminal. */
export function printJson(io: Io, value: unknown): void {
  io.stdout.write(`${JSON.stringify(value, null, io.stdout.isTTY === true ? 2 : 0)}\n`);
}
