/** Tools of the demo model, which was trained to call them, through OpenAI's own client, Vercel's, and both doors of the daemon. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, jsonSchema, streamText, tool } from 'ai';
import OpenAI from 'openai';
import { startTestDaemon, type TestDaemon } from '../../helpers/daemon/daemon.js';

let at: TestDaemon;
let client: OpenAI;
before(async () => {
  at = await startTestDaemon();
  client = new OpenAI({ baseURL: `${at.http}/v1`, apiKey: 'none', maxRetries: 0 });
});
after(() => at.close());

const parameters = { type: 'object' as const, properties: { city: { type: 'string' as const } }, required: ['city'] };
const tools = [
  { type: 'function' as const, function: { name: 'get_weather', description: '', parameters } },
  { type: 'function' as const, function: { name: 'get_time', description: '', parameters } },
];
const messages = [{ role: 'user' as const, content: 'Tell me the weather in Lisbon.' }];
const asked = { model: 'demo', messages, tools, temperature: 0, max_tokens: 64 };
const lisbon = { name: 'get_weather', arguments: '{"city": "Lisbon"}' };

test('a question that a tool answers is a call of it', async () => {
  const [choice] = (await client.chat.completions.create(asked)).choices;
  assert.equal(choice?.finish_reason, 'tool_calls');
  assert.equal(choice.message.content, null);
  const [call, ...others] = choice.message.tool_calls ?? [];
  assert.ok(call?.type === 'function' && others.length === 0);
  assert.deepEqual(call.function, lisbon);
  assert.match(call.id, /^call_/);
});

test('streamed it is the same, put together by the client’s helper', async () => {
  const stream = client.chat.completions.stream(asked);
  const done: unknown[] = [];
  stream.on('tool_calls.function.arguments.done', (event) => void done.push([event.name, event.arguments]));
  const final = await stream.finalChatCompletion();
  assert.deepEqual(done, [[lisbon.name, lisbon.arguments]]);
  assert.equal(final.choices[0]?.finish_reason, 'tool_calls');
  const [call] = final.choices[0].message.tool_calls ?? [];
  assert.deepEqual(call?.type === 'function' && { name: call.function.name, arguments: call.function.arguments }, lisbon);
});

test('over WebSocket it is the same as over HTTP, whole and streamed, in the same number of tokens', async () => {
  const socket = await at.open();
  const essence = ({ choices, usage }: { choices?: unknown; usage?: { completion_tokens?: number } | null | undefined }) =>
    JSON.parse(JSON.stringify([choices, usage?.completion_tokens]).replace(/call_[0-9a-f]{24}/g, 'call'));
  const http = await client.chat.completions.create(asked);
  assert.deepEqual(essence(await socket.call('chat.completions.create', asked)), essence(http));
  const streamed = await socket.call('chat.completions.create', { ...asked, stream: { token: 's' } });
  const [choice] = streamed.choices ?? [];
  const { content: _content, ...message } = http.choices[0]?.message ?? { content: null };
  assert.deepEqual(essence({ choices: choice?.message }), essence({ choices: message }));
  const deltas = socket.events('s').flatMap((event) => event.params?.['choices'] as { delta: { tool_calls?: unknown[] } }[]);
  assert.equal(deltas.flatMap((one) => one.delta.tool_calls ?? []).length, 1);
  await socket.close();
});

test('a question that no tool answers is answered, and tool_choice none offers none', async () => {
  const hello = [{ role: 'user' as const, content: 'Who are you?' }];
  const without = await client.chat.completions.create({ ...asked, messages: hello, tool_choice: 'none' });
  assert.equal(without.choices[0]?.message.tool_calls, undefined);
  assert.match(without.choices[0]?.message.content ?? '', /I am/);
});

test('a tool may say no more than its name: it takes no arguments, and a forced call of it has an object of them', async () => {
  for (const parameters of [{}, { parameters: {} }, { parameters: { type: 'object' } }]) {
    const named = { type: 'function' as const, function: { name: 'ping', ...parameters } };
    for (const tool_choice of ['auto', 'required'] as const) {
      const [choice] = (await client.chat.completions.create({ ...asked, tools: [named], tool_choice, max_tokens: 200 })).choices;
      if (tool_choice === 'auto' || choice?.finish_reason === 'length') continue;
      assert.equal(choice?.finish_reason, 'tool_calls');
      const [call] = choice.message.tool_calls ?? [];
      assert.ok(call?.type === 'function' && call.function.name === 'ping');
      assert.match(call.function.arguments, /^\{.*\}$/s);
    }
  }
});

test('the turns that runTools sends, call and result, are taken', async () => {
  const heard: unknown[] = [];
  const runner = client.chat.completions.runTools(
    {
      ...asked,
      tools: [
        {
          type: 'function',
          function: {
            name: 'get_weather',
            description: '',
            parameters,
            parse: JSON.parse,
            function: (args: object) => {
              heard.push(args);
              return 'Sunny.';
            },
          },
        },
      ],
    },
    { maxChatCompletions: 2 },
  );
  await runner.done();
  assert.deepEqual(heard[0], { city: 'Lisbon' });
  assert.deepEqual(
    runner.messages.slice(0, 3).map(({ role }) => role),
    ['user', 'assistant', 'tool'],
  );
});

test('the AI SDK calls the tool, streamed and whole', async () => {
  const provider = createOpenAICompatible({ name: 'inferd', baseURL: `${at.http}/v1` });
  const heard: unknown[] = [];
  const weather = tool({
    description: '',
    inputSchema: jsonSchema<{ city: string }>(parameters),
    execute: (input) => {
      heard.push(input);
      return 'Sunny.';
    },
  });
  const one = { model: provider('demo'), messages, tools: { get_weather: weather }, temperature: 0, maxOutputTokens: 64, maxRetries: 0 };
  const whole = await generateText(one);
  assert.equal(whole.finishReason, 'tool-calls');
  assert.deepEqual(
    whole.toolCalls.map(({ toolName, input }) => [toolName, input]),
    [['get_weather', { city: 'Lisbon' }]],
  );
  const streamed = streamText(one);
  const kinds = new Set<string>();
  for await (const part of streamed.fullStream) kinds.add(part.type);
  for (const kind of ['tool-input-start', 'tool-input-delta', 'tool-input-end', 'tool-call', 'tool-result'])
    assert.ok(kinds.has(kind), kind);
  assert.equal(await streamed.finishReason, 'tool-calls');
  assert.deepEqual(heard, [{ city: 'Lisbon' }, { city: 'Lisbon' }]);
});
