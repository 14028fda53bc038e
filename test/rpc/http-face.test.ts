/** Methods that are asked by HTTP: one field on the value is all there is to it. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { z } from 'zod';
import type { Failure } from '../../actors/messages/errors.js';
import { chunkEvents } from '../../rpc/dialects/openai/stream.js';
import { defineMethod, fromBody, fromQuery, type HttpFace, type Method } from '../../rpc/method.js';
import { chatMethod } from '../../rpc/methods/chat.js';
import { tokenizeMethod } from '../../rpc/methods/tokenize.js';
import { requestLimits } from '../../rpc/schemas/common.js';
import { createRpcServer, type PostReply, type RpcServer } from '../../rpc/server.js';
import type { EndingSinkMaker, SinkEvent } from '../../rpc/sink.js';
import { at, chat, setup } from './harness.js';

const echo = defineMethod({
  name: 'test.echo',
  summary: 'Answers its params.',
  params: z.object({ name: z.string().max(3), count: z.coerce.number().optional() }),
  result: z.looseObject({}),
  http: { verb: 'GET', path: '/echo', params: fromQuery },
  handler: (params) => params,
});

/** The daemon's methods, and two of them once more with a face. */
function faced(http: Omit<HttpFace, 'verb' | 'path'> = { params: fromBody }, auto = true) {
  const { deps, engine } = setup({ auto });
  const extra: Method[] = [
    echo,
    { ...chatMethod(deps, requestLimits(deps.config)), name: 'test.chat', http: { verb: 'POST', path: '/test/chat', ...http } },
    { ...tokenizeMethod(deps), name: 'test.tokenize', http: { verb: 'POST', path: '/test/tokenize', params: fromBody } },
  ];
  return { engine, server: createRpcServer(deps, extra) };
}

const bytes = (value: unknown) => Buffer.from(JSON.stringify(value));
const parsed = ({ status, body }: PostReply) => [status, JSON.parse(body ?? 'null') as unknown] as const;
const chatOf = (server: RpcServer, more: object, options: object = {}) =>
  server.handleCall('test.chat', { body: bytes(chat('a b', more)), ...options });

/** Those of methods: a dialect's have ids of their own. */
const ownFaces = (server: RpcServer) => server.faces().filter(({ id, about }) => id === about.methods[0]);

/** Keeps events and the end, as a door of server-sent events would write them. */
function eventDoor() {
  const events: SinkEvent[] = [];
  const ends: unknown[] = [];
  let opened = false;
  const maker: EndingSinkMaker = {
    kind: 'http',
    get opened() {
      return opened;
    },
    get begun() {
      return events.length > 0;
    },
    end: (answer) => void ends.push(answer),
    fail: (failure: Failure) => void ends.push(failure),
    choose: () => () => {
      opened = true;
      return {
        full: false,
        credit: Number.POSITIVE_INFINITY,
        get numEvents() {
          return events.length;
        },
        event: (event) => void events.push(event),
        watch: () => () => true,
        close() {},
      };
    },
  };
  return { events, ends, maker: () => maker };
}

describe('the HTTP face of a method', () => {
  test('is listed by routes and by rpc.discover, and a method without one has none', async () => {
    const { server } = faced();
    assert.deepEqual(
      ownFaces(server).map(({ verb, path, id }) => `${verb} ${path} ${id}`),
      [
        'POST /v1/chat/completions chat.completions.create',
        'POST /v1/completions completions.create',
        'POST /v1/embeddings embeddings.create',
        'POST /tokenize tokenize',
        'POST /detokenize detokenize',
        'GET /v1/models models.list',
        'GET /v1/models/{model} models.get',
        'POST /v1/load_lora_adapter adapters.load',
        'POST /v1/unload_lora_adapter adapters.unload',
        'POST /start_profile profile.start',
        'POST /stop_profile profile.stop',
        'GET /echo test.echo',
        'POST /test/chat test.chat',
        'POST /test/tokenize test.tokenize',
      ],
    );
    const documented = (at(server.openrpc(), 'methods') as unknown[]).map((method) => at(method, 'x-http')).filter(Boolean);
    assert.deepEqual(
      documented,
      ownFaces(server).map(({ verb, path }) => ({ method: verb, path })),
    );
    assert.equal((await server.handleCall('daemon.info')).status, 404);
  });

  test('says what is wrong in the names that its bodies have', async () => {
    const { server } = faced();
    for (const [id, body, param] of [
      ['tokenize', {}, 'prompt'],
      ['tokenize', { prompt: 5 }, 'prompt'],
      ['tokenize', { messages: [{}] }, 'messages[0].role'],
      ['detokenize', { tokens: 'x' }, 'tokens'],
    ] as const) {
      const [status, answer] = parsed(await server.handleCall(id, { body: bytes(body) }));
      assert.deepEqual([status, at(answer, 'error', 'param')], [400, param]);
      assert.match(String(at(answer, 'error', 'message')), new RegExp(`^Invalid params: ${param.replace(/[[\]]/g, '\\$&')}: `));
    }
  });

  test('takes params from the query, which the method checks', async () => {
    const { server } = faced();
    const ask = async (query: string) => parsed(await server.handleCall('test.echo', { query: new URLSearchParams(query) }));
    assert.deepEqual(await ask('name=x&count=2'), [200, { name: 'x', count: 2 }]);
    const [status, body] = await ask('name=long');
    assert.equal(status, 400);
    assert.match(String(at(body, 'error', 'message')), /name: must have at most 3 characters/);
  });

  test('takes params from the body, within the limits of a message', async () => {
    const { server } = faced();
    const [status, body] = parsed(await chatOf(server, {}));
    assert.equal(status, 200);
    assert.equal(at(body, 'choices', 0, 'message', 'content'), 'You said: a b');
    for (const wrong of ['{', '[1]', '"x"', 'null', `${'['.repeat(1000)}${']'.repeat(1000)}`, '\xff']) {
      const reply = parsed(await server.handleCall('test.chat', { body: Buffer.from(wrong, 'latin1') }));
      assert.deepEqual([reply[0], at(reply[1], 'error', 'type')], [400, 'invalid_request_error'], wrong.slice(0, 9));
    }
    assert.equal((await server.handleCall('test.chat')).status, 400, 'no body, no messages');
    assert.equal((await chatOf(server, { model: 'other' })).status, 404);
  });

  test('without params reads nothing of what a client sends along', async () => {
    const { server } = faced({});
    const [status, body] = parsed(await chatOf(server, {}));
    assert.equal(status, 400);
    assert.match(String(at(body, 'error', 'message')), /messages: is required/);
  });

  test('streams into the sinks it names and into no other', async () => {
    const { events, ends, maker } = eventDoor();
    const { server } = faced({ params: fromBody, stream: chunkEvents });
    assert.deepEqual(await chatOf(server, { stream: true }, { sinks: maker }), { status: 200, body: null, streamed: true });
    assert.equal(ends.length, 1);
    assert.equal(at(ends[0], 'usage', 'completion_tokens'), 4);
    const text = events.flatMap((event) => (event.kind === 'delta' ? event.choices : [])).map((choice) => at(choice, 'delta', 'content'));
    assert.equal(text.join(''), 'You said: a b');
    const refusing = faced().server;
    assert.equal((await chatOf(refusing, { stream: true }, { sinks: maker })).status, 400);
    assert.equal((await chatOf(server, { stream: true })).status, 400, 'this door brings no sink');
  });

  test('answers what fails before the first event with its status, and ends a stream that has begun', async () => {
    const { engine, server } = faced({ params: fromBody, stream: chunkEvents }, false);
    const early = eventDoor();
    const refused = chatOf(server, { stream: true }, { sinks: early.maker });
    engine.live[0]?.sink.onEnd({ kind: 'overloaded', data: { retry_after_ms: 2500 } });
    const { status, retryAfterS, body } = await refused;
    assert.deepEqual([status, retryAfterS, at(JSON.parse(body ?? ''), 'error', 'code')], [429, 3, 'queue_full']);
    assert.deepEqual(early.ends, []);
    const late = eventDoor();
    const broken = chatOf(server, { stream: true }, { sinks: late.maker });
    const [request] = engine.live;
    assert.ok(request);
    request.sink.onDeltas([{ id: request.id, index: 0, text: 'You', tokens: [1] }]);
    request.sink.onEnd({ kind: 'engine_failure' });
    assert.deepEqual(await broken, { status: 200, body: null, streamed: true });
    assert.equal(late.events.length, 1);
    assert.deepEqual(
      late.ends.map((end) => at(end, 'kind')),
      ['engine_failure'],
    );
  });

  test('names the param that is wrong', async () => {
    const { server } = faced();
    const [, body] = parsed(await chatOf(server, { temperature: 7 }));
    assert.deepEqual(Object.keys(at(body, 'error') as object), ['message', 'type', 'param', 'code']);
    assert.equal(at(body, 'error', 'param'), 'temperature');
  });

  test('answers a client that has left with a cancelled call', async () => {
    const { engine, server } = faced({ params: fromBody }, false);
    const gone = new AbortController();
    const answering = chatOf(server, {}, { signal: gone.signal });
    assert.equal(engine.live.length, 1);
    gone.abort();
    assert.equal((await answering).status, 499);
    assert.equal(engine.live.length, 0);
  });

  test('gives large answers in slices, and what they hold back when these are closed', async () => {
    const { server } = faced();
    const reply = await server.handleCall('test.tokenize', { body: bytes({ text: 'a'.repeat(100_000) }) });
    assert.equal(reply.body, null);
    assert.ok(server.holdings.held > 0);
    let text = '';
    for (let slice = reply.slices?.next(); slice != null; slice = reply.slices?.next()) text += String(slice);
    reply.slices?.close();
    assert.equal(at(JSON.parse(text), 'count'), 100_000);
    assert.equal(server.holdings.held, 0);
  });
});
