/** `inferd adapter load|unload|list`: the adapters (LoRA) that the running daemon serves beside its models. */
import type { InferdClient } from '../../../rpc/client/client.js';
import { explain } from '../failure.js';
import { requireRunning } from '../reach.js';
import { table } from '../table.js';
import { EXIT, type ExitCode, jsonOption, printJson, type Verb, type VerbInput } from '../verb.js';

const nameArg = { name: '<name>', doc: 'by which requests ask for it, as their model' };

const load: Verb = {
  name: 'load',
  summary: 'load an adapter into the running daemon',
  details: "A folder in PEFT's layout, inside of one of lora.folders.",
  args: [nameArg, { name: '<path>', doc: 'the folder, or its path from one of lora.folders' }],
  options: [{ flags: '--in-place', doc: 'take the place of an adapter of that name' }, jsonOption],
  examples: ['inferd adapter load pirate /srv/adapters/pirate', 'inferd adapter load pirate pirate-2 --in-place'],
  run: (input) =>
    asked(
      input,
      (client) =>
        client.call('adapters.load', { name: input.args[0] ?? '', path: input.args[1] ?? '', load_inplace: input.flag('in-place') }),
      ({ name, parent, rank }) => `${name} is loaded: an adapter of rank ${rank} for ${parent}.\n`,
    ),
};

const unload: Verb = {
  name: 'unload',
  summary: 'unload an adapter of the running daemon',
  details: 'Requests that use it end first; new ones do not find it.',
  args: [nameArg],
  options: [jsonOption],
  examples: ['inferd adapter unload pirate'],
  run: (input) =>
    asked(
      input,
      (client) => client.call('adapters.unload', { name: input.args[0] ?? '' }),
      ({ name }) => `${name} is unloaded.\n`,
    ),
};

const list: Verb = {
  name: 'list',
  summary: 'show the adapters of the running daemon',
  options: [jsonOption],
  examples: ['inferd adapter list', 'inferd adapter list --json'],
  run: (input) =>
    asked(
      input,
      (client) => client.call('adapters.list', {}),
      ({ data }) =>
        data.length === 0
          ? 'There are no adapters; "inferd adapter load" loads one\n'
          : table(
              ['adapter', 'model', 'rank', 'path'],
              data.map(({ name, parent, rank, path }) => [name, parent, String(rank), path]),
            ),
    ),
};

export const adapter: Verb = {
  name: 'adapter',
  summary: 'load, unload or list adapters (LoRA) of the running daemon',
  examples: ['inferd adapter load pirate /srv/adapters/pirate', 'inferd adapter list', 'inferd adapter unload pirate'],
  verbs: [load, unload, list],
};

async function asked<T>(input: VerbInput, call: (client: InferdClient) => Promise<T>, text: (answer: T) => string): Promise<ExitCode> {
  const { io } = input;
  const { client } = await requireRunning(io);
  try {
    const answer = await call(client);
    if (input.flag('json')) printJson(io, answer);
    else io.stdout.write(text(answer));
    return EXIT.ok;
  } catch (error) {
    throw explain(error);
  } finally {
    await client.close();
  }
}
