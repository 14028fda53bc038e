/**
 * Makes the one frozen Config of a process from a TOML file, the environment, `--set` arguments, values of a program and the defaults of
 * the schema. Precedence: a program's values, then --set, then environment INFERD_SECTION__KEY, then file, then default. Every value
 * remembers its origin.
 *
 * Whatever the input, the only thing thrown is ConfigError, with all problems at once, one sentence each, naming place, key, value and
 * what is allowed. Values of secret options never appear in a message. Called once by each command that needs a configuration and
 * again by the daemon when it reloads.
 */
import { readFileSync, statSync } from 'node:fs';
import { checkConfig } from './check.js';
import { ConfigError } from './error.js';
import { legacyKeys } from './legacy.js';
import { acceptValue, type OptionValue, optionByName, options, rangeText, valueText } from './options.js';
import type { Config } from './schema.js';
import { fromEnvironment, fromObject, fromSets, fromToml, maxFileLength, type Setting, type Source } from './setting-sources.js';

export { ConfigError } from './error.js';

/** Some values of the schema, by section. */
export type ConfigValues = { readonly [S in keyof Config]?: { readonly [K in keyof Config[S]]?: Config[S][K] | undefined } | undefined };
/** Values in place of the schema's defaults. */
export type ConfigDefaults = { readonly [S in keyof Config]?: Partial<Config[S]> };

export interface LoadOptions {
  /** Path of the TOML file; no file when absent. */
  readonly file?: string;
  /** "section.key=value", the last of a key counts. */
  readonly sets?: readonly string[];
  /** What a program asks for; wins over all else. */
  readonly values?: ConfigValues;
  /** `process.env` when absent. */
  readonly env?: NodeJS.ProcessEnv;
  readonly defaults?: ConfigDefaults;
}

export interface LoadedConfig {
  /** Deeply frozen. */
  readonly config: Config;
  /** "section.key" -> "default", "FILE:LINE", "environment NAME", "--set section.key" or "option section.key"; every option has one. */
  readonly origins: Map<string, string>;
  readonly file: string | null;
  /** Things that are allowed but likely not what was meant, one sentence each. */
  readonly warnings: readonly string[];
}

/** Loads the configuration. @throws ConfigError: 66 when the file is missing, else 78. */
export function loadConfig(given: LoadOptions = {}): LoadedConfig {
  const text = given.file === undefined ? null : { name: given.file, text: readText(given.file) };
  return loadConfigText(text, given);
}

/** The same from a text in memory; `source.name` is the file name that errors carry. */
export function loadConfigText(source: { readonly name: string; readonly text: string } | null, given: LoadOptions = {}): LoadedConfig {
  const sources: readonly Source[] = [
    source === null ? { settings: [], problems: [] } : fromToml(source.text, source.name),
    fromEnvironment(given.env ?? process.env),
    fromSets(given.sets ?? []),
    fromObject(given.values ?? {}),
  ];
  const problems = sources.flatMap((s) => s.problems);
  const warnings = sources.flatMap((s) => s.warnings ?? []);

  const values = new Map<string, OptionValue>();
  const origins = new Map<string, string>();
  for (const entry of options) {
    const own = (given.defaults?.[entry.section] as Readonly<Record<string, OptionValue | undefined>> | undefined)?.[entry.key];
    values.set(entry.name, own === undefined ? entry.option.default : own);
    origins.set(entry.name, 'default');
  }

  const bad = new Set<string>();
  for (const setting of sources.flatMap((s) => [...s.settings].sort(legacyFirst))) {
    const legacy = legacyKeys.get(setting.name);
    if (legacy !== undefined) warnings.push(`${setting.origin}: ${setting.name} ${legacy.note}`);
    const entry = optionByName.get(legacy === undefined ? setting.name : (legacy.becomes ?? ''));
    if (entry === undefined) continue;
    const value = acceptValue(entry.option, setting.value);
    if (value === undefined) {
      bad.add(entry.name);
      const shown = valueText(entry.option, setting.value);
      problems.push(`${setting.origin}: ${setting.name} = ${shown} is not allowed; expected ${rangeText(entry.option)}`);
    } else {
      values.set(entry.name, value);
      origins.set(entry.name, setting.origin);
    }
  }

  const config = assemble(values);
  for (const finding of checkConfig(config)) {
    // A rule over a value that was refused would only repeat that.
    if (finding.keys.some((key) => bad.has(key))) continue;
    const origin = finding.keys.map((key) => origins.get(key)).find((o) => o !== undefined && o !== 'default');
    const sentence = origin === undefined ? finding.message : `${origin}: ${finding.message}`;
    (finding.severity === 'error' ? problems : warnings).push(sentence);
  }
  if (problems.length > 0) throw new ConfigError(problems);
  return { config, origins, file: source?.name ?? null, warnings };
}

/** An option set beside its legacy spelling wins, whatever their order in the file. */
const legacyFirst = (a: Setting, b: Setting): number => Number(legacyKeys.has(b.name)) - Number(legacyKeys.has(a.name));

function assemble(values: ReadonlyMap<string, OptionValue>): Config {
  const config: Record<string, Record<string, OptionValue>> = {};
  for (const { section, key, name } of options) {
    const value = values.get(name) ?? null;
    config[section] ??= {};
    config[section][key] = Array.isArray(value) ? Object.freeze([...value]) : value;
  }
  for (const section of Object.values(config)) Object.freeze(section);
  // Proof of the cast: every option of the schema was set above to its default or to a value that acceptValue let through.
  return Object.freeze(config) as unknown as Config;
}

function readText(file: string): string {
  try {
    if (!statSync(file).isFile()) throw new ConfigError(`${file} is not a file; give the path of a TOML file`, 66);
    if (statSync(file).size > 4 * maxFileLength) throw new ConfigError(`${file}: the file is larger than ${maxFileLength} characters`);
    return readFileSync(file, 'utf8');
  } catch (error) {
    if (error instanceof ConfigError) throw error;
    const code = (error as NodeJS.ErrnoException).code;
    if (code === 'ENOENT' || code === 'ENOTDIR') {
      throw new ConfigError(`The configuration file ${file} does not exist; "inferd config init" writes one`, 66);
    }
    throw new ConfigError(`The configuration file ${file} cannot be read (${code ?? 'unknown reason'}); check its permissions`, 66);
  }
}
