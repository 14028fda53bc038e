/** The panel in which a route or a method is tried: fields, a button, and what comes back, while it comes. */

import { copyButton, el, jsonBlock, jsonText } from '../shared/dom.js';
import { session } from './documents.js';
import { curlText, examplesOf, httpRequest, jsonBody, messageText, rpcRequest } from './requests.js';
import { sendHttp, sendRpc } from './send.js';
import { textOf } from './sse.js';

/** What was typed, by entry, for as long as the page is open. */
const drafts = new Map();
/** Events that are listed; what comes later is counted. */
const MOST_EVENTS = 500;

/** `onToken`: the daemon asked for a token. */
export function tryPanel(entry, onToken) {
  const examples = examplesOf(entry);
  const draft = drafts.get(entry.id) ?? { ...examples[0] };
  drafts.set(entry.id, draft);
  const form = fieldsOf(entry, examples, draft);
  const output = outputOf();
  const request = () => (entry.kind === 'rpc' ? rpcRequest(entry, draft) : httpRequest(entry, draft));
  const command = () => {
    if (entry.kind === 'rpc') return messageText(request());
    return curlText(request(), location.origin, session.token !== '');
  };
  let running = null;
  const sendButton = el('button', { type: 'button', class: 'primary' }, 'Send');
  const stopButton = el('button', { type: 'button', disabled: true }, 'Stop');

  async function send() {
    if (running !== null) return;
    let asked;
    try {
      asked = request();
    } catch (error) {
      output.fail(`This is no JSON: ${error.message}`);
      return;
    }
    running = new AbortController();
    sendButton.disabled = true;
    stopButton.disabled = false;
    output.begin();
    try {
      const sender = entry.kind === 'rpc' ? sendRpc : sendHttp;
      const came = await sender(asked, { signal: running.signal, onStatus: output.status, onEvent: output.event });
      output.end(came);
      if (came.response?.status === 401 && entry.open === false) onToken();
    } catch (error) {
      output.fail(running.signal.aborted ? 'Stopped.' : error.message);
    }
    running = null;
    sendButton.disabled = false;
    stopButton.disabled = true;
  }

  sendButton.addEventListener('click', send);
  stopButton.addEventListener('click', () => running?.abort());
  form.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    void send();
  });
  return el(
    'section',
    { class: 'try', 'aria-label': 'Try it' },
    el('h2', {}, 'Try it'),
    form,
    el(
      'div',
      { class: 'row' },
      sendButton,
      stopButton,
      el('span', { class: 'faint keys' }, 'Ctrl+Enter sends'),
      el('span', { class: 'grow' }),
      copyButton(entry.kind === 'rpc' ? 'Copy message' : 'Copy as curl', command),
    ),
    output.node,
  );
}

/** The fields, kept in `draft`. */
function fieldsOf(entry, examples, draft) {
  const inputs = Object.keys(examples[0].values).map((name) => {
    const input = el('input', { type: 'text', value: draft.values[name] ?? '', spellcheck: 'false', autocomplete: 'off' });
    input.addEventListener('input', () => {
      draft.values = { ...draft.values, [name]: input.value };
    });
    return { name, input };
  });
  const takesBody = entry.kind === 'rpc' || jsonBody(entry) !== undefined;
  const area = el('textarea', { spellcheck: 'false', autocomplete: 'off', rows: String(rowsOf(draft.body)), 'aria-label': 'JSON' });
  area.value = draft.body;
  area.addEventListener('input', () => {
    draft.body = area.value;
  });
  const select = el('select', {}, ...examples.map(({ name }) => el('option', { value: name, selected: name === draft.name }, name)));
  select.addEventListener('change', () => {
    const example = examples.find(({ name }) => name === select.value);
    Object.assign(draft, example, { values: { ...example.values } });
    area.value = draft.body;
    area.rows = rowsOf(draft.body);
    for (const { name, input } of inputs) input.value = draft.values[name] ?? '';
  });
  return el(
    'div',
    { class: 'fieldset' },
    examples.length > 1 ? el('label', {}, el('span', {}, 'Example'), select) : null,
    ...inputs.map(({ name, input }) => el('label', {}, el('span', {}, name), input)),
    takesBody ? el('label', {}, el('span', {}, entry.kind === 'rpc' ? 'Params' : 'Body'), area) : null,
  );
}

const rowsOf = (text) => Math.min(22, Math.max(3, text.split('\n').length));

/** Where answers appear. */
function outputOf() {
  const status = el('p', { class: 'status', role: 'status' });
  const answer = el('div', { class: 'answer', tabindex: '0', role: 'region', 'aria-label': 'The answer so far' });
  const list = el('ol', { class: 'events' });
  const count = el('summary', {});
  const events = el('details', { class: 'stream', open: true }, count, list);
  const result = el('div', {});
  const node = el('div', { class: 'output', hidden: true }, status, answer, events, result);
  let seen = 0;
  return {
    node,
    begin() {
      seen = 0;
      node.hidden = false;
      status.className = 'status';
      status.textContent = 'Sent; waiting…';
      answer.textContent = '';
      answer.hidden = true;
      events.hidden = true;
      list.replaceChildren();
      result.replaceChildren();
    },
    status(text, good) {
      status.className = `status ${good ? 'good' : 'bad'}`;
      status.textContent = text;
    },
    event(value) {
      seen++;
      events.hidden = false;
      count.textContent = `${seen} ${seen === 1 ? 'event' : 'events'}`;
      const atEnd = list.scrollTop + list.clientHeight >= list.scrollHeight - 8;
      if (seen <= MOST_EVENTS) list.append(el('li', {}, jsonText(typeof value === 'string' ? value : JSON.stringify(value))));
      if (atEnd) list.scrollTop = list.scrollHeight;
      const text = textOf(value.choices);
      if (text !== '') {
        answer.hidden = false;
        answer.append(text);
      }
    },
    end({ value, text }) {
      if (value !== undefined) result.append(jsonBlock(value, 'The answer'));
      else if (text) result.append(jsonBlock(text, 'The answer'));
    },
    fail(text) {
      node.hidden = false;
      this.status(text, false);
    },
  };
}
