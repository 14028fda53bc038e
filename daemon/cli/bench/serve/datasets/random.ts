/**
 * `random`: prompts of token ids, as ATOM's: lengths uniform from ratio * length to length (downwards), then ids that count up from a random
 * start, after a prefix that all requests share. Pure.
 */
import type { BenchRequest } from '../request.js';
import type { Dataset, DatasetInput } from './dataset.js';

export const randomDataset: Dataset = {
  name: 'random',
  doc: 'token ids, --random-input-len and --random-output-len long',
  make: (input) => Promise.resolve(randomRequests(input)),
};

function randomRequests({ count, random, vocabSize, options }: DatasetInput): readonly BenchRequest[] {
  const { randomInputLen, randomOutputLen, randomRangeRatio: ratio, randomPrefixLen } = options;
  const prefix = Array.from({ length: randomPrefixLen }, () => random.int(0, vocabSize - 1));
  const length = (most: number): number => Math.max(1, random.int(Math.floor(most * ratio), most));
  return Array.from({ length: count }, (_, i) => {
    const inputLen = length(randomInputLen);
    const first = random.int(0, vocabSize - 1) + i;
    const prompt = [...prefix, ...Array.from({ length: inputLen }, (_unused, j) => (first + j) % vocabSize)];
    return { prompt, inputLen: prompt.length, outputLen: length(randomOutputLen) };
  });
}
