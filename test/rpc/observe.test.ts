/** The observer hears of each call that generates, by every door, once when it begins and once when it is over. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Failure } from '../../actors/messages/errors.js';
import type { ObservedCall } from '../../rpc/observe.js';
import { createRpcServer } from '../../rpc/server.js';
import { at, call, chat, connectPeer, setup } from './harness.js';

interface Heard {
  readonly call: ObservedCall;
  readonly ends: (string | Failure)[];
}

function observed(cares = true) {
  const { deps, engine } = setup();
  const heard: Heard[] = [];
  const server = createRpcServer({
    ...deps,
    observe: (one) => {
      const ends: Heard['ends'] = [];
      heard.push({ call: one, ends });
      if (!cares) return null;
      return { done: (result) => void ends.push(String(at(result, 'object'))), failed: (failure) => void ends.push(failure) };
    },
  });
  return { server, engine, heard };
}

const bytes = (value: unknown): Uint8Array => Buffer.from(JSON.stringify(value));

test('a call over WebSocket, whole, streamed and in a batch, and what is no such call', async () => {
  const { server, heard } = observed();
  const peer = connectPeer(server);
  peer.say(call(1, 'chat.completions.create', chat('a b', { temperature: 0.5 })));
  peer.say(call(2, 'completions.create', { prompt: 'a b', stream: true, model: 'fake' }));
  peer.say([call(3, 'completions.create', { prompt: 'a' }), call(4, 'ping')]);
  peer.say(call(5, 'tokenize', { text: 'a' }));
  peer.say(call(6, 'embeddings.create', { input: 'a' }));
  await peer.hear();
  assert.deepEqual(
    heard.map(({ call: { operation, model, trace }, ends }) => [operation, model, trace, ends]),
    [
      ['chat', 'fake', null, ['chat.completion']],
      ['text_completion', 'fake', null, ['text_completion']],
      ['text_completion', 'fake', null, ['text_completion']],
      ['embeddings', 'fake', null, ['list']],
    ],
  );
  assert.equal(heard[0]?.call.params['temperature'], 0.5);
});

test('what is refused, fails or is cancelled is told as that, and a body may name the span of its caller', async () => {
  const { server, engine, heard } = observed();
  const trace = { parent: '00-a-b-01', state: 'x=1' };
  await server.handleCall('completions.create', { body: bytes({ prompt: 'a', temperature: 9 }), trace });
  await server.handlePost(bytes(call(1, 'completions.create', { prompt: 'a', model: 'other' })), { trace });
  engine.refuseNext = { kind: 'overloaded' };
  await server.handleCall('completions.create', { body: bytes({ prompt: 'a' }) });
  const gone = new AbortController();
  const left = server.handleCall('completions.create', { body: bytes({ prompt: 'a b c' }), signal: gone.signal });
  gone.abort();
  await left;
  assert.deepEqual(
    heard.map(({ call: { model, trace: given }, ends }) => [model, given, ends.map((end) => at(end, 'kind'))]),
    [
      ['fake', trace, ['invalid_params']],
      ['other', trace, ['model_not_found']],
      ['fake', null, ['overloaded']],
      ['fake', null, ['cancelled']],
    ],
  );
});

test('an observer that does not care hears nothing more, and the answer is the same', async () => {
  const { server, heard } = observed(false);
  const { status } = await server.handleCall('completions.create', { body: bytes({ prompt: 'a' }) });
  assert.deepEqual([status, heard.length], [200, 1]);
});
