/** Streams: numbering, credit, merging, pausing, slow clients, batches of notifications, agreement with the whole answer. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { words } from '../helpers/engine/fake-engine-client.js';
import { at, call, chat, connectPeer, notify, type Peer, settle, setup } from './harness.js';

const create = 'chat.completions.create';
const full = 2 * 2 ** 20;

const contentOf = (frames: readonly unknown[]): string =>
  frames
    .map((f) => (at(f, 'params', 'choices') as unknown[] | undefined)?.map((c) => at(c, 'delta', 'content') ?? '').join('') ?? '')
    .join('');
const seqs = (frames: readonly unknown[]): unknown[] =>
  frames.filter((f) => at(f, 'method') === '$/progress').map((f) => at(f, 'params', 'seq'));

describe('a stream', () => {
  test('numbers its events from 0, ends with the response, and carries the role once', async () => {
    const { server } = setup();
    const peer = connectPeer(server);
    peer.say(call(7, create, chat('one two', { stream: true })));
    const frames = await peer.hear();
    assert.deepEqual(
      frames[0],
      notify('$/progress', {
        token: 7,
        seq: 0,
        kind: 'delta',
        choices: [{ index: 0, delta: { role: 'assistant', content: 'You' }, finish_reason: null }],
      }),
    );
    assert.deepEqual(
      frames[1],
      notify('$/progress', { token: 7, seq: 1, kind: 'delta', choices: [{ index: 0, delta: { content: ' said:' }, finish_reason: null }] }),
    );
    assert.deepEqual(seqs(frames), [0, 1, 2, 3]);
    assert.equal(contentOf(frames), 'You said: one two');
    assert.equal(at(frames[3], 'params', 'choices', 0, 'finish_reason'), 'stop');
    const response = frames[4];
    assert.deepEqual(at(response, 'result', 'choices', 0, 'message'), { role: 'assistant' });
    assert.equal(at(response, 'result', 'usage', 'completion_tokens'), 4);
    assert.equal(frames.length, 5);
  });

  test('two live streams cannot share a token; afterwards it is free again', async () => {
    const { engine, server } = setup({ auto: false });
    const peer = connectPeer(server);
    peer.say(call(1, create, chat('x', { stream: { token: 't' } })));
    peer.say(call(2, create, chat('x', { stream: { token: 't' } })));
    const [refused] = await peer.hear();
    assert.deepEqual([at(refused, 'id'), at(refused, 'error', 'code')], [2, -32602]);
    assert.equal(engine.live.length, 1);
    while (engine.live.length > 0) engine.step();
    await peer.hear();
    peer.say(call(3, create, chat('x', { stream: { token: 't' } })));
    engine.step();
    assert.equal(at((await peer.hear())[0], 'params', 'token'), 't');
    peer.connection.close();
  });

  test('several choices of one step come in one event', async () => {
    const { engine, server } = setup({ auto: false });
    const peer = connectPeer(server);
    peer.say(call(1, create, chat('x', { stream: true, n: 3 })));
    engine.step();
    const [event] = await peer.hear();
    assert.deepEqual(
      (at(event, 'params', 'choices') as unknown[]).map((c) => at(c, 'index')),
      [0, 1, 2],
    );
    peer.connection.close();
  });

  test('after the handshake for batches the events of one step are one frame, and the response comes after them', async () => {
    const { engine, server } = setup({ auto: false });
    const peer = connectPeer(server);
    peer.say(call(0, 'initialize', { capabilities: { batchNotifications: true } }));
    for (const id of [1, 2, 3]) peer.say(call(id, create, chat('x', { stream: true })));
    await peer.hear();
    engine.step();
    const frames = await peer.hear();
    assert.equal(frames.length, 1);
    assert.deepEqual(
      (frames[0] as unknown[]).map((m) => at(m, 'params', 'token')),
      [1, 2, 3],
    );
    while (engine.live.length > 0) engine.step();
    const rest = (await peer.hear()).flat();
    for (const id of [1, 2, 3]) {
      const mine = rest.filter((m) => at(m, 'id') === id || at(m, 'params', 'token') === id);
      assert.equal(at(mine.at(-1), 'id'), id);
      assert.deepEqual(seqs(mine), [1, 2]);
    }
  });

  test('the first delta names the answer when the client asked for that', async () => {
    const { server } = setup();
    const peer = connectPeer(server);
    peer.say(call(0, 'initialize', { capabilities: { deltaHead: true } }));
    peer.say(call(1, create, chat('x', { stream: true })));
    const [, first, second, , response] = await peer.hear();
    assert.equal(at(first, 'params', 'id'), at(response, 'result', 'id'));
    assert.equal(at(first, 'params', 'model'), 'fake');
    assert.equal(at(second, 'params', 'id'), undefined);
  });
});

describe('a slow client', () => {
  const long = Array.from({ length: 1000 }, (_, i) => `w${i}`).join(' ');
  const start = (stream: object | true, timeoutS = 30) => {
    const set = setup({ auto: false, config: { server: { slow_client_timeout_s: timeoutS } } });
    set.engine.script = () => words(long);
    const peer = connectPeer(set.server);
    peer.say(call(1, create, chat('x', { stream })));
    return { ...set, peer };
  };

  test('gets no more tokens than it granted; the rest waits, merged', async () => {
    const { engine, peer } = start({ token: 't', credit: 3 });
    for (let i = 0; i < 10; i++) engine.step();
    const frames = await peer.hear();
    assert.equal(contentOf(frames), 'w0 w1 w2');
    assert.deepEqual(
      frames.map((f) => at(f, 'params', 'tokens')),
      [1, 1, 1],
    );
    peer.say(notify('$/credit', { token: 't', n: 4 }));
    const more = await peer.hear();
    assert.equal(more.length, 1);
    assert.equal(contentOf(more), ' w3 w4 w5 w6');
    assert.equal(at(more[0], 'params', 'tokens'), 4);
    assert.equal(at(more[0], 'params', 'seq'), 3);
    peer.connection.close();
  });

  test('pauses the sequences at 256 waiting tokens and lets them go on below 64', async () => {
    const { engine, peer } = start({ token: 't', credit: 0 });
    for (let i = 0; i < 255; i++) engine.step();
    assert.deepEqual(engine.pauses, []);
    engine.step();
    assert.deepEqual(engine.pauses, [{ id: 1, paused: true }]);
    peer.say(notify('$/credit', { token: 't', n: 191 }));
    await settle();
    assert.equal(engine.pauses.length, 1);
    peer.say(notify('$/credit', { token: 't', n: 1 }));
    await settle();
    assert.deepEqual(engine.pauses.at(-1), { id: 1, paused: false });
    peer.connection.close();
  });

  test('whose socket is full gets merged deltas once it has drained, and loses nothing', async () => {
    const { engine, peer } = start(true);
    engine.step();
    peer.wire.buffered = full;
    for (let i = 0; i < 400; i++) engine.step();
    assert.equal((await peer.hear()).length, 1);
    assert.equal(engine.pauses.length, 1);
    peer.wire.buffered = 0;
    peer.connection.writable();
    const [merged, ...rest] = await peer.hear();
    assert.deepEqual(rest, []);
    assert.equal(at(merged, 'params', 'seq'), 1);
    while (engine.live.length > 0) engine.step();
    const frames = await peer.hear();
    assert.equal(`w0${contentOf([merged])}${contentOf(frames)}`, long);
    assert.equal(at(frames.at(-1), 'result', 'usage', 'completion_tokens'), 1000);
  });

  test('is given up after the timeout, with one error and nothing after', async (t) => {
    t.mock.timers.enable({ apis: ['setTimeout'] });
    const { engine, peer } = start({ token: 't', credit: 1 }, 30);
    for (let i = 0; i < 5; i++) engine.step();
    await peer.hear();
    t.mock.timers.tick(29_999);
    assert.deepEqual(await peer.hear(), []);
    t.mock.timers.tick(1);
    const [error, ...rest] = await peer.hear();
    assert.deepEqual(rest, []);
    assert.equal(at(error, 'error', 'code'), -32008);
    assert.equal(at(error, 'error', 'data', 'last_seq'), 0);
    assert.equal(at(error, 'error', 'data', 'usage', 'completion_tokens'), 5);
    assert.equal(engine.live.length, 0);
  });

  test('is not given up while its buffer shrinks', async (t) => {
    t.mock.timers.enable({ apis: ['setTimeout'] });
    const { engine, peer } = start(true, 30);
    peer.wire.buffered = full;
    engine.step();
    peer.wire.buffered = full - 1000;
    t.mock.timers.tick(30_000);
    assert.deepEqual(await peer.hear(), []);
    assert.equal(engine.live.length, 1);
    t.mock.timers.tick(30_000);
    assert.equal(at((await peer.hear())[0], 'error', 'code'), -32008);
  });

  test('that finished its answer still has to grant credit before the response', async () => {
    const { engine, server } = setup({ auto: false });
    const peer = connectPeer(server);
    peer.say(call(1, create, chat('a', { stream: { token: 't', credit: 1 } })));
    while (engine.live.length > 0) engine.step();
    assert.equal((await peer.hear()).length, 1);
    peer.say(notify('$/credit', { token: 't', n: 10 }));
    const frames = await peer.hear();
    assert.equal(contentOf(frames), ' said: a');
    assert.equal(at(frames.at(-1), 'id'), 1);
  });

  test('events of queue and prefill are dropped, not queued, while the socket is full; numbers stay without gaps', async () => {
    const { engine, peer } = start(true);
    const request = engine.live[0];
    assert.ok(request);
    peer.wire.buffered = full;
    engine.notice(request, { kind: 'queued', id: request.id, position: 1 });
    peer.wire.buffered = 0;
    engine.step();
    assert.deepEqual(seqs(await peer.hear()), [0]);
    peer.connection.close();
  });
});

describe('streamed and whole answers', () => {
  const scripts = fc.array(
    fc.oneof(
      fc.string({ unit: 'grapheme', maxLength: 6 }),
      fc.constantFrom('{', '"', '}', ' ', '{"name": "f"', ', "parameters": {}}', '\n'),
    ),
    {
      minLength: 1,
      maxLength: 30,
    },
  );

  /** Plays client: grants credit at random, fills and drains the socket at random. */
  async function stream(peer: Peer, step: () => boolean, random: () => number): Promise<unknown[]> {
    const frames: unknown[] = [];
    for (let running = true; running; ) {
      running = step();
      if (random() < 0.3) peer.wire.buffered = peer.wire.buffered === 0 ? full : 0;
      if (random() < 0.5) peer.say(notify('$/credit', { token: 't', n: 1 + Math.floor(random() * 5) }));
      peer.connection.writable();
    }
    peer.wire.buffered = 0;
    peer.say(notify('$/credit', { token: 't', n: 1000 }));
    peer.connection.writable();
    frames.push(...(await peer.hear()));
    return frames;
  }

  for (const tools of [false, true]) {
    test(`are equal byte for byte, ${tools ? 'with' : 'without'} tools, however the client reads`, async () => {
      const more = tools ? { tools: [{ type: 'function', function: { name: 'f' } }] } : {};
      await fc.assert(
        fc.asyncProperty(
          scripts,
          fc.array(fc.double({ min: 0, max: 0.999, noNaN: true }), { minLength: 20, maxLength: 20 }),
          async (script, dice) => {
            const { engine, server } = setup({ auto: false });
            engine.script = () => script;
            let roll = 0;
            const random = (): number => dice[roll++ % dice.length] ?? 0;
            const run = (): boolean => {
              engine.step();
              return engine.live.length > 0;
            };
            const whole = connectPeer(server);
            whole.say(call(1, create, chat('x', more)));
            while (run());
            const answer = at((await whole.hear())[0], 'result', 'choices', 0);
            const peer = connectPeer(server);
            peer.say(call(1, create, chat('x', { ...more, stream: { token: 't', credit: Math.floor(random() * 4) } })));
            const frames = await stream(peer, run, random);
            assert.equal(contentOf(frames), at(answer, 'message', 'content') ?? '');
            assert.deepEqual(
              seqs(frames),
              seqs(frames).map((_, i) => i),
            );
            const end = at(frames.at(-1), 'result', 'choices', 0);
            assert.equal(at(end, 'finish_reason'), at(answer, 'finish_reason'));
            const args = (choice: unknown) => at(choice, 'message', 'tool_calls', 0, 'function');
            assert.deepEqual(args(end), args(answer));
          },
        ),
        { numRuns: 60 },
      );
    });
  }
});
