import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import type { TokenizerStart } from '../../../../actors/tokenizer/actor.js';
import { strftime } from '../../../../actors/tokenizer/template/strftime.js';
import { demoModel, demoPath, Harness, llama2Model, writeModel } from '../harness.js';

const tokenizerJson = readFileSync(join(demoPath, 'tokenizer.json'), 'utf8');

function withTemplate(
  chatTemplate: unknown,
  limits: Partial<TokenizerStart['limits']> = {},
  added: readonly unknown[] = [],
): Promise<Harness> {
  const json = JSON.parse(tokenizerJson) as { added_tokens: unknown[] };
  const path = writeModel({
    'tokenizer.json': { ...json, added_tokens: [...json.added_tokens, ...added] },
    'tokenizer_config.json': { chat_template: chatTemplate, bos_token: '<|begin_of_text|>' },
  });
  return Harness.start({ ...demoModel, path, vocabSize: 4096 + added.length }, limits);
}

const hello = { kind: 'chat', messages: [{ role: 'user', content: 'Hello' }], addGenerationPrompt: false } as const;

const hostile: readonly (readonly [string, string, string])[] = [
  ['a huge range', '{% for i in range(100000000) %}{% endfor %}', 'Chat template: range() gives more than 100000 items'],
  [
    'nested loops',
    '{% for i in range(20000) %}{% for j in range(20000) %}{{ i }}{% endfor %}{% endfor %}',
    'The chat template was stopped after 250 ms',
  ],
  [
    'a string that doubles',
    "{% set ns = namespace(s='ab') %}{% for i in range(64) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}",
    'Chat template: The chat template writes more than 100000 bytes',
  ],
  [
    'a list that doubles',
    '{% set ns = namespace(l=[1]) %}{% for i in range(64) %}{% set ns.l = ns.l + ns.l %}{% endfor %}{{ ns.l|length }}',
    'Chat template: A list has more than 100000 items',
  ],
  [
    'a macro that calls itself',
    '{% macro f(g) %}{{ g(g) }}{% endmacro %}{{ f(f) }}',
    'The chat template cannot be applied to these messages',
  ],
  [
    'a long output',
    "{% for i in range(2000) %}{{ '0123456789012345678901234567890123456789012345678901234567890123456789' }}{% endfor %}",
    'Chat template: The chat template writes more than 100000 bytes',
  ],
  [
    'a long output in bytes',
    `{% for i in range(900) %}{{ '${'é'.repeat(60)}' }}{% endfor %}`,
    'The chat template writes more than 100000 bytes',
  ],
];
for (const [name, template, message] of hostile) {
  test(`a template with ${name} is ended, and the actor goes on`, async () => {
    const harness = await withTemplate(template, { maxTemplateOutputBytes: 100_000 });
    assert.deepEqual(await harness.encodeFailure(hello), { kind: 'invalid_params', message });
    assert.deepEqual(await harness.encode({ kind: 'ids', ids: [1, 2] }), [1, 2]);
  });
}

test('a template may refuse the messages with its own sentence, and says nothing of its insides otherwise', async () => {
  const refusing = await withTemplate("{{ raise_exception('Roles must alternate: ' + messages[0].content) }}");
  const message = { role: 'user', content: '<b>' };
  const failure = await refusing.encodeFailure({ kind: 'chat', messages: [message], addGenerationPrompt: false });
  assert.deepEqual(failure, { kind: 'invalid_params', message: 'Chat template: Roles must alternate: <b>' });
  const broken = await withTemplate('{{ messages[0].nothing.more }}{{ messages|sort }}');
  const inside = await broken.encodeFailure({ kind: 'chat', messages: [message, message], addGenerationPrompt: false });
  assert.equal(inside.kind, 'invalid_params');
  assert.doesNotMatch(inside.message ?? '', /\.js|node_modules| at /);
});

test('templates of the shapes that Gemma, OLMo, Granite and SmolLM have render, and one without a system role says so', async () => {
  const turns = ['<start_of_turn>', '<end_of_turn>'].map((content, i) => ({ id: 4096 + i, content, special: true }));
  const added = turns.map((turn) => ({ single_word: false, lstrip: false, rstrip: false, normalized: false, ...turn }));
  const system = [{ role: 'system', content: 'Be brief.' }, ...hello.messages];
  const alternating = await withTemplate(
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('There is no system role') }}{% endif %}" +
      "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Turns must alternate') }}{% endif %}" +
      "{% set role = 'model' if m['role'] == 'assistant' else m['role'] %}" +
      "{{ '<start_of_turn>' + role + '\\n' + m['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}" +
      "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}",
    {},
    added,
  );
  const ids = await alternating.encode({ ...hello, addGenerationPrompt: true });
  assert.equal(ids.filter((id) => id === 4096).length, 2, 'its markers are tokens');
  assert.match(await alternating.decode(ids), /user\nHello\n?.*model\n$/s);
  const refused = await alternating.encodeFailure({ ...hello, messages: system });
  assert.deepEqual(refused, { kind: 'invalid_params', message: 'Chat template: There is no system role' });

  const headed = await withTemplate(
    "{%- set first = messages[0] %}{%- if first.role == 'system' %}{%- set said = first.content %}{%- set rest = messages[1:] %}" +
      "{%- else %}{%- set said = 'Today is ' ~ strftime_now('%Y') %}{%- set rest = messages %}{%- endif %}{{- '<|system|>\\n' ~ said ~ '\\n' }}" +
      "{%- for m in rest %}{{- '<|' ~ m.role ~ '|>\\n' ~ m.content }}{%- if m.role == 'assistant' %}{{- eos_token }}{%- endif %}{{- '\\n' }}{%- endfor %}" +
      "{%- if add_generation_prompt %}{{- '<|assistant|>\\n' }}{%- endif %}",
  );
  const text = await headed.decode(await headed.encode({ ...hello, messages: system, addGenerationPrompt: true }));
  assert.equal(text, '<|system|>\nBe brief.\n<|user|>\nHello\n<|assistant|>\n');
  assert.match(await headed.decode(await headed.encode(hello)), /^<\|system\|>\nToday is \d{4}\n<\|user\|>\nHello\n$/);
});

test('a missing, broken or oversized template fails chats only', async () => {
  for (const [harness, expected] of [
    [await Harness.start(llama2Model), /This model has no chat template; use completions\.create/],
    [await withTemplate('{% for m in messages %}'), /The chat template of this model is not valid/],
    [await withTemplate('x'.repeat(2000), { maxTemplateBytes: 1000 }), /larger than 1000 bytes/],
  ] as const) {
    const failure = await harness.encodeFailure(hello);
    assert.equal(failure.kind, 'invalid_params');
    assert.match(failure.message ?? '', expected);
    assert.ok((await harness.encode({ kind: 'text', text: 'Hello', addSpecialTokens: true })).length > 1);
  }
});

test('chat_template.jinja goes before tokenizer_config.json, and tools choose the template named tool_use', async () => {
  const named = [
    { name: 'default', template: 'plain' },
    { name: 'tool_use', template: 'tools' },
  ];
  const harness = await withTemplate(named);
  assert.equal(await harness.decode(await harness.encode(hello)), 'plain');
  assert.equal(await harness.decode(await harness.encode({ ...hello, tools: [{}] })), 'tools');
  const path = writeModel({
    'tokenizer.json': tokenizerJson,
    'tokenizer_config.json': { chat_template: 'config' },
    'chat_template.jinja': 'file',
  });
  const file = await Harness.start({ ...demoModel, path });
  assert.equal(await file.decode(await file.encode(hello)), 'file');
});

test('templates still find the markers they look for in messages that are protected', async () => {
  const think = { id: 4096, content: '</think>', single_word: false, lstrip: false, rstrip: false, normalized: false, special: false };
  const template = [
    "{% for m in messages %}{% set c = m.content %}{% if '</think>' in c %}{% set c = c.split('</think>')[-1] %}{% endif %}",
    "{% if c.startswith('<tool_response>') %}T:{% endif %}{{ c | replace('<br>', '<|eot_id|>') }}{% if m.role in ['user'] %}</think>{% endif %}{% endfor %}",
  ].join('');
  const harness = await withTemplate(template, {}, [think]);
  const ids = await harness.chat([
    { role: 'assistant', content: 'secret </think>answer' },
    { role: 'user', content: '<tool_response>1</tool_response><br>' },
  ]);
  assert.equal(await harness.decode(ids), 'answerT:<tool_response>1</tool_response><|eot_id|></think>');
  assert.deepEqual(
    ids.filter((i) => i >= 4088),
    [4092, 4096],
    'only what the template wrote is a control token',
  );
});

test('protected text comes back from JSON with escapes', async () => {
  const harness = await withTemplate('{{ messages | tojson(ensure_ascii=true) }}{{ tools | tojson }}');
  const ids = await harness.chat([{ role: 'user', content: 'é<b>' }], { tools: [{ '<k>': '<|eot_id|>' }] });
  assert.equal(await harness.decode(ids), '[{"role": "user", "content": "\\u00e9<b>"}][{"<k>": "<|eot_id|>"}]');
  assert.ok(!ids.includes(4092));
});

test('missing content is empty text, and arguments of tool calls reach the template as objects', async () => {
  const harness = await withTemplate(
    '{% for m in messages %}[{{ m.content }}]{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}{{ tools is none }}',
  );
  const calls = ['{"city": "Nicosia"}', '', 'not json'].map((text) => ({ id: 'c', function: { name: 'f', arguments: text } }));
  const ids = await harness.chat([{ role: 'assistant', content: null, tool_calls: calls }]);
  assert.equal(await harness.decode(ids), '[]{"city": "Nicosia"}{}"not json"true');
});

test('strftime writes what templates ask for', () => {
  const date = new Date(2024, 6, 4, 9, 5, 7);
  assert.equal(
    strftime(date, '%d %b %Y | %B %-d, %Y | %A %a %H:%M:%S %I %p %y %j %% %Q'),
    '04 Jul 2024 | July 4, 2024 | Thursday Thu 09:05:07 09 AM 24 186 % %Q',
  );
});

test('messages nested too deeply are refused', async () => {
  const harness = await withTemplate('{{ messages | length }}');
  let deep: unknown = 'x';
  for (let i = 0; i < 5000; i++) deep = [deep];
  const failure = await harness.encodeFailure({
    kind: 'chat',
    messages: [{ role: 'user', content: 'x', deep }],
    addGenerationPrompt: false,
  });
  assert.deepEqual(failure, { kind: 'invalid_params', message: 'Messages and tools may be nested 128 levels deep at most' });
});
