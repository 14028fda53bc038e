/** The command line in this process, with streams of its own. */
import { PassThrough } from 'node:stream';
import { runProgram } from '../../../daemon/cli/program.js';
import { verbsFor } from '../../../daemon/cli/verbs.js';

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
    const program = { version: '0.0.0', verbs: await verbsFor(args), io: { stdin, stdout, stderr, env } };
    const code = await runProgram(program, args);
    return { code, stdout: written(stdout), stderr: written(stderr) };
  };
}

/** All that was written to a stream so far. Newer versions of Node give one piece a `read()`. */
export function written(stream: PassThrough): string {
  let text = '';
  for (let piece: unknown = stream.read(); piece !== null; piece = stream.read()) text += String(piece);
  return text;
}
