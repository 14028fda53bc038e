/** Connections: limits, duplicate ids, cancelling in every state, draining, closing, logs. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { z } from 'zod';
import type { Log } from '../../actors/runtime/log.js';
import { defineMethod } from '../../rpc/method.js';
import type { Scopes } from '../../rpc/scope.js';
import { at, call, chat, connectPeer, guest, notify, settle, setup } from './harness.js';

const create = 'chat.completions.create';

describe('one answer for each request', () => {
  test('an id that is not answered yet cannot be used again', async () => {
    const { engine, server } = setup({ auto: false });
    const peer = connectPeer(server);
    peer.say(call(1, create, chat('a b')));
    peer.say(call(1, 'ping'));
    const [refused] = await peer.hear();
    assert.equal(at(refused, 'error', 'code'), -32600);
    assert.equal(at(refused, 'id'), 1);
    while (engine.live.length > 0) engine.step();
    const [answer, ...rest] = await peer.hear();
    assert.equal(at(answer, 'result', 'choices', 0, 'message', 'content'), 'You said: a b');
    assert.deepEqual(rest, []);
  });

  test('one request above max_requests_per_connection is refused, and others go on', async () => {
    const { engine, server } = setup({ auto: false, config: { server: { max_requests_per_connection: 2 } } });
    const peer = connectPeer(server);
    for (const id of [1, 2, 3]) peer.say(call(id, create, chat('x')));
    assert.deepEqual(
      (await peer.hear()).map((m) => [at(m, 'id'), at(m, 'error', 'code')]),
      [[3, -32010]],
    );
    peer.say(notify('$/cancelRequest', { id: 1 }));
    assert.deepEqual(
      (await peer.hear()).map((m) => [at(m, 'id'), at(m, 'error', 'code')]),
      [[1, -32800]],
    );
    peer.say(call(4, create, chat('x')));
    while (engine.live.length > 0) engine.step();
    assert.deepEqual(
      (await peer.hear()).map((m) => at(m, 'id')),
      [2, 4],
    );
  });

  test('large messages beyond what 64 of the largest hold are refused until some are answered, small ones are not', async () => {
    const { engine, server } = setup({ auto: false, config: { server: { max_message_bytes: 100_000 } } });
    const peers = [connectPeer(server), connectPeer(server)];
    const large = 'a'.repeat(98_000);
    const codes = async () =>
      (await Promise.all(peers.map((peer) => peer.hear()))).flat().map((m) => [at(m, 'id'), at(m, 'error', 'code')]);
    for (let id = 0; id < 66; id++) peers[id % 2]?.say(call(id, create, chat(large)));
    peers[0]?.say(call('small', create, chat('x')));
    peers[0]?.say(call('other', 'models.get', { model: 'fake', comment: large }));
    assert.deepEqual(await codes(), [
      ['other', undefined],
      [65, -32005],
    ]);
    assert.equal(engine.live.length, 66, 'all but the one that was refused');
    peers[1]?.say(notify('$/cancelRequest', { id: 63 }));
    assert.deepEqual(await codes(), [[63, -32800]]);
    peers[1]?.say(call('again', create, chat(large)));
    assert.deepEqual(await codes(), []);
    assert.equal(engine.live.length, 66);
  });

  test('refusals of the engine become the error of the table, also when they come before submit returns', async () => {
    const { engine, server } = setup();
    const peer = connectPeer(server);
    engine.refuseNext = { kind: 'context_length_exceeded', message: 'Too long.', data: { prompt_tokens: 9, max_tokens: 1, limit: 8 } };
    peer.say(call(1, create, chat('x', { stream: true })));
    assert.deepEqual(await peer.hear(), [
      { jsonrpc: '2.0', id: 1, error: { code: -32006, message: 'Too long.', data: { prompt_tokens: 9, max_tokens: 1, limit: 8 } } },
    ]);
  });

  test('a failing engine ends a stream with one error and nothing after it', async () => {
    const { engine, server } = setup({ auto: false });
    const peer = connectPeer(server);
    peer.say(call(1, create, chat('a b c', { stream: true })));
    engine.step();
    const request = engine.live[0];
    assert.ok(request);
    engine.fail(request, { kind: 'engine_failure', data: { retriable: true } });
    request.sink.onDeltas([{ id: request.id, index: 0, text: 'late', tokens: [1] }]);
    const frames = await peer.hear();
    assert.equal(frames.length, 2);
    assert.deepEqual(at(frames[1], 'error'), { code: -32012, message: 'The engine failed', data: { retriable: true } });
  });

  test('states of the engine decide what a call is told', async () => {
    const { engine, server } = setup();
    const peer = connectPeer(server);
    const codes: unknown[] = [];
    for (const state of ['starting', 'draining', 'failed', 'stopped'] as const) {
      engine.current = state;
      peer.say(call(1, create, chat('x')));
      codes.push(at((await peer.hear())[0], 'error', 'code'));
    }
    assert.deepEqual(codes, [-32003, -32009, -32012, -32009]);
  });

  test('an unexpected exception is -32603 without its text, and is logged without params', async () => {
    const lines: unknown[] = [];
    const keep = (fields: Record<string, unknown>): void => void lines.push(fields);
    const log: Log = { debug: keep, info: keep, warn: keep, error: keep };
    const broken = defineMethod({
      name: 'test.broken',
      summary: 'Throws.',
      params: z.object({ secret: z.string() }),
      result: z.null(),
      handler: ({ secret }) => {
        throw new Error(`cannot handle ${secret}`);
      },
    });
    const { server } = setup({ extra: [broken], log });
    const peer = connectPeer(server);
    peer.say(call(1, 'test.broken', { secret: 'hunter2' }));
    assert.deepEqual(await peer.hear(), [{ jsonrpc: '2.0', id: 1, error: { code: -32603, message: 'Internal error' } }]);
    assert.equal(lines.length, 1);
    assert.ok(!JSON.stringify(lines).includes('hunter2'));
  });

  test('an answer too large to be written is one error, in a batch and over HTTP too, and the connection goes on', async () => {
    const large = defineMethod({
      name: 'test.large',
      summary: 'Answers what no message can hold.',
      params: z.object({}),
      result: z.unknown(),
      handler: () => ({
        toJSON() {
          throw new RangeError('Invalid string length');
        },
      }),
    });
    const { server } = setup({ extra: [large] });
    const refused = (id: number) => ({ jsonrpc: '2.0', id, error: { code: -32603, message: 'The answer is too large to be sent' } });
    const peer = connectPeer(server);
    peer.say(call(1, 'test.large'));
    peer.say([call(2, 'test.large'), call(3, 'ping')]);
    peer.say(call(4, 'ping'));
    assert.deepEqual(await peer.hear(), [refused(1), { jsonrpc: '2.0', id: 4, result: {} }, [refused(2), refused(3)]]);
    const { status, body } = await server.handlePost(Buffer.from(JSON.stringify(call(5, 'test.large'))));
    assert.deepEqual([status, JSON.parse(body ?? '')], [200, refused(5)]);
  });
});

describe('cancelling', () => {
  const usageOf = (frame: unknown) => at(frame, 'error', 'data', 'usage', 'completion_tokens');

  for (const streamed of [false, true]) {
    const title = streamed ? 'streamed' : 'whole';
    test(`${title}: before the engine did anything`, async () => {
      const { engine, server } = setup({ auto: false });
      const peer = connectPeer(server);
      peer.say(call('c', create, chat('a b c', { stream: streamed })));
      peer.say(notify('$/cancelRequest', { id: 'c' }));
      const frames = await peer.hear();
      assert.equal(frames.length, 1);
      assert.equal(at(frames[0], 'error', 'code'), -32800);
      assert.equal(usageOf(frames[0]), 0);
      assert.equal(at(frames[0], 'error', 'data', 'last_seq'), -1);
      assert.deepEqual(engine.cancelled, [1]);
    });

    test(`${title}: while it decodes`, async () => {
      const { engine, server } = setup({ auto: false });
      const peer = connectPeer(server);
      peer.say(call('c', create, chat('a b c', { stream: streamed })));
      engine.step();
      engine.step();
      peer.say(notify('$/cancelRequest', { id: 'c' }));
      peer.say(notify('$/cancelRequest', { id: 'c' }));
      engine.step();
      const frames = await peer.hear();
      assert.equal(frames.length, streamed ? 3 : 1);
      const last = frames.at(-1);
      assert.equal(at(last, 'error', 'code'), -32800);
      assert.equal(usageOf(last), 2);
      assert.equal(at(last, 'error', 'data', 'last_seq'), streamed ? 1 : -1);
    });
  }

  test('queued and in prefill: the events say so, and the answer is one error', async () => {
    const { engine, server } = setup({ auto: false });
    const peer = connectPeer(server);
    peer.say(call(7, create, chat('x', { stream: true })));
    const request = engine.live[0];
    assert.ok(request);
    engine.notice(request, { kind: 'queued', id: request.id, position: 2 });
    engine.notice(request, { kind: 'prefill', id: request.id, done: 2048, total: 9000 });
    peer.say(notify('$/cancelRequest', { id: 7 }));
    const frames = await peer.hear();
    assert.deepEqual(frames.slice(0, 2), [
      notify('$/progress', { token: 7, seq: 0, kind: 'queued', position: 2 }),
      notify('$/progress', { token: 7, seq: 1, kind: 'prefill', done: 2048, total: 9000 }),
    ]);
    assert.equal(frames.length, 3);
    assert.equal(at(frames[2], 'error', 'data', 'last_seq'), 1);
  });

  test('a finished stream that waits for credit', async () => {
    const { engine, server } = setup({ auto: false });
    const peer = connectPeer(server);
    peer.say(call(7, create, chat('a b c', { stream: { token: 't', credit: 1 } })));
    while (engine.live.length > 0) engine.step();
    peer.say(notify('$/cancelRequest', { id: 7 }));
    const frames = await peer.hear();
    assert.equal(frames.length, 2);
    assert.equal(at(frames[1], 'error', 'code'), -32800);
  });

  test('calls that are no generation are left at once', async () => {
    const { engine, server } = setup();
    engine.gate = new Promise(() => {});
    const peer = connectPeer(server);
    peer.say(call(1, 'tokenize', { text: 'x' }));
    peer.say(notify('$/cancelRequest', { id: 1 }));
    assert.equal(at((await peer.hear())[0], 'error', 'code'), -32800);
  });

  test('the engine hears that a call is not wanted any more: cancelled, its connection closed, or its HTTP client gone', async () => {
    const { engine, server } = setup();
    engine.gate = new Promise(() => {});
    const peer = connectPeer(server);
    peer.say(call(1, 'tokenize', { text: 'x' }));
    peer.say(call(2, 'tokenize', { messages: [{ role: 'user', content: 'x' }] }));
    peer.say(call(3, 'detokenize', { ids: [1] }));
    const gone = new AbortController();
    void server.handlePost(Buffer.from(JSON.stringify(call(4, 'tokenize', { text: 'x' }))), { signal: gone.signal, client: gone });
    await settle();
    const wanted = () => engine.askers.map((asker) => asker.cancellation?.cancelled === false);
    assert.deepEqual(wanted(), [true, true, true, true]);
    const clients = engine.askers.map((asker) => asker.client);
    assert.deepEqual(new Set(clients).size, 2, 'those of one connection are one client’s');
    assert.equal(clients[3], gone);
    peer.say(notify('$/cancelRequest', { id: 2 }));
    assert.deepEqual(wanted(), [true, false, true, true]);
    gone.abort();
    assert.deepEqual(wanted(), [true, false, true, false]);
    peer.connection.close();
    assert.deepEqual(wanted(), [false, false, false, false]);
  });

  test('by requests.cancel: only own requests without admin scope', async () => {
    const { engine, server } = setup({ auto: false });
    const owner = connectPeer(server, guest);
    const other = connectPeer(server, guest);
    owner.say(call(1, create, chat('a b c')));
    owner.say(call(2, 'requests.list'));
    other.say(call(2, 'requests.list'));
    const requestId = at((await owner.hear())[0], 'result', 'requests', 0, 'request_id');
    assert.match(String(requestId), /^chatcmpl-/);
    assert.deepEqual(at((await other.hear())[0], 'result', 'requests'), []);
    other.say(call(3, 'requests.cancel', { request_id: requestId }));
    assert.equal(at((await other.hear())[0], 'result', 'cancelled'), false);
    const admin = connectPeer(server);
    admin.say(call(3, 'requests.cancel', { request_id: requestId }));
    assert.equal(at((await admin.hear())[0], 'result', 'cancelled'), true);
    assert.equal(at((await owner.hear())[0], 'error', 'code'), -32800);
    assert.equal(engine.live.length, 0);
  });
});

describe('the end of a connection', () => {
  test('closing cancels everything and sends nothing', async () => {
    const { engine, server } = setup({ auto: false });
    const peer = connectPeer(server);
    peer.say(call(1, create, chat('a b', { stream: true })));
    peer.say(call(2, 'completions.create', { prompt: ['a', 'b'] }));
    peer.say(call(3, 'stats.subscribe', { interval_ms: 100 }));
    engine.step();
    await peer.hear();
    assert.equal(engine.live.length, 3);
    peer.connection.close();
    peer.say(call(4, 'ping'));
    assert.deepEqual(await peer.hear(), []);
    assert.equal(engine.live.length, 0);
    assert.equal(peer.connection.pending, 0);
  });

  test('shutdown tells the client, lets calls finish and refuses new work, but still answers about itself', async () => {
    const { engine, server } = setup({ auto: false });
    const peer = connectPeer(server);
    peer.say(call(1, create, chat('a')));
    peer.connection.shutdown();
    peer.say(call(2, create, chat('a')));
    peer.say(call(3, 'ping'));
    while (engine.live.length > 0) engine.step();
    const frames = await peer.hear();
    assert.deepEqual(frames[0], notify('$/shutdown', { deadline_ms: 30_000 }));
    assert.deepEqual(
      frames
        .slice(1)
        .map((m) => [at(m, 'id'), at(m, 'error', 'code')])
        .sort(),
      [
        [1, undefined],
        [2, -32009],
        [3, undefined],
      ],
    );
  });

  test('daemon.drain needs admin scope and asks once', async () => {
    const { server, drains } = setup();
    const other = connectPeer(server, guest);
    other.say(call(1, 'daemon.drain'));
    assert.equal(at((await other.hear())[0], 'error', 'code'), -32001);
    const admin = connectPeer(server);
    admin.say(call(1, 'daemon.drain'));
    assert.deepEqual(at((await admin.hear())[0], 'result'), {});
    assert.equal(drains.count, 1);
  });

  test('a client that does not read its answers is not read from until it does', async () => {
    const { server } = setup();
    const peer = connectPeer(server);
    peer.wire.buffered = 2 * 2 ** 20;
    peer.say(call(1, 'ping'));
    await settle();
    assert.equal(peer.wire.reading, false);
    peer.wire.buffered = 0;
    peer.connection.writable();
    assert.equal(peer.wire.reading, true);
  });
});

describe('HTTP', () => {
  const post = (body: unknown) => Buffer.from(JSON.stringify(body));

  test('a client that goes away cancels its call, also when it had gone before', async () => {
    for (const early of [true, false]) {
      const { engine, server } = setup({ auto: false });
      const gone = new AbortController();
      if (early) gone.abort();
      const reply = server.handlePost(post(call(1, create, chat('x'))), { signal: gone.signal });
      gone.abort();
      assert.equal(at(JSON.parse((await reply).body ?? ''), 'error', 'code'), -32800);
      assert.equal(engine.live.length, 0);
    }
  });

  test('streams are refused with a sentence, and after shutdown new work too', async () => {
    const { server } = setup();
    const streamed = await server.handlePost(post(call(1, create, chat('x', { stream: true }))));
    assert.match(String(at(JSON.parse(streamed.body ?? ''), 'error', 'message')), /WebSocket/);
    server.shutdown();
    const late = await server.handlePost(post(call(1, create, chat('x'))));
    assert.equal(at(JSON.parse(late.body ?? ''), 'error', 'code'), -32009);
  });

  test('scopes are what the door says, else they follow auth.mode', async () => {
    const code = async (mode: 'none' | 'token', options: { scopes?: Scopes }): Promise<unknown> => {
      const { server } = setup({ config: { auth: { mode } } });
      return at(JSON.parse((await server.handlePost(post(call(1, 'daemon.drain')), options)).body ?? ''), 'error', 'code');
    };
    assert.deepEqual(
      [await code('none', {}), await code('token', {}), await code('token', { scopes: new Set(['admin']) }), await code('none', guest)],
      [undefined, -32001, undefined, -32001],
    );
  });
});

describe('subscriptions', () => {
  test('updates come at the interval, are skipped while the socket is full, and end on unsubscribe', async (t) => {
    t.mock.timers.enable({ apis: ['setInterval'] });
    const { server } = setup();
    const peer = connectPeer(server);
    peer.say(call(1, 'stats.subscribe', { interval_ms: 100 }));
    assert.deepEqual(at((await peer.hear())[0], 'result'), 'sub-1');
    t.mock.timers.tick(100);
    const [update] = await peer.hear();
    assert.equal(at(update, 'method'), 'stats.update');
    assert.equal(at(update, 'params', 'subscription'), 'sub-1');
    assert.equal(at(update, 'params', 'kv', 'total_blocks'), 64);
    peer.wire.buffered = 2 * 2 ** 20;
    t.mock.timers.tick(100);
    assert.deepEqual(await peer.hear(), []);
    peer.wire.buffered = 0;
    peer.say(call(2, 'stats.unsubscribe', { subscription: 'sub-1' }));
    t.mock.timers.tick(1000);
    assert.deepEqual(await peer.hear(), [{ jsonrpc: '2.0', id: 2, result: true }]);
  });

  test('a connection has a limited number, and HTTP has none', async () => {
    const { server } = setup();
    const peer = connectPeer(server);
    for (let i = 0; i < 9; i++) peer.say(call(i, 'stats.subscribe', { interval_ms: 3_600_000 }));
    const frames = await peer.hear();
    peer.connection.close();
    assert.equal(
      at(
        frames.find((frame) => at(frame, 'id') === 8),
        'error',
        'code',
      ),
      -32010,
    );
    assert.equal(frames.filter((frame) => at(frame, 'result') !== undefined).length, 8);
    const { body } = await server.handlePost(Buffer.from(JSON.stringify(call(1, 'stats.subscribe'))));
    assert.equal(at(JSON.parse(body ?? ''), 'error', 'code'), -32011);
  });
});
