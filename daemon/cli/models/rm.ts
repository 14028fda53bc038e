/** `inferd rm`: takes a model out of the Hugging Face cache, after asking. A model that the running daemon uses stays. */
import { createInterface } from 'node:readline/promises';
import { errorTable } from '../../../actors/messages/errors.js';
import { hubCachePath } from '../../../config/paths.js';
import { mustBeCached, removeModel } from '../../hub/cache/remove.js';
import { PullError } from '../../hub/error.js';
import { parseSpec } from '../../hub/repository/spec.js';
import { effectiveConfig } from '../effective.js';
import { explain, rpcCode } from '../failure.js';
import { connectRunning } from '../reach.js';
import { formatBytes } from '../table.js';
import { CliError, configOptions, EXIT, type ExitCode, type Io, jsonOption, printJson, type Verb, type VerbInput } from '../verb.js';
import { untilStopped } from './pull.js';

export const rm: Verb = {
  name: 'rm',
  summary: 'delete a model from the Hugging Face cache',
  details: 'Files that another revision of it shares stay; without a revision all of it goes, unfinished downloads too.',
  args: [{ name: '<model>', doc: 'HF_ID[@REVISION], as "inferd list" shows it' }],
  options: [{ flags: '--yes', doc: 'do not ask' }, ...configOptions, jsonOption],
  examples: ['inferd rm Qwen/Qwen2.5-0.5B-Instruct', 'inferd rm --yes Qwen/Qwen2.5-0.5B-Instruct@main'],
  run,
};

async function run(input: VerbInput): Promise<ExitCode> {
  const { io } = input;
  const named = input.args[0] ?? '';
  const { config } = effectiveConfig(input);
  const cache = hubCachePath(config.inference.cache_dir, io.env);
  const bytes = await untilStopped(async (signal) => {
    const { id, revision, quant } = parseSpec(named);
    if (quant !== null) throw new PullError('usage', `"inferd rm" takes no quantization; name ${id}, or ${id}@REVISION`);
    const model = { cache, id, revision: named.includes('@') ? revision : null };
    if (!input.flag('yes')) {
      if (!(await knownToDaemon(io, id))) await mustBeCached(model);
      await ask(io, `Delete ${named} from ${cache}?`, signal);
    }
    const byDaemon = await removeByDaemon(io, named);
    if (byDaemon !== null) return byDaemon;
    const onWait = (pid: number): void => void io.stderr.write(`Process ${pid} works on the same model; waiting for its end\n`);
    return (await removeModel({ ...model, signal, onWait })).bytes;
  });
  if (input.flag('json')) printJson(io, { deleted: named, bytes });
  else io.stdout.write(`${named} is deleted; ${formatBytes(bytes)} are free again.\n`);
  return EXIT.ok;
}

/** Whether a daemon runs that has the model: perhaps in another cache than this command's. */
async function knownToDaemon(io: Io, model: string): Promise<boolean> {
  const running = await connectRunning(io);
  if (running === null) return false;
  try {
    await running.client.call('models.get', { model });
    return true;
  } catch {
    return false; // What is wrong with the daemon shows when it is asked to delete.
  } finally {
    await running.client.close();
  }
}

/**
 * Lets the running daemon delete it, which alone knows what it has open. The bytes that became free; null: there is none, or it knows of no
 * such model, because its cache is another.
 */
async function removeByDaemon(io: Io, model: string): Promise<number | null> {
  const running = await connectRunning(io);
  if (running === null) return null;
  try {
    const { deleted, bytes } = await running.client.call('models.delete', { model });
    return deleted ? bytes : null;
  } catch (error) {
    if (rpcCode(error) === errorTable.request_failed.code) throw new PullError('in_use', (error as Error).message);
    throw explain(error);
  } finally {
    await running.client.close();
  }
}

/** Returns when the user agrees. @throws CliError or PullError when not, or when there is nobody to ask. */
async function ask(io: Io, question: string, signal: AbortSignal): Promise<void> {
  if (io.stdin.isTTY !== true) throw new CliError('Nobody can be asked here; say --yes to delete without a question', EXIT.usage);
  const lines = createInterface({ input: io.stdin, output: io.stderr });
  const kept = new PullError('cancelled', 'Nothing was deleted');
  try {
    lines.on('SIGINT', () => process.emit('SIGINT'));
    const answer = await lines.question(`${question} [y/N] `, { signal }).catch(() => '');
    if (!/^y(es)?$/i.test(answer.trim())) throw kept;
  } finally {
    lines.close();
  }
}
