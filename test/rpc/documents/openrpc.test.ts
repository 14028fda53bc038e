import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import * as meta from '@open-rpc/meta-schema';
import { at, call, connectPeer, setup } from '../harness.js';
import { schemaFaults } from '../json-schema.js';

const { server } = setup();
const document = server.openrpc();
const methods = at(document, 'methods') as {
  name: string;
  params: { name: string; required: boolean; schema: object }[];
  result: { schema: object };
}[];

describe('rpc.discover', () => {
  test('is valid under the OpenRPC meta-schema', () => {
    const root = (meta as unknown as { openrpcDocument: { [keyword: string]: unknown } }).openrpcDocument; // its types leave this out
    const remote = {
      'https://meta.json-schema.tools': { type: ['object', 'boolean'] },
      'https://meta.json-schema.tools/#/definitions/JSONSchemaObject/properties/$ref': { type: 'string' },
    } as const;
    assert.deepEqual(schemaFaults(document, root, { root, remote }), []);
  });

  test('describes every method of the protocol, and answers the document', async () => {
    const names = methods.map((m) => m.name);
    for (const name of [
      ...['initialize', 'chat.completions.create', 'completions.create', 'embeddings.create', 'tokenize', 'detokenize'],
      ...['models.list', 'models.get', 'models.pull', 'models.delete', 'models.load', 'models.unload'],
      ...['adapters.load', 'adapters.unload', 'adapters.list'],
      ...['requests.list', 'requests.cancel', 'stats.get', 'stats.subscribe', 'stats.unsubscribe', 'profile.start', 'profile.stop'],
      ...['daemon.info', 'daemon.drain', 'ping', 'rpc.discover', '$/cancelRequest', '$/credit'],
    ])
      assert.ok(names.includes(name), name);
    const peer = connectPeer(server);
    peer.say(call(1, 'rpc.discover'));
    assert.deepEqual(at((await peer.hear())[0], 'result'), JSON.parse(JSON.stringify(document)));
  });

  test('lists required params first, so that they can be given by position', () => {
    for (const { name, params } of methods) {
      const required = params.map((p) => p.required);
      assert.deepEqual(
        required,
        [...required].sort((a, b) => Number(b) - Number(a)),
        name,
      );
    }
  });

  test('the schema of a result accepts what the method answers', async () => {
    const peer = connectPeer(server);
    const calls: Record<string, object> = {
      'chat.completions.create': {
        messages: [{ role: 'user', content: 'x' }],
        logprobs: true,
        top_logprobs: 2,
        return_token_ids: true,
        prompt_logprobs: 1,
      },
      'completions.create': { prompt: ['a', 'b'], n: 2, logprobs: 1, echo: true, return_token_ids: true },
      'embeddings.create': { input: ['a', 'b'] },
      tokenize: { text: 'x' },
      detokenize: { ids: [65] },
      'models.list': {},
      'models.get': { model: 'fake' },
      'requests.list': {},
      'requests.cancel': { request_id: 'x' },
      'stats.get': {},
      'daemon.info': {},
      initialize: {},
      ping: {},
    };
    for (const [name, params] of Object.entries(calls)) {
      const schema = methods.find((m) => m.name === name)?.result.schema as { [keyword: string]: unknown };
      peer.say(call(name, name, params));
      const [answer] = await peer.hear();
      assert.deepEqual(schemaFaults(at(answer, 'result'), schema, { root: schema, remote: {} }), [], name);
    }
  });

  test('the events of a stream match the schema that the method shows for them', async () => {
    for (const [name, params] of [
      ['chat.completions.create', { messages: [{ role: 'user', content: 'x' }], logprobs: true, stream: true, return_token_ids: true }],
      ['completions.create', { prompt: 'x', logprobs: 0, echo: true, stream: { token: 't', credit: 100 } }],
    ] as const) {
      const method = methods.find((m) => m.name === name);
      const schema = at(method, 'x-progress') as { [keyword: string]: unknown };
      const peer = connectPeer(server);
      peer.say(call(1, name, params));
      const events = (await peer.hear()).filter((m) => at(m, 'method') === '$/progress');
      assert.ok(events.length > 1);
      for (const event of events) assert.deepEqual(schemaFaults(at(event, 'params'), schema, { root: schema, remote: {} }), [], name);
    }
  });
});
