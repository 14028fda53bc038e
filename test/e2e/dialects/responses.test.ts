/** OpenAI's own client, unmodified, at POST /v1/responses. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import OpenAI from 'openai';
import { startTestDaemon, type TestDaemon } from '../../helpers/daemon/daemon.js';

let at: TestDaemon;
let client: OpenAI;
before(async () => {
  at = await startTestDaemon();
  client = new OpenAI({ baseURL: `${at.http}/v1`, apiKey: 'none', maxRetries: 0 });
});
after(() => at.close());

const model = 'demo';
const asked = { model, input: 'What is 123 + 456?', temperature: 0, max_output_tokens: 32 };
const parameters = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'], additionalProperties: false };
const weather = { type: 'function' as const, name: 'get_weather', description: '', parameters, strict: false };

test('a text is answered, with the usage and nothing stored', async () => {
  const response = await client.responses.create(asked);
  assert.equal(response.output_text, '123 + 456 = 579');
  assert.deepEqual([response.status, (response as { store?: unknown }).store, response.incomplete_details], ['completed', false, null]);
  assert.deepEqual(
    response.output.map(({ type }) => type),
    ['message'],
  );
  assert.match(response.id, /^resp_/);
  assert.ok((response.usage?.output_tokens ?? 0) > 5 && (response.usage?.input_tokens ?? 0) > 5);
});

test('instructions and items become the same conversation as messages of a chat', async () => {
  const messages = [
    { role: 'system' as const, content: 'Answer in one sentence.' },
    { role: 'user' as const, content: 'Who are you?' },
    { role: 'assistant' as const, content: 'I am a tiny demo model.' },
    { role: 'user' as const, content: 'What is the capital of France?' },
  ];
  const chat = await client.chat.completions.create({ model, messages, seed: 7, max_tokens: 24 });
  const response = await client.responses.create({
    model,
    instructions: 'Answer in one sentence.',
    input: [
      { role: 'user', content: 'Who are you?' },
      {
        type: 'message',
        role: 'assistant',
        id: 'msg_1',
        status: 'completed',
        content: [{ type: 'output_text', text: 'I am a tiny demo model.', annotations: [] }],
      },
      { role: 'user', content: [{ type: 'input_text', text: 'What is the capital of France?' }] },
    ],
    max_output_tokens: 24,
    ...{ seed: 7 },
  });
  assert.equal(response.output_text, chat.choices[0]?.message.content);
  assert.equal(response.usage?.input_tokens, chat.usage?.prompt_tokens);
});

test('streamed it is the whole, and its events are numbered without gaps', async () => {
  const seeded = { ...asked, temperature: 0.9, input: 'Tell me a story about a fox.', ...{ seed: 5 } };
  const whole = await client.responses.create(seeded);
  const stream = await client.responses.create({ ...seeded, stream: true });
  let text = '';
  const types: string[] = [];
  let final: OpenAI.Responses.Response | null = null;
  for await (const event of stream) {
    assert.equal(event.sequence_number, types.length);
    types.push(event.type);
    if (event.type === 'response.output_text.delta') text += event.delta;
    if (event.type === 'response.incomplete' || event.type === 'response.completed') final = event.response;
  }
  assert.equal(text, whole.output_text);
  assert.deepEqual(types.slice(0, 4), [
    'response.created',
    'response.in_progress',
    'response.output_item.added',
    'response.content_part.added',
  ]);
  assert.deepEqual(types.slice(-4, -1), ['response.output_text.done', 'response.content_part.done', 'response.output_item.done']);
  const essence = (response: OpenAI.Responses.Response | null) => {
    const { id: _id, created_at: _at, usage, output, output_text: _text, ...same } = response as OpenAI.Responses.Response;
    return { ...same, tokens: usage?.total_tokens, output: output.map((item) => ({ ...item, id: '' })) };
  };
  assert.deepEqual(essence(final), essence(whole));
  assert.deepEqual([final?.status, final?.incomplete_details], ['incomplete', { reason: 'max_output_tokens' }]);
});

test("the client's stream helper and its parser put answers of a form together", async () => {
  const schema = {
    type: 'object',
    properties: { city: { type: 'string', maxLength: 12 } },
    required: ['city'],
    additionalProperties: false,
  };
  const format = { type: 'json_schema' as const, name: 'place', schema, strict: true };
  const formed = { ...asked, input: 'What is the capital of France?', text: { format }, max_output_tokens: 64 };
  const parsed = await client.responses.parse(formed);
  assert.equal(typeof (parsed.output_parsed as { city?: unknown } | null)?.city, 'string');
  const final = await client.responses.stream(formed).finalResponse();
  assert.deepEqual(JSON.parse(final.output_text), parsed.output_parsed);
  await assert.rejects(
    client.responses.create({ ...formed, text: { format: { ...format, schema: { type: 'object', unevaluatedItems: true } } } }),
    (error) => {
      assert.ok(error instanceof OpenAI.BadRequestError);
      assert.match(String(error.param), /^text\.format\.schema/);
      return true;
    },
  );
});

test('tools are called, streamed as whole, and their results go back as items', async () => {
  const question = { model, input: 'Tell me the weather in Lisbon.', tools: [weather], temperature: 0, max_output_tokens: 64 };
  const whole = await client.responses.create(question);
  const [call] = whole.output;
  assert.ok(call?.type === 'function_call');
  assert.deepEqual([call.name, call.arguments, whole.output.length], ['get_weather', '{"city": "Lisbon"}', 1]);
  const final = await client.responses.stream(question).finalResponse();
  const [streamed] = final.output;
  assert.ok(streamed?.type === 'function_call');
  assert.deepEqual([streamed.name, streamed.arguments, streamed.status], [call.name, call.arguments, 'completed']);
  const back = await client.responses.create({
    ...question,
    input: [{ role: 'user', content: question.input }, call, { type: 'function_call_output', call_id: call.call_id, output: 'Sunny.' }],
  });
  const chat = await client.chat.completions.create({
    model,
    temperature: 0,
    max_tokens: 64,
    tools: [{ type: 'function', function: { name: 'get_weather', description: '', parameters, strict: false } }],
    messages: [
      { role: 'user', content: question.input },
      {
        role: 'assistant',
        content: null,
        tool_calls: [{ id: call.call_id, type: 'function', function: { name: call.name, arguments: call.arguments } }],
      },
      { role: 'tool', tool_call_id: call.call_id, content: 'Sunny.' },
    ],
  });
  assert.equal(back.output_text, chat.choices[0]?.message.content);
  const forced = await client.responses.create({ ...question, input: 'Hello', tool_choice: { type: 'function', name: 'get_weather' } });
  assert.equal(forced.output[0]?.type, 'function_call');
});

test('log-probabilities come where they are asked for', async () => {
  const { output } = await client.responses.create({ ...asked, include: ['message.output_text.logprobs'], top_logprobs: 2 });
  const content = output[0]?.type === 'message' ? output[0].content[0] : undefined;
  assert.ok(content?.type === 'output_text');
  assert.ok((content.logprobs?.length ?? 0) > 5 && content.logprobs?.every(({ top_logprobs }) => top_logprobs.length === 2));
});

test('what cannot be done is refused by name, as the classes of the client', async () => {
  const image = { type: 'input_image' as const, image_url: 'data:image/png;base64,AA==', detail: 'auto' as const };
  const refused: readonly (readonly [object, string])[] = [
    [{ store: true }, 'store'],
    [{ previous_response_id: 'resp_1' }, 'previous_response_id'],
    [{ conversation: 'conv_1' }, 'conversation'],
    [{ background: true }, 'background'],
    [{ truncation: 'auto' }, 'truncation'],
    [{ input: [{ role: 'user', content: [{ type: 'input_text', text: 'x' }, image] }] }, 'input[0].content[1]'],
    [{ input: [{ type: 'item_reference', id: 'x' }] }, 'input[0]'],
    [{ input: [{ type: 'message', role: 'wizard', content: 'x' }] }, 'input[0].role'],
    [{ tools: [{ type: 'web_search' }] }, 'tools[0].type'],
    [{ max_output_tokens: 0 }, 'max_output_tokens'],
    [{ temperature: 9 }, 'temperature'],
    [{ stream: true, store: true }, 'store'],
  ];
  for (const [more, param] of refused) {
    await assert.rejects(client.responses.create({ ...asked, ...more }), (error) => {
      assert.ok(error instanceof OpenAI.BadRequestError, JSON.stringify(more));
      assert.equal(error.param, param);
      return true;
    });
  }
  await assert.rejects(client.responses.create({ ...asked, model: 'other' }), OpenAI.NotFoundError);
  await assert.rejects(client.responses.create({ ...asked, max_output_tokens: 100_000 }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.equal(error.code, 'context_length_exceeded');
    return true;
  });
});

test('a client that aborts its stream has its request ended and its blocks freed', async () => {
  const stream = await client.responses.create({ ...asked, max_output_tokens: 2000, stream: true, ...{ ignore_eos: true } });
  let deltas = 0;
  for await (const event of stream) if (event.type === 'response.output_text.delta' && ++deltas === 3) stream.controller.abort();
  const { requests } = await at.untilFreed();
  assert.equal(requests?.running, 0);
});
