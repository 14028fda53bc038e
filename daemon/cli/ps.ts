/** `inferd ps`: the loaded model and the running and queued requests of the running daemon. */
import { explain } from './failure.js';
import { requireRunning } from './reach.js';
import { formatBytes, formatDuration, table } from './table.js';
import { EXIT, type ExitCode, jsonOption, printJson, type Verb, type VerbInput } from './verb.js';

export const ps: Verb = {
  name: 'ps',
  summary: 'show the loaded model and the requests of the running daemon',
  options: [jsonOption],
  examples: ['inferd ps', 'inferd ps --json'],
  run,
};

async function run(input: VerbInput): Promise<ExitCode> {
  const { io } = input;
  const { client, file } = await requireRunning(io);
  try {
    const [{ data: models }, { requests }] = await Promise.all([client.call('models.list', {}), client.call('requests.list', {})]);
    if (input.flag('json')) {
      printJson(io, { address: file.address, models, requests });
      return EXIT.ok;
    }
    const loaded = models.map((m) => [m.id, m.architecture, formatBytes(m.size_bytes), `${m.max_model_len}`, m.state, m.backend ?? '']);
    io.stdout.write(table(['model', 'architecture', 'size', 'context', 'state', 'backend'], loaded));
    if (requests.length === 0) io.stdout.write('\nNo requests are running or queued.\n');
    else {
      const rows = requests.map((r) => [
        r.request_id,
        r.state,
        formatDuration(r.age_s * 1000),
        `${r.prompt_tokens}`,
        `${r.completion_tokens}`,
      ]);
      io.stdout.write(`\n${table(['request', 'state', 'age', 'prompt', 'generated'], rows)}`);
    }
    return EXIT.ok;
  } catch (error) {
    throw explain(error);
  } finally {
    await client.close();
  }
}
