/**
 * Calls in other formats, several in an answer, and reasoning, through OpenAI's own client and Vercel's: whole daemons whose model says
 * what the last message tells it to, behind chat templates of other families.
 */
import assert from 'node:assert/strict';
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, jsonSchema, stepCountIs, streamText, tool } from 'ai';
import OpenAI from 'openai';
import { packageRoot } from '../../../native/index.js';
import { startTestDaemon, type TestDaemon } from '../../helpers/daemon/daemon.js';
import { echoNativeEngineModule } from '../../helpers/engine/echo-native-engine.js';
import { tempFolder } from '../../helpers/temp-folder.js';

/** Writes earlier turns, then the last message between the marks of the echo; `opening` is the end of the prompt. */
const template = (markers: string, opening = ''): string =>
  `{# ${markers} #}{{ bos_token }}{% for m in messages %}[{{ m.role }}{{ m.reasoning_content or '' }}]` +
  `{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}` +
  `{% if loop.last %}<|start_header_id|>{{ m.content }}<|end_header_id|>{% else %}{{ m.content }}{% endif %}{% endfor %}${opening}`;

function modelFolder(chatTemplate: string): string {
  const folder = tempFolder();
  const demo = join(packageRoot(), 'config', 'demo-model');
  for (const file of ['config.json', 'generation_config.json', 'tokenizer.json']) copyFileSync(join(demo, file), join(folder, file));
  const config = JSON.parse(readFileSync(join(demo, 'tokenizer_config.json'), 'utf8')) as object;
  writeFileSync(join(folder, 'tokenizer_config.json'), JSON.stringify({ ...config, chat_template: chatTemplate }));
  return folder;
}

interface Scene {
  readonly at: TestDaemon;
  readonly client: OpenAI;
}

/** The daemon of a group of tests. */
function daemonWith(chatTemplate: string): Scene {
  let at: TestDaemon;
  let client: OpenAI;
  before(async () => {
    at = await startTestDaemon(
      [`inference.model_name=${modelFolder(chatTemplate)}`, 'inference.served_model_name=echo', 'inference.load_dummy=true'],
      echoNativeEngineModule,
    );
    client = new OpenAI({ baseURL: `${at.http}/v1`, apiKey: 'none', maxRetries: 0 });
  });
  after(() => at.close());
  return {
    get at() {
      return at;
    },
    get client() {
      return client;
    },
  };
}

const parameters = { type: 'object' as const, properties: { city: { type: 'string' as const } } };
const tools = ['get_weather', 'get_time'].map((name) => ({ type: 'function' as const, function: { name, parameters } }));
const say = (content: string) => ({ model: 'echo', messages: [{ role: 'user' as const, content }], tools, max_tokens: 500 });

const formats: readonly (readonly [name: string, markers: string, answer: string, content: string | null])[] = [
  [
    'Hermes and Qwen',
    '<tool_call>',
    'Both.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Łódź"}}\n</tool_call>\n<tool_call>\n{"name": "get_time", "arguments": {"city": "Rome"}}\n</tool_call>',
    'Both.',
  ],
  [
    'Mistral',
    '[TOOL_CALLS]',
    '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Łódź"}}, {"name": "get_time", "arguments": {"city": "Rome"}}]',
    null,
  ],
  ['newer Mistral', '[TOOL_CALLS][ARGS]', '[TOOL_CALLS]get_weather[ARGS]{"city": "Łódź"}[TOOL_CALLS]get_time[ARGS]{"city": "Rome"}', null],
  ['Python lists', '[f(x=1)]', '[get_weather(city="Łódź"), get_time(city="Rome")]', null],
  ['Llama 3', '', '{"name": "get_weather", "parameters": {"city": "Łódź"}}; {"name": "get_time", "parameters": {"city": "Rome"}}', null],
];

for (const [name, markers, answer, content] of formats) {
  describe(`two calls in the format of ${name}`, () => {
    const scene = daemonWith(template(markers));
    const calls = [
      ['get_weather', '{"city": "Łódź"}'],
      ['get_time', '{"city": "Rome"}'],
    ];

    test('are given whole, and streamed the same', async () => {
      const [choice] = (await scene.client.chat.completions.create(say(answer))).choices;
      assert.equal(choice?.finish_reason, 'tool_calls');
      assert.equal(choice.message.content, content);
      const listed = (message: OpenAI.ChatCompletionMessage | undefined) =>
        (message?.tool_calls ?? []).map((call) => (call.type === 'function' ? [call.function.name, call.function.arguments] : []));
      assert.deepEqual(listed(choice.message), calls);
      const final = await scene.client.chat.completions.stream(say(answer)).finalChatCompletion();
      assert.deepEqual(listed(final.choices[0]?.message), calls);
      assert.equal(final.choices[0]?.message.content ?? null, content);
      assert.equal(final.choices[0]?.finish_reason, 'tool_calls');
    });

    test('leave one with parallel_tool_calls false', async () => {
      const [choice] = (await scene.client.chat.completions.create({ ...say(answer), parallel_tool_calls: false })).choices;
      assert.deepEqual([choice?.message.tool_calls?.length, choice?.finish_reason], [1, 'tool_calls']);
    });

    test('are run by runTools, and the next answer sees their results', async () => {
      const heard: string[] = [];
      const runner = scene.client.chat.completions.runTools({
        ...say(answer),
        tools: tools.map(({ type, function: { name: called } }) => ({
          type,
          function: {
            name: called,
            description: '',
            parameters,
            parse: JSON.parse,
            function: ({ city }: { city: string }) => {
              heard.push(`${called} ${city}`);
              return `${city} is fine.`;
            },
          },
        })),
      });
      // The model repeats the last message, which is the last result.
      assert.equal(await runner.finalContent(), 'Rome is fine.');
      assert.deepEqual(heard, ['get_weather Łódź', 'get_time Rome']);
    });

    test('are run by the AI SDK', async () => {
      const provider = createOpenAICompatible({ name: 'inferd', baseURL: `${scene.at.http}/v1` });
      const heard: string[] = [];
      const run = (called: string) =>
        tool({
          inputSchema: jsonSchema<{ city: string }>(parameters),
          execute: ({ city }) => {
            heard.push(`${called} ${city}`);
            return `${city} is fine.`;
          },
        });
      const both = { get_weather: run('get_weather'), get_time: run('get_time') };
      const one = { model: provider('echo'), prompt: answer, tools: both, stopWhen: stepCountIs(2), maxRetries: 0 };
      assert.equal((await generateText(one)).text, 'Rome is fine.');
      const streamed = streamText(one);
      await streamed.consumeStream();
      assert.equal(await streamed.text, 'Rome is fine.');
      assert.deepEqual(heard, ['get_weather Łódź', 'get_time Rome', 'get_weather Łódź', 'get_time Rome']);
    });
  });
}

describe('reasoning', () => {
  const scene = daemonWith(template('<tool_call> </think>'));
  const answer = '<think>\nHm, so.\n</think>\n\nParis.';
  const reasoned = (message: object | undefined): unknown => (message as { reasoning_content?: string } | undefined)?.reasoning_content;

  test('stands apart, whole and streamed, and is counted', async () => {
    const { choices, usage } = await scene.client.chat.completions.create(say(answer));
    assert.deepEqual([choices[0]?.message.content, reasoned(choices[0]?.message)], ['\n\nParis.', '\nHm, so.\n']);
    const counted = usage?.completion_tokens_details?.reasoning_tokens ?? 0;
    assert.ok(counted > 2 && counted < (usage?.completion_tokens ?? 0));
    let [content, reasoning, spent] = ['', '', 0];
    const options = { stream: true as const, stream_options: { include_usage: true } };
    for await (const chunk of await scene.client.chat.completions.create({ ...say(answer), ...options })) {
      content += chunk.choices[0]?.delta.content ?? '';
      reasoning += reasoned(chunk.choices[0]?.delta) ?? '';
      spent = chunk.usage?.completion_tokens_details?.reasoning_tokens ?? spent;
    }
    assert.deepEqual([content, reasoning, spent], ['\n\nParis.', '\nHm, so.\n', counted]);
  });

  test('comes before calls, and to the AI SDK as reasoning', async () => {
    const prompt = '<think>Hm.</think><tool_call>{"name": "get_time", "arguments": {"city": "Rome"}}</tool_call>';
    const provider = createOpenAICompatible({ name: 'inferd', baseURL: `${scene.at.http}/v1` });
    const get_time = tool({ inputSchema: jsonSchema<{ city: string }>(parameters), execute: () => 'Noon.' });
    const one = { model: provider('echo'), prompt, tools: { get_time }, maxRetries: 0 };
    const whole = await generateText(one);
    assert.deepEqual([whole.reasoningText, whole.toolCalls[0]?.input], ['Hm.', { city: 'Rome' }]);
    const streamed = streamText(one);
    await streamed.consumeStream();
    assert.deepEqual([await streamed.reasoningText, (await streamed.toolCalls)[0]?.input], ['Hm.', { city: 'Rome' }]);
  });

  test('is the same over WebSocket', async () => {
    const socket = await scene.at.open();
    const { choices } = await socket.call('chat.completions.create', say(answer));
    assert.deepEqual(choices?.[0]?.message, { role: 'assistant', content: '\n\nParis.', reasoning_content: '\nHm, so.\n' });
    await socket.close();
  });
});

describe('reasoning that the template opens', () => {
  const scene = daemonWith(template('</think>', '{% if enable_thinking is not defined or enable_thinking %}<think>\n{% endif %}'));

  test('needs no first marker; enable_thinking and reasoning_effort reach the template', async () => {
    const answer = 'Hm.</think>Paris.';
    const messageOf = async (more: object): Promise<unknown[]> => {
      const [choice] = (await scene.client.chat.completions.create({ ...say(answer), ...more })).choices;
      return [choice?.message.content, (choice?.message as { reasoning_content?: string } | undefined)?.reasoning_content];
    };
    assert.deepEqual(await messageOf({}), ['Paris.', 'Hm.']);
    assert.deepEqual(await messageOf({ chat_template_kwargs: { enable_thinking: false } }), [answer, undefined]);
    assert.deepEqual(await messageOf({ reasoning_effort: 'none' }), [answer, undefined]);
  });
});
