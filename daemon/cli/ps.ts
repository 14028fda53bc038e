/** `inferd ps`: the loaded models, or all with --all, and the running and queued requests of the running daemon. */
import { explain } from './failure.js';
import { requireRunning } from './reach.js';
import { formatBytes, formatDuration, table } from './table.js';
import { EXIT, type ExitCode, jsonOption, printJson, type Verb, type VerbInput } from './verb.js';

export const ps: Verb = {
  name: 'ps',
  summary: 'show the loaded models and the requests of the running daemon',
  options: [{ flags: '--all', doc: 'also models that are not loaded' }, jsonOption],
  examples: ['inferd ps', 'inferd ps --all', 'inferd ps --json'],
  run,
};

async function run(input: VerbInput): Promise<ExitCode> {
  const { io } = input;
  const { client, file } = await requireRunning(io);
  try {
    const [{ data }, { requests }] = await Promise.all([client.call('models.list', {}), client.call('requests.list', {})]);
    const models = input.flag('all') ? data : data.filter(({ state }) => state !== 'unloaded');
    if (input.flag('json')) {
      printJson(io, { address: file.address, models, requests });
      return EXIT.ok;
    }
    const now = Date.now();
    const rowsOfModels = models.map((m) => [
      m.id,
      m.architecture,
      m.format,
      formatBytes(m.size_bytes),
      `${m.max_model_len}`,
      m.pinned ? `${m.state}, pinned` : m.state,
      m.memory_bytes === null ? '' : formatBytes(m.memory_bytes),
      m.last_used === null ? '' : `${formatDuration(Math.max(0, now - m.last_used * 1000))} ago`,
      m.backend ?? '',
    ]);
    io.stdout.write(
      models.length === 0
        ? 'No models are loaded; "inferd load" loads one, as a request that names it does.\n'
        : table(['model', 'architecture', 'format', 'size', 'context', 'state', 'memory', 'used', 'backend'], rowsOfModels),
    );
    for (const m of models) if (m.failure !== null) io.stdout.write(`\n${m.id} failed: ${m.failure}\n`);
    if (requests.length === 0) io.stdout.write('\nNo requests are running or queued.\n');
    else {
      const several = requests.some((r) => r.engine !== undefined);
      const rows = requests.map((r) => [
        r.request_id,
        r.state,
        ...(several ? [`${r.engine ?? ''}`] : []),
        formatDuration(r.age_s * 1000),
        `${r.prompt_tokens}`,
        `${r.completion_tokens}`,
      ]);
      io.stdout.write(`\n${table(['request', 'state', ...(several ? ['engine'] : []), 'age', 'prompt', 'generated'], rows)}`);
    }
    return EXIT.ok;
  } catch (error) {
    throw explain(error);
  } finally {
    await client.close();
  }
}
