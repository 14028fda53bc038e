/** embeddings.create with an engine that answers from a script: inputs in, one answer in order out, by RPC and by HTTP. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { at, call, connectPeer, type Setup, settle, setup } from '../harness.js';

const method = 'embeddings.create';

/** The answer or the error of one call. */
async function ask({ server }: Setup, params: object): Promise<unknown> {
  const peer = connectPeer(server);
  peer.say(call(1, method, params));
  const [answer, ...more] = await peer.hear();
  assert.deepEqual(more, [], 'one answer');
  return answer;
}

async function post({ server }: Setup, body: object): Promise<readonly [number, unknown]> {
  const reply = await server.handleCall(method, { body: Buffer.from(JSON.stringify(body)) });
  return [reply.status, JSON.parse(reply.body ?? 'null') as unknown];
}

const data = (answer: unknown): readonly unknown[] => (at(answer, 'result', 'data') ?? []) as readonly unknown[];

test('one text gives a list of one, with the usage', async () => {
  const made = setup();
  made.engine.pool = () => [3, 4, 0, 0];
  const answer = await ask(made, { input: 'abc', model: 'fake' });
  assert.deepEqual(at(answer, 'result'), {
    object: 'list',
    data: [{ object: 'embedding', index: 0, embedding: [Math.fround(0.6), Math.fround(0.8), 0, 0] }],
    model: 'fake',
    usage: { prompt_tokens: 3, total_tokens: 3, prompt_tokens_details: { cached_tokens: 2 } },
  });
  const { params, prompt } = made.engine.all[0] ?? assert.fail();
  assert.deepEqual([params.pooling, params.maxTokens, params.bestOf], ['last', 0, 1]);
  assert.deepEqual(prompt, { kind: 'text', text: 'abc', addSpecialTokens: true });
});

test('texts, token ids and lists of either are embedded in their order', async () => {
  const made = setup();
  made.engine.pool = (prompt) => [0, prompt.kind === 'ids' ? -1 : 1, 0, 0];
  for (const [input, tokens] of [
    ['abc', [3]],
    [[65, 66], [2]],
    [
      ['a', 'bc', 'def'],
      [1, 2, 3],
    ],
    [
      [[65], [66, 67]],
      [1, 2],
    ],
  ] as const) {
    const answer = await ask(made, { input });
    assert.deepEqual(
      data(answer).map((one) => at(one, 'index')),
      tokens.map((_, i) => i),
    );
    const sign = typeof input === 'string' || typeof input[0] === 'string' ? 1 : -1;
    for (const one of data(answer)) assert.equal(at(one, 'embedding', 1), sign);
    assert.equal(
      at(answer, 'result', 'usage', 'prompt_tokens'),
      tokens.reduce((a: number, b) => a + b, 0),
    );
  }
});

test('a call of many inputs has a few requests at a time, and puts its answers in order', async () => {
  const made = setup({ auto: false, config: { scheduler: { max_num_sequences: 3 } } });
  const { engine } = made;
  engine.pool = (prompt) => [prompt.kind === 'text' ? Number(prompt.text) : 0, 1, 0, 0];
  const peer = connectPeer(made.server);
  peer.say(call(1, method, { input: Array.from({ length: 10 }, (_, i) => String(i)), encoding_format: 'float' }));
  const counts: number[] = [];
  for (await settle(2); engine.live.length > 0; await settle(2)) {
    counts.push(engine.live.length);
    engine.step();
  }
  assert.ok(
    counts.every((count) => count <= 3),
    `at a time: ${counts}`,
  );
  const [answer] = await peer.hear();
  const tangents = data(answer).map((one) => Math.round(Number(at(one, 'embedding', 0)) / Number(at(one, 'embedding', 1))));
  assert.deepEqual(tangents, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
});

test('dimensions cut and normalise again; base64 is little-endian float32', async () => {
  const made = setup();
  made.engine.pool = () => [3, 4, 12, 84];
  const cut = await ask(made, { input: 'a', dimensions: 2 });
  assert.deepEqual(at(cut, 'result', 'data', 0, 'embedding'), [Math.fround(0.6), Math.fround(0.8)]);
  const packed = await ask(made, { input: 'a', dimensions: 2, encoding_format: 'base64' });
  const bytes = Buffer.from(String(at(packed, 'result', 'data', 0, 'embedding')), 'base64');
  assert.deepEqual([bytes.length, bytes.readFloatLE(0), bytes.readFloatLE(4)], [8, Math.fround(0.6), Math.fround(0.8)]);
});

test('priority, truncate_prompt_tokens and add_special_tokens reach the engine', async () => {
  const made = setup();
  await ask(made, { input: ['abc'], priority: -3, truncate_prompt_tokens: 2, add_special_tokens: false, user: 'me' });
  const { params, prompt } = made.engine.all[0] ?? assert.fail();
  assert.deepEqual([params.priority, params.truncatePromptTokens], [-3, 2]);
  assert.deepEqual(prompt, { kind: 'text', text: 'abc', addSpecialTokens: false });
});

test('what is wrong is said with the name of the parameter, and costs the engine nothing', async () => {
  const made = setup({ config: { validation: { max_embedding_inputs: 3 } } });
  const wrong: readonly (readonly [object, string, RegExp])[] = [
    [{}, 'input', /must be a string/],
    [{ input: '' }, 'input', /none of them empty/],
    [{ input: [] }, 'input', /must be a string/],
    [{ input: ['a', ''] }, 'input', /none of them empty/],
    [{ input: [[]] }, 'input', /must be a string/],
    [{ input: ['a', 1] }, 'input', /must be a string/],
    [{ input: [1.5] }, 'input', /must be a string/],
    [{ input: { text: 'a' } }, 'input', /must be a string/],
    [{ input: ['a', 'b', 'c', 'd'] }, 'input', /a list of at most 3 of either/],
    [{ input: 'a', encoding_format: 'int8' }, 'encoding_format', /must be "float" or "base64"/],
    [{ input: 'a', dimensions: 0 }, 'dimensions', /must be an integer from 1/],
    [{ input: 'a', dimensions: 1.5 }, 'dimensions', /must be an integer from 1/],
    [{ input: 'a', dimensions: 5 }, 'dimensions', /must be at most 4, the size of the model's embeddings/],
    [{ input: 'a', model: '' }, 'model', /must not be empty/],
  ];
  for (const [params, path, message] of wrong) {
    const answer = await ask(made, params);
    assert.equal(at(answer, 'error', 'code'), -32602, JSON.stringify(params));
    assert.equal(at(answer, 'error', 'data', 0, 'path'), path, JSON.stringify(params));
    assert.match(String(at(answer, 'error', 'data', 0, 'message')), message);
    const [status, body] = await post(made, params);
    assert.equal(status, 400);
    assert.deepEqual(Object.keys(at(body, 'error') as object).sort(), ['code', 'message', 'param', 'type']);
    assert.equal(at(body, 'error', 'param'), path);
  }
  assert.equal(at(await ask(made, { input: 'a', model: 'other' }), 'error', 'code'), -32002);
  assert.equal(made.engine.all.length, 0);
});

test('what the engine refuses is told of its input, and ends the others', async () => {
  const made = setup();
  const ids = await ask(made, { input: [[65], [66, 300]] });
  assert.equal(at(ids, 'error', 'code'), -32602);
  assert.deepEqual(at(ids, 'error', 'data', 0, 'path'), 'input[1]');
  const tooLong = { kind: 'context_length_exceeded', message: 'Too long', data: { prompt_tokens: 9, max_tokens: 0, limit: 8 } } as const;
  made.engine.refuseNext = tooLong;
  const answer = await ask(made, { input: ['a', 'b'] });
  assert.deepEqual([at(answer, 'error', 'code'), at(answer, 'error', 'message')], [-32006, 'input[0]: Too long']);
  assert.deepEqual(at(answer, 'error', 'data'), tooLong.data);
  made.engine.refuseNext = { kind: 'overloaded' };
  assert.equal(at(await ask(made, { input: 'a' }), 'error', 'code'), -32005);
  made.engine.pool = () => [Number.NaN, 0, 0, 0];
  assert.equal(at(await ask(made, { input: ['a', 'b', 'c'] }), 'error', 'code'), -32012);
  assert.equal(made.engine.live.length, 0, 'nothing is left behind');
});

test('a model that pools in a way of its own is refused with the reason', async () => {
  const made = setup();
  const [served] = made.deps.models.list();
  assert.ok(served !== undefined);
  Object.assign(served.model, { pooling: { refusal: 'The model pools by "cls_token", which is not supported' } });
  try {
    const answer = await ask(made, { input: 'a' });
    assert.deepEqual(
      [at(answer, 'error', 'code'), at(answer, 'error', 'message')],
      [-32011, 'The model pools by "cls_token", which is not supported'],
    );
  } finally {
    Object.assign(served.model, { pooling: { mode: 'last' } });
  }
});

test('a cancelled call ends at once with one answer, and its requests with it', async () => {
  const made = setup({ auto: false });
  const peer = connectPeer(made.server);
  peer.say(call(7, method, { input: ['a', 'b', 'c'] }));
  await settle(2);
  assert.equal(made.engine.live.length, 3);
  peer.say({ jsonrpc: '2.0', method: '$/cancelRequest', params: { id: 7 } });
  const answers = await peer.hear();
  assert.deepEqual([answers.length, at(answers[0], 'id'), at(answers[0], 'error', 'code')], [1, 7, -32800]);
  assert.equal(made.engine.live.length, 0);
  assert.deepEqual(await peer.hear(), []);
});

test('requests.list shows its requests, and requests.cancel ends the call', async () => {
  const made = setup({ auto: false });
  const peer = connectPeer(made.server);
  peer.say(call(1, method, { input: ['a', 'b'] }));
  await settle(2);
  peer.say(call(2, 'requests.list'));
  const [listed] = await peer.hear();
  const text = JSON.stringify(at(listed, 'result'));
  const id = /embd-[0-9a-f-]+/.exec(text)?.[0];
  assert.ok(id !== undefined, text);
  peer.say(call(3, 'requests.cancel', { request_id: id }));
  const codes = (await peer.hear()).map((answer) => [at(answer, 'id'), at(answer, 'error', 'code')]);
  assert.deepEqual(codes.sort(), [
    [1, -32800],
    [3, undefined],
  ]);
});

test('a large answer is written in slices, the same as at once', async () => {
  const made = setup();
  made.engine.pool = (prompt) => [prompt.kind === 'text' ? Number(prompt.text) + 1 : 0, 1, -1, 0.5];
  const input = Array.from({ length: 1500 }, (_, i) => String(i));
  const reply = await made.server.handleCall(method, { body: Buffer.from(JSON.stringify({ input })) });
  assert.ok(reply.slices !== undefined, 'more than 64 KiB');
  let text = '';
  for (let slice = reply.slices.next(); slice !== null; slice = reply.slices.next()) text += String(slice);
  reply.slices.close();
  const answer = JSON.parse(text) as unknown;
  assert.equal((at(answer, 'data') as unknown[]).length, 1500);
  assert.equal(at(answer, 'data', 1499, 'index'), 1499);
  const [x, y] = [at(answer, 'data', 1499, 'embedding', 0), at(answer, 'data', 1499, 'embedding', 1)].map(Number);
  assert.ok(Math.abs((x ?? 0) / (y ?? 0) - 1500) < 0.01);
});
