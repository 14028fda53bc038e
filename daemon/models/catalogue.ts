/**
 * The models that this daemon can find by name: the default one, sub-folders and GGUF files of models.directories, the embedded one, and
 * those in the Hugging Face cache, in this order. A look reads the model's JSON files and its own configuration file, and is remembered for a moment.
 * Main thread.
 */
import { join } from 'node:path';
import { InferdError } from '../../actors/messages/errors.js';
import { ConfigError } from '../../config/error.js';
import { isGguf } from '../../config/gguf/files.js';
import { configOfModel, type MainConfig, modelFile } from '../../config/model-file.js';
import { findSnapshot, listSnapshots } from '../../config/models/hub-cache.js';
import { findInDirectory, modelNames } from '../../config/models/model-directories.js';
import { cacheSource, embeddedName, type ModelFolder, quantized, resolveModelFolder } from '../../config/models/model-folder.js';
import { expandHome, hubCachePath } from '../../config/paths.js';
import type { Config } from '../../config/schema.js';
import { modelNotFound } from '../../rpc/models.js';

/** A model that can be loaded, and the configuration it is loaded with. */
export interface FoundModel {
  readonly model: ModelFolder;
  readonly config: Config;
}

export interface CatalogueOptions {
  readonly main: MainConfig;
  /** The default model. */
  readonly first: FoundModel;
  readonly env: NodeJS.ProcessEnv;
  /** models.directories now. */
  directories(): readonly string[];
}

/** How long a look is remembered, and how many: names come from clients. */
const REMEMBER_MS = 1000;
const MAX_REMEMBERED = 256;
/** Models that a refusal names. */
const MAX_NAMED = 16;

interface Located {
  readonly model: string;
  readonly folder: string | null;
  readonly revision?: string;
}

type Look = { readonly found: FoundModel } | { readonly refusal: InferdError };

export class Catalogue {
  readonly #options: CatalogueOptions;
  readonly #looks = new Map<string, { readonly untilMs: number; readonly look: Look }>();

  constructor(options: CatalogueOptions) {
    this.#options = options;
  }

  get first(): FoundModel {
    return this.#options.first;
  }

  /** @throws InferdError model_not_found; bad_model or unsupported for one that is there and cannot be served */
  find(name: string): FoundModel {
    if (name === this.first.model.name) return this.first;
    const look = this.#look(name);
    if ('refusal' in look) throw look.refusal;
    return look.found;
  }

  /** All that can be loaded as far as their files tell, the default model first. */
  list(): readonly FoundModel[] {
    return [this.first, ...this.#names().flatMap((name) => found(this.#look(name)))];
  }

  /** Names besides the default model's. A second name of the same folder is left out. */
  #names(): string[] {
    const { main, env, first } = this.#options;
    const folders = this.#options.directories().flatMap((directory) => modelNames(expandHome(directory, env)));
    const cached = listSnapshots(hubCachePath(main.config.inference.cache_dir, env));
    const names = [...folders, embeddedName, ...cached.map(({ id }) => id)];
    return [...new Set(names)].filter(
      (name) => name !== first.model.name && found(this.#look(name)).every(({ model }) => model.path !== first.model.path),
    );
  }

  #look(name: string): Look {
    const nowMs = performance.now();
    const known = this.#looks.get(name);
    if (known !== undefined && known.untilMs > nowMs) return known.look;
    if (this.#looks.size >= MAX_REMEMBERED) this.#looks.clear();
    const look = this.#read(name);
    this.#looks.set(name, { untilMs: nowMs + REMEMBER_MS, look });
    return look;
  }

  #read(name: string): Look {
    const { main, env, first } = this.#options;
    const at = this.#locate(name);
    // Names are made without looks here: those of a refusal need not be models that load.
    if (at === null && revisionOf(name) !== null) return { refusal: notAtRevision(name) };
    if (at === null) return { refusal: modelNotFound(name, [first.model.name, ...this.#otherNames()]) };
    try {
      const config = configOfModel(main, { name, ...at }, modelFile(withoutRevision(name), at.folder, env));
      const model = resolveModelFolder(config, env);
      // A folder of the same name has no revisions.
      return revisionOf(name) !== null && model.source !== cacheSource ? { refusal: notAtRevision(name) } : { found: { config, model } };
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error;
      return { refusal: new InferdError(error.exitCode === 65 ? 'bad_model' : 'unsupported', error.message) };
    }
  }

  #otherNames(): string[] {
    const { main, env, first } = this.#options;
    const folders = this.#options.directories().flatMap((directory) => modelNames(expandHome(directory, env)));
    const cached = listSnapshots(hubCachePath(main.config.inference.cache_dir, env)).map(({ id }) => id);
    return [...new Set([...folders, ...cached])].filter((other) => other !== first.model.name).slice(0, MAX_NAMED);
  }

  /** What inference.model_name takes for a name, and the folder that its file may lie beside. */
  #locate(name: string): Located | null {
    const { main, env } = this.#options;
    const [base, quantization] = quantized(name);
    for (const directory of this.#options.directories()) {
      const path = findInDirectory(expandHome(directory, env), base);
      if (path === null || (quantization !== null && isGguf(path))) continue;
      return { model: quantization === null ? path : `${path}:${quantization}`, folder: join(expandHome(directory, env), base) };
    }
    if (name === embeddedName) return { model: embeddedName, folder: null };
    const revision = revisionOf(name) ?? 'main';
    const id = withoutRevision(base);
    const snapshot = findSnapshot(hubCachePath(main.config.inference.cache_dir, env), id, revision);
    return snapshot === null ? null : { model: withoutRevision(name), folder: null, revision };
  }
}

function found(look: Look): readonly FoundModel[] {
  return 'found' in look ? [look.found] : [];
}

/** "v1" of "org/name@v1" and of "org/name@v1:Q4_K_M". */
const revisionOf = (name: string): string | null => /^[\w./-]+@([A-Za-z0-9][\w./-]{0,127})(?::|$)/.exec(name)?.[1] ?? null;
const withoutRevision = (name: string): string => (revisionOf(name) === null ? name : name.replace(/@[^:]*/, ''));

function notAtRevision(name: string): InferdError {
  const shown = name.slice(0, 200);
  return new InferdError(
    'model_not_found',
    `The Hugging Face cache has no model ${JSON.stringify(withoutRevision(shown))} at revision ${JSON.stringify(revisionOf(shown))}; ` +
      `"inferd pull ${withoutRevision(shown).split(':')[0]}@${revisionOf(shown)}" fetches it`,
  );
}
