/**
 * How answers are made: a table of controls, each with the parameter that it sets. An empty one says nothing, so that the model's own
 * recommendation holds. Texts of JSON are checked here, so that a slip is told before anything is sent.
 */
import { el } from '../../shared/dom.js';

/** name: of the parameter; label: as people say it. */
const numbers = [
  { name: 'temperature', label: 'Temperature', min: 0, max: 2, step: 0.1 },
  { name: 'max_tokens', label: 'Max tokens', min: 1, max: 1048576, step: 1 },
  { name: 'top_p', label: 'Top p', min: 0, max: 1, step: 0.05 },
  { name: 'top_k', label: 'Top k', min: 0, max: 1000, step: 1 },
  { name: 'min_p', label: 'Min p', min: 0, max: 1, step: 0.01 },
  { name: 'seed', label: 'Seed', step: 1 },
  { name: 'repetition_penalty', label: 'Repetition penalty', min: 0.1, max: 2, step: 0.05 },
  { name: 'frequency_penalty', label: 'Frequency penalty', min: -2, max: 2, step: 0.1 },
  { name: 'presence_penalty', label: 'Presence penalty', min: -2, max: 2, step: 0.1 },
];

/** A control that is not filled in as it must be; `field` gets the focus. */
export class WrongSetting extends Error {
  constructor(message, field) {
    super(message);
    this.field = field;
  }
}

function labelled(label, field, ...more) {
  return el('label', { class: 'field' }, el('span', {}, label), field, ...more);
}

function jsonOf(field, label, fits, wanted) {
  const text = field.value.trim();
  if (text === '') return undefined;
  let value;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new WrongSetting(`${label} is no JSON: ${error.message}`, field);
  }
  if (!fits(value)) throw new WrongSetting(`${label} must be ${wanted}.`, field);
  return value;
}

const toolsHint =
  '[{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]';
const schemaHint = '{"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}';

/** The controls, and `read()`: the parameters that they ask for. @throws (read) WrongSetting */
export function settingsPanel() {
  const model = el('select', { autocomplete: 'off' });
  const fields = numbers.map(({ name, min, max, step }) =>
    el('input', { type: 'number', name, inputmode: 'decimal', min, max, step: String(step), placeholder: 'default', autocomplete: 'off' }),
  );
  const area = (rows, placeholder = '') => el('textarea', { rows: String(rows), spellcheck: 'false', autocomplete: 'off', placeholder });
  const system = area(3, 'None');
  const stop = el('input', { type: 'text', autocomplete: 'off', spellcheck: 'false', placeholder: 'none; several with |' });
  const probabilities = el('input', { type: 'checkbox' });
  const schema = area(4, schemaHint);
  const tools = area(4, toolsHint);
  const choice = el('select', {}, ...['auto', 'required', 'none'].map((value) => el('option', { value }, value)));
  const effort = el(
    'select',
    {},
    el('option', { value: '' }, 'default'),
    ...['none', 'low', 'medium', 'high'].map((value) => el('option', { value }, value)),
  );

  const node = el(
    'div',
    { class: 'settings-in' },
    labelled('Model', model),
    el('div', { class: 'pairs' }, ...numbers.map(({ label }, i) => labelled(label, fields[i]))),
    labelled('System prompt', system),
    labelled('Stop strings', stop),
    el('label', { class: 'check' }, probabilities, el('span', {}, 'Show token probabilities')),
    el('details', {}, el('summary', {}, 'Structured output'), labelled('JSON schema', schema)),
    el('details', {}, el('summary', {}, 'Tools'), labelled('Tools as JSON', tools), labelled('Tool choice', choice)),
    el('details', {}, el('summary', {}, 'Reasoning'), labelled('Reasoning effort', effort)),
  );

  return {
    node,
    /** Models by id and whether each can be asked now; keeps the choice. */
    setModels(list) {
      const chosen = model.value;
      model.replaceChildren(...list.map(({ id, state }) => el('option', { value: id }, state === 'ready' ? id : `${id} (${state})`)));
      if (list.some(({ id }) => id === chosen)) model.value = chosen;
    },
    get showTokens() {
      return probabilities.checked;
    },
    /** The turn that stands before all others, if any. */
    system: () => (system.value.trim() === '' ? [] : [{ role: 'system', content: system.value }]),
    read() {
      const params = {};
      if (model.value !== '') params.model = model.value;
      for (const [i, { name, label, min, max }] of numbers.entries()) {
        const field = fields[i];
        if (field.validity.badInput) throw new WrongSetting(`${label} must be a number.`, field);
        if (field.value === '') continue;
        const value = Number(field.value);
        if (value < min || value > max) throw new WrongSetting(`${label} must be from ${min} to ${max}.`, field);
        params[name] = value;
      }
      if (stop.value !== '') params.stop = stop.value.split('|').filter((part) => part !== '');
      if (probabilities.checked) Object.assign(params, { logprobs: true, top_logprobs: 5 });
      const isObject = (value) => typeof value === 'object' && value !== null && !Array.isArray(value);
      const wanted = jsonOf(schema, 'The JSON schema', isObject, 'an object');
      if (wanted !== undefined) params.response_format = { type: 'json_schema', json_schema: { name: 'answer', schema: wanted } };
      const offered = jsonOf(tools, 'The list of tools', Array.isArray, 'a list');
      if (offered !== undefined) Object.assign(params, { tools: offered, tool_choice: choice.value });
      if (effort.value !== '') params.reasoning_effort = effort.value;
      return params;
    },
  };
}
