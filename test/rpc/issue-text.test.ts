/** Sentences that a client reads when its method, its model or its params are wrong. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { at, call, connectPeer, setup } from './harness.js';

const create = 'chat.completions.create';

async function refusals(method: string, params?: object): Promise<unknown> {
  const peer = connectPeer(setup().server);
  peer.say(call(1, method, params));
  return at((await peer.hear())[0], 'error');
}

async function issues(params: object): Promise<unknown> {
  return at(await refusals(create, params), 'data');
}

test('wrong params are named in plain words: what is required, which type, which values, which bounds', async () => {
  assert.deepEqual(await refusals(create), {
    code: -32602,
    message: 'Invalid params: messages: is required',
    data: [{ path: 'messages', message: 'is required' }],
  });
  const messages = [{ role: 'user', content: 'x' }];
  assert.deepEqual(await issues({ messages: 'x' }), [{ path: 'messages', message: 'must be a list' }]);
  assert.deepEqual(await issues({ messages: [{ content: 'x' }] }), [{ path: 'messages[0].role', message: 'is required' }]);
  assert.deepEqual(await issues({ messages, logprobs: 1 }), [{ path: 'logprobs', message: 'must be true or false' }]);
  assert.deepEqual(await issues({ messages, logprobs: true, top_logprobs: 21 }), [{ path: 'top_logprobs', message: 'must be at most 20' }]);
  assert.deepEqual(await issues({ messages, tools: [{ type: 'tool', function: { name: 'f' } }] }), [
    { path: 'tools[0].type', message: 'must be "function"' },
  ]);
  assert.deepEqual(await issues({ messages: Array(4096).fill(messages[0]).concat(messages) }), [
    { path: 'messages', message: 'has more than 4096 elements' },
  ]);
});

test('an unknown method is repeated, cut short, with the nearest known one', async () => {
  const message = async (method: string) => at(await refusals(method), 'message');
  assert.equal(await message('png'), 'There is no method "png"; did you mean "ping"?');
  assert.equal(
    await message('chat.completion.create'),
    'There is no method "chat.completion.create"; did you mean "chat.completions.create"?',
  );
  assert.equal(await message('x'.repeat(1000)), `There is no method "${'x'.repeat(64)}"; rpc.discover lists all`);
});

test('an unknown model is repeated, cut short, with the one that is served', async () => {
  const error = await refusals(create, { model: 'm'.repeat(1000), messages: [{ role: 'user', content: 'x' }] });
  assert.deepEqual(error, { code: -32002, message: `The model "${'m'.repeat(64)}" is not served here; this daemon serves "fake"` });
});
