/** A JSON Schema as a list of fields that can be opened. */

import { el, prose } from '../shared/dom.js';
import { deref } from './documents.js';

/** Schemas within schemas that are shown; deeper ones are named only. */
const DEEPEST = 8;

/** What a value may be, in a few words. */
export function typeText(root, given, depth = 0) {
  const schema = deref(root, given);
  if (depth > 3) return 'value';
  if (schema === true || Object.keys(schema).length === 0) return 'anything';
  if ('const' in schema) return JSON.stringify(schema.const);
  if (Array.isArray(schema.enum)) return schema.enum.map((value) => JSON.stringify(value)).join(' | ');
  const choices = schema.anyOf ?? schema.oneOf;
  if (choices !== undefined) return [...new Set(choices.map((one) => typeText(root, one, depth + 1)))].join(' | ');
  if (schema.allOf !== undefined && schema.type === undefined) return typeText(root, schema.allOf[0], depth + 1);
  const types = [schema.type ?? (schema.properties ? 'object' : 'anything')].flat();
  return types
    .map((type) => {
      if (type === 'array') return schema.items ? `array of ${typeText(root, schema.items, depth + 1)}` : 'array';
      return type;
    })
    .join(' | ');
}

const SAFE = Number.MAX_SAFE_INTEGER;

/** Ranges and lengths, as "0 to 20"; what no value could pass anyway is left out. */
export function rangeText(root, given) {
  const choices = given.anyOf ?? given.oneOf;
  if (choices !== undefined)
    return [...new Set(choices.map((one) => rangeText(root, deref(root, one))).filter((text) => text !== ''))].join('; ');
  const { minimum, maximum, exclusiveMinimum, minLength, maxLength, minItems, maxItems, pattern, format, default: unsaid } = given;
  const said = [];
  const low = minimum !== undefined && minimum > -SAFE ? minimum : undefined;
  const high = maximum !== undefined && maximum < SAFE ? maximum : undefined;
  if (low !== undefined && high !== undefined) said.push(`${low} to ${high}`);
  else if (low !== undefined) said.push(`at least ${low}`);
  else if (high !== undefined) said.push(`at most ${high}`);
  if (exclusiveMinimum !== undefined) said.push(`more than ${exclusiveMinimum}`);
  if (minLength !== undefined && maxLength !== undefined) said.push(`${minLength} to ${maxLength} characters`);
  else if (maxLength !== undefined) said.push(`at most ${maxLength} characters`);
  if (minItems !== undefined && maxItems !== undefined) said.push(`${minItems} to ${maxItems} of them`);
  else if (maxItems !== undefined) said.push(`at most ${maxItems} of them`);
  else if (minItems !== undefined) said.push(`at least ${minItems} of them`);
  if (pattern !== undefined) said.push(`matches ${pattern}`);
  if (format !== undefined) said.push(format);
  if (unsaid !== undefined) said.push(`default ${JSON.stringify(unsaid)}`);
  return said.join(', ');
}

/** The schemas inside one that have fields of their own. */
function inner(root, given) {
  const schema = deref(root, given);
  const inside = [...(schema.anyOf ?? schema.oneOf ?? schema.allOf ?? [])];
  if (schema.items !== undefined && typeof schema.items === 'object') inside.push(schema.items);
  if (typeof schema.additionalProperties === 'object' && Object.keys(schema.additionalProperties).length > 0)
    inside.push(schema.additionalProperties);
  const found = inside.flatMap((one) => inner(root, one));
  return schema.properties === undefined ? found : [schema, ...found];
}

/** One field: its name, what it may be, what is said about it, and what is inside. */
export function fieldItem(root, name, given, required, depth = 0) {
  const schema = deref(root, given);
  const objects = depth >= DEEPEST ? [] : inner(root, schema);
  const range = rangeText(root, schema);
  const description = given.description ?? schema.description;
  const head = [
    el('code', { class: 'name' }, name),
    ' ',
    el('span', { class: 'type' }, typeText(root, schema)),
    required ? el('span', { class: 'required' }, ' required') : null,
    range === '' ? null : el('span', { class: 'range' }, ` ${range}`),
  ];
  const said = description === undefined ? null : el('div', { class: 'said' }, prose(description));
  if (objects.length === 0) return el('li', {}, el('div', { class: 'field' }, head), said);
  return el(
    'li',
    {},
    el('details', {}, el('summary', { class: 'field' }, head), ...objects.map((object) => fieldList(root, object, depth + 1))),
    said,
  );
}

/** The fields of an object. */
export function fieldList(root, given, depth = 0) {
  const schema = deref(root, given);
  const required = new Set(schema.required ?? []);
  const names = Object.keys(schema.properties ?? {}).sort((a, b) => Number(required.has(b)) - Number(required.has(a)));
  return el('ul', { class: 'fields' }, ...names.map((name) => fieldItem(root, name, schema.properties[name], required.has(name), depth)));
}

/** Any schema: the fields of an object, or what its choices have; else what it may be. */
export function schemaView(root, given) {
  const schema = deref(root, given);
  const objects = inner(root, schema);
  const said = schema.description === undefined ? null : el('p', { class: 'said' }, prose(schema.description));
  const lists = objects.map((object, i) => [i === 0 ? null : el('p', { class: 'or' }, 'or'), fieldList(root, object)]);
  const whole = [schema.type].flat().includes('array') || objects.length === 0;
  return el('div', {}, whole ? el('p', { class: 'type' }, typeText(root, schema)) : null, said, ...lists.flat());
}
