/**
 * The schema table as a list of (section, key, option), with value checks and value texts derived from it. Pure; used by the loader,
 * the documents made from the schema, and `config show`.
 */
import { type Config, type Option, type SectionName, schema } from './schema.js';

/** A value an option can have. `null` = not set. */
export type OptionValue = string | number | boolean | null | readonly number[] | readonly string[];

export interface OptionEntry {
  readonly section: SectionName;
  readonly key: string;
  /** "section.key" */
  readonly name: string;
  readonly option: Option;
}

/** All options in the order of the schema. */
export const options: readonly OptionEntry[] = Object.entries(schema).flatMap(([section, keys]) =>
  Object.entries(keys as Readonly<Record<string, Option>>).map(([key, option]) => ({
    section: section as SectionName,
    key,
    name: `${section}.${key}`,
    option,
  })),
);

/** All options by "section.key". */
export const optionByName: ReadonlyMap<string, OptionEntry> = new Map(options.map((entry) => [entry.name, entry]));

export const sections = Object.keys(schema) as readonly SectionName[];

/** Longest string and list that an option takes: bounds on text that ends up in paths and messages. */
const maxText = 4096;
const maxList = 1024;

/** The allowed values in words, for errors and tables: "0 to 65535 (s)". */
export function rangeText(option: Option): string {
  const unit = option.unit === undefined ? '' : ` ${option.unit}`;
  switch (option.type) {
    case 'string':
      return `text, at most ${maxText} characters`;
    case 'enum':
      return option.values.map((v) => JSON.stringify(v)).join(', ');
    case 'enum[]':
      return `${option.values.map((v) => JSON.stringify(v)).join(', ')}, or a list of them`;
    case 'bool':
      return 'true or false';
    case 'int':
      return `a whole number from ${option.min} to ${option.max}${unit}`;
    case 'float':
      return `a number from ${option.min} to ${option.max}${unit}`;
    case 'int[]':
      return `a list of whole numbers from ${option.min} to ${option.max}`;
    case 'string[]':
      return 'a list of strings';
    default:
      return option satisfies never;
  }
}

/**
 * Checks one value that came from TOML against its option. An empty string for an option that may be unset means "not set", because
 * Atoma files write `api_key = ""`. Returns the value, or undefined when it is not allowed.
 */
export function acceptValue(option: Option, value: unknown): OptionValue | undefined {
  if (value === '' && option.default === null) return null;
  switch (option.type) {
    case 'string':
      return typeof value === 'string' && value !== '' && value.length <= maxText && !value.includes('\u0000') ? value : undefined;
    case 'enum':
      return typeof value === 'string' && option.values.includes(value) ? value : undefined;
    case 'enum[]': {
      const known = (v: unknown): v is string => typeof v === 'string' && option.values.includes(v);
      if (!isList(value)) return known(value) ? value : undefined;
      return value.length > 0 && new Set(value).size === value.length && value.every(known) ? value : undefined;
    }
    case 'bool':
      return typeof value === 'boolean' ? value : undefined;
    case 'int':
      return isInt(value, option) ? value : undefined;
    case 'float':
      return typeof value === 'number' && value >= option.min && value <= option.max ? value : undefined;
    case 'int[]':
      return isList(value) && value.every((v): v is number => isInt(v, option)) ? value : undefined;
    case 'string[]':
      return isList(value) && value.every((v): v is string => typeof v === 'string' && v !== '' && v.length <= maxText) ? value : undefined;
    default:
      return option satisfies never;
  }
}

const isList = (value: unknown): value is unknown[] => Array.isArray(value) && value.length <= maxList;

function isInt(value: unknown, range: { readonly min: number; readonly max: number }): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= range.min && value <= range.max;
}

/** A value as TOML text, cut to one readable line; secrets are never shown. */
export function valueText(option: Option | undefined, value: unknown): string {
  if (option?.secret && value !== null) return '(secret)';
  if (value === null) return '(not set)';
  if (value instanceof Date) return value.toISOString();
  if (typeof value === 'number' || typeof value === 'bigint') return String(value);
  const text = typeof value === 'object' && !Array.isArray(value) ? 'a table' : (JSON.stringify(value) ?? String(value));
  return text.length > 120 ? `${text.slice(0, 117)}...` : text;
}

/** The value of an option in a configuration. */
export function optionValue(config: Config, entry: OptionEntry): OptionValue {
  return (config[entry.section] as Readonly<Record<string, OptionValue>>)[entry.key] ?? null;
}
