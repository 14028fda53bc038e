/**
 * How the hidden states of a model become an embedding: what its sentence-transformers files say where there are any, else the option.
 * Such a model is a list of modules (modules.json), of which this reads the one that pools. What cannot be done is no reason not to
 * serve the model: it is said when somebody asks for an embedding. Called by model-folder.ts at start-up.
 */

import type { Config } from '../schema.js';
import { readJson, readValue } from './model-json.js';

export type Pooling = Config['inference']['pooling'];
/** Or why embeddings of the model cannot be made, as a sentence. */
export type PoolingChoice = { readonly mode: Pooling } | { readonly refusal: string };

/** What sentence-transformers calls them. A mean over the root of the length has the direction of the mean, and all is normalised. */
const modes: ReadonlyMap<string, Pooling> = new Map([
  ['lasttoken', 'last'],
  ['mean', 'mean'],
  ['mean_tokens', 'mean'],
  ['mean_sqrt_len_tokens', 'mean'],
]);
/** Modules that change nothing here: the model itself, and the norm that every embedding gets. */
const silent = ['Transformer', 'Normalize'];
const modulesFile = 'modules.json';
const usualFolder = '1_Pooling';

/** `option`: for a model without such files. @throws ConfigError 65 for a file that cannot be read */
export function poolingOf(folder: string, cache: string | null, option: Pooling): PoolingChoice {
  const modules = readValue(folder, modulesFile, cache);
  const found = modules === null ? usualFolder : poolingFolder(modules);
  if (typeof found !== 'string') return found;
  const config = readJson(folder, `${found}/config.json`, cache);
  if (config !== null) return modeOf(config);
  return modules === null ? { mode: option } : { refusal: `${modulesFile} of the model names ${found}, which has no config.json` };
}

/** The folder of the module that pools. */
function poolingFolder(modules: unknown): string | { readonly refusal: string } {
  const list: readonly unknown[] = Array.isArray(modules) ? modules : [];
  let folder: string | null = null;
  for (const one of list) {
    const { type, path } = (one ?? {}) as { readonly type?: unknown; readonly path?: unknown };
    const kind = String(type).split('.').at(-1) ?? '';
    if (kind === 'Pooling') folder = String(path);
    else if (!silent.includes(kind)) return { refusal: `${modulesFile} of the model has a module ${quoted(kind)}, which is not supported` };
  }
  if (folder === null) return { refusal: `${modulesFile} of the model names no module that pools` };
  return /^\w[\w.-]*$/.test(folder) ? folder : { refusal: `${modulesFile} of the model names the folder ${quoted(folder)}` };
}

/** Of its two spellings, the older one has a flag for each mode. */
function modeOf(config: Readonly<Record<string, unknown>>): PoolingChoice {
  const prefix = 'pooling_mode_';
  const flags = Object.keys(config).filter((key) => key.startsWith(prefix));
  const on = flags.filter((key) => config[key] === true).map((key) => key.slice(prefix.length));
  const named = config['pooling_mode'];
  const asked = typeof named === 'string' ? [named] : flags.length === 0 ? ['mean'] : on;
  const mode = asked.length === 1 ? modes.get(asked[0] ?? '') : undefined;
  return mode === undefined ? { refusal: `The model pools by ${quoted(asked.join(' and '))}, which is not supported` } : { mode };
}

const quoted = (text: string): string => JSON.stringify(text.slice(0, 64));
