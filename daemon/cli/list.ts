/** `inferd list`: the models on this disk that can be named: the embedded one and those in the Hugging Face cache. */
import { listModels } from '../../config/model-folder.js';
import { hubCachePath } from '../../config/paths.js';
import { effectiveConfig } from './effective.js';
import { formatBytes, table } from './table.js';
import { configOptions, EXIT, type ExitCode, jsonOption, printJson, type Verb, type VerbInput } from './verb.js';

export const list: Verb = {
  name: 'list',
  summary: 'show the models on disk',
  options: [...configOptions, jsonOption],
  examples: ['inferd list', 'inferd list --json'],
  run,
};

async function run(input: VerbInput): Promise<ExitCode> {
  const { io } = input;
  const { config } = effectiveConfig(input);
  const models = listModels(config, io.env);
  const cache = hubCachePath(config.inference.cache_dir, io.env);
  if (input.flag('json')) {
    printJson(io, {
      cache,
      models: models.map((m) => ({
        name: m.name,
        source: m.source,
        revision: m.revision,
        path: m.path,
        size_bytes: m.sizeBytes,
        architecture: m.architecture,
        problem: m.problem,
      })),
    });
    return EXIT.ok;
  }
  const rows = models.map((m) => [m.name, m.architecture ?? '', m.problem === null ? formatBytes(m.sizeBytes) : '-', m.revision, m.source]);
  io.stdout.write(table(['model', 'architecture', 'size', 'revision', 'where'], rows));
  for (const m of models) if (m.problem !== null) io.stdout.write(`\n${m.name} cannot be served: ${m.problem}\n`);
  if (models.length === 1)
    io.stdout.write(`\nThe Hugging Face cache ${cache} holds no models; a folder with a model can be named as well.\n`);
  return EXIT.ok;
}
