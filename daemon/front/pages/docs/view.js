/** What the page says about one route or method, and its first page. */

import { el, jsonBlock, prose } from '../shared/dom.js';
import { deref, grouped } from './documents.js';
import { fieldItem, schemaView } from './schema.js';
import { tryPanel } from './try.js';

export const badge = (verb) => el('span', { class: `verb ${verb.toLowerCase()}` }, verb);

export function entryView(entry, onToken) {
  const described = entry.kind === 'http' ? httpParts(entry) : rpcParts(entry);
  const description = entry.operation?.description;
  return el(
    'article',
    {},
    el('h1', {}, badge(entry.verb), ' ', el('code', {}, ...breakable(entry.title))),
    el('p', { class: 'lead' }, prose(entry.summary)),
    description === undefined ? null : el('p', {}, prose(description)),
    notesOf(entry),
    el('div', { class: 'columns' }, el('div', { class: 'told' }, ...described), tryPanel(entry, onToken)),
  );
}

/** Long names may break behind their separators. */
export function breakable(title) {
  return title.split(/(?<=[/._])/).flatMap((part) => [part, el('wbr')]);
}

function notesOf(entry) {
  const notes = [];
  if (entry.open === true && (entry.root.security ?? []).length > 0) notes.push('needs no token');
  if (entry.kind === 'rpc' && entry.method['x-progress'] !== undefined) notes.push('can stream $/progress');
  if (entry.kind === 'http' && streamOf(entry) !== undefined) notes.push('can stream');
  if ((entry.operation ?? entry.method)['x-scope'] === 'admin') notes.push('needs admin scope');
  const http = entry.method?.['x-http'];
  if (http !== undefined) notes.push(`also ${http.method} ${http.path}`);
  return notes.length === 0 ? null : el('ul', { class: 'notes' }, ...notes.map((note) => el('li', {}, note)));
}

const streamOf = ({ operation, root }) => deref(root, operation.responses?.[200]).content?.['text/event-stream'];

const section = (title, ...children) => el('section', {}, el('h2', {}, title), ...children);

function httpParts({ operation, root }) {
  const parameters = (operation.parameters ?? []).map((parameter) => deref(root, parameter));
  const body = deref(root, operation.requestBody).content ?? {};
  const items = parameters.map((p) => fieldItem(root, p.name, { ...deref(root, p.schema), description: p.description }, p.required));
  return [
    items.length === 0 ? null : section('Parameters', el('ul', { class: 'fields' }, ...items)),
    ...Object.entries(body).map(([type, { schema }]) => section('Body', typeLine(type), schemaView(root, schema))),
    section('Answers', ...Object.entries(operation.responses).map(([status, response]) => answerView(root, status, deref(root, response)))),
  ].filter((part) => part !== null);
}

const typeLine = (type) => el('p', { class: 'media' }, type);

function answerView(root, status, { description, content = {} }) {
  const bodies = Object.entries(content).map(([type, media]) => {
    const event = media['x-event'];
    const examples = Object.values(media.examples ?? {});
    return el(
      'div',
      {},
      typeLine(type),
      schemaView(root, media.schema),
      event === undefined ? null : el('p', { class: 'or' }, 'Each event, save the last:'),
      event === undefined ? null : schemaView(root, event),
      examples.length === 0 ? null : el('details', {}, el('summary', {}, 'Example'), jsonBlock(examples[0].value, 'Example')),
    );
  });
  const good = Number(status) < 400;
  return el(
    'details',
    { class: 'reply', open: good },
    el('summary', {}, el('span', { class: `code ${good ? 'good' : 'bad'}` }, status), ' ', el('span', {}, prose(description))),
    ...(good ? bodies : bodies.slice(0, 1)),
  );
}

function rpcParts({ method, root }) {
  const items = method.params.map((p) => fieldItem(root, p.name, p.schema, p.required));
  const example = method.examples?.[0];
  const progress = method['x-progress'];
  return [
    section('Params', items.length === 0 ? el('p', { class: 'faint' }, 'None.') : el('ul', { class: 'fields' }, ...items)),
    section('Result', outcome(root, method.result.schema)),
    progress === undefined ? null : section('Events', el('p', {}, 'In the params of each $/progress.'), outcome(root, progress)),
    example === undefined
      ? null
      : section('Example', el('p', { class: 'faint' }, example.name), jsonBlock(example.result.value, 'Example')),
    section('Errors', errorTable(root, method.errors ?? [])),
  ].filter((part) => part !== null);
}

const outcome = (root, schema) => el('div', { class: 'result' }, schemaView(root, schema));

function errorTable(root, errors) {
  const rows = errors
    .map((error) => deref(root, error))
    .map(({ code, message }) => el('tr', {}, el('td', {}, String(code)), el('td', {}, message)));
  const unique = [...new Map(rows.map((row) => [row.textContent, row])).values()];
  return el('details', {}, el('summary', {}, `${unique.length} codes`), el('table', {}, el('tbody', {}, ...unique)));
}

function cards(entries) {
  const inside = (entry) => [
    entry.kind === 'http' ? badge(entry.verb) : null,
    el('code', {}, ...breakable(entry.title)),
    el('span', {}, entry.summary),
  ];
  return el('ul', { class: 'cards' }, ...entries.map((entry) => el('li', {}, el('a', { href: `#/${entry.id}` }, ...inside(entry)))));
}

/** What the page says before anything is chosen. */
export function homeView({ openapi }, entries) {
  const { origin } = location;
  const ws = origin.replace(/^http/, 'ws');
  const secured = (openapi.security ?? []).length > 0;
  const facts = [
    ['OpenAI clients', `${origin}/v1`],
    ['JSON-RPC', `${ws}/rpc`],
    ['Documents', el('a', { href: '/openapi.json' }, '/openapi.json'), ' and ', el('a', { href: '/openrpc.json' }, '/openrpc.json')],
    ['Token', secured ? 'asked for; kept in this page only, and gone when it is closed' : 'not asked for'],
  ];
  const list = (kind, title) => {
    const groups = [...grouped(entries.filter((entry) => entry.kind === kind))];
    return el('section', {}, el('h2', {}, title), ...groups.flatMap(([name, members]) => [el('h3', {}, name), cards(members)]));
  };
  return el(
    'article',
    {},
    el('h1', {}, 'Routes and methods'),
    el(
      'p',
      { class: 'lead' },
      'Everything that this daemon answers, to read and to try. The page is the daemon’s own and works without a network.',
    ),
    el('dl', { class: 'facts' }, ...facts.flatMap(([name, ...value]) => [el('dt', {}, name), el('dd', {}, ...value)])),
    list('http', 'HTTP'),
    list('rpc', 'JSON-RPC'),
  );
}

export function missingView(what) {
  return el('article', {}, el('h1', {}, 'Not here'), el('p', {}, `There is no route or method `, el('code', {}, what), '.'));
}

/** The daemon asks for a token before it shows its documents. */
export function lockedView() {
  return el(
    'article',
    {},
    el('h1', {}, 'This daemon asks for a token'),
    el(
      'p',
      { class: 'lead' },
      'Put it into the field above. It stays in this page’s memory, goes to this daemon only, and is gone when the page is closed.',
    ),
    el('p', {}, prose('`inferd doctor` names the folder of the token file.')),
  );
}

export function failedView(error) {
  return el('article', {}, el('h1', {}, 'The documents could not be read'), el('p', {}, error.message));
}
