/**
 * `inferd config check|show|init`: validates a file, prints the effective configuration with the origin of each value, writes a
 * commented file with every option.
 */
import { writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { loadConfig } from '../../config/load.js';
import { defaultToml, jsonSchema, optionTable, tomlValue } from '../../config/option-docs.js';
import { options, optionValue, valueText } from '../../config/options.js';
import { userConfigPath } from '../../config/paths.js';
import { makeFolder } from '../make-folder.js';
import { effectiveConfig, printWarnings } from './effective.js';
import { table } from './table.js';
import { CliError, configOptions, EXIT, type ExitCode, jsonOption, printJson, type Verb, type VerbInput } from './verb.js';

const check: Verb = {
  name: 'check',
  summary: 'validate a configuration file',
  details: 'Prints every problem, one a line, and exits with 78 when there is one. The environment does not count here, --set does.',
  args: [{ name: '<file>', doc: 'TOML file to check' }],
  options: [{ flags: '--set <section.key=value>', doc: 'set one option on top; may be repeated', kind: 'list' }, jsonOption],
  examples: ['inferd config check my.toml'],
  run: runCheck,
};

const show: Verb = {
  name: 'show',
  summary: 'print the effective configuration and where each value came from',
  options: [...configOptions, jsonOption],
  examples: ['inferd config show', 'inferd config show --config my.toml --set server.port=9000'],
  run: runShow,
};

const init: Verb = {
  name: 'init',
  summary: 'write a commented file with every option',
  details: 'Writes to the user configuration folder, or to FILE; "-" prints it. An existing file is kept unless --force is given.',
  args: [{ name: '[file]', doc: 'where to write; the user configuration file when not given' }],
  options: [
    { flags: '--force', doc: 'overwrite an existing file' },
    { flags: '--format <format>', doc: 'toml, or one of the documents made from the same list: markdown, json-schema', kind: 'text' },
  ],
  examples: ['inferd config init', 'inferd config init my.toml', 'inferd config init - --format json-schema'],
  run: runInit,
};

export const config: Verb = {
  name: 'config',
  summary: 'check, show or write the configuration',
  examples: ['inferd config check my.toml', 'inferd config show', 'inferd config init'],
  verbs: [check, show, init],
};

async function runCheck(input: VerbInput): Promise<ExitCode> {
  const { io } = input;
  const file = input.args[0] ?? '';
  const loaded = loadConfig({ file, sets: input.list('set'), env: {} });
  if (input.flag('json')) printJson(io, { file, ok: true, warnings: loaded.warnings });
  else {
    printWarnings(input, loaded);
    io.stdout.write(`${file}: good, ${[...loaded.origins.values()].filter((o) => o !== 'default').length} options set\n`);
  }
  return EXIT.ok;
}

async function runShow(input: VerbInput): Promise<ExitCode> {
  const { io } = input;
  const loaded = effectiveConfig(input);
  const shown = options.map((entry) => {
    const value = optionValue(loaded.config, entry);
    return { entry, value: entry.option.secret && value !== null ? null : value, text: valueText(entry.option, value) };
  });
  if (input.flag('json')) {
    const values = shown.map(({ entry, value, text }) => ({
      key: entry.name,
      value,
      ...(text === '(secret)' ? { secret: true } : {}),
      origin: loaded.origins.get(entry.name),
    }));
    printJson(io, { file: loaded.file, warnings: loaded.warnings, options: values });
    return EXIT.ok;
  }
  printWarnings(input, loaded);
  const rows = shown.map(({ entry, value, text }) => [
    entry.name,
    text.startsWith('(') ? text : tomlValue(value),
    loaded.origins.get(entry.name) ?? '',
  ]);
  io.stdout.write(`# ${loaded.file ?? 'no file'}\n${table(['option', 'value', 'from'], rows)}`);
  return EXIT.ok;
}

const formats: Readonly<Record<string, () => string>> = {
  toml: defaultToml,
  markdown: optionTable,
  'json-schema': () => `${JSON.stringify(jsonSchema(), null, 2)}\n`,
};

async function runInit(input: VerbInput): Promise<ExitCode> {
  const { io } = input;
  const format = input.text('format') ?? 'toml';
  const make = Object.hasOwn(formats, format) ? formats[format] : undefined;
  if (make === undefined)
    throw new CliError(`--format "${format}" is not allowed; expected ${Object.keys(formats).join(', ')}`, EXIT.usage);
  const file = input.args[0] ?? userConfigPath(io.env);
  if (file === '-') {
    io.stdout.write(make());
    return EXIT.ok;
  }
  try {
    makeFolder(dirname(file));
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new CliError(`The folder ${dirname(file)} cannot be made (${code}); give another path`, EXIT.config, error);
  }
  try {
    writeFileSync(file, make(), { flag: input.flag('force') ? 'w' : 'wx', mode: 0o600 });
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === 'EEXIST') throw new CliError(`${file} exists already; give another name, or --force to overwrite it`, EXIT.config, error);
    throw new CliError(`${file} cannot be written (${code}); check the folder and its permissions`, EXIT.config, error);
  }
  io.stdout.write(`Wrote ${file}; edit it, then run: inferd config check ${file}\n`);
  return EXIT.ok;
}
