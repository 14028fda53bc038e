/** Finds GGUF files: the parts of a split one, and in a folder the one of a quantization. Used by models/model-folder.ts. */
import { readdirSync, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { ConfigError } from '../error.js';
import { isKind } from '../file-kind.js';

const part = /^(.*)-(\d{5})-of-(\d{5})\.gguf$/;
/** Other files that lie beside models: projectors of pictures, and tables that quantizers use. */
const noModel = /^(mmproj|imatrix)|[.-](mmproj|imatrix)\b/i;

/** Most files of a folder that are looked at. */
const maxNames = 10_000;

/** What may stand behind the name of a model, as in "org/name:Q4_K_M". */
export const quantizationPattern = /^[A-Za-z0-9_]{2,24}$/;

export const isGguf = (path: string): boolean => path.endsWith('.gguf');

/** All parts of a file, in order; itself alone when it is not split. @throws ConfigError 66 when one is missing. */
export function ggufParts(path: string): readonly string[] {
  const split = part.exec(basename(path));
  if (split === null) return [path];
  const [, name = '', , count = '00001'] = split;
  const parts = Array.from({ length: Math.min(Number(count), 4096) }, (_, i) =>
    join(dirname(path), `${name}-${String(i + 1).padStart(5, '0')}-of-${count}.gguf`),
  );
  const missing = parts.find((file) => !isKind(file, 'file'));
  if (missing !== undefined) throw new ConfigError(`${missing} is missing, a part of the model; download it too`, 66);
  return parts;
}

/** Bytes of all parts. */
export function ggufBytes(path: string): number {
  return ggufParts(path).reduce((sum, file) => sum + statSync(file).size, 0);
}

/** Models of a folder, and of the folders in it, as *.gguf by their path there; of a split one the first part. */
export function ggufFilesIn(folder: string): readonly string[] {
  const inner = names(folder).flatMap((name) =>
    isKind(join(folder, name), 'directory') ? names(join(folder, name)).map((file) => join(name, file)) : [name],
  );
  return inner.filter((path) => ggufName(basename(path)) !== null);
}

/** What a file is called as a model: without the ending, and of a split one without the part. Null for a later part, and for what is none. */
export function ggufName(file: string): string | null {
  if (!isGguf(file) || noModel.test(file)) return null;
  const [, name = file.slice(0, -'.gguf'.length), number = '00001'] = part.exec(file) ?? [];
  return number === '00001' && name !== '' ? name : null;
}

function names(folder: string): readonly string[] {
  try {
    return readdirSync(folder).sort().slice(0, maxNames);
  } catch {
    return [];
  }
}

/** "Q4_K" is no whole word of "x-Q4_K_M.gguf". */
const wholeWord = (quantization: string): RegExp => new RegExp(`(^|[^A-Za-z0-9_])${quantization}($|[^A-Za-z0-9_])`, 'i');

/**
 * The file of a quantization, such as "Q4_K_M", as files are usually named; without one the only file. Null when the folder has none.
 * @throws ConfigError 66 when it has several, or none of that quantization.
 */
export function ggufFile(folder: string, quantization: string | null): string | null {
  const all = ggufFilesIn(folder);
  if (all.length === 0) return null;
  const found = quantization === null ? all : all.filter((path) => wholeWord(quantization).test(path));
  const [first] = found;
  if (found.length === 1 && first !== undefined) return join(folder, first);
  const list = all.slice(0, 8).join(', ');
  if (quantization === null)
    throw new ConfigError(`${folder} holds several GGUF files (${list}); name one of them, or its quantization as in MODEL:Q4_K_M`, 66);
  throw new ConfigError(
    `${folder} holds ${found.length === 0 ? 'no' : 'more than one'} GGUF file of ${quantization}; it holds ${list}`,
    66,
  );
}
