/** What reaches the engine, and what comes back: parameters, prompts, choices, log-probabilities, tool calls. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { allScopes } from '../../rpc/scope.js';
import type { FakeRequest } from '../helpers/engine/fake-engine-client.js';
import { at, call, chat, connectPeer, setup } from './harness.js';

const create = 'chat.completions.create';

async function ask(
  method: string,
  params: object,
  prepare?: (set: ReturnType<typeof setup>) => void,
): Promise<{ answer: unknown; request: FakeRequest }> {
  const set = setup();
  prepare?.(set);
  const peer = connectPeer(set.server);
  peer.say(call(1, method, params));
  const answer = (await peer.hear()).at(-1);
  return { answer, request: set.engine.all[0] as FakeRequest };
}

test('a request arrives when its message has been read, however long the message then waits and is decoded', async () => {
  const { engine, server } = setup();
  const peer = connectPeer(server);
  const prompt = 'x'.repeat(2 ** 20); // decoded in a thread
  const read = performance.now() - 5000;
  for (const [id, text] of ['short', prompt].entries())
    await peer.connection.receivePieces([Buffer.from(JSON.stringify(call(id, 'completions.create', { prompt: text })))], read);
  const answers = await peer.hear();
  assert.deepEqual(
    engine.all.map(({ sink }) => sink.arrivalMs),
    [read, read],
  );
  for (const answer of answers) assert.ok(Number(at(answer, 'result', 'usage', 'latency_s')) >= 5);
});

test('a request by HTTP arrives before its body is decoded', async () => {
  const { engine, server } = setup();
  const before = performance.now();
  await server.handlePost(Buffer.from(JSON.stringify(call(1, 'completions.create', { prompt: 'x' }))), { scopes: allScopes });
  const { arrivalMs = 0 } = engine.all[0]?.sink ?? {};
  assert.ok(arrivalMs >= before && arrivalMs <= performance.now());
});

describe('parameters', () => {
  test('the request wins over the model, and the model over the table', async () => {
    const { request } = await ask(create, chat('x', { top_p: 0.5 }));
    assert.equal(request.params.sampling.top_p, 0.5);
    assert.equal(request.params.sampling.temperature, 0.6);
    assert.equal(request.params.sampling.min_p, 0);
  });

  test('everything a body says reaches the engine', async () => {
    const body = {
      temperature: 1.5,
      top_k: 40,
      min_p: 0.1,
      typical_p: 0.9,
      repetition_penalty: 1.1,
      frequency_penalty: -1,
      presence_penalty: 1,
      min_tokens: 2,
      max_tokens: 9,
      max_completion_tokens: 7,
      seed: -1,
      n: 2,
      stop: 'END',
      stop_token_ids: [5],
      include_stop_str_in_output: true,
      ignore_eos: true,
      skip_special_tokens: false,
      logit_bias: { 7: -100 },
      logprobs: true,
      top_logprobs: 3,
      prompt_logprobs: 2,
      priority: -4,
      truncate_prompt_tokens: 11,
    };
    const { request } = await ask(create, chat('x', body));
    const { sampling, ...rest } = request.params;
    assert.deepEqual(
      { ...sampling },
      {
        temperature: 1.5,
        top_p: 0.9,
        min_p: 0.1,
        typical_p: 0.9,
        repetition_penalty: 1.1,
        frequency_penalty: -1,
        presence_penalty: 1,
        top_k: 40,
        min_tokens: 2,
      },
    );
    assert.deepEqual(rest, {
      seedLo: 0xffff_ffff,
      seedHi: 0xffff_ffff,
      topLogprobs: 3,
      promptLogprobs: 2,
      logitBias: [[7, -100]],
      maxTokens: 7,
      stop: ['END'],
      stopTokenIds: [5],
      includeStop: true,
      ignoreEos: true,
      skipSpecialTokens: false,
      n: 2,
      bestOf: 2,
      priority: -4,
      truncatePromptTokens: 11,
      echo: false,
      constraint: null,
    });
  });

  test('a seed of 53 bits keeps all of them; without one two calls differ', async () => {
    const { request } = await ask(create, chat('x', { seed: 2 ** 53 - 1 }));
    assert.deepEqual([request.params.seedLo, request.params.seedHi], [0xffff_ffff, 0x1f_ffff]);
    const seeds = await Promise.all([ask(create, chat('x')), ask(create, chat('x'))]);
    const [a, b] = seeds.map(({ request: r }) => `${r.params.seedLo} ${r.params.seedHi}`);
    assert.notEqual(a, b);
  });

  test('completions default to 16 tokens, chat to as many as fit', async () => {
    assert.equal((await ask('completions.create', { prompt: 'x' })).request.params.maxTokens, 16);
    assert.equal((await ask(create, chat('x'))).request.params.maxTokens, null);
  });
});

describe('prompts', () => {
  test('text parts are joined by a newline, arguments of earlier calls become objects, other members pass', async () => {
    const messages = [
      {
        role: 'system',
        content: [
          { type: 'text', text: 'a' },
          { type: 'text', text: 'b' },
        ],
      },
      { role: 'assistant', content: null, tool_calls: [{ id: 'c1', type: 'function', function: { name: 'f', arguments: '{"x":1}' } }] },
      { role: 'tool', content: '5', tool_call_id: 'c1', extra: true },
    ];
    const { request } = await ask(create, { messages, chat_template_kwargs: { enable_thinking: false } });
    assert.deepEqual(request.prompt, {
      kind: 'chat',
      messages: [
        { role: 'system', content: 'a\nb' },
        { role: 'assistant', content: '', tool_calls: [{ id: 'c1', type: 'function', function: { name: 'f', arguments: { x: 1 } } }] },
        { role: 'tool', content: '5', tool_call_id: 'c1', extra: true },
      ],
      addGenerationPrompt: true,
      templateArgs: { enable_thinking: false },
    });
  });

  test('tools are shown to the template, unless tool_choice is none', async () => {
    const tools = [{ type: 'function', function: { name: 'f', parameters: { type: 'object', properties: { x: {} } } } }];
    const shown = (await ask(create, chat('x', { tools }))).request.prompt;
    assert.deepEqual(shown.kind === 'chat' && shown.tools, tools);
    const hidden = (await ask(create, chat('x', { tools, tool_choice: 'none' }))).request.prompt;
    assert.equal(hidden.kind === 'chat' && hidden.tools, undefined);
  });

  test('a list of prompts is one request each, and choices are numbered prompt * n + i', async () => {
    const { answer } = await ask('completions.create', { prompt: ['a', 'b'], n: 2, max_tokens: 10 });
    const choices = at(answer, 'result', 'choices') as unknown[];
    assert.deepEqual(
      choices.map((c) => [at(c, 'index'), at(c, 'text')]),
      [
        [0, 'You said: a'],
        [1, '(1) You said: a'],
        [2, 'You said: b'],
        [3, '(1) You said: b'],
      ],
    );
    assert.equal(at(answer, 'result', 'usage', 'prompt_tokens'), 2);
  });

  test('prompts may be token ids', async () => {
    assert.deepEqual((await ask('completions.create', { prompt: [72, 105] })).request.prompt, { kind: 'ids', ids: [72, 105] });
    const { answer } = await ask('completions.create', { prompt: [[72], [105]], return_token_ids: true });
    assert.deepEqual(at(answer, 'result', 'choices', 1, 'prompt_token_ids'), [105]);
    assert.deepEqual(at(answer, 'result', 'choices', 1, 'token_ids'), [0, 1, 2]);
  });

  test('one prompt that is refused ends the whole call and its siblings', async () => {
    const set = setup({ auto: false });
    const peer = connectPeer(set.server);
    peer.say(call(1, 'completions.create', { prompt: ['a', 'b', 'c'] }));
    const second = set.engine.live[1];
    assert.ok(second);
    set.engine.fail(second, { kind: 'overloaded' });
    assert.equal(at((await peer.hear())[0], 'error', 'code'), -32005);
    assert.equal(set.engine.live.length, 0);
  });
});

describe('answers', () => {
  test('usage counts tokens and cached tokens, and ends with times', async () => {
    const { answer } = await ask(create, chat('abc'));
    const { ttft_s, tpot_s, latency_s, queue_s, ...counts } = at(answer, 'result', 'usage') as Record<string, number>;
    assert.deepEqual(counts, { prompt_tokens: 3, completion_tokens: 3, total_tokens: 6, prompt_tokens_details: { cached_tokens: 2 } });
    assert.ok(ttft_s !== undefined && tpot_s !== undefined && latency_s !== undefined);
    assert.ok(ttft_s >= 0 && latency_s >= ttft_s && tpot_s >= 0);
    assert.equal(queue_s, 0.001);
  });

  test('best_of gives the n with the highest cumulative log-probability and counts all tokens', async () => {
    const { answer } = await ask(create, chat('x', { n: 1, best_of: 3 }), ({ engine }) => {
      engine.script = (_p, _q, index) => [`answer ${index}`];
    });
    const choices = at(answer, 'result', 'choices') as unknown[];
    assert.deepEqual(
      choices.map((c) => [at(c, 'index'), at(c, 'message', 'content')]),
      [[0, 'answer 0']],
    );
    assert.equal(at(answer, 'result', 'usage', 'completion_tokens'), 3);
  });

  test('chat log-probabilities have OpenAI’s shape', async () => {
    const { answer } = await ask(create, chat('x', { logprobs: true, top_logprobs: 2, max_tokens: 1 }));
    assert.deepEqual(at(answer, 'result', 'choices', 0, 'logprobs'), {
      content: [
        {
          token: 'You',
          logprob: -0.5,
          bytes: [89, 111, 117],
          top_logprobs: [
            { token: 'You', logprob: -0.5, bytes: [89, 111, 117] },
            { token: 'alt0', logprob: -1, bytes: [97] },
          ],
        },
      ],
    });
  });

  test('echo puts the prompt and its log-probabilities in front, whole and streamed', async () => {
    const body = { prompt: 'a😀b', echo: true, logprobs: 1, max_tokens: 1 };
    const { answer } = await ask('completions.create', { ...body, prompt: 'abc' });
    assert.deepEqual(at(answer, 'result', 'choices', 0, 'text'), 'abcYou');
    assert.deepEqual(at(answer, 'result', 'choices', 0, 'logprobs'), {
      text_offset: [0, 1, 2, 3],
      token_logprobs: [null, -0.5, -0.5, -0.5],
      tokens: ['a', 'b', 'c', 'You'],
      top_logprobs: [null, { b: -0.5 }, { c: -0.5 }, { You: -0.5 }],
    });
    const set = setup();
    const peer = connectPeer(set.server);
    peer.say(call(1, 'completions.create', { ...body, prompt: 'abc', max_tokens: 3, stream: true }));
    const frames = await peer.hear();
    const pieces = frames.flatMap((f) => (at(f, 'params', 'choices') as unknown[] | undefined) ?? []);
    assert.equal(pieces.map((c) => at(c, 'text')).join(''), 'abcYou said: abc');
    const offsets = pieces.flatMap((c) => at(c, 'logprobs', 'text_offset') as number[]);
    assert.deepEqual(offsets, at(frames.at(-1), 'result', 'choices', 0, 'logprobs', 'text_offset'));
    assert.equal(at(frames.at(-1), 'result', 'choices', 0, 'text'), undefined);
  });

  test('prompt_logprobs have vLLM’s shape', async () => {
    const { answer } = await ask(create, chat('ab', { prompt_logprobs: 1 }));
    assert.deepEqual(at(answer, 'result', 'prompt_logprobs'), [null, { 98: { logprob: -0.5, rank: 1, decoded_token: 'b' } }]);
  });
});

describe('tool calls', () => {
  const tools = [{ type: 'function', function: { name: 'add', parameters: {} } }];
  const cases: readonly (readonly [string, readonly string[], boolean])[] = [
    ['parameters', ['{"name": "add",', ' "parameters": {"a": 1}}'], true],
    ['arguments', [' \n{"name": "add", "arguments": {"a": 1}}', '\n'], true],
    ['another function', ['{"name": "sub", "parameters": {}}'], false],
    ['text after the object', ['{"name": "add", "parameters": {}}', ' done'], false],
    ['text before the object', ['Sure: {"name": "add", "parameters": {}}'], false],
    ['an unfinished object', ['{"name": "add", "parameters": {'], false],
    ['a list of parameters', ['{"name": "add", "parameters": [1]}'], false],
    ['braces in a string', ['{"name": "add", "parameters": {"a": "}{"}}'], true],
    ['plain text', ['Hello', ' there'], false],
    ['nothing', [''], false],
  ];
  for (const [title, script, isCall] of cases) {
    test(`${title}: ${isCall ? 'is' : 'is not'} a call, whole and streamed`, async () => {
      const prepare = ({ engine }: ReturnType<typeof setup>): void => {
        engine.script = () => script;
      };
      const { answer } = await ask(create, chat('x', { tools }), prepare);
      const message = at(answer, 'result', 'choices', 0, 'message');
      assert.equal(at(answer, 'result', 'choices', 0, 'finish_reason'), isCall ? 'tool_calls' : 'stop');
      assert.equal(at(message, 'content'), isCall ? null : script.join(''));
      assert.equal(at(message, 'tool_calls', 0, 'function', 'name'), isCall ? 'add' : undefined);

      const set = setup();
      prepare(set);
      const peer = connectPeer(set.server);
      peer.say(call(1, create, chat('x', { tools, stream: true })));
      const frames = await peer.hear();
      const deltas = frames.flatMap((f) => (at(f, 'params', 'choices') as unknown[] | undefined) ?? []);
      assert.equal(deltas.map((d) => at(d, 'delta', 'content') ?? '').join(''), isCall ? '' : script.join(''));
      const calls = deltas.flatMap((d) => (at(d, 'delta', 'tool_calls') as unknown[] | undefined) ?? []);
      assert.equal(calls.length, isCall ? 1 : 0);
      assert.equal(at(deltas.at(-1), 'finish_reason'), isCall ? 'tool_calls' : 'stop');
      assert.equal(at(frames.at(-1), 'result', 'choices', 0, 'message', 'tool_calls', 0, 'id'), at(calls[0], 'id'));
    });
  }

  test('text that cannot be a call any more is sent at once', async () => {
    const set = setup({ auto: false });
    set.engine.script = () => ['{', 'x', ' more', ' text'];
    const peer = connectPeer(set.server);
    peer.say(call(1, create, chat('x', { tools, stream: true })));
    set.engine.step();
    assert.deepEqual(await peer.hear(), []);
    set.engine.step();
    assert.equal(at((await peer.hear())[0], 'params', 'choices', 0, 'delta', 'content'), '{x');
    set.engine.step();
    assert.equal(at((await peer.hear())[0], 'params', 'choices', 0, 'delta', 'content'), ' more');
    peer.connection.close();
  });
});
