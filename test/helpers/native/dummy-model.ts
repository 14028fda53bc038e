/**
 * Model folders for random weights: the config.json of a shape, and the demo model's tokenizer with made-up words for the rest of the
 * vocabulary, so that every id has a text and reading the vocabulary takes as long as a real one of that size.
 */
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { tempFolder } from '../temp-folder.js';
import { demoModel } from './native-engine.js';

/** @returns a new folder for `inference.model_name`, to be used with `inference.load_dummy`. */
export function dummyModel(shapeFolder: string): string {
  const folder = tempFolder();
  copyFileSync(join(shapeFolder, 'config.json'), join(folder, 'config.json'));
  copyFileSync(join(demoModel(), 'tokenizer_config.json'), join(folder, 'tokenizer_config.json'));
  const { vocab_size: size } = JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8')) as { vocab_size: number };
  const tokenizer = JSON.parse(readFileSync(join(demoModel(), 'tokenizer.json'), 'utf8')) as {
    added_tokens: { id: number }[];
    model: { vocab: Record<string, number> };
  };
  const taken = new Set([...Object.values(tokenizer.model.vocab), ...tokenizer.added_tokens.map(({ id }) => id)]);
  // A space before the word is the letter \u0120 in byte-level vocabularies.
  for (let id = 0; id < size; id++) if (!taken.has(id)) tokenizer.model.vocab[`\u0120word${id}`] = id;
  writeFileSync(join(folder, 'tokenizer.json'), JSON.stringify(tokenizer));
  return folder;
}
