/**
 * Turns `inference.model_name` into a folder with a model in it, and reads from its JSON files what the rest of inferd needs to know:
 * context length, end-of-sequence ids, the author's sampling defaults. Weights are not opened here, only counted.
 *
 * Look-up order: "demo" (the embedded model), an existing folder or *.gguf file, a model of models.directories, a Hugging Face id in the hub
 * cache; behind a folder or an id ":Q4_K_M" chooses among its GGUF files. Nothing is downloaded here. The files come from strangers: sizes
 * are bounded, numbers are checked, and a cached file must really lie in the cache.
 * Called by the commands before an engine starts, and by `inferd list`.
 */
import { existsSync, readdirSync, statSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { batchHoldsPrompt } from '../check.js';
import { ConfigError } from '../error.js';
import { isKind } from '../file-kind.js';
import { configLists, ggufConfig } from '../gguf/config.js';
import { ggufBytes, ggufFile, ggufParts, isGguf, quantizationPattern } from '../gguf/files.js';
import { readGgufParts } from '../gguf/read.js';
import { expandHome, hubCachePath } from '../paths.js';
import type { Config } from '../schema.js';
import { type DrafterFolder, resolveDrafter } from './drafter-folder.js';
import {
  type CachedModel,
  findSnapshot,
  isInside,
  listSnapshots,
  listUnfinished,
  modelIdPattern,
  type UnfinishedPull,
} from './hub-cache.js';
import { findInDirectory, modelNames } from './model-directories.js';
import { readJson } from './model-json.js';
import { checkSizes, size } from './model-sizes.js';
import { type PoolingChoice, poolingOf } from './pooling.js';
import { ggufFormat, safetensorsFormat } from './stored-format.js';

/** What the author of a model may recommend in generation_config.json. */
const generationKeys = ['temperature', 'top_p', 'top_k', 'min_p', 'typical_p', 'repetition_penalty'] as const;

/** Sampling values that the author of a model recommends; a request overrides each. */
export type GenerationDefaults = { readonly [K in (typeof generationKeys)[number]]?: number };

export interface ModelFolder {
  /** Absolute path: a folder, or a GGUF file. */
  readonly path: string;
  /** Name that the API reports. */
  readonly name: string;
  /** Where it was found, for people: "embedded", "folder", "Hugging Face cache". */
  readonly source: string;
  /** config.json, or what the metadata of a GGUF file says in its place. */
  readonly config: Readonly<Record<string, unknown>>;
  /** For example "LlamaForCausalLM". */
  readonly architecture: string;
  /** What its weights are stored in, for people: "GGUF Q4_K_M". */
  readonly format: string;
  readonly vocabSize: number;
  /** Numbers of a hidden state, and of an embedding. */
  readonly hiddenSize: number;
  /** How its hidden states become an embedding. */
  readonly pooling: PoolingChoice;
  /** Positions the model was made for, tokens. */
  readonly maxPositions: number;
  /** Prompt plus answer, at most, tokens: the smaller of scheduler.max_model_len and maxPositions. */
  readonly maxModelLen: number;
  /** Longest prompt, tokens. Always less than maxTotalTokens. */
  readonly maxInputLength: number;
  /** Prompt plus max_tokens, at most, tokens. */
  readonly maxTotalTokens: number;
  readonly eosTokenIds: readonly number[];
  readonly bosTokenId: number | null;
  readonly generation: GenerationDefaults;
  /** Bytes of the weight files. */
  readonly sizeBytes: number;
  /** The network of its own that drafts for it; absent where there is none. */
  readonly drafter?: DrafterFolder;
}

/** A model on disk, as `inferd list` shows it. */
export interface ListedModel {
  readonly name: string;
  readonly source: string;
  readonly path: string;
  /** Branches and tags, else the commit; empty for the embedded model. */
  readonly revision: string;
  readonly sizeBytes: number;
  readonly architecture: string | null;
  readonly format: string | null;
  /** Null when it can be served as far as its files tell, else one sentence why not. */
  readonly problem: string | null;
  /** Of a download that is not finished: what has come, and what there is to come in all, bytes. */
  readonly download?: { readonly receivedBytes: number; readonly totalBytes: number };
}

export const embeddedName = 'demo';

/** config/demo-model of the package, whether this runs from dist/ or from source. */
function embeddedFolder(): string {
  let dir = dirname(fileURLToPath(import.meta.url));
  while (!existsSync(join(dir, 'package.json'))) {
    const up = dirname(dir);
    if (up === dir) throw new ConfigError('The embedded demo model was not found beside the program; install inferd again', 66);
    dir = up;
  }
  return join(dir, 'config', 'demo-model');
}

/**
 * Finds and reads the model that a configuration names.
 * @throws ConfigError 66 when it is not there, 65 when its files are of no use, 78 when the configuration does not fit it.
 */
export function resolveModelFolder(config: Config, env: NodeJS.ProcessEnv = process.env): ModelFolder {
  const found = locate(config, env);
  const files = readModelFiles(found.path, found.cache, config.inference.load_dummy);
  const maxModelLen = Math.min(config.scheduler.max_model_len ?? Number.POSITIVE_INFINITY, files.maxPositions);
  const breach = batchHoldsPrompt(config, maxModelLen);
  if (breach !== null) throw new ConfigError(`${breach.message} (the model's own limit is ${files.maxPositions})`);
  if (maxModelLen < 2) throw new ConfigError(`scheduler.max_model_len = ${maxModelLen} leaves no room for an answer; set it to at least 2`);
  const maxTotalTokens = Math.min(config.validation.max_total_tokens ?? maxModelLen, maxModelLen);
  const drafter = resolveDrafter(
    config,
    found,
    (name) => locate({ ...config, inference: { ...config.inference, model_name: name, revision: 'main' } }, env),
    ({ path, cache }) => (config.inference.load_dummy ? 0 : weightBytes(path, cache)),
  );
  return {
    ...files,
    ...(drafter === null ? {} : { drafter }),
    pooling: isGguf(found.path) ? { mode: config.inference.pooling } : poolingOf(found.path, found.cache, config.inference.pooling),
    path: found.path,
    source: found.source,
    name: config.inference.served_model_name ?? config.inference.model_name,
    maxModelLen,
    maxTotalTokens,
    maxInputLength: Math.min(config.validation.max_input_length ?? maxTotalTokens, maxTotalTokens - 1),
  };
}

/** Where a model of the cache was found. */
export const cacheSource = 'Hugging Face cache';

/** Models that can be named without a path: the embedded one, those of models.directories and those in the hub cache; behind them downloads that are not finished. */
export function listModels(config: Config, env: NodeJS.ProcessEnv = process.env): readonly ListedModel[] {
  const cache = hubCachePath(config.inference.cache_dir, env);
  const unfinished = listUnfinished(cache);
  // The links of a snapshot come before its ref: one that is being made, or was left so, is no model yet.
  const isWhole = (m: CachedModel): boolean =>
    m.refs.length > 0 || !unfinished.some(({ id, commit }) => id === m.id && commit === m.commit);
  const found = [
    { name: embeddedName, source: 'embedded', path: embeddedFolder(), revision: '', cache: null as string | null },
    ...config.models.directories.flatMap((given) => {
      const directory = expandHome(given, env);
      const path = (name: string): string => findInDirectory(directory, name) ?? directory;
      return modelNames(directory).map((name) => ({ name, source: 'folder', path: path(name), revision: '', cache: null }));
    }),
    ...listSnapshots(cache)
      .filter(isWhole)
      .map((m) => ({
        name: m.id,
        source: cacheSource,
        path: m.path,
        revision: m.refs.join(', ') || m.commit.slice(0, 12),
        cache,
      })),
  ];
  const whole = found.map(({ name, source, path, revision, cache: root }): ListedModel => {
    const listed = { name, source, path, revision };
    try {
      const files = readModelFiles(weightsOf(path, null), root, false);
      return { ...listed, sizeBytes: files.sizeBytes, architecture: files.architecture, format: files.format, problem: null };
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error;
      return { ...listed, sizeBytes: 0, architecture: null, format: null, problem: error.message };
    }
  });
  return [...whole, ...unfinished.map(listedDownload)];
}

function listedDownload({ id, revision, path, totalBytes, receivedBytes }: UnfinishedPull): ListedModel {
  const problem = `Its download is not finished; "inferd pull ${id}@${revision}" goes on with it`;
  const download = { receivedBytes, totalBytes };
  return { name: id, source: cacheSource, path, revision, sizeBytes: receivedBytes, architecture: null, format: null, problem, download };
}

interface Located {
  readonly path: string;
  readonly source: string;
  /** Root that every file must lie in, for a model of the cache. */
  readonly cache: string | null;
}

function locate(config: Config, env: NodeJS.ProcessEnv): Located {
  const name = config.inference.model_name;
  if (name === embeddedName) return { path: embeddedFolder(), source: 'embedded', cache: null };
  const folder = resolve(expandHome(name, env));
  if (isKind(folder, 'directory')) return { path: weightsOf(folder, null), source: 'folder', cache: null };
  if (isGguf(folder) && isKind(folder, 'file')) return { path: ggufParts(folder)[0] ?? folder, source: 'file', cache: null };
  const [base = name, quantization = null] = quantized(name);
  if (quantization !== null && isKind(resolve(expandHome(base, env)), 'directory'))
    return { path: ggufOf(resolve(expandHome(base, env)), quantization) ?? folder, source: 'folder', cache: null };
  for (const directory of config.models.directories) {
    const path = findInDirectory(resolve(expandHome(directory, env)), base);
    if (path !== null) return { path: weightsOf(path, quantization), source: 'folder', cache: null };
  }
  const shown = JSON.stringify(name.slice(0, 200));
  if (!modelIdPattern.test(base) || base.includes('..'))
    throw new ConfigError(
      `There is no folder ${shown}; inference.model_name takes "demo", a folder with a model, a *.gguf file, or a Hugging Face id such as org/name or org/name:Q4_K_M`,
      66,
    );
  const cache = hubCachePath(config.inference.cache_dir, env);
  const { revision } = config.inference;
  const path = findSnapshot(cache, base, revision);
  if (path !== null) return { path: weightsOf(path, quantization), source: cacheSource, cache };
  throw new ConfigError(
    `The model ${shown} (revision ${revision}) is neither a folder nor in the Hugging Face cache ${cache}; ` +
      `download it there, with "inferd pull ${name}", or name a folder with its files`,
    66,
  );
}

/** "org/name:Q4_K_M" in its two parts. */
export function quantized(name: string): readonly [string, string | null] {
  const at = name.lastIndexOf(':');
  const behind = name.slice(at + 1);
  return at > 0 && quantizationPattern.test(behind) ? [name.slice(0, at), behind] : [name, null];
}

/** The folder or the GGUF file that a found model is read from. @throws ConfigError 66 when there is none of the quantization, or several */
function weightsOf(path: string, quantization: string | null): string {
  if (!isGguf(path)) return ggufOf(path, quantization) ?? path;
  if (quantization === null) return ggufParts(path)[0] ?? path;
  throw new ConfigError(`${path} is one file, which no ":${quantization}" chooses among; leave that away`, 66);
}

/** The GGUF file of a folder that is a model by that; null where it is one by other weights. @throws ConfigError 66 */
function ggufOf(folder: string, quantization: string | null): string | null {
  if (quantization === null && readdirSync(folder).some((name) => name.endsWith('.safetensors'))) return null;
  const file = ggufFile(folder, quantization);
  if (file === null && quantization !== null) throw new ConfigError(`${folder} holds no *.gguf file, so none of ${quantization}`, 66);
  return file;
}

type ModelFiles = Pick<
  ModelFolder,
  | 'config'
  | 'architecture'
  | 'format'
  | 'vocabSize'
  | 'hiddenSize'
  | 'maxPositions'
  | 'eosTokenIds'
  | 'bosTokenId'
  | 'generation'
  | 'sizeBytes'
>;

/** A GGUF file says all that other models say in several files. */
function readGgufFile(path: string, cache: string | null): ModelFiles {
  const parts = ggufParts(path);
  const outside = cache === null ? undefined : parts.find((part) => !isInside(cache, part));
  if (outside !== undefined) throw new ConfigError(`${outside} leads out of the cache; download the model again`, 65);
  const head = readGgufParts(parts, (key) => configLists.has(key));
  return { ...modelFiles(ggufConfig(head), {}, path, ggufBytes(path)), format: ggufFormat(head) };
}

function readModelFiles(folder: string, cache: string | null, withoutWeights: boolean): ModelFiles {
  if (isGguf(folder)) return readGgufFile(folder, cache);
  const config = readJson(folder, 'config.json', cache);
  if (config === null) throw new ConfigError(`${folder} is not a model folder: config.json is missing`, 66);
  const at = join(folder, 'config.json');
  const sizeBytes = withoutWeights ? 0 : weightBytes(folder, cache);
  if (!isKind(join(folder, 'tokenizer.json'), 'file'))
    throw new ConfigError(`${folder} has no tokenizer.json; inferd needs the tokenizer in that format (a "fast" tokenizer)`, 66);
  const generation = readJson(folder, 'generation_config.json', cache) ?? {};
  return { ...modelFiles(config, generation, at, sizeBytes), format: safetensorsFormat(withSeparate(config, folder, cache)) };
}

/** Older quantized models say how in a file of its own; native/models/registry.cpp reads the same ones. */
function withSeparate(config: Json, folder: string, cache: string | null): Json {
  if (config['quantization_config'] !== undefined) return config;
  for (const [file, method] of Object.entries({ 'quantize_config.json': 'gptq', 'quant_config.json': 'awq' })) {
    const said = readJson(folder, file, cache);
    if (said !== null) return { ...config, quantization_config: { quant_method: method, ...said } };
  }
  return config;
}

type Json = Readonly<Record<string, unknown>>;

function modelFiles(config: Json, generation: Json, at: string, sizeBytes: number): Omit<ModelFiles, 'format'> {
  const architectures = config['architectures'];
  const architecture: unknown = Array.isArray(architectures) ? architectures[0] : undefined;
  if (typeof architecture !== 'string' || architecture === '')
    throw new ConfigError(`${at} names no architecture; "architectures" must be a list with a name`, 65);
  const vocabSize = size(config, 'vocab_size', at);
  checkSizes(config, at);
  const ids = tokenIds(generation['eos_token_id'], vocabSize);
  return {
    config,
    architecture,
    vocabSize,
    hiddenSize: size(config, 'hidden_size', at),
    maxPositions: size(config, 'max_position_embeddings', at),
    eosTokenIds: ids.length > 0 ? ids : tokenIds(config['eos_token_id'], vocabSize),
    bosTokenId: tokenIds(config['bos_token_id'], vocabSize)[0] ?? null,
    generation: generationDefaults(generation),
    sizeBytes,
  };
}

/** Bytes of all *.safetensors. @throws ConfigError when there are none, with the reason why other formats are not taken. */
function weightBytes(folder: string, cache: string | null): number {
  const names = readdirSync(folder);
  const weights = names.filter((name) => name.endsWith('.safetensors'));
  if (weights.length === 0) {
    if (names.some((name) => /\.(bin|pt|pth|ckpt)$/.test(name)))
      throw new ConfigError(
        `${folder} holds only pickle weights (*.bin, *.pt), which can run code when they are read; use a version of the model with *.safetensors files`,
        65,
      );
    throw new ConfigError(`${folder} holds no *.safetensors files, so there are no weights to load`, 66);
  }
  let bytes = 0;
  for (const name of weights) {
    const path = join(folder, name);
    if (!isKind(path, 'file') || (cache !== null && !isInside(cache, path)))
      throw new ConfigError(`${path} is missing or leads out of the cache; download the model again`, 65);
    bytes += statSync(path).size;
  }
  return bytes;
}

/** One id or a list of ids; what is no id of the vocabulary is left out. */
function tokenIds(value: unknown, vocabSize: number): readonly number[] {
  const list: readonly unknown[] = Array.isArray(value) ? value : [value];
  return list.filter((id): id is number => typeof id === 'number' && Number.isInteger(id) && id >= 0 && id < vocabSize);
}

function generationDefaults(file: Readonly<Record<string, unknown>>): GenerationDefaults {
  const defaults: { -readonly [K in keyof GenerationDefaults]: number } = {};
  for (const key of generationKeys) {
    const value = file[key];
    if (typeof value === 'number' && Number.isFinite(value) && value >= 0) defaults[key] = value;
  }
  return defaults;
}
