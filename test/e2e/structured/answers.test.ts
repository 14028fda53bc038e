/** Constrained answers of a whole daemon: through OpenAI's client, over both doors, with other parameters, in a crowd, and refused. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import OpenAI from 'openai';
import { zodResponseFormat } from 'openai/helpers/zod';
import { z } from 'zod';
import { startTestDaemon, type TestDaemon } from '../../helpers/daemon/daemon.js';

let at: TestDaemon;
let client: OpenAI;
before(async () => {
  // So few blocks that a crowd is preempted.
  at = await startTestDaemon(['scheduler.max_model_len=512', 'cache.num_gpu_blocks_override=64', 'scheduler.max_num_sequences=32']);
  client = new OpenAI({ baseURL: `${at.http}/v1`, apiKey: 'none', maxRetries: 0 });
});
after(() => at.close());

const person = z.object({
  name: z.string().max(12),
  age: z.int().min(0).max(120),
  hobbies: z.array(z.enum(['chess', 'tea', 'running'])).max(2),
});
const messages = [{ role: 'user' as const, content: 'Who are you?' }];
const asked = { model: 'demo', messages, temperature: 1.3, max_tokens: 120 };
const form = /^[A-D]{2}-[0-9]{4}$/;
const pattern = '[A-D]{2}-\\d{4}';

/** A body with fields that OpenAI's types do not know. */
const completed = (more: object) => client.chat.completions.create({ ...asked, ...more } as typeof asked);

test('OpenAI’s client parses answers to a zod schema', async () => {
  const parsed = await client.chat.completions.parse({ ...asked, seed: 1, response_format: zodResponseFormat(person, 'person') });
  const [choice] = parsed.choices;
  assert.equal(choice?.finish_reason, 'stop');
  assert.deepEqual(person.parse(choice.message.parsed), choice.message.parsed);
});

test('each kind of constraint gives answers of its form', async () => {
  const kinds: [object, (text: string) => boolean][] = [
    [{ response_format: { type: 'json_object' } }, (text) => typeof JSON.parse(text) === 'object'],
    [{ guided_json: { type: 'integer', minimum: 10, maximum: 12 } }, (text) => ['10', '11', '12'].includes(text)],
    [{ guided_json: '{"const": "fox"}' }, (text) => text === '"fox"'],
    [{ guided_json: { const: 'a\ud800' } }, (text) => JSON.parse(text) === 'a\ud800'],
    [{ guided_regex: pattern }, (text) => form.test(text)],
    [{ guided_choice: ['rot', 'grün', '蓝'] }, (text) => ['rot', 'grün', '蓝'].includes(text)],
    [{ guided_grammar: 'root ::= "<" [a-c]{3} ">"' }, (text) => /^<[abc]{3}>$/.test(text)],
    [{ structured_outputs: { regex: pattern } }, (text) => form.test(text)],
    [{ structured_outputs: { json_object: true } }, (text) => !Array.isArray(JSON.parse(text))],
  ];
  for (const [more, holds] of kinds) {
    for (let seed = 0; seed < 4; seed++) {
      const [choice] = (await completed({ ...more, seed, max_tokens: 300 })).choices;
      const text = choice?.message.content ?? '';
      if (choice?.finish_reason === 'stop') assert.ok(holds(text), `${JSON.stringify(more)}: ${text}`);
      else assert.ok('response_format' in more || 'structured_outputs' in more, `${JSON.stringify(more)} was cut: ${text}`);
    }
  }
});

test('whole, streamed and over WebSocket the answer is one', async () => {
  const socket = await at.open();
  const body = { ...asked, guided_regex: `(${pattern} ){3}end`, seed: 11 };
  const whole = (await completed(body)).choices[0];
  assert.match(whole?.message.content ?? '', /^([A-D]{2}-[0-9]{4} ){3}end$/);
  let streamed = '';
  let finish: string | null | undefined;
  for await (const chunk of await client.chat.completions.create({ ...body, stream: true })) {
    streamed += chunk.choices[0]?.delta.content ?? '';
    finish = chunk.choices[0]?.finish_reason ?? finish;
  }
  assert.deepEqual([streamed, finish], [whole?.message.content, 'stop']);
  const called = await socket.call('chat.completions.create', body);
  assert.equal(called.choices?.[0]?.message?.content, whole?.message.content);
  await socket.close();
});

test('penalties, bias, n, logprobs and stop strings work beside a constraint', async () => {
  const many = await completed({
    ...{ guided_regex: pattern, n: 4, seed: 5, logprobs: true, top_logprobs: 3, frequency_penalty: 1.5, repetition_penalty: 1.3 },
    logit_bias: Object.fromEntries(Array.from({ length: 60 }, (_, id) => [String(300 + id), 100])),
  });
  assert.equal(new Set(many.choices.map((choice) => choice.message.content)).size > 1, true);
  for (const { message, logprobs, finish_reason: finish } of many.choices) {
    assert.match(message.content ?? '', form);
    assert.equal(finish, 'stop');
    const entries = logprobs?.content ?? [];
    assert.ok(entries.every(({ logprob, top_logprobs: top }) => logprob <= 0 && top.length === 3));
    // Log-probabilities are the model's own, which would rather say something else.
    assert.ok(entries.some(({ token, top_logprobs: top }) => !top.some((other) => other.token === token)));
  }
  const stopped = (await completed({ guided_regex: pattern, seed: 5, stop: '-' })).choices[0];
  assert.match(stopped?.message.content ?? '', /^[A-D]{2}$/);
});

test('in a crowd that is preempted each answer is what it is alone, and free answers too', async () => {
  const body = (seed: number) => ({ guided_regex: `${pattern}( ${pattern}){4}`, seed, max_tokens: 200 });
  const free = { messages: [{ role: 'user', content: 'Tell me a story about a fox.' }], temperature: 0 };
  const alone: (string | null | undefined)[] = [];
  for (let seed = 0; seed < 6; seed++) alone.push((await completed(body(seed))).choices[0]?.message.content);
  const story = (await completed(free)).choices[0]?.message.content;
  const crowd = await Promise.all(
    Array.from({ length: 48 }, async (_, i) => (await completed(i % 4 === 3 ? free : body(i % 6))).choices[0]?.message.content),
  );
  for (const [i, text] of crowd.entries()) assert.equal(text, i % 4 === 3 ? story : alone[i % 6]);
  const { requests, kv } = await at.untilFreed();
  assert.ok((requests?.preempted_total ?? 0) > 0, 'nothing was preempted');
  assert.equal(kv?.used_blocks, 0);
});

test('a forced call is a call of a tool with arguments of its schema, a named one of that tool, a strict one when it comes', async () => {
  const parameters = {
    type: 'object' as const,
    properties: { city: { enum: ['Rome', 'Oslo'] }, days: { type: 'integer', minimum: 1, maximum: 9 } },
    required: ['city', 'days'],
    additionalProperties: false,
  };
  const tool = (name: string, strict = false) => ({ type: 'function' as const, function: { name, parameters, strict } });
  const holds = z.strictObject({ city: z.enum(['Rome', 'Oslo']), days: z.int().min(1).max(9) });
  for (const [tools, choice, names] of [
    [[tool('forecast'), tool('past')], 'required', ['forecast', 'past']],
    [[tool('forecast'), tool('past')], { type: 'function', function: { name: 'past' } }, ['past']],
    [[tool('get_weather', true)], 'auto', ['get_weather']],
  ] as const) {
    for (let seed = 0; seed < 4; seed++) {
      const content = choice === 'auto' ? 'Tell me the weather in Lisbon.' : 'Hello!';
      const more = { tools: [...tools], tool_choice: choice, seed, temperature: choice === 'auto' ? 0 : 1.3 };
      const [answer] = (await completed({ ...more, messages: [{ role: 'user', content }] })).choices;
      assert.equal(answer?.finish_reason, 'tool_calls');
      for (const call of answer.message.tool_calls ?? []) {
        assert.ok(call.type === 'function' && (names as readonly string[]).includes(call.function.name), JSON.stringify(call));
        holds.parse(JSON.parse(call.function.arguments));
      }
    }
  }
});

test('a grammar that turns out too ambiguous to follow ends its own answer as a request that cannot be served', async () => {
  const ambiguous = 'root ::= x{200}\nx ::= [a-z ] x? | [a-z ]';
  const [refused, served] = await Promise.allSettled([
    completed({ guided_grammar: ambiguous, max_tokens: 400, seed: 3 }),
    completed({ guided_regex: pattern, seed: 3 }),
  ]);
  assert.ok(refused.status === 'rejected' && refused.reason instanceof OpenAI.APIError);
  assert.equal(refused.reason.status, 400);
  assert.match(refused.reason.message, /too many ways/);
  assert.ok(served.status === 'fulfilled');
  await at.untilFreed();
});

test('what cannot be enforced is refused by the name of its parameter, and others are served', async () => {
  const refused: [object, string, RegExp][] = [
    [{ guided_grammar: 'root ::= other' }, 'guided_grammar', /other/],
    [{ guided_grammar: 'x ::= "a"' }, 'guided_grammar', /root/],
    [{ guided_grammar: '%scope(x)' }, 'guided_grammar', /./],
    [{ guided_regex: '(a' }, 'guided_regex', /./],
    [{ guided_regex: '(a)\\1' }, 'guided_regex', /./],
    [{ guided_json: { type: 'integer', minimum: 2, maximum: 1 } }, 'guided_json', /./],
    [{ guided_json: { $ref: 'https://example.com/schema' } }, 'guided_json.$ref', /ref/],
    [{ guided_json: 'no JSON' }, 'guided_json', /JSON/],
    [{ guided_json: `{"const":${'['.repeat(9000)}${']'.repeat(9000)}}` }, 'guided_json', /deeper/],
    [{ guided_choice: ['a', '\ud800'] }, 'guided_choice[1]', /surrogate/],
    [
      { guided_json: { type: 'object', properties: { a: { contentEncoding: 'base64' } } } },
      'guided_json.properties.a.contentEncoding',
      /contentEncoding/,
    ],
    [{ guided_regex: 'a', guided_choice: ['a'] }, 'guided_choice', /only one/],
    [{ guided_regex: 'a', min_tokens: 2 }, 'min_tokens', /./],
    [
      {
        guided_regex: 'a',
        tool_choice: 'required',
        tools: [{ type: 'function', function: { name: 'f', description: '', parameters: { properties: {} } } }],
      },
      'guided_regex',
      /only one/,
    ],
  ];
  for (const [more, param, sentence] of refused) {
    await assert.rejects(completed(more), (error) => {
      assert.ok(error instanceof OpenAI.BadRequestError, `${JSON.stringify(more)}: ${String(error)}`);
      assert.deepEqual([error.param, error.code], [param, 'invalid_params'], JSON.stringify(more));
      return sentence.test(error.message);
    });
  }
  assert.match((await completed({ guided_regex: pattern })).choices[0]?.message.content ?? '', form);
});
