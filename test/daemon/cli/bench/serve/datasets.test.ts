/** Datasets of `bench serve`: lengths, seeds, files, and texts of a wanted length. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import type { DatasetInput, DatasetOptions, Tokenizer } from '../../../../../daemon/cli/bench/serve/datasets/dataset.js';
import { datasets } from '../../../../../daemon/cli/bench/serve/datasets/table.js';
import { asTexts } from '../../../../../daemon/cli/bench/serve/datasets/text-prompts.js';
import { Random } from '../../../../../daemon/cli/bench/serve/random.js';
import type { BenchRequest } from '../../../../../daemon/cli/bench/serve/request.js';
import { CliError } from '../../../../../daemon/cli/verb.js';
import { tempFolder } from '../../../../helpers/temp-folder.js';

const lengths: DatasetOptions = {
  randomInputLen: 100,
  randomOutputLen: 40,
  randomRangeRatio: 1,
  randomPrefixLen: 0,
  sharegptOutputLen: null,
  sonnetInputLen: 60,
  sonnetOutputLen: 15,
  sonnetPrefixLen: 25,
};
/** A token a word; ids are words by number. */
const words: Tokenizer = {
  encode: (text) => Promise.resolve((text.match(/\S+/g) ?? []).map((word) => Number(word.replace(/\D/g, '') || 1))),
  decode: (ids) => Promise.resolve(ids.map((id) => `w${id}`).join(' ')),
};
const folder = tempFolder();

interface Change extends Partial<Omit<DatasetInput, 'random' | 'options'>> {
  readonly seed?: number;
  readonly options?: Partial<DatasetOptions>;
}

async function make(name: string, { seed = 0, options = {}, ...change }: Change = {}): Promise<readonly BenchRequest[]> {
  const dataset = datasets.find((d) => d.name === name);
  assert.ok(dataset);
  const fixed = { count: 50, vocabSize: 1000, tokenizer: words, path: null };
  return dataset.make({ ...fixed, ...change, random: new Random(seed), options: { ...lengths, ...options } });
}

function file(name: string, text: string): string {
  const path = join(folder, name);
  writeFileSync(path, text);
  return path;
}

const ids = ({ prompt }: BenchRequest): readonly number[] => {
  assert.ok(typeof prompt !== 'string');
  return prompt;
};
const mean = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0) / values.length;

test('random prompts have the length asked for, count up within the vocabulary, and are the same for the same seed', async () => {
  const made = await make('random');
  assert.equal(made.length, 50);
  for (const request of made) {
    assert.deepEqual([ids(request).length, request.inputLen, request.outputLen], [100, 100, 40]);
    const [first = 0] = ids(request);
    assert.deepEqual(
      ids(request),
      Array.from({ length: 100 }, (_, j) => (first + j) % 1000),
    );
  }
  assert.deepEqual(await make('random'), made);
  assert.notDeepEqual(await make('random', { seed: 1 }), made);
});

test('the range ratio goes downwards, and both ends are reached', async () => {
  const made = await make('random', { count: 2000, options: { randomRangeRatio: 0.8 } });
  for (const [of, low, high] of [
    [(r: BenchRequest) => ids(r).length, 80, 100],
    [(r: BenchRequest) => r.outputLen, 32, 40],
  ] as const) {
    const values = made.map(of);
    assert.deepEqual([Math.min(...values), Math.max(...values)], [low, high]);
    assert.ok(Math.abs(mean(values) - (low + high) / 2) < 0.5);
  }
  const none = await make('random', { count: 500, options: { randomRangeRatio: 0, randomOutputLen: 3 } });
  assert.deepEqual([...new Set(none.map((r) => r.outputLen))].sort(), [1, 2, 3], 'no answer of no token');
});

test('a prefix stands before each random prompt, and is the same for all', async () => {
  const made = await make('random', { options: { randomPrefixLen: 30 } });
  assert.ok(made.every((r) => r.inputLen === 130 && ids(r).length === 130));
  assert.equal(new Set(made.map((r) => ids(r).slice(0, 30).join())).size, 1);
});

test('the synthetic sharegpt has the published means and keeps to the limits of the filter', async () => {
  const made = await make('sharegpt', { count: 4000 });
  const inputs = made.map((r) => ids(r).length);
  const outputs = made.map((r) => r.outputLen);
  assert.ok(Math.abs(mean(inputs) - 220) < 12, `${mean(inputs)}`);
  assert.ok(Math.abs(mean(outputs) - 197) < 12, `${mean(outputs)}`);
  assert.ok(made.every((r) => r.inputLen >= 4 && r.inputLen <= 1024 && r.outputLen >= 4 && r.inputLen + r.outputLen <= 2048));
  const fixed = await make('sharegpt', { options: { sharegptOutputLen: 33 } });
  assert.ok(fixed.every((r) => r.outputLen === 33));
});

test('a sharegpt file gives the first question, the length of the first answer, and nothing too short or too long', async () => {
  const talk = (...values: unknown[]) => ({ conversations: values.map((value) => ({ from: 'x', value })) });
  const long = (n: number): string => Array.from({ length: n }, (_, i) => `w${i}`).join(' ');
  const usable = Array.from({ length: 12 }, (_, i) => talk(long(5 + i), long(7), 'more'));
  const useless = [
    talk(long(5)),
    talk(long(3), long(9)),
    talk(long(9), long(3)),
    talk(long(1025), long(9)),
    talk(long(1000), long(1049)),
    {},
    null,
  ];
  const path = file('talks.json', JSON.stringify([...useless, ...usable]));
  const made = await make('sharegpt', { path, count: 10 });
  assert.equal(made.length, 10);
  for (const { prompt, inputLen, outputLen } of made) {
    assert.equal(typeof prompt, 'string');
    assert.deepEqual([String(prompt).split(' ').length, outputLen], [inputLen, 7]);
  }
  assert.equal((await make('sharegpt', { path, count: 50 })).length, 12, 'each talk once');
  assert.notDeepEqual(await make('sharegpt', { path, count: 10, seed: 1 }), made);
  const untold = await make('sharegpt', { path, count: 3, tokenizer: null });
  assert.ok(
    untold.every((r) => r.inputLen === Math.ceil(String(r.prompt).length / 4)),
    'estimated without a tokenizer',
  );
});

test('burstgpt takes the lengths of GPT-4 rows with an answer', async () => {
  const rows = ['5,GPT-4,10,3,13,API', '6,ChatGPT,11,4,15,API', '7,GPT-4,12,0,12,API', '8,GPT-4,2000,5,2005,API'];
  const path = file('burst.csv', ['Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type', ...rows].join('\n'));
  const two = await make('burstgpt', { path, count: 2 });
  assert.deepEqual(two.map((r) => [ids(r).length, r.outputLen]).sort(), [
    [10, 3],
    [2000, 5],
  ]);
  assert.equal((await make('burstgpt', { path, count: 40 })).length, 40, 'rows come again');
  assert.ok(two.every((r) => ids(r).every((id) => id < 1000)));
});

test('sonnet prompts are about as long as asked for, never longer, with the shared lines first', async () => {
  const path = file('poem.txt', Array.from({ length: 40 }, (_, i) => `line ${i} of a poem about ${i % 7}`).join('\n\n'));
  const made = await make('sonnet', { path, count: 20 });
  assert.equal(made.length, 20);
  for (const { prompt, inputLen, outputLen } of made) {
    assert.ok(inputLen > 45 && inputLen <= 60, `${inputLen}`);
    assert.equal(outputLen, 15);
    assert.match(String(prompt), /^Pick as many .*:\nline 0 .*\nline 1 .*\n/);
  }
  assert.ok(new Set(made.map((r) => r.prompt)).size > 10);
  await assert.rejects(make('sonnet', { path, options: { sonnetInputLen: 5 } }), /--sonnet-input-len 5 is too short/);
});

test('a dataset without its file, or with another one, is one sentence', async () => {
  const csv = file('other.csv', 'a,b\n1,2\n');
  const refused = async (name: string, path: string | null, exitCode: number): Promise<void> => {
    await assert.rejects(make(name, { path }), (error) => error instanceof CliError && error.exitCode === exitCode);
  };
  await refused('burstgpt', null, 64);
  await refused('sonnet', null, 64);
  await refused('sonnet', join(folder, 'none'), 66);
  await refused('burstgpt', csv, 65);
  await refused('sharegpt', csv, 65);
  await refused('sharegpt', file('empty.json', '[]'), 65);
  await refused('sonnet', file('empty.txt', '\n'), 65);
});

test('a text is encoded again until it has the tokens of its ids, and says the length it has', async () => {
  const made = await make('random', { count: 5 });
  const options = { random: new Random(3), vocabSize: 1000 };
  const exact = await asTexts(made, { ...options, tokenizer: words });
  assert.ok(exact.every((r) => typeof r.prompt === 'string' && r.inputLen === 100));
  // Ids below 300 have no text, and those from 900 on have two words.
  const lossy: Tokenizer = {
    encode: words.encode,
    decode: (all) => words.decode(all.flatMap((id) => (id < 300 ? [] : id < 900 ? [id] : [id - 300, id - 299]))),
  };
  for (const { prompt, inputLen } of await asTexts(made, { ...options, tokenizer: lossy })) {
    assert.equal((await lossy.encode(String(prompt))).length, inputLen);
    assert.ok(Math.abs(inputLen - 100) <= 2, `${inputLen}`);
  }
  const [plain] = await asTexts(made, { ...options, tokenizer: null });
  assert.equal(String(plain?.prompt).split(' ').length, 100);
});
