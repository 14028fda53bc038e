/**
 * What the OpenAPI document says about the daemon's own routes: JSON-RPC over HTTP, probes, figures, documents and pages. Methods tell
 * of themselves (rpc/documents/faces.ts). Plain data.
 */
import { type About, type Content, refTo } from '../../../rpc/documents/operation.js';

type Schema = Readonly<Record<string, unknown>>;

const json = (schema: Schema): Content => ({ 'application/json': { schema } });
const text = (type: string): Content => ({ [type]: { schema: { type: 'string' } } });
const object = (properties: Record<string, Schema>): Schema => ({ type: 'object', required: Object.keys(properties), properties });
const string = (description: string): Schema => ({ type: 'string', description });

const daemon = { group: 'Daemon' } as const;
const load = { group: 'Load' } as const;

function probe(id: string, summary: string, yes: string, no: string): About {
  const status = (description: string): Content => json(object({ status: string(description) }));
  return {
    ...daemon,
    id,
    summary,
    answers: {
      200: { description: 'It does.', content: status(`"${yes}".`) },
      503: { description: 'It does not, now.', content: status(no) },
    },
  };
}

const state = 'What the engine does instead: "starting", "restarting", "draining", "failed", "stopped".';
const alive = (id: string) => probe(id, 'Whether the engine makes progress.', 'ok', `${state} Or "unhealthy".`);

const page = (id: string, summary: string, type: string): About => ({
  ...daemon,
  id,
  summary,
  answers: { 200: { description: 'The page.', content: text(type) } },
});
const document = (id: string, summary: string, key: string): About => ({
  ...daemon,
  id,
  summary,
  answers: { 200: { description: 'The document.', content: json(object({ [key]: string('Version of the format.') })) } },
});

const idSchema = { type: ['string', 'number', 'null'] };
const schemas = {
  JsonRpcRequest: {
    type: 'object',
    required: ['jsonrpc', 'method'],
    properties: {
      jsonrpc: { const: '2.0' },
      id: { ...idSchema, description: 'Absent: a notification, which is not answered.' },
      method: string('As /openrpc.json lists them.'),
      params: { type: ['object', 'array'] },
    },
  },
  JsonRpcResponse: {
    type: 'object',
    required: ['jsonrpc', 'id'],
    properties: {
      jsonrpc: { const: '2.0' },
      id: idSchema,
      result: {},
      error: {
        type: 'object',
        required: ['code', 'message'],
        properties: { code: { type: 'integer' }, message: string('One plain sentence.'), data: {} },
      },
    },
    oneOf: [{ required: ['result'] }, { required: ['error'] }],
  },
};
const oneOrMore = (name: keyof typeof schemas, most: Schema): Schema => ({
  anyOf: [refTo(name), { type: 'array', items: refTo(name), minItems: 1, ...most }],
});
const call = (id: number, method: string, params: object) => ({ jsonrpc: '2.0', id, method, params });
const answer = (id: number, result: unknown) => ({ jsonrpc: '2.0', id, result });

function rpc(id: string): About {
  return {
    ...daemon,
    id,
    summary: 'JSON-RPC 2.0: one message, or a batch of at most 32.',
    description: 'Without streaming: that needs a WebSocket, or a route of its own. Errors of JSON-RPC are answers with status 200.',
    body: {
      'application/json': {
        schema: oneOrMore('JsonRpcRequest', { maxItems: 32 }),
        examples: {
          'A call': { value: call(1, 'ping', {}) },
          'A batch': { value: [call(1, 'ping', {}), call(2, 'requests.cancel', { request_id: 'none' })] },
          'A notification': { value: { jsonrpc: '2.0', method: '$/cancelRequest', params: { id: 7 } } },
        },
      },
    },
    answers: {
      200: {
        description: 'The response, or those of a batch.',
        content: {
          'application/json': {
            schema: oneOrMore('JsonRpcResponse', {}),
            examples: {
              'A call': { value: answer(1, {}) },
              'A batch': { value: [answer(1, {}), answer(2, { request_id: 'none', cancelled: false })] },
            },
          },
        },
      },
      204: { description: 'Nothing but notifications came.' },
    },
    schemas,
  };
}

export const ownOperations = {
  rpc: rpc('rpc'),
  rpcAtRoot: rpc('rpc.root'),
  root: {
    ...page('root', 'How to connect, as text; for browsers, which ask for HTML, the page.', 'text/plain'),
    answers: { 200: { description: 'The text, or the page.', content: { ...text('text/plain'), ...text('text/html') } } },
  },
  docs: page('docs', 'A page that shows these documents and tries their calls.', 'text/html'),
  health: alive('health'),
  ping: alive('ping.get'),
  pingByPost: alive('ping.post'),
  ready: probe('ready', 'Whether requests are taken.', 'ready', state),
  load: {
    ...load,
    id: 'load',
    summary: 'How many requests run or wait.',
    answers: { 200: { description: 'The number.', content: json(object({ server_load: { type: 'integer', minimum: 0 } })) } },
  },
  metrics: {
    ...load,
    id: 'metrics',
    summary: "Figures for Prometheus, with vLLM's names.",
    answers: { 200: { description: 'The text format, version 0.0.4.', content: text('text/plain') } },
  },
  version: {
    ...daemon,
    id: 'version',
    summary: 'The version of this daemon.',
    answers: {
      200: {
        description: 'The version.',
        content: json(object({ name: { const: 'inferd' }, version: string('Of the package.'), protocol: { const: 1 } })),
      },
    },
  },
  openrpc: document('openrpc', 'Every method of JSON-RPC, as an OpenRPC document.', 'openrpc'),
  openapi: document('openapi', 'Every route of HTTP: this document.', 'openapi'),
} as const satisfies Record<string, About>;
