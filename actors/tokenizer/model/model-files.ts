/**
 * The text files of a model that concern its tokenizer, by name: files of its folder, or what a GGUF file says in their place. Called by
 * the readers of this folder and by encode/ at start-up, in each process that has a tokenizer.
 */
import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { isGguf } from '../../../config/gguf/files.js';
import { type GgufHead, readGguf } from '../../../config/gguf/read.js';
import { ggufTokenizerConfig, ggufTokenizerJson, tokenizerLists } from './gguf-tokenizer.js';

/** What a GGUF file has in the place of files. */
const made: Readonly<Record<string, (head: GgufHead) => string>> = {
  'tokenizer.json': ggufTokenizerJson,
  'tokenizer_config.json': ggufTokenizerConfig,
};

/** Names the file in messages. */
export function modelFilePath(model: string, name: string): string {
  return isGguf(model) ? `${model} (${name})` : join(model, name);
}

/**
 * @param model a folder, or a GGUF file.
 * @returns null when the model has no such file.
 * @throws Error when it cannot be read.
 */
export function readModelFile(model: string, name: string): string | null {
  if (isGguf(model)) return made[name]?.(readGguf(model, (key) => tokenizerLists.has(key))) ?? null;
  const path = join(model, name);
  try {
    // A FIFO would be waited for until somebody writes to it.
    if (!statSync(path).isFile()) throw new Error(`${path} is not a file`);
    return readFileSync(path, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw error;
  }
}
