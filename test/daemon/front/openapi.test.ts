/** GET /openapi.json: valid, exactly what the router serves, and honest about tokens and errors. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Validator } from '@seriousme/openapi-schema-validator';
import { everybody } from '../../../daemon/front/auth/credential.js';
import { createRoutes, type RouteDeps, type RouteTable } from '../../../daemon/front/http-routes.js';
import { readPage } from '../../../daemon/front/pages/page.js';
import { openapiFaults } from '../../helpers/schemas.js';
import { rawRequest } from '../../helpers/wire/raw-http.js';
import { setup } from '../../rpc/harness.js';
import { withFront } from './echo-front.js';
import { tokenAuth } from './token-auth.js';

interface Operation {
  readonly operationId: string;
  readonly security?: readonly object[];
  readonly 'x-scope'?: string;
  readonly responses: Readonly<Record<string, { readonly $ref?: string; readonly content?: Record<string, { schema: object }> }>>;
  readonly requestBody?: object;
}
interface Document {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly security: readonly object[];
  readonly components: {
    readonly securitySchemes: Readonly<Record<string, object>>;
    readonly schemas: Readonly<Record<string, object>>;
    readonly responses: Readonly<Record<string, { readonly content: Record<string, { readonly schema: object }> }>>;
  };
}

/** The daemon's whole table with a fake engine, and the document that it serves. */
async function serving(changes: Partial<RouteDeps> = {}): Promise<{ routes: RouteTable; document: Document }> {
  const { server, engine } = setup();
  const routes = createRoutes({
    probed: engine,
    rpc: server,
    ahead: null,
    metrics: { open: false, scrape: async () => ({ type: 'text/plain', body: '' }) },
    version: '0.0.0',
    auth: [],
    page: readPage,
    maxBodyBytes: 1 << 20,
    webUi: true,
    accepting: () => true,
    ...changes,
  });
  let body = '';
  const response = { setTimeout() {}, writeHead() {}, end: (text: string) => (body = text), headersSent: false, destroyed: false };
  // proof: a handler of a document uses no more of the two than these
  await routes.get('/openapi.json')?.GET?.answer({} as never, response as never, everybody);
  return { routes, document: JSON.parse(body) as Document };
}

const operations = ({ paths }: Document) =>
  Object.entries(paths).flatMap(([path, item]) =>
    Object.entries(item).map(([verb, operation]) => ({ path, verb: verb.toUpperCase(), operation })),
  );

test('the document is valid OpenAPI 3.1, whatever clients have to show', async () => {
  for (const auth of [[], ['token'], ['ed25519'], ['token', 'ed25519']] as const) {
    const { document } = await serving({ auth });
    const result = await new Validator().validate(document as unknown as Record<string, unknown>); // its type asks for an index
    assert.deepEqual(result.errors ?? [], []);
    assert.ok(result.valid);
    assert.equal(new Set(operations(document).map(({ operation }) => operation.operationId)).size, operations(document).length);
  }
});

test('it lists what the router serves, and nothing else, with and without the pages', async () => {
  for (const webUi of [true, false]) {
    const { routes, document } = await serving({ webUi });
    const listed = operations(document).map(({ verb, path }) => `${verb} ${path.replace(/\{\w+\}$/, '')}`);
    assert.deepEqual(listed.sort(), [...routes.served()].sort());
    assert.equal(listed.includes('GET /docs'), webUi);
    for (const { verb, path } of operations(document)) {
      const route = routes.get(path.replace(/\{\w+\}$/, 'some/name'));
      assert.ok(route?.[verb as 'GET' | 'POST'] !== undefined, `${verb} ${path}`);
    }
  }
});

test('who needs no token is said to need none, and all others are told of 401', async () => {
  const { routes, document } = await serving({ auth: ['token'] });
  assert.deepEqual(document.security, [{ token: [] }, { api_key: [] }]);
  assert.deepEqual(Object.keys(document.components.securitySchemes), ['token', 'api_key']);
  for (const { verb, path, operation } of operations(document)) {
    const access = routes.get(path.replace(/\{\w+\}$/, 'x'))?.[verb as 'GET' | 'POST']?.access ?? assert.fail(path);
    const security = { open: [], any: undefined }[access as string];
    const [known, scope] = [access === 'open' || access === 'any', access];
    assert.deepEqual(operation.security, known ? security : [{ token: [scope] }, { api_key: [scope] }], `${verb} ${path}`);
    assert.equal(operation['x-scope'], known ? undefined : scope);
    assert.equal('401' in operation.responses, access !== 'open', `${verb} ${path}`);
  }
  const { document: free } = await serving();
  assert.deepEqual([free.security, free.components.securitySchemes], [[], {}]);
  const { document: figures } = await serving({ auth: ['token'], metrics: { open: true, scrape: async () => ({ type: '', body: '' }) } });
  assert.deepEqual(figures.paths['/metrics']?.['get']?.security, []);
});

test('every schema can be compiled, and every reference leads somewhere', async () => {
  const { document } = await serving({ auth: ['token'] });
  for (const [name, schema] of Object.entries(document.components.schemas)) {
    assert.ok(Array.isArray(openapiFaults(null, schema, document.components)), name);
  }
  for (const [, ref = ''] of JSON.stringify(document).matchAll(/"\$ref":"#([^"]+)"/g)) {
    let at: unknown = document;
    for (const part of ref.slice(1).split('/')) at = (at as Record<string, unknown> | undefined)?.[part];
    assert.notEqual(at, undefined, ref);
  }
});

test('what the door refuses has the status and the body that the document tells of', async () => {
  const { document } = await serving({ auth: ['token'] });
  const { components } = document;
  const shown = 'Authorization: Bearer right';
  const auth = tokenAuth('right');
  const json = 'Content-Type: application/json';
  await withFront({ auth, config: { server: { max_message_bytes: 1024 } } }, async (front) => {
    const refusals: readonly (readonly [number, readonly string[], string])[] = [
      [401, ['Host: localhost', json], '{}'],
      [400, [json, shown], '{}'],
      [403, ['Host: evil.example', json, shown], '{}'],
      [403, ['Host: localhost', 'Origin: https://evil.example', json, shown], '{}'],
      [413, ['Host: localhost', json, shown], 'x'.repeat(2000)],
      [415, ['Host: localhost', 'Content-Type: text/plain', shown], '{}'],
      [431, ['Host: localhost', json, shown, `X: ${'y'.repeat(20_000)}`], '{}'],
    ];
    for (const [status, headers, body] of refusals) {
      const lines = ['POST /rpc HTTP/1.1', `Content-Length: ${body.length}`, 'Connection: close', ...headers];
      const reply = await rawRequest(front.port, lines, body);
      assert.equal(reply.status, status);
      assert.equal(document.paths['/rpc']?.['post']?.responses[status]?.$ref, `#/components/responses/Error${status}`);
      const schema = components.responses[`Error${status}`]?.content['application/json']?.schema ?? {};
      assert.deepEqual(openapiFaults(JSON.parse(reply.body), schema, components), [], `${status}: ${reply.body}`);
    }
  });
});
