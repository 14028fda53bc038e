/** The HTTP faces of methods as the OpenAPI document describes them. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { z } from 'zod';
import { openapiDocument } from '../../../rpc/documents/openapi.js';
import { defineMethod, fromQuery } from '../../../rpc/method.js';
import type { CallOptions } from '../../../rpc/server.js';
import { openapiFaults } from '../../helpers/schemas.js';
import { at, guest, setup } from '../harness.js';

const facts = { version: '0.0.0', auth: [] } as const;
const bytes = (value: unknown) => Buffer.from(JSON.stringify(value));
const messages = [{ role: 'user', content: 'x' }];

/** What a description says: an operation by its path and verb. */
const operation = (document: object, path: string, verb: string) => at(document, 'paths', path, verb);

describe('the OpenAPI document', () => {
  test('each failure of a method has a status that its route tells of, and the body that stands there', async () => {
    const failures: readonly (readonly [status: number, name: string, path: string, options: CallOptions])[] = [
      [400, 'chat.completions.create', '/v1/chat/completions', { body: bytes({}) }],
      [400, 'chat.completions.create', '/v1/chat/completions', { body: Buffer.from('{') }],
      [400, 'chat.completions.create', '/v1/chat/completions', { body: bytes({ messages, chat_template: 'x' }) }],
      [404, 'chat.completions.create', '/v1/chat/completions', { body: bytes({ messages, model: 'other' }) }],
      [404, 'models.get', '/v1/models/{model}', { tail: 'other' }],
      [400, 'tokenize', '/tokenize', { body: bytes({}) }],
      [409, 'profile.stop', '/stop_profile', {}],
      [403, 'profile.start', '/start_profile', guest],
    ];
    const { server } = setup();
    const document = openapiDocument(server.operations(), facts);
    const check = async (status: number, name: string, path: string, options: CallOptions) => {
      const reply = await server.handleCall(name, options);
      assert.equal(reply.status, status, `${name}: ${reply.body}`);
      const described = operation(document, path, name === 'models.get' ? 'get' : 'post');
      assert.deepEqual(at(described, 'responses', String(status)), { $ref: `#/components/responses/Error${status}` }, name);
      const components = at(document, 'components') as object;
      const response = at(components, 'responses', `Error${status}`);
      const schema = at(response, 'content', 'application/json', 'schema') as object;
      assert.deepEqual(openapiFaults(JSON.parse(reply.body ?? ''), schema, components), [], `${name}: ${reply.body}`);
    };
    for (const failure of failures) await check(...failure);
    server.shutdown();
    await check(503, 'chat.completions.create', '/v1/chat/completions', { body: bytes({ messages }) });
  });

  test('a method with another shape over HTTP is described in that shape', () => {
    const document = openapiDocument(setup().server.operations(), facts);
    const schemas = at(document, 'components', 'schemas');
    assert.deepEqual(Object.keys(at(schemas, 'DetokenizeParams', 'properties') as object), ['tokens', 'model']);
    assert.deepEqual(Object.keys(at(schemas, 'DetokenizeResult', 'properties') as object), ['prompt']);
    const stream = JSON.stringify(at(schemas, 'ChatCompletionsCreateParams', 'properties', 'stream'));
    assert.doesNotMatch(stream, /token|credit/, 'progress tokens are of the WebSocket');
  });

  test('a GET that reads its query has parameters, required ones among them', () => {
    const things = defineMethod({
      name: 'things.list',
      summary: 'Things.',
      params: z.object({ kind: z.string(), most: z.string().nullish() }),
      result: z.object({}),
      http: { verb: 'GET', path: '/things', params: fromQuery },
      handler: () => ({}),
    });
    const document = openapiDocument(setup({ extra: [things] }).server.operations(), facts);
    const parameters = at(operation(document, '/things', 'get'), 'parameters') as { name: string; in: string; required: boolean }[];
    assert.deepEqual(
      parameters.map(({ name, in: place, required }) => [name, place, required]),
      [
        ['kind', 'query', true],
        ['most', 'query', false],
      ],
    );
  });

  test('the scope that a call needs is told, in both documents', () => {
    const { server } = setup();
    const document = openapiDocument(server.operations(), facts);
    assert.equal(at(operation(document, '/start_profile', 'post'), 'x-scope'), 'admin');
    assert.equal(at(operation(document, '/v1/models', 'get'), 'x-scope'), 'infer');
    const methods = at(server.openrpc(), 'methods') as { name: string; 'x-scope'?: string }[];
    const of = (name: string) => methods.find((method) => method.name === name)?.['x-scope'];
    for (const name of [
      'profile.start',
      'profile.stop',
      'daemon.drain',
      'models.pull',
      'models.delete',
      'models.load',
      'models.unload',
      'adapters.load',
    ])
      assert.equal(of(name), 'admin', name);
    assert.deepEqual([of('chat.completions.create'), of('stats.get'), of('ping')], ['infer', 'metrics', undefined]);
  });
});
