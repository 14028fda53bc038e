/** `inferd stop`: asks the running daemon to drain, and waits, within a bound, until it is gone. */
import { setTimeout as sleep } from 'node:timers/promises';
import { type DaemonFile, readDaemonFile } from '../../config/paths.js';
import { explain } from './failure.js';
import { connectRunning, findStopping, requireRunning } from './reach.js';
import { CliError, EXIT, type ExitCode, type Io, jsonOption, printJson, type Verb, type VerbInput } from './verb.js';

/** How long to wait when --wait is not given: the default drain time and what closing takes on top. */
const defaultWaitS = 60;
const pollMs = 50;

export const stop: Verb = {
  name: 'stop',
  summary: 'drain and stop the running daemon',
  details: 'Running requests finish, within server.drain_timeout_s of the daemon; new ones are refused.',
  options: [
    { flags: '--wait <seconds>', doc: `how long to wait for the end; ${defaultWaitS} when not given`, kind: 'float', range: [0, 3700] },
    jsonOption,
  ],
  examples: ['inferd stop'],
  run,
};

async function run(input: VerbInput): Promise<ExitCode> {
  const { io } = input;
  const file = await drain(io);
  const json = input.flag('json');
  if (!json) io.stdout.write(`The daemon at ${file.address} (pid ${file.pid}) takes no new requests and finishes the running ones.\n`);
  const waitS = input.number('wait') ?? defaultWaitS;
  if (!(await gone(io, file.pid, waitS * 1000)))
    throw new CliError(
      `The daemon (pid ${file.pid}) is still finishing requests after ${waitS} s; wait longer with --wait, or end it at once with: kill -TERM ${file.pid}`,
      EXIT.unavailable,
    );
  if (json) printJson(io, { stopped: true, pid: file.pid });
  else io.stdout.write('It has stopped.\n');
  return EXIT.ok;
}

/** Asks the daemon to drain; one that does so already need not be asked. */
async function drain(io: Io): Promise<DaemonFile> {
  const running = await connectRunning(io);
  const stopping = running === null ? await findStopping(io) : null;
  if (stopping !== null) return stopping;
  const { client, file } = running ?? (await requireRunning(io));
  try {
    await client.call('daemon.drain', {});
  } catch (error) {
    throw explain(error);
  } finally {
    await client.close();
  }
  return file;
}

/** True once the process has ended; or, for a daemon in another process namespace, once its file is gone. */
async function gone(io: Io, pid: number, waitMs: number): Promise<boolean> {
  const until = Date.now() + waitMs;
  for (;;) {
    if (!alive(pid) || readDaemonFile(io.env)?.pid !== pid) return true;
    if (Date.now() >= until) return false;
    await sleep(pollMs);
  }
}

function alive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}
