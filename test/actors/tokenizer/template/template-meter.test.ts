import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { ChatTemplate, type Variables } from '../../../../actors/tokenizer/template/chat-template.js';
import { demoPath } from '../harness.js';

const limits = { maxTemplateMs: 5000, maxTemplateBytes: 100_000, maxTemplateOutputBytes: 1_000_000 };
const compiled = (source: string): ChatTemplate => new ChatTemplate(source, limits, () => false);

const demo = JSON.parse(readFileSync(join(demoPath, 'tokenizer_config.json'), 'utf8')) as { readonly chat_template: string };

/** In the manner of published templates. */
const usual: Readonly<Record<string, string>> = {
  'the demo model': demo.chat_template,
  headers: `{{- bos_token }}{%- if tools is not none %}{%- set date_string = strftime_now("%d %b %Y") %}{%- endif %}
{%- if messages[0]['role'] == 'system' %}{%- set system_message = messages[0]['content'] | trim %}{%- set messages = messages[1:] %}
{%- else %}{%- set system_message = "" %}{%- endif %}{{- system_message }}
{%- if tools %}{%- for t in tools %}{{- t | tojson(indent=4) }}{{- "\\n\\n" }}{%- endfor %}{%- endif %}
{%- for message in messages %}{%- if message.role == 'ipython' or 'tool_calls' in message %}
{%- for tool_call in message.tool_calls %}{{- tool_call.function.name ~ tool_call.function.arguments | tojson }}{%- endfor %}
{%- else %}{{- '<|' + message['role'] + '|>' + message['content'] | trim + '<|end|>' }}{%- endif %}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|assistant|>' }}{%- endif %}`,
  thinking: `{%- set ns = namespace(multi_step=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}{%- set index = (messages|length - 1) - loop.index0 %}
{%- if ns.multi_step and message.role == "user" and message.content is string and not(message.content.startswith('<a>') and message.content.endswith('</a>')) %}
{%- set ns.multi_step = false %}{%- set ns.last = index %}{%- endif %}{%- endfor %}
{%- for message in messages %}{%- if '</think>' in message.content %}
{%- set content = message.content.split('</think>')[-1].lstrip('\\n') %}{%- else %}{%- set content = message.content %}{%- endif %}
{{- '<|im_start|>' ~ message.role ~ '\\n' ~ content.strip() ~ ('' if loop.last else '<|im_end|>\\n') }}
{%- if loop.index0 > ns.last %}{{- message.get('name', 'nobody') | default('x') | upper }}{%- endif %}{%- endfor %}
{%- for key, value in messages[0].items() if key != 'content' %}{{ key }}={{ value }}{%- else %}none{%- endfor %}{{ messages }}{{ nothing }}`,
  refusing: `{% for m in messages %}{% if m.role not in ['user', 'assistant'] %}{{ raise_exception('Only users, not ' + m.role) }}{% endif %}{{ m.content }}{% endfor %}`,
};

const weather = {
  type: 'function',
  function: { name: 'weather', parameters: { type: 'object', properties: { city: { type: 'string' }, days: { type: 'integer' } } } },
};
const chats: readonly Variables[] = [
  { messages: [{ role: 'user', content: 'Hello' }], tools: null },
  {
    messages: [
      { role: 'system', content: ' Be brief. ' },
      { role: 'user', content: '<a>x</a>' },
      { role: 'assistant', content: 'Hm.</think>\nYes', name: 'Ann' },
      { role: 'user', content: 'And "you"?\n' },
    ],
    tools: [weather, weather],
  },
  {
    messages: [{ role: 'assistant', content: '', tool_calls: [{ function: { name: 'weather', arguments: { city: 'Pó', days: 2.5 } } }] }],
    tools: [],
  },
].map((chat) => ({ ...chat, bos_token: '<s>', documents: null, add_generation_prompt: true }));

function outcome(render: () => string | null): unknown {
  try {
    return render();
  } catch (error) {
    return (error as Error).message;
  }
}

for (const [name, source] of Object.entries(usual)) {
  test(`a usual template (${name}) is rendered at once, as it is under a clock`, () => {
    const template = compiled(source);
    for (const chat of chats) {
      const expected = outcome(() => template.tryRender(chat, [], 5000));
      assert.equal(typeof expected, 'string');
      assert.equal(
        outcome(() => template.renderAtOnce(chat, [])),
        expected,
      );
    }
  });
}

const user = (content: unknown): Variables => ({ messages: [{ role: 'user', content }], tools: null });
const many: Variables = { messages: Array.from({ length: 60 }, (_, i) => ({ role: 'user', content: `${i}` })), tools: null };
let nested: unknown = 'x';
for (let depth = 0; depth < 200; depth++) nested = [nested];
/** Lets a value hold itself twice, again and again. */
const twice = (use: string): string =>
  `{% set ns = namespace(v='x') %}{% for m in messages %}{% set ns.v = namespace(a=ns.v, b=ns.v) %}{% endfor %}{% set v = ns.v %}${use}`;

const bombs: Readonly<Record<string, readonly [string, Variables]>> = {
  'nested loops': ['{% for a in messages %}{% for b in messages %}{% for c in messages %}x{% endfor %}{% endfor %}{% endfor %}', many],
  'loops with nothing in them': [
    '{% for a in messages %}{% for b in messages %}{% for c in messages %}{% endfor %}{% endfor %}{% endfor %}',
    many,
  ],
  'names that mean nothing': [`{% for m in messages %}${'{{ nothing }}'.repeat(10)}{% endfor %}`, many],
  'text that doubles': ["{% set ns = namespace(s='ab') %}{% for m in messages %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}", many],
  'a list that doubles': ['{% set ns = namespace(l=[1]) %}{% for m in messages %}{% set ns.l = ns.l + ns.l %}{% endfor %}', many],
  'a value that holds itself, as JSON': [twice('{{ v | tojson }}'), many],
  'a value that holds itself, written': [twice('{{ v }}'), many],
  'a value that holds itself, joined': [twice("{{ '' ~ v.a }}{% for i in messages %}{% set l = [1, 2] %}{% endfor %}"), many],
  'a list of lists, compared': ["{% for m in messages %}{% set x = messages == 'x' %}{% endfor %}", many],
  'a list of lists, as a format': ['{% for m in messages %}{{ strftime_now(messages) }}{% endfor %}', many],
  'long text, taken apart': ["{{ messages[0].content.split('a') | length }}", user('a'.repeat(100_000))],
  'much data that nobody looks at': ['x', user(Array.from({ length: 5000 }, () => 'y'))],
  'deep data': ['{{ messages }}', user(nested)],
};
for (const [name, [source, variables]] of Object.entries(bombs)) {
  test(`a template with ${name} is not rendered at once`, () => {
    assert.equal(compiled(source).renderAtOnce(variables, []), null);
  });
}

const unbounded: readonly string[] = [
  '{% macro f() %}x{% endmacro %}{{ f() }}',
  "{{ messages[0].content.replace('', 'y') }}",
  "{{ messages | join('x') }}",
  '{{ messages | sort }}',
  '{{ [messages, messages] }}',
  "{{ {'a': messages} }}",
  '{{ range(10) }}',
  '{{ 2 ** 3 }}',
  "{{ 'x' | indent(1000000) }}",
  '{{ messages | tojson(indent=1000) }}',
  '{{ messages | tojson(indent=tools) }}',
  '{{ namespace(**messages[0]) }}',
  '{% filter upper %}x{% endfilter %}',
  '{% set x = messages | map(attribute="role") %}',
];
test('a template whose work cannot be counted is not rendered at once', () => {
  for (const source of unbounded) assert.equal(compiled(source).renderAtOnce(user('Hello'), []), null, source);
  assert.equal(compiled('{{ messages[0].content }}').renderAtOnce(user('Hello'), []), 'Hello');
});
