import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type ChatCompletionChunk, ConnectionClosedError, ProtocolError, RpcError } from '../../../rpc/client/client.js';
import { words } from '../../helpers/engine/fake-engine-client.js';
import { settle, setup } from '../harness.js';
import { linkedClient } from './link.js';

const messages = [{ role: 'user', content: 'hello there' }];
const isAbort = (error: unknown): boolean => error instanceof DOMException && error.name === 'AbortError';

describe('calls', () => {
  test('a chat completion is an object of OpenAI’s shape', async () => {
    const { client } = await linkedClient(setup().server);
    const answer = await client.chat.completions.create({ messages });
    assert.equal(answer.choices[0]?.message.content, 'You said: hello there');
    assert.equal(answer.usage.completion_tokens, 4);
    assert.equal(client.server.server.name, 'inferd');
    await client.close();
  });

  test('embeddings are a list of OpenAI’s shape', async () => {
    const { client } = await linkedClient(setup().server);
    const { data, usage } = await client.embeddings.create({ input: ['a', 'bc'], dimensions: 2 });
    assert.deepEqual(
      data.map((one) => one.embedding),
      [0, 1].map(() => [Math.fround(0.6), Math.fround(0.8)]),
    );
    assert.equal(usage.prompt_tokens, 3);
    await client.close();
  });

  test('an error of the daemon is an RpcError with code and data', async () => {
    const { client } = await linkedClient(setup().server);
    await assert.rejects(client.chat.completions.create({ messages, temperature: 9 }), (error) => {
      assert.ok(error instanceof RpcError);
      assert.equal(error.code, -32602);
      assert.deepEqual(error.data, [{ path: 'temperature', message: 'must be a number from 0 to 2' }]);
      return true;
    });
    await client.close();
  });

  test('an AbortSignal cancels in the daemon and rejects at once', async () => {
    const { engine, server } = setup({ auto: false });
    const { client, link } = await linkedClient(server);
    const controller = new AbortController();
    const answer = client.chat.completions.create({ messages }, { signal: controller.signal });
    await settle(2);
    controller.abort();
    await assert.rejects(answer, isAbort);
    await settle(2);
    assert.equal(engine.live.length, 0);
    assert.equal(link.sent.at(-1)?.method, '$/cancelRequest');
    await client.close();
  });

  test('a signal that has fired already sends nothing', async () => {
    const { client, link } = await linkedClient(setup().server);
    const before = link.sent.length;
    await assert.rejects(client.call('ping', {}, { signal: AbortSignal.abort() }), isAbort);
    await assert.rejects(client.chat.completions.create({ messages, stream: true }, { signal: AbortSignal.abort() }), isAbort);
    assert.equal(link.sent.length, before);
    await client.close();
  });

  test('a cut connection rejects everything that waits, and later calls too', async () => {
    const { client, link } = await linkedClient(setup({ auto: false }).server);
    const whole = client.chat.completions.create({ messages });
    const stream = await client.chat.completions.create({ messages, stream: true });
    await settle(2);
    link.cut('the cable is out');
    await assert.rejects(whole, (e) => e instanceof ConnectionClosedError && e.message === 'the cable is out');
    await assert.rejects(stream.next(), ConnectionClosedError);
    await assert.rejects(client.call('ping', {}), ConnectionClosedError);
    assert.equal(await client.closed, 'the cable is out');
  });

  test('notifications reach their listeners until these are taken off', async () => {
    const { client, link } = await linkedClient(setup().server);
    const heard: unknown[] = [];
    const stop = client.onNotification('stats.update', (params) => heard.push(params['subscription']));
    link.events?.text('{"jsonrpc":"2.0","method":"stats.update","params":{"subscription":"a"}}');
    stop();
    link.events?.text('{"jsonrpc":"2.0","method":"stats.update","params":{"subscription":"b"}}');
    assert.deepEqual(heard, ['a']);
    await client.close();
  });
});

describe('streams', () => {
  test('are chunks of OpenAI’s shape; the last has the finish_reason and the usage', async () => {
    const { client } = await linkedClient(setup().server);
    const chunks: ChatCompletionChunk[] = [];
    for await (const chunk of await client.chat.completions.create({ messages, stream: true })) chunks.push(chunk);
    assert.equal(chunks.map((c) => c.choices[0]?.delta.content ?? '').join(''), 'You said: hello there');
    assert.ok(chunks.every((c) => c.object === 'chat.completion.chunk' && c.id === chunks[0]?.id && c.model === 'fake' && c.created > 0));
    assert.match(chunks[0]?.id ?? '', /^chatcmpl-/);
    const last = chunks.pop();
    assert.equal(last?.choices[0]?.finish_reason, 'stop');
    assert.equal(last?.usage?.completion_tokens, 4);
    assert.ok(chunks.every((c) => c.usage === null && c.choices[0]?.finish_reason === null));
    await client.close();
  });

  test('of text completions work alike', async () => {
    const { client } = await linkedClient(setup().server);
    let text = '';
    for await (const chunk of await client.completions.create({ prompt: 'x', stream: true, max_tokens: 2 }))
      text += chunk.choices[0]?.text ?? '';
    assert.equal(text, 'You said:');
    await client.close();
  });

  test('tell of queue and prefill through onProgress', async () => {
    const { engine, server } = setup({ auto: false });
    const { client } = await linkedClient(server);
    const heard: unknown[] = [];
    const stream = await client.chat.completions.create({ messages, stream: true }, { onProgress: (event) => heard.push(event.kind) });
    await settle(2);
    const request = engine.live[0];
    assert.ok(request);
    engine.notice(request, { kind: 'queued', id: request.id, position: 1 });
    engine.notice(request, { kind: 'prefill', id: request.id, done: 1, total: 2 });
    await settle(4);
    assert.deepEqual(heard, ['queued', 'prefill']);
    await stream.return();
    await client.close();
  });

  test('an error of the call is thrown by the loop', async () => {
    const { client } = await linkedClient(setup().server);
    const stream = await client.chat.completions.create({ messages, stream: true, model: 'other' });
    await assert.rejects(stream.next(), (e) => e instanceof RpcError && e.code === -32002);
    assert.deepEqual(await stream.next(), { done: true, value: undefined });
    await client.close();
  });

  test('leaving the loop early cancels the call', async () => {
    const { engine, server } = setup();
    engine.script = () => words('w '.repeat(10_000));
    const { client } = await linkedClient(server);
    for await (const _chunk of await client.chat.completions.create({ messages, stream: true })) break;
    await settle(4);
    assert.equal(engine.live.length, 0);
    await client.close();
  });

  test('abort ends the loop with an AbortError', async () => {
    const { engine, server } = setup({ auto: false });
    const { client } = await linkedClient(server);
    const controller = new AbortController();
    const stream = await client.chat.completions.create({ messages, stream: true }, { signal: controller.signal });
    await settle(2);
    engine.step();
    await settle(4);
    await stream.next();
    const next = stream.next();
    controller.abort();
    await assert.rejects(next, isAbort);
    await settle(4);
    assert.equal(engine.live.length, 0);
    await client.close();
  });

  test('a consumer that stops stops the daemon within a window, and goes on without loss', async () => {
    const { engine, server } = setup();
    const text = Array.from({ length: 2000 }, (_, i) => `w${i}`).join(' ');
    engine.script = () => words(text);
    const { client } = await linkedClient(server);
    const stream = await client.chat.completions.create({ messages, stream: true });
    await settle(1500);
    const made = Math.max(...(engine.live[0]?.at ?? [0]));
    assert.ok(made <= 256 + 256 + 2, `${made} tokens ahead`);
    assert.equal(engine.pauses.length, 1);
    let read = '';
    for await (const chunk of stream) read += chunk.choices[0]?.delta.content ?? '';
    assert.equal(read, text);
    await client.close();
  });

  test('a missing event is noticed, and the call is cancelled', async () => {
    const { engine, server } = setup();
    engine.script = () => words('w '.repeat(100));
    const { client, link } = await linkedClient(server);
    link.tamper = (frame) => (frame.includes('"seq":3,') ? null : frame);
    const stream = await client.chat.completions.create({ messages, stream: true });
    await assert.rejects(async () => {
      for await (const _chunk of stream);
    }, ProtocolError);
    await settle(4);
    assert.equal(engine.live.length, 0);
    await client.close();
  });

  test('a hundred at once on one connection do not mix', async () => {
    const { client } = await linkedClient(setup().server);
    const read = async (name: string): Promise<string> => {
      let text = '';
      const stream = await client.chat.completions.create({ messages: [{ role: 'user', content: name }], stream: true });
      for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? '';
      return text;
    };
    const names = Array.from({ length: 100 }, (_, i) => `number ${i}`);
    assert.deepEqual(
      await Promise.all(names.map(read)),
      names.map((name) => `You said: ${name}`),
    );
    await client.close();
  });
});
