/**
 * Reads settings from the places that can hold them - TOML text, environment, `--set`, a program - into one list of candidates, without
 * deciding whether a value is good; load.ts does that. The only user of the TOML parser.
 *
 * Every candidate remembers its origin, and every problem is collected instead of thrown, so that a user sees all of them at once.
 */
import { parse } from 'toml';
import { keyLines, keyPath } from './key-lines.js';
import { legacyKeys } from './legacy.js';
import { editDistance, nearest } from './nearest.js';
import { type OptionEntry, optionByName, options, sections, valueText } from './options.js';

/** A value found for an option (or a legacy key), not yet checked. */
export interface Setting {
  /** "section.key" */
  readonly name: string;
  readonly value: unknown;
  /** Where it stands: "FILE:LINE", "environment INFERD_SERVER__PORT", "--set server.port", "option server.port". */
  readonly origin: string;
}

export interface Source {
  readonly settings: readonly Setting[];
  readonly problems: readonly string[];
  /** What was likely meant otherwise. */
  readonly warnings?: readonly string[];
}

/** Largest configuration file, in characters: a real one has a few thousand. */
export const maxFileLength = 2 ** 20;

const isTable = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof Date);

const printable = (name: string): string => (/^[\w-]{1,64}$/.test(name) ? name : JSON.stringify(name.slice(0, 64)));

/** Settings of a TOML text; `file` is the name that errors carry. */
export function fromToml(text: string, file: string): Source {
  if (text.length > maxFileLength) return { settings: [], problems: [`${file}: the file is larger than ${maxFileLength} characters`] };
  let root: Record<string, unknown>;
  try {
    root = parse(text, { maxDepth: 32 }) as Record<string, unknown>;
  } catch (error) {
    return { settings: [], problems: [syntaxProblem(error, file)] };
  }
  const lines = keyLines(text);
  const place = (...path: string[]): string => {
    const line = lines.get(keyPath(path));
    return line === undefined ? file : `${file}:${line}`;
  };
  return fromTables(root, place);
}

/** Settings that a program gives as an object of sections; what is undefined or null in it counts as not given. */
export function fromObject(values: object): Source {
  const given = (table: object): object => Object.fromEntries(Object.entries(table).filter(([, value]) => (value ?? null) !== null));
  const root = Object.fromEntries(Object.entries(given(values)).map(([name, table]) => [name, isTable(table) ? given(table) : table]));
  return fromTables(root, (...path) => `option ${path.map(printable).join('.')}`);
}

/** What the tables of a file or an object hold; `place` says for errors where a section or a key of it stands. */
function fromTables(root: Readonly<Record<string, unknown>>, place: (...path: string[]) => string): Source {
  const settings: Setting[] = [];
  const problems: string[] = [];
  for (const [section, table] of Object.entries(root)) {
    const at = place(section);
    const known = (sections as readonly string[]).includes(section);
    if (!isTable(table)) {
      if (known) problems.push(`${at}: ${section} must be one section, written [${section}]`);
      else problems.push(`${at}: unknown key ${printable(section)} outside of a section; nearest known key: ${nearestKey(section)}`);
      continue;
    }
    if (!known) {
      problems.push(`${at}: unknown section [${printable(section)}]; nearest known section: [${nearest(section, sections)}]`);
      continue;
    }
    for (const [key, value] of Object.entries(table)) {
      const name = `${section}.${key}`;
      const origin = place(section, key);
      const problem = unknownName(name, key, value);
      if (problem === null) settings.push({ name, value, origin });
      else problems.push(`${origin}: ${problem}`);
    }
  }
  return { settings, problems };
}

/** Settings of INFERD_SECTION__KEY variables. Other INFERD_ variables (without a double underscore) are none of ours, but may be meant so. */
export function fromEnvironment(env: NodeJS.ProcessEnv): Source {
  const settings: Setting[] = [];
  const problems: string[] = [];
  const warnings: string[] = [];
  for (const [variable, text] of Object.entries(env).sort(([a], [b]) => (a < b ? -1 : 1))) {
    if (!variable.startsWith('INFERD_') || text === undefined) continue;
    const parts = /^INFERD_(\w+?)__(\w+)$/.exec(variable);
    if (parts === null) {
      const meant = options.find(({ section, key }) => variable === `INFERD_${section}_${key}`.toUpperCase());
      if (meant === undefined) continue;
      const right = `INFERD_${meant.section}__${meant.key}`.toUpperCase();
      warnings.push(`environment ${variable} is not read; section and key are parted by two underscores: ${right}`);
      continue;
    }
    add({ settings, problems }, `${parts[1]}.${parts[2]}`.toLowerCase(), text, `environment ${variable}`);
  }
  return { settings, problems, warnings };
}

/** Settings of `--set section.key=value` arguments, in order: the last one of a key counts. */
export function fromSets(sets: readonly string[]): Source {
  const settings: Setting[] = [];
  const problems: string[] = [];
  for (const set of sets) {
    const equals = set.indexOf('=');
    const name = set.slice(0, equals).trim();
    if (equals < 1 || !/^\w[\w-]*\.[\w-]+$/.test(name)) {
      // The text may hold a secret, so only what stands before "=" is repeated.
      const shown = equals < 0 ? set : name;
      problems.push(`--set ${printable(shown)}: expected section.key=value, for example --set server.port=9000`);
      continue;
    }
    add({ settings, problems }, name, set.slice(equals + 1).trim(), `--set ${name}`);
  }
  return { settings, problems };
}

function add(to: { settings: Setting[]; problems: string[] }, name: string, text: string, origin: string): void {
  const dot = name.indexOf('.');
  const section = name.slice(0, dot);
  if (!(sections as readonly string[]).includes(section)) {
    to.problems.push(`${origin}: unknown section [${printable(section)}]; nearest known section: [${nearest(section, sections)}]`);
    return;
  }
  const problem = unknownName(name, name.slice(dot + 1), undefined);
  if (problem === null) to.settings.push({ name, value: readValue(name, text), origin });
  else to.problems.push(`${origin}: ${problem}`);
}

/** A value from an argument or variable: a TOML value, else the text itself. Options that hold text always get text. */
function readValue(name: string, text: string): unknown {
  let value: unknown = text;
  try {
    const root = parse(`x = ${text}`, { maxDepth: 32 }) as Record<string, unknown>;
    if (Object.keys(root).length === 1) value = root['x'];
  } catch {
    // Not TOML: it is the text that it is.
  }
  const type = optionByName.get(name)?.option.type;
  return (type === 'string' || type === 'enum') && typeof value !== 'string' ? text : value;
}

/** Null when "section.key" is known; else what is wrong. `value` is shown when it cannot be a secret. */
function unknownName(name: string, key: string, value: unknown): string | null {
  if (optionByName.has(name) || legacyKeys.has(name)) return null;
  const dot = name.indexOf('.');
  const shown = `${name.slice(0, dot)}.${printable(key)}`;
  const given = value === undefined || /key|token|secret|password/i.test(key) ? '' : ` = ${valueText(undefined, value)}`;
  return `unknown key ${shown}${given}; nearest known key: ${nearestKey(key, name.slice(0, dot))}`;
}

/** The known "section.key" nearest to `key`. A key of another section must be clearly nearer than any of `section`. */
function nearestKey(key: string, section?: string): string {
  const best = (among: readonly OptionEntry[]): OptionEntry | undefined => {
    const name = nearest(
      key,
      among.map((o) => o.key),
    );
    return among.find((o) => o.key === name);
  };
  const here = best(options.filter((o) => o.section === section));
  const anywhere = best(options);
  const clearlyNearer = 2;
  const cost = (entry: OptionEntry | undefined): number =>
    entry === undefined ? Number.POSITIVE_INFINITY : editDistance(key.slice(0, 64), entry.key);
  return (cost(anywhere) + clearlyNearer < cost(here) ? anywhere : (here ?? anywhere))?.name ?? '';
}

function syntaxProblem(error: unknown, file: string): string {
  const e = error as { message?: string; line?: number; column?: number; location?: { start?: { line?: number; column?: number } } };
  const line = e.line ?? e.location?.start?.line;
  const column = e.column ?? e.location?.start?.column;
  const at = line === undefined ? file : `${file}:${line}${column === undefined ? '' : `:${column}`}`;
  const reason = (e.message ?? 'it cannot be read').replace(/\s+/g, ' ').replace(/\.$/, '');
  return `${at}: the file is not valid TOML: ${/^Expected /.test(reason) ? unexpected(reason) : reason}`;
}

/** A list of what the grammar expected is no help; what was found, and the usual mistake behind it, is. */
function unexpected(reason: string): string {
  const found = /^.* but (.*) found$/s.exec(reason)?.[1];
  if (found === undefined) return reason;
  if (/^"[A-Za-z/~]"$/.test(found)) return `unexpected ${found}; write text in quotes, and true and false in small letters without`;
  return found === '"\\n"' || found === 'end of input' ? 'the line ends too early' : `unexpected ${found}`;
}
