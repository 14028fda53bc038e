/** The command line in this process, with streams of its own. */
import { PassThrough } from 'node:stream';
import { runProgram } from '../../../daemon/cli/program.js';
import { verbs } from '../../../daemon/cli/verbs.js';

export interface CommandResult {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs commands with this environment. */
export function commandLine(env: NodeJS.ProcessEnv): (...args: string[]) => Promise<CommandResult> {
  return async (...args) => {
    const [stdin, stdout, stderr] = [new PassThrough(), new PassThrough(), new PassThrough()];
    stdin.end();
    const code = await runProgram({ version: '0.0.0', verbs, io: { stdin, stdout, stderr, env } }, args);
    const text = (stream: PassThrough): string => String(stream.read() ?? '');
    return { code, stdout: text(stdout), stderr: text(stderr) };
  };
}
