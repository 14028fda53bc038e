/**
 * `sonnet`: a question over lines of a poem, the first lines the same in every request (a shared prefix), the others drawn by seed until
 * the prompt is about --sonnet-input-len tokens long and never longer, as in vLLM's benchmark. The file has one line of verse a line.
 */

import { CliError, EXIT } from '../../../verb.js';
import type { BenchRequest } from '../request.js';
import { countTokens, type Dataset, type DatasetInput, mapSome } from './dataset.js';
import { badDataset, readDataset } from './file.js';

export const sonnet: Dataset = {
  name: 'sonnet',
  doc: 'lines of the poem at --dataset-path, with a shared prefix',
  make: fromFile,
};

const question = 'Pick as many lines as you can from these poem lines:\n';
/** Prompts that come out too long are drawn again so many times for each request. */
const tries = 20;

async function fromFile({ count, random, tokenizer, path, options }: DatasetInput): Promise<readonly BenchRequest[]> {
  const lines = readDataset('sonnet', path)
    .split(/\r?\n/)
    .flatMap((line) => (line.trim() === '' ? [] : [`${line}\n`]));
  if (lines.length === 0) throw badDataset(path, 'has no lines');
  const { sonnetInputLen, sonnetOutputLen, sonnetPrefixLen } = options;
  const lengths = await mapSome(lines, (line) => countTokens(line, tokenizer));
  const perLine = lengths.reduce((a, b) => a + b, 0) / lengths.length;
  const base = await countTokens(question, tokenizer);
  if (sonnetInputLen <= base)
    throw new CliError(`--sonnet-input-len ${sonnetInputLen} is too short: the question alone has ${base} tokens`, EXIT.usage);
  const numLines = Math.max(1, Math.round((sonnetInputLen - base) / perLine));
  const prefix = lines.slice(0, Math.min(numLines, Math.max(0, Math.round((sonnetPrefixLen - base) / perLine))));
  const draw = (): string => {
    const rest = Array.from({ length: numLines - prefix.length }, () => lines[random.int(0, lines.length - 1)]);
    return [question, ...prefix, ...rest].join('');
  };
  const kept: BenchRequest[] = [];
  for (let round = 0; round < tries && kept.length < count; round++) {
    const drawn = Array.from({ length: count - kept.length }, draw);
    const counted = await mapSome(drawn, async (prompt) => ({
      prompt,
      inputLen: await countTokens(prompt, tokenizer),
      outputLen: sonnetOutputLen,
    }));
    kept.push(...counted.filter((r) => r.inputLen <= sonnetInputLen));
  }
  if (kept.length === 0) throw badDataset(path, `gives no prompt of at most ${sonnetInputLen} tokens`);
  return kept;
}
