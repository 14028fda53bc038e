/**
 * Turns `speculative.model` into a folder with a network that drafts, and checks what can be told without its weights: that it is there,
 * and that a draft model has the tokenizer of the model. Drafts of another tokenizer would do no harm, but all would be refused.
 * Called by model-folder.ts.
 */
import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { ConfigError } from '../error.js';
import { isKind } from '../file-kind.js';
import type { Config } from '../schema.js';
import { isInside } from './hub-cache.js';

/** Largest tokenizer.json that is read, bytes; as the tokenizer of a model. */
const maxTokenizerBytes = 64 * 2 ** 20;

export interface DrafterFolder {
  /** Absolute path of a folder. */
  readonly path: string;
  /** Bytes of its weight files. */
  readonly sizeBytes: number;
}

/** A folder that was found, and the root that its files must lie in, for one of the cache. */
export interface FoundFolder {
  readonly path: string;
  readonly cache: string | null;
}

/**
 * Of the configuration, for the model at `model`; null where no network of its own drafts. `find` looks a name up as that of the model is
 * looked up, `bytesOf` adds the weights up.
 * @throws ConfigError 66 when it is not there, 65 when its files are of no use, 78 when none is named or the tokenizers differ
 */
export function resolveDrafter(
  { speculative: { method, model: name } }: Config,
  model: FoundFolder,
  find: (name: string) => FoundFolder,
  bytesOf: (found: FoundFolder) => number,
): DrafterFolder | null {
  if (method !== 'draft' && method !== 'eagle3') return null;
  if (name === null)
    throw new ConfigError(
      `speculative.method = "${method}" needs speculative.model, the folder or Hugging Face id of ${method === 'draft' ? 'a small model with the same tokenizer' : 'a head for the model'}`,
      78,
    );
  const found = find(name);
  if (!isKind(found.path, 'directory')) throw new ConfigError(`speculative.model takes a folder with *.safetensors, not ${found.path}`, 66);
  const drafter = { path: found.path, sizeBytes: bytesOf(found) };
  if (method === 'draft') checkTokenizers(model, found);
  return drafter;
}

/** That of a GGUF file says its vocabulary otherwise; engines still compare the sizes, about. */
function checkTokenizers(model: FoundFolder, drafter: FoundFolder): void {
  if (!isKind(model.path, 'directory') || !isKind(join(model.path, 'tokenizer.json'), 'file')) return;
  if (isDeepStrictEqual(vocabulary(model), vocabulary(drafter))) return;
  throw new ConfigError(
    `The draft model ${drafter.path} has another tokenizer than ${model.path}: its tokens would mean something else; take one of the same family`,
    78,
  );
}

/** Ids by token, those that were added last. */
function vocabulary({ path, cache }: FoundFolder): Map<string, number> {
  const file = join(path, 'tokenizer.json');
  if (!isKind(file, 'file')) throw new ConfigError(`${path} has no tokenizer.json to compare with the model's`, 66);
  if (cache !== null && !isInside(cache, file)) throw new ConfigError(`${file} leads out of the cache; download the model again`, 65);
  if (statSync(file).size > maxTokenizerBytes) throw new ConfigError(`${file} is larger than ${maxTokenizerBytes} bytes`, 65);
  const ids = new Map<string, number>();
  try {
    const said = JSON.parse(readFileSync(file, 'utf8')) as TokenizerFile;
    const { vocab } = said.model ?? {};
    const entries = Array.isArray(vocab) ? vocab.map(([token], id) => [token, id] as const) : Object.entries(vocab ?? {});
    for (const [token, id] of entries) ids.set(token, id);
    for (const { content, id } of said.added_tokens ?? []) ids.set(content, id);
  } catch {
    throw new ConfigError(`${file} is not valid JSON; download the model again`, 65);
  }
  return ids;
}

/** As far as it is read: a vocabulary with ids, or, of unigram tokenizers, a list with scores. */
interface TokenizerFile {
  readonly model?: { readonly vocab?: Readonly<Record<string, number>> | readonly (readonly [string, number])[] };
  readonly added_tokens?: readonly { readonly content: string; readonly id: number }[];
}
