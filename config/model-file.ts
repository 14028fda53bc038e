/**
 * The configuration of one model among several: the daemon's own, with what the model's file says in between.
 *
 *   --set, environment  >  NAME.toml  >  main file  >  default
 *
 * NAME.toml lies in the folder `models` of the user's configuration, or beside the model. It says only what is of a model: [inference],
 * [cache], [scheduler] and [validation]. Used on the main thread when a model is looked up.
 */
import { existsSync, readFileSync, statSync } from 'node:fs';
import { isAbsolute, join, resolve } from 'node:path';
import { ConfigError } from './error.js';
import { type LoadedConfig, loadConfigText } from './load.js';
import { type OptionEntry, type OptionValue, options, optionValue } from './options.js';
import { expandHome, inferdPaths } from './paths.js';
import type { Config, SectionName } from './schema.js';
import { fromToml, maxFileLength } from './setting-sources.js';

/** Sections that a model's file may have. */
const ownSections: ReadonlySet<string> = new Set<SectionName>(['inference', 'cache', 'scheduler', 'validation']);

/** What the main configuration says of the default model alone, so that others do not inherit it. */
const ofDefaultModel: ReadonlySet<string> = new Set([
  'inference.model_name',
  'inference.revision',
  'inference.served_model_name',
  'inference.load_dummy',
]);

/** What the built-in profile cuts to the size of its own model. Said by anybody else, it holds for every model. */
const cutByProfile = 'cache.num_gpu_blocks_override';

/** What the name of the file says already. */
const namedByFile: readonly string[] = ['inference.model_name', 'inference.served_model_name'];

/** The daemon's configuration; `origins`: where each value came from, all from the file when absent. */
export interface MainConfig extends Pick<LoadedConfig, 'config'> {
  readonly origins?: ReadonlyMap<string, string>;
  /** Path of the built-in profile, which the daemon's configuration may come from. */
  readonly profile?: string;
}

/** A model other than the default one. */
export interface OtherModel {
  /** As calls name it. */
  readonly name: string;
  /** What inference.model_name takes: "demo", an id or a folder. */
  readonly model: string;
  /** Of the Hugging Face cache; "main" when not said. */
  readonly revision?: string;
}

/** The model's file: NAME.toml in the user's folder, else beside the model, else null. A "/" in a name is a folder there. */
export function modelFile(name: string, folder: string | null, env: NodeJS.ProcessEnv): string | null {
  if (name === '' || name.includes('\0') || name.split(/[/\\]/).includes('..')) return null;
  const own = join(inferdPaths(env).configDir, 'models', `${name}.toml`);
  const beside = folder === null ? null : `${folder}.toml`;
  return [own, beside].find((file) => file !== null && existsSync(file)) ?? null;
}

/** The default model's file. */
export function fileOfDefault({ inference }: Config, env: NodeJS.ProcessEnv): string | null {
  const { model_name, served_model_name } = inference;
  const folder = isAbsolute(expandHome(model_name, env)) ? resolve(expandHome(model_name, env)) : null;
  return modelFile(served_model_name ?? model_name, folder, env);
}

/** The default model's configuration: the main one with its file. @throws ConfigError 78 */
export function configOfDefault(main: MainConfig, file: string | null): Config {
  return file === null ? main.config : layered(main, file, new Set(), {});
}

/** Another model's. What the main configuration says of the default model alone does not count. @throws ConfigError 78 */
export function configOfModel(main: MainConfig, { name, model, revision = 'main' }: OtherModel, file: string | null): Config {
  const { origins, profile } = main;
  const cut = profile !== undefined && origins?.get(cutByProfile)?.startsWith(profile) === true;
  return layered(main, file, cut ? new Set([...ofDefaultModel, cutByProfile]) : ofDefaultModel, {
    model_name: model,
    served_model_name: name,
    revision,
  });
}

type Names = { readonly model_name?: string; readonly served_model_name?: string; readonly revision?: string };

function layered({ config, origins }: MainConfig, file: string | null, without: ReadonlySet<string>, names: Names): Config {
  const text = file === null ? null : { name: file, text: readSettings(file) };
  const inherited = options.filter(({ name }) => !without.has(name));
  const wins = ({ section, name }: OptionEntry): boolean =>
    ownSections.has(section) && /^(--set|environment|option) /.test(origins?.get(name) ?? '');
  const values = tables(config, inherited.filter(wins));
  return loadConfigText(text, {
    env: {},
    defaults: tables(config, inherited),
    values: { ...values, inference: { ...values['inference'], ...names } },
  }).config;
}

function tables(config: Config, entries: readonly OptionEntry[]): Record<string, Record<string, OptionValue>> {
  const found: Record<string, Record<string, OptionValue>> = {};
  for (const entry of entries) {
    found[entry.section] ??= {};
    found[entry.section]![entry.key] = optionValue(config, entry); // made above
  }
  return found;
}

/** @throws ConfigError for a file that cannot be read, or that says what is not of a model */
function readSettings(file: string): string {
  let text: string;
  try {
    const stat = statSync(file);
    if (!stat.isFile()) throw new ConfigError(`The model's file ${file} is not a file`);
    if (stat.size > 4 * maxFileLength) throw new ConfigError(`${file}: the file is larger than ${maxFileLength} characters`);
    text = readFileSync(file, 'utf8');
  } catch (error) {
    if (error instanceof ConfigError) throw error;
    const code = (error as NodeJS.ErrnoException).code ?? 'unknown reason';
    throw new ConfigError(`The model's file ${file} cannot be read (${code}); check its permissions`, 78);
  }
  const { settings } = fromToml(text, file);
  const elsewhere = settings.filter(({ name }) => !ownSections.has(name.split('.')[0] ?? ''));
  const named = settings.filter(({ name }) => namedByFile.includes(name));
  const problems = [
    ...elsewhere.map(({ name, origin }) => `${origin}: ${name} is not of one model; set it in the daemon's own configuration`),
    ...named.map(({ name, origin }) => `${origin}: ${name} is said by the name of the file; leave it out`),
  ];
  if (problems.length > 0) throw new ConfigError(problems);
  return text;
}
