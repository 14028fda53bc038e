/**
 * `sharegpt`: first question and length of the first answer of conversations, kept as vLLM keeps them: at least 4 tokens each, a prompt of
 * at most 1024 and 2048 together. With --dataset-path from the file (a JSON list of {"conversations": [{"value": ...}, ...]}), in seeded
 * order; without, prompts of random token ids with lengths like those published of it: lognormal, fitted to the published means (about
 * 220 tokens in and 200 out); the percentiles are the fit's.
 */
import type { Random } from '../random.js';
import type { BenchRequest } from '../request.js';
import { countTokens, type Dataset, type DatasetInput, mapSome } from './dataset.js';
import { badDataset, readDataset } from './file.js';

export const sharegpt: Dataset = {
  name: 'sharegpt',
  doc: 'conversations of --dataset-path, or random token ids in lengths like theirs',
  make: async (input) => (input.path === null ? synthetic(input) : fromFile(input)),
};

const least = 4;
const mostPrompt = 1024;
const mostTotal = 2048;
const fitsIn = (prompt: number, answer: number): boolean =>
  prompt >= least && answer >= least && prompt <= mostPrompt && prompt + answer <= mostTotal;

/** Median and sigma of the lognormal lengths. */
const fit = { input: [165, 1.6], output: [117, 1.1] } as const;

function synthetic({ count, random, vocabSize, options }: DatasetInput): readonly BenchRequest[] {
  return Array.from({ length: count }, () => {
    const { input, output } = drawLengths(random);
    const prompt = Array.from({ length: input }, () => random.int(0, vocabSize - 1));
    return { prompt, inputLen: input, outputLen: options.sharegptOutputLen ?? output };
  });
}

function drawLengths(random: Random): { input: number; output: number } {
  for (;;) {
    const input = Math.round(random.lognormal(...fit.input));
    const output = Math.round(random.lognormal(...fit.output));
    if (fitsIn(input, output)) return { input, output };
  }
}

interface Turns {
  readonly question: string;
  readonly answer: string;
}

async function fromFile({ count, random, tokenizer, path, options }: DatasetInput): Promise<readonly BenchRequest[]> {
  const talks = random.shuffled(readTalks(path));
  const kept: BenchRequest[] = [];
  // As few as are needed are counted: each costs two questions to the server.
  for (let from = 0; from < talks.length && kept.length < count; from += count) {
    const counted = await mapSome(talks.slice(from, from + count), async ({ question, answer }) => {
      const inputLen = await countTokens(question, tokenizer);
      return { prompt: question, inputLen, outputLen: options.sharegptOutputLen ?? (await countTokens(answer, tokenizer)) };
    });
    kept.push(...counted.filter((r) => fitsIn(r.inputLen, options.sharegptOutputLen === null ? r.outputLen : least)));
  }
  if (kept.length === 0) throw badDataset(path, 'has no conversation of a usable length');
  return kept.slice(0, count);
}

function readTalks(path: string | null): readonly Turns[] {
  const text = readDataset('sharegpt', path);
  let list: unknown;
  try {
    list = JSON.parse(text);
  } catch {
    throw badDataset(path, 'is not JSON');
  }
  if (!Array.isArray(list)) throw badDataset(path, 'is not a list of conversations');
  return list.flatMap((entry: unknown) => {
    const { conversations } = (entry ?? {}) as { conversations?: unknown };
    const [question, answer] = Array.isArray(conversations)
      ? conversations.map((t: unknown) => (t as { value?: unknown } | null)?.value)
      : [];
    return typeof question === 'string' && typeof answer === 'string' ? [{ question, answer }] : [];
  });
}
