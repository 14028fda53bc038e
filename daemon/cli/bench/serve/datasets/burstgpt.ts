/**
 * `burstgpt`: lengths of the GPT-4 rows of BurstGPT's CSV that have an answer, drawn by seed; prompts of token ids that count up, as in
 * vLLM's benchmark. Only lengths are taken; when requests come is for --request-rate to say.
 */
import type { BenchRequest } from '../request.js';
import type { Dataset, DatasetInput } from './dataset.js';
import { badDataset, readDataset } from './file.js';

export const burstgpt: Dataset = {
  name: 'burstgpt',
  doc: 'token ids in the lengths of the CSV at --dataset-path',
  make: (input) => Promise.resolve().then(() => fromFile(input)),
};

interface Lengths {
  readonly input: number;
  readonly output: number;
}

function fromFile({ count, random, vocabSize, path }: DatasetInput): readonly BenchRequest[] {
  const rows = readRows(path);
  if (rows.length === 0) throw badDataset(path, 'has no GPT-4 row with an answer');
  // Fewer rows than requests: each may come again.
  const drawn =
    rows.length >= count
      ? random.shuffled(rows).slice(0, count)
      : Array.from({ length: count }, () => rows[random.int(0, rows.length - 1)]);
  return drawn.map((row, i) => {
    const { input, output } = row as Lengths; // proof: indices are below the length
    return { prompt: Array.from({ length: input }, (_, j) => (i + j) % vocabSize), inputLen: input, outputLen: output };
  });
}

function readRows(path: string | null): readonly Lengths[] {
  const [head = '', ...lines] = readDataset('burstgpt', path).trim().split(/\r?\n/);
  const names = head.split(',').map((name) => name.trim().toLowerCase());
  const [model, input, output] = ['model', 'request tokens', 'response tokens'].map((name) => names.indexOf(name));
  if (model === -1 || input === -1 || output === -1)
    throw badDataset(path, 'lacks a column "Model", "Request tokens" or "Response tokens"');
  return lines.flatMap((line) => {
    const cells = line.split(',');
    const lengths = { input: Number(cells[input ?? 0]), output: Number(cells[output ?? 0]) };
    return cells[model ?? 0]?.trim() === 'GPT-4' && lengths.input > 0 && lengths.output > 0 ? [lengths] : [];
  });
}
