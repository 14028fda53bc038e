/**
 * What a model says about text besides its vocabulary: names of special tokens and chat templates. Read once at start-up,
 * called by encode/encode.ts.
 *
 * Templates are found where Hugging Face's tokenizers look: `chat_template.jinja` goes before `chat_template` of
 * tokenizer_config.json, which is one template or a list of named ones ("default", and "tool_use" when tools are given).
 */
import { modelFilePath, readModelFile } from './model-files.js';
import { isObject } from './tokenizer-json.js';

export interface ModelText {
  /** Template variables such as bos_token and eos_token. */
  readonly specialTokens: Readonly<Record<string, string>>;
  /** Sources of templates by name; empty when the model has none. */
  readonly templates: ReadonlyMap<string, string>;
}

const TOKEN_NAMES = ['bos_token', 'eos_token', 'unk_token', 'pad_token', 'sep_token', 'cls_token', 'mask_token'];

/**
 * @param tokenOf text of a token id, for models that name a special token by id only.
 * @throws Error with one sentence when a file is there but is not what it should be.
 */
export function readModelText(folder: string, bosId: number | null, eosId: number | null, tokenOf: (id: number) => string): ModelText {
  const config = readJson(folder, 'tokenizer_config.json');
  const map = readJson(folder, 'special_tokens_map.json');
  const specialTokens: Record<string, string> = {};
  for (const name of TOKEN_NAMES) {
    const text = tokenText(config[name]) ?? tokenText(map[name]);
    if (text !== null) specialTokens[name] = text;
  }
  specialTokens['bos_token'] ??= bosId === null ? '' : tokenOf(bosId);
  specialTokens['eos_token'] ??= eosId === null ? '' : tokenOf(eosId);
  return { specialTokens, templates: readTemplates(folder, config['chat_template']) };
}

function readTemplates(folder: string, configured: unknown): ReadonlyMap<string, string> {
  const templates = new Map<string, string>();
  if (typeof configured === 'string') templates.set('default', configured);
  else if (Array.isArray(configured)) {
    for (const entry of configured) {
      if (isObject(entry) && typeof entry['name'] === 'string' && typeof entry['template'] === 'string') {
        templates.set(entry['name'], entry['template']);
      }
    }
  }
  const file = readText(folder, 'chat_template.jinja');
  if (file !== null) templates.set('default', file);
  return templates;
}

/** A special token is written as its text or as an object with its text. */
function tokenText(value: unknown): string | null {
  if (typeof value === 'string') return value;
  return isObject(value) && typeof value['content'] === 'string' ? value['content'] : null;
}

function readJson(folder: string, name: string): Record<string, unknown> {
  const text = readText(folder, name);
  if (text === null) return {};
  try {
    const value: unknown = JSON.parse(text);
    if (isObject(value)) return value;
  } catch (cause) {
    throw new Error(`The model file ${modelFilePath(folder, name)} is not valid JSON.`, { cause });
  }
  throw new Error(`The model file ${modelFilePath(folder, name)} does not hold a JSON object.`);
}

function readText(folder: string, name: string): string | null {
  try {
    return readModelFile(folder, name);
  } catch (cause) {
    throw new Error(`The model file ${modelFilePath(folder, name)} cannot be read.`, { cause });
  }
}
