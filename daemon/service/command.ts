/** Runs a program of the system and hears what it says. Never throws. */
import { execFile } from 'node:child_process';

export interface CommandResult {
  /** Null when the program is not there, or was ended. */
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export type CommandRunner = (program: string, args: readonly string[], env: NodeJS.ProcessEnv) => Promise<CommandResult>;

/** Longer than a service may take to start. */
const LIMIT_MS = 30 * 60_000;
const MAX_OUTPUT_BYTES = 1 << 20;

export const runCommand: CommandRunner = (program, args, env) =>
  new Promise((resolve) => {
    // The C locale: its words are looked at.
    const options = { env: { ...env, LC_ALL: 'C' }, timeout: LIMIT_MS, maxBuffer: MAX_OUTPUT_BYTES };
    execFile(program, [...args], options, (error, stdout, stderr) => {
      const code = error === null ? 0 : error.code;
      resolve({ code: typeof code === 'number' ? code : null, stdout, stderr: stderr.trim() || (error?.message ?? '') });
    });
  });
