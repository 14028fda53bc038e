/** `inferd list`: the models on this disk that can be named: the embedded one, those in the Hugging Face cache, and unfinished downloads. */
import { type ListedModel, listModels } from '../../../config/models/model-folder.js';
import { hubCachePath } from '../../../config/paths.js';
import { effectiveConfig } from '../effective.js';
import { formatBytes, table } from '../table.js';
import { configOptions, EXIT, type ExitCode, jsonOption, printJson, type Verb, type VerbInput } from '../verb.js';

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
        format: m.format,
        problem: m.problem,
        download: m.download === undefined ? null : { received_bytes: m.download.receivedBytes, total_bytes: m.download.totalBytes },
      })),
    });
    return EXIT.ok;
  }
  const rows = models.map((m) => [m.name, m.architecture ?? '', m.format ?? '', sizeText(m), m.revision, m.source]);
  io.stdout.write(table(['model', 'architecture', 'format', 'size', 'revision', 'where'], rows));
  for (const m of models) if (m.download !== undefined) io.stdout.write(`\n${m.name}: ${m.problem}\n`);
  for (const m of models)
    if (m.problem !== null && m.download === undefined) io.stdout.write(`\n${m.name} cannot be served: ${m.problem}\n`);
  if (models.length === 1)
    io.stdout.write(
      `\nThe Hugging Face cache ${cache} holds no models; "inferd pull" fetches one, and a folder with a model can be named as well.\n`,
    );
  return EXIT.ok;
}

function sizeText({ problem, sizeBytes, download }: ListedModel): string {
  if (download !== undefined) return `${formatBytes(download.receivedBytes)} of ${formatBytes(download.totalBytes)}`;
  return problem === null ? formatBytes(sizeBytes) : '-';
}
