/**
 * Everything that is written about the options, made from the schema so that it cannot go stale: the commented default file
 * (`inferd config init`, config/default.toml), the table of config/README.md, and a JSON Schema for editors. Pure.
 */
import { type OptionEntry, type OptionValue, options, rangeText, sections } from './options.js';
import type { SectionName } from './schema.js';

/** One line on each section, for the headings of the documents. */
const sectionDocs: Readonly<Record<SectionName, string>> = {
  inference: 'The model and the device that runs it.',
  parallel: 'How many devices compute a model together.',
  speculative: 'Several tokens of a sequence in a step.',
  lora: 'Adapters: many fine-tuned models on one base.',
  cache: 'The KV cache.',
  scheduler: 'What runs in a step, and who waits.',
  validation: 'Limits of a request.',
  structured_output: 'What a schema, a pattern or a grammar of a request may cost.',
  server: 'Where the daemon listens, and limits of a connection.',
  auth: 'Who may connect.',
  hub: 'Downloads of models from Hugging Face, or HF_ENDPOINT.',
  models: 'Several models in one daemon: where they are found, and which are loaded.',
  profile: 'Recordings of what the engine does.',
  metrics: 'Figures for Prometheus.',
  log: 'What is logged.',
};

/** A value as TOML; `null` has none. */
export function tomlValue(value: OptionValue): string {
  if (Array.isArray(value)) return `[${(value as readonly (string | number)[]).map((v) => JSON.stringify(v)).join(', ')}]`;
  return JSON.stringify(value);
}

/** What is allowed, less what the doc makes plain. */
const allowedText = (entry: OptionEntry): string => (entry.option.type === 'string' ? 'text' : rangeText(entry.option));

const defaultOf = (entry: OptionEntry): OptionValue => entry.option.default;

/** Breaks text into lines of at most `width` characters at spaces. */
function wrap(text: string, width: number): string[] {
  const lines: string[] = [];
  for (const word of text.split(' ')) {
    const last = lines.at(-1);
    if (last !== undefined && last.length + 1 + word.length <= width) lines[lines.length - 1] = `${last} ${word}`;
    else lines.push(word);
  }
  return lines;
}

/** The commented default file: every option with its doc, range and default, all commented out, so that defaults stay defaults. */
export function defaultToml(): string {
  const out = [
    '# Configuration of inferd. Every line that starts with "#key =" shows an option with its default; remove the "#" to change it.',
    '# Precedence: --set section.key=value, then environment INFERD_SECTION__KEY, then this file, then the default.',
    '# Check it with: inferd config check FILE',
  ];
  for (const section of sections) {
    out.push('', `# ${sectionDocs[section]}`, `[${section}]`);
    for (const entry of options.filter((o) => o.section === section)) {
      out.push('', ...wrap(`${entry.option.doc} Allowed: ${allowedText(entry)}.`, 110).map((line) => `# ${line}`));
      const value = defaultOf(entry);
      out.push(value === null ? `#${entry.key} =   # not set` : `#${entry.key} = ${tomlValue(value)}`);
    }
  }
  return `${out.join('\n')}\n`;
}

/** The table of config/README.md: one row an option. */
export function optionTable(): string {
  const cell = (text: string): string => text.replaceAll('|', '\\|');
  const rows = options.map((entry) => {
    const value = defaultOf(entry);
    return `| \`${entry.name}\` | ${value === null ? 'not set' : `\`${tomlValue(value)}\``} | ${cell(allowedText(entry))} | ${cell(entry.option.doc)} |`;
  });
  return ['| option | default | allowed | what it does |', '|---|---|---|---|', ...rows, ''].join('\n');
}

/** A JSON Schema (draft 2020-12) of the file, for editors that check TOML with one. */
export function jsonSchema(): object {
  const properties = Object.fromEntries(
    sections.map((section) => [
      section,
      {
        type: 'object',
        description: sectionDocs[section],
        additionalProperties: false,
        properties: Object.fromEntries(options.filter((o) => o.section === section).map((entry) => [entry.key, optionSchema(entry)])),
      },
    ]),
  );
  return {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    title: 'inferd configuration',
    type: 'object',
    additionalProperties: false,
    properties,
  };
}

function optionSchema({ option }: OptionEntry): object {
  const value = option.default;
  const described = { description: option.doc, ...(value === null ? {} : { default: value }) };
  switch (option.type) {
    case 'string':
      return { type: 'string', ...described };
    case 'enum':
      return { enum: option.values, ...described };
    case 'enum[]':
      return {
        anyOf: [{ enum: option.values }, { type: 'array', items: { enum: option.values }, minItems: 1, uniqueItems: true }],
        ...described,
      };
    case 'bool':
      return { type: 'boolean', ...described };
    case 'int':
    case 'float':
      return { type: option.type === 'int' ? 'integer' : 'number', minimum: option.min, maximum: option.max, ...described };
    case 'int[]':
      return { type: 'array', items: { type: 'integer', minimum: option.min, maximum: option.max }, ...described };
    case 'string[]':
      return { type: 'array', items: { type: 'string' }, ...described };
    default:
      return option satisfies never;
  }
}
