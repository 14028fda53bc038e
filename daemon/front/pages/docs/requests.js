/** What the fields of a try hold, as a request: by HTTP, or by JSON-RPC. And the same as commands to copy. */
import { deref } from './documents.js';

/** The examples of an entry: a name, and the texts of its fields. */
export function examplesOf(entry) {
  if (entry.kind === 'rpc') {
    const examples = (entry.method.examples ?? []).map(({ name, params }) => ({
      name,
      body: pretty(Object.fromEntries(params.map((param) => [param.name, param.value]))),
      values: {},
    }));
    return examples.length > 0 ? examples : [{ name: 'Empty', body: '{}', values: {} }];
  }
  const bodies = deref(entry.root, jsonBody(entry)).examples ?? {};
  const parameters = (entry.operation.parameters ?? []).map((parameter) => deref(entry.root, parameter));
  const names = new Set([...Object.keys(bodies), ...parameters.flatMap(({ examples }) => Object.keys(examples ?? {}))]);
  const examples = [...names].map((name) => ({
    name,
    body: name in bodies ? pretty(deref(entry.root, bodies[name]).value) : '{}',
    values: Object.fromEntries(parameters.map((p) => [p.name, String(p.examples?.[name]?.value ?? '')])),
  }));
  return examples.length > 0 ? examples : [{ name: 'Empty', body: '{}', values: {} }];
}

const pretty = (value) => JSON.stringify(value, null, 2);

/** The JSON body that a route takes, as OpenAPI describes it; undefined when it takes none. */
export function jsonBody({ kind, operation, root }) {
  return kind === 'http' ? deref(root, operation.requestBody).content?.['application/json'] : undefined;
}

/** @throws SyntaxError when the text is no JSON */
export function httpRequest(entry, { body, values }) {
  let url = entry.path;
  const query = new URLSearchParams();
  for (const parameter of entry.operation.parameters ?? []) {
    const { name, in: place } = deref(entry.root, parameter);
    const value = values[name] ?? '';
    if (place === 'path') url = url.replace(`{${name}}`, encodeURIComponent(value));
    else if (value !== '') query.set(name, value);
  }
  const asked = query.toString();
  if (asked !== '') url += `?${asked}`;
  return { verb: entry.verb, url, body: jsonBody(entry) === undefined ? null : JSON.stringify(JSON.parse(body)) };
}

/** @throws SyntaxError when the text is no JSON */
export function rpcRequest(entry, { body }) {
  return { method: entry.method.name, params: JSON.parse(body) };
}

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** The request as a command for a shell. The token is left to the shell, so that it is not copied about. */
export function curlText({ verb, url, body }, origin, token) {
  const parts = ['curl', ...(verb === 'GET' ? [] : ['-X', verb])];
  if (token) parts.push('-H', '"authorization: Bearer $TOKEN"');
  if (body !== null) {
    parts.push('-H', quoted('content-type: application/json'), '-d', quoted(body));
    if (JSON.parse(body).stream === true) parts.splice(1, 0, '-N');
  }
  return [...parts, quoted(origin + url)].join(' ');
}

export const messageText = ({ method, params }) => JSON.stringify({ jsonrpc: '2.0', id: 1, method, params });
