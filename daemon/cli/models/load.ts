/** `inferd load` and `inferd unload`: which models the running daemon holds in memory. */
import type { InferdClient } from '../../../rpc/client/client.js';
import { explain } from '../failure.js';
import { requireRunning } from '../reach.js';
import { formatBytes } from '../table.js';
import { EXIT, type ExitCode, jsonOption, printJson, type Verb, type VerbInput } from '../verb.js';

type Described = Awaited<ReturnType<typeof loaded>>;

const loaded = (client: InferdClient, model: string) => client.call('models.load', { model });
const unloaded = (client: InferdClient, model: string) => client.call('models.unload', { model });

const args = [{ name: '<model>', doc: 'name, as "inferd ps" and "inferd list" show it' }];

export const load: Verb = {
  name: 'load',
  summary: 'load a model into the running daemon',
  details: 'Models that nobody uses make room for it; it is refused with a reason where it does not fit.',
  args,
  options: [jsonOption],
  examples: ['inferd load Qwen/Qwen2.5-0.5B-Instruct'],
  run: (input) =>
    asked(input, loaded, ({ id, memory_bytes: bytes }) => `${id} is loaded${bytes === null ? '' : ` (${formatBytes(bytes)})`}.\n`),
};

export const unload: Verb = {
  name: 'unload',
  summary: 'unload a model of the running daemon',
  details: 'Requests that use it end first.',
  args,
  options: [jsonOption],
  examples: ['inferd unload Qwen/Qwen2.5-0.5B-Instruct'],
  run: (input) => asked(input, unloaded, ({ id }) => `${id} is unloaded.\n`),
};

async function asked(
  input: VerbInput,
  call: (client: InferdClient, model: string) => Promise<Described>,
  sentence: (model: Described) => string,
): Promise<ExitCode> {
  const { io } = input;
  const { client } = await requireRunning(io);
  try {
    const model = await call(client, input.args[0] ?? '');
    if (input.flag('json')) printJson(io, model);
    else io.stdout.write(sentence(model));
    return EXIT.ok;
  } catch (error) {
    throw explain(error);
  } finally {
    await client.close();
  }
}
