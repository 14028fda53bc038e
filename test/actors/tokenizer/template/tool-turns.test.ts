/** Earlier turns with calls of tools, their results and reasoning, in templates that write them as those of known families do. */
import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import type { ChatMessage } from '../../../../actors/messages/requests.js';
import { demoModel, demoPath, Harness, root, writeModel } from '../harness.js';

const families: readonly (readonly [name: string, template: string, rendered: string])[] = [
  [
    'Llama 3',
    `{%- for m in messages %}{%- if m.role == 'assistant' and 'tool_calls' in m %}{%- if m.tool_calls | length != 1 %}{{- raise_exception('one call') }}{%- endif %}
{%- set call = m.tool_calls[0].function %}{{- '{"name": "' + call.name + '", "parameters": ' }}{{- call.arguments | tojson }}{{- '}' }}
{%- elif m.role == 'tool' or m.role == 'ipython' %}{{- 'ipython: ' }}{%- if m.content is mapping or m.content is iterable %}{{- m.content | tojson }}{%- else %}{{- m.content }}{%- endif %}
{%- else %}{{- m.role + ': ' + m['content'] | trim }}{%- endif %}{{- ';' }}{%- endfor %}`,
    'user: Weather?;{"name": "get_weather", "parameters": {"city": "Zürich", "days": 2}};ipython: "12 C";user: Thanks.;',
  ],
  [
    'Qwen 3',
    `{%- for m in messages %}{%- set content = m.content if m.content is string else '' %}{%- if m.role == 'assistant' %}
{%- if m.reasoning_content is string %}{{- '<think>' + m.reasoning_content.strip('\\n') + '</think>' }}{%- endif %}{{- content }}
{%- for tool_call in m.tool_calls or [] %}{%- if (loop.first and content) or (not loop.first) %}{{- '\\n' }}{%- endif %}{%- if tool_call.function %}{%- set tool_call = tool_call.function %}{%- endif %}
{{- '<tool_call>{"name": "' }}{{- tool_call.name }}{{- '", "arguments": ' }}{%- if tool_call.arguments is string %}{{- tool_call.arguments }}{%- else %}{{- tool_call.arguments | tojson }}{%- endif %}{{- '}</tool_call>' }}{%- endfor %}
{%- elif m.role == 'tool' %}{{- '<tool_response>' + content + '</tool_response>' }}{%- else %}{{- m.role + ': ' + content }}{%- endif %}{{- ';' }}{%- endfor %}`,
    'user: Weather?;<think>Look it up.</think><tool_call>{"name": "get_weather", "arguments": {"city": "Zürich", "days": 2}}</tool_call>;<tool_response>12 C</tool_response>;user: Thanks.;',
  ],
  [
    'Mistral',
    `{%- for message in messages %}{%- if message.tool_calls is defined and message.tool_calls is not none %}{{- "[TOOL_CALLS] [" }}
{%- for tool_call in message.tool_calls %}{%- set out = tool_call.function | tojson %}{{- out[:-1] }}{%- if not tool_call.id is defined or tool_call.id | length != 9 %}{{- raise_exception("Nine characters!") }}{%- endif %}
{{- ', "id": "' + tool_call.id + '"}' }}{%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" }}{%- endif %}{%- endfor %}
{%- elif message["role"] == "tool" %}{{- '[TOOL_RESULTS] {"content": ' + message.content | string + ', "call_id": "' + message.tool_call_id + '"}' }}
{%- else %}{{- message["role"] + ": " + message["content"] }}{%- endif %}{{- ';' }}{%- endfor %}`,
    'user: Weather?;[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Zürich", "days": 2}, "id": "aB3456789"}];[TOOL_RESULTS] {"content": 12 C, "call_id": "aB3456789"};user: Thanks.;',
  ],
];

/** `args`: JSON text, as OpenAI's clients send it, or the object. */
const turns = (args: unknown): ChatMessage[] => [
  { role: 'user', content: 'Weather?' },
  {
    role: 'assistant',
    content: null,
    reasoning_content: 'Look it up.\n',
    tool_calls: [{ id: 'aB3456789', type: 'function', function: { name: 'get_weather', arguments: args } }],
  },
  { role: 'tool', tool_call_id: 'aB3456789', content: '12 C' },
  { role: 'user', content: 'Thanks.' },
];
const given = [{ city: 'Zürich', days: 2 }, '{"city": "Zürich", "days": 2}'];

for (const [name, template, rendered] of families) {
  test(`a template as that of ${name} writes them, arguments as an object or as JSON text`, async () => {
    const folder = writeModel({
      'tokenizer.json': readFileSync(join(demoPath, 'tokenizer.json'), 'utf8'),
      'tokenizer_config.json': { chat_template: template },
    });
    const harness = await Harness.start({ ...demoModel, path: folder });
    for (const args of given) assert.equal(await harness.decode(await harness.chat(turns(args))), rendered);
  });
}

test('where a template takes ids of nine characters only, others are cut, those of calls and results alike', async () => {
  const [, template = ''] = families.find(([name]) => name === 'Mistral') ?? [];
  const folder = writeModel({
    'tokenizer.json': readFileSync(join(demoPath, 'tokenizer.json'), 'utf8'),
    'tokenizer_config.json': { chat_template: template },
  });
  const harness = await Harness.start({ ...demoModel, path: folder });
  const call = { type: 'function', function: { name: 'f', arguments: {} } };
  const messages: ChatMessage[] = [
    { role: 'assistant', content: '', tool_calls: ['call_0123456789abcdef', 'c1'].map((id) => ({ ...call, id })) },
    { role: 'tool', tool_call_id: 'call_0123456789abcdef', content: 'x' },
    { role: 'tool', tool_call_id: 'c1', content: 'y' },
  ];
  const text = await harness.decode(await harness.chat(messages));
  assert.deepEqual(text.match(/(?<=id": ")\w+/g), ['789abcdef', '0000000c1', '789abcdef', '0000000c1']);
});

test('every template of the fixtures takes them', async () => {
  const folders = [
    'test/fixtures/draft-model',
    'config/demo-model',
    ...readdirSync(join(root, 'test/fixtures/golden')).map((pack) => `test/fixtures/golden/${pack}`),
  ]
    .map((path) => join(root, path))
    .filter((path) => existsSync(join(path, 'tokenizer_config.json')))
    .filter((path) => readFileSync(join(path, 'tokenizer_config.json'), 'utf8').includes('chat_template'));
  assert.ok(folders.length >= 2);
  for (const path of folders) {
    const { vocab_size: vocabSize } = JSON.parse(readFileSync(join(path, 'config.json'), 'utf8')) as { vocab_size: number };
    const harness = await Harness.start({ ...demoModel, path, vocabSize });
    for (const args of given) assert.ok((await harness.chat(turns(args))).length > 10, path);
  }
});
