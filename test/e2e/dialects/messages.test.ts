/** Anthropic's own client, unmodified, at POST /v1/messages. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { startTestDaemon, type TestDaemon } from '../../helpers/daemon/daemon.js';

let at: TestDaemon;
let client: Anthropic;
let chats: OpenAI;
before(async () => {
  at = await startTestDaemon();
  client = new Anthropic({ baseURL: at.http, apiKey: 'none', maxRetries: 0 });
  chats = new OpenAI({ baseURL: `${at.http}/v1`, apiKey: 'none', maxRetries: 0 });
});
after(() => at.close());

const model = 'demo';
const question = { role: 'user' as const, content: 'What is 123 + 456?' };
const asked = { model, messages: [question], temperature: 0, max_tokens: 32 };
const schema = { type: 'object' as const, properties: { city: { type: 'string' } }, required: ['city'] };
const weather = { name: 'get_weather', description: '', input_schema: schema };
const textOf = ({ content }: Anthropic.Message) => content.map((block) => (block.type === 'text' ? block.text : '')).join('');

test('a question is answered by a block of text', async () => {
  const message = await client.messages.create(asked);
  assert.deepEqual(message.content, [{ type: 'text', text: '123 + 456 = 579', citations: null }]);
  assert.deepEqual([message.type, message.role, message.stop_reason, message.stop_sequence], ['message', 'assistant', 'end_turn', null]);
  assert.match(message.id, /^msg_/);
  assert.deepEqual(message.usage.input_tokens + (message.usage.cache_read_input_tokens ?? 0), 22);
});

test('system, turns and blocks become the same conversation as messages of a chat, and are counted alike', async () => {
  const chat = await chats.chat.completions.create({
    model,
    messages: [
      { role: 'system', content: 'Answer in one sentence.' },
      { role: 'user', content: 'Who are you?' },
      { role: 'assistant', content: 'I am a tiny demo model.' },
      { role: 'user', content: 'What is the capital of France?' },
    ],
    seed: 7,
    max_tokens: 24,
  });
  const prompt = {
    model,
    system: [{ type: 'text' as const, text: 'Answer in one sentence.', cache_control: { type: 'ephemeral' as const } }],
    messages: [
      { role: 'user' as const, content: 'Who are you?' },
      { role: 'assistant' as const, content: [{ type: 'text' as const, text: 'I am a tiny demo model.' }] },
      { role: 'user' as const, content: [{ type: 'text' as const, text: 'What is the capital of France?' }] },
    ],
  };
  const message = await client.messages.create({ ...prompt, max_tokens: 24, ...{ seed: 7 } });
  assert.equal(textOf(message), chat.choices[0]?.message.content);
  assert.deepEqual(await client.messages.countTokens(prompt), { input_tokens: chat.usage?.prompt_tokens });
});

test('streamed it is the whole, put together by the client', async () => {
  const seeded = {
    ...asked,
    messages: [{ role: 'user' as const, content: 'Tell me a story about a fox.' }],
    temperature: 0.9,
    ...{ seed: 5 },
  };
  const whole = await client.messages.create(seeded);
  const stream = client.messages.stream(seeded);
  let text = '';
  stream.on('text', (delta) => {
    text += delta;
  });
  const final = await stream.finalMessage();
  assert.equal(text, textOf(whole));
  const essence = ({ content, stop_reason, stop_sequence, usage, model: name }: Anthropic.Message) => ({
    content: JSON.parse(JSON.stringify(content)) as unknown,
    stop_reason,
    stop_sequence,
    name,
    tokens: [usage.input_tokens + (usage.cache_read_input_tokens ?? 0), usage.output_tokens],
  });
  assert.deepEqual(essence(final), essence(whole));
  assert.equal(final.stop_reason, 'max_tokens');
});

test('events come in their order, and tell the tokens of the prompt at once', async () => {
  const types: string[] = [];
  let input = 0;
  for await (const event of await client.messages.create({ ...asked, stream: true })) {
    if (types.at(-1) !== event.type) types.push(event.type);
    if (event.type === 'message_start') input = event.message.usage.input_tokens + (event.message.usage.cache_read_input_tokens ?? 0);
  }
  const order = ['message_start', 'content_block_start', 'content_block_delta', 'content_block_stop', 'message_delta', 'message_stop'];
  assert.deepEqual(types, order);
  assert.equal(input, 22);
});

test('a stop sequence ends the answer and is named', async () => {
  const message = await client.messages.create({ ...asked, stop_sequences: [' ='] });
  assert.deepEqual([textOf(message), message.stop_reason, message.stop_sequence], ['123 + 456', 'stop_sequence', ' =']);
});

test('tools are called, streamed as whole, and their results go back as blocks', async () => {
  const messages = [{ role: 'user' as const, content: 'Tell me the weather in Lisbon.' }];
  const tooled = { ...asked, messages, tools: [weather], max_tokens: 64 };
  const whole = await client.messages.create(tooled);
  const [call] = whole.content;
  assert.ok(call?.type === 'tool_use' && whole.content.length === 1);
  assert.deepEqual([call.name, call.input, whole.stop_reason], ['get_weather', { city: 'Lisbon' }, 'tool_use']);
  const final = await client.messages.stream(tooled).finalMessage();
  const [streamed] = final.content;
  assert.ok(streamed?.type === 'tool_use');
  assert.deepEqual([streamed.name, streamed.input, final.stop_reason], ['get_weather', { city: 'Lisbon' }, 'tool_use']);
  const back = await client.messages.create({
    ...tooled,
    messages: [
      ...messages,
      { role: 'assistant', content: whole.content },
      { role: 'user', content: [{ type: 'tool_result', tool_use_id: call.id, content: 'Sunny.' }] },
    ],
  });
  const chat = await chats.chat.completions.create({
    model,
    temperature: 0,
    max_tokens: 64,
    tools: [{ type: 'function', function: { name: 'get_weather', description: '', parameters: schema } }],
    messages: [
      ...messages,
      {
        role: 'assistant',
        content: null,
        tool_calls: [{ id: call.id, type: 'function', function: { name: call.name, arguments: JSON.stringify(call.input) } }],
      },
      { role: 'tool', tool_call_id: call.id, content: 'Sunny.' },
    ],
  });
  assert.equal(textOf(back), chat.choices[0]?.message.content);
  const forced = await client.messages.create({ ...tooled, messages: [question], tool_choice: { type: 'any' } });
  assert.equal(forced.content[0]?.type, 'tool_use');
  const none = await client.messages.create({ ...tooled, messages: [question], tool_choice: { type: 'none' } });
  assert.equal(textOf(none), '123 + 456 = 579');
});

test('an answer is held to a schema', async () => {
  const place = { type: 'object', properties: { city: { type: 'string', maxLength: 12 } }, required: ['city'] };
  const formed = { ...asked, output_config: { format: { type: 'json_schema' as const, schema: place } }, max_tokens: 64 };
  const message = await client.messages.create(formed);
  assert.equal(typeof (JSON.parse(textOf(message)) as { city?: unknown }).city, 'string');
});

test('what cannot be done is refused by name, as the classes of the client', async () => {
  const image = { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'AA==' } };
  const refused: readonly (readonly [object, RegExp])[] = [
    [
      { messages: [{ role: 'user', content: [{ type: 'text', text: 'x' }, image] }] },
      /messages\[0\]\.content\[1\]: images are not supported/,
    ],
    [{ messages: [{ role: 'user', content: [{ type: 'document', source: {} }] }] }, /files are not supported/],
    [
      { messages: [{ role: 'user', content: [{ type: 'tool_result', tool_use_id: 'x', content: [image] }] }] },
      /content\[0\]\.content\[0\]: images/,
    ],
    [{ messages: [question, { role: 'assistant', content: 'It is' }] }, /messages\[1\]: the last message/],
    [{ messages: [{ role: 'system', content: 'x' }] }, /messages\[0\]\.role/],
    [{ messages: [] }, /messages: must have at least one message/],
    [{ tools: [{ type: 'web_search_20250305', name: 'web_search' }] }, /tools\[0\]\.type/],
    [{ tools: [weather], tool_choice: { type: 'tool', name: 'other' } }, /tool_choice\.name: must be the name of one of the tools/],
    [{ mcp_servers: [{ type: 'url', url: 'http://x', name: 'x' }] }, /mcp_servers/],
    [{ max_tokens: undefined }, /max_tokens: is required/],
    [{ temperature: -1 }, /temperature/],
    [{ stop_sequences: ['x'.repeat(2000)] }, /stop_sequences/],
    [{ max_tokens: 20_000 }, /at most 4096/],
    [{ stream: true, messages: [{ role: 'user', content: [image] }] }, /images/],
  ];
  for (const [more, message] of refused) {
    await assert.rejects(client.messages.create({ ...asked, ...more } as Anthropic.MessageCreateParamsNonStreaming), (error) => {
      assert.ok(error instanceof Anthropic.BadRequestError, `${JSON.stringify(more)}: ${error}`);
      const body = error.error as { type?: string; request_id?: string; error?: { type?: string; message?: string } };
      assert.deepEqual([body.type, body.error?.type], ['error', 'invalid_request_error']);
      assert.match(String(body.error?.message), message);
      assert.equal(error.requestID, body.request_id);
      return true;
    });
  }
  await assert.rejects(client.messages.create({ ...asked, model: 'other' }), Anthropic.NotFoundError);
});

test('refusals before a call have the same shape', async () => {
  const ask = async (method: string, headers: Record<string, string>, body: string | null) => {
    const response = await fetch(`${at.http}/v1/messages`, { method, headers, body });
    return [response.status, ((await response.json()) as { error: { type: string } }).error.type];
  };
  const json = { 'content-type': 'application/json' };
  assert.deepEqual(await ask('POST', { 'content-type': 'text/plain' }, '{}'), [415, 'invalid_request_error']);
  assert.deepEqual(await ask('POST', json, '{'), [400, 'invalid_request_error']);
  assert.deepEqual(await ask('GET', {}, null), [405, 'invalid_request_error']);
  assert.deepEqual(await ask('POST', { ...json, origin: 'https://evil.example' }, '{}'), [403, 'permission_error']);
  assert.deepEqual(await ask('POST', json, `"${'x'.repeat(40_000_000)}"`), [413, 'request_too_large']);
});

test('a token goes as the key of the client, and a wrong one is its class of error', async () => {
  const guarded = await startTestDaemon(['auth.mode=token']);
  try {
    const { token } = guarded.daemon;
    const good = new Anthropic({ baseURL: guarded.http, apiKey: token, maxRetries: 0 });
    assert.equal(textOf(await good.messages.create(asked)), '123 + 456 = 579');
    const wrong = new Anthropic({ baseURL: guarded.http, apiKey: 'wrong', maxRetries: 0 });
    await assert.rejects(wrong.messages.create(asked), (error) => {
      assert.ok(error instanceof Anthropic.AuthenticationError);
      assert.equal((error.error as { error?: { type?: string } }).error?.type, 'authentication_error');
      return true;
    });
  } finally {
    await guarded.close();
  }
});

test('a client that aborts its stream has its request ended and its blocks freed', async () => {
  const stream = await client.messages.create({ ...asked, max_tokens: 2000, stream: true, ...{ ignore_eos: true } });
  let deltas = 0;
  for await (const event of stream) if (event.type === 'content_block_delta' && ++deltas === 3) stream.controller.abort();
  const { requests } = await at.untilFreed();
  assert.equal(requests?.running, 0);
});
