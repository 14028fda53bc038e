/**
 * Chats of a model that writes messages in channels, through a real tokenizer: what a template like gpt-oss's makes of a conversation, and
 * what of an answer is reasoning, content or a call.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { type ChatMessage, FINISH } from '../../../../actors/messages/requests.js';
import { demoModel, demoPath, Harness, id, writeModel } from '../harness.js';

const control = ['<|start|>', '<|end|>', '<|message|>', '<|channel|>', '<|constrain|>', '<|return|>', '<|call|>'];
const FIRST = 4096;
const idOf = (text: string): number => FIRST + control.indexOf(text);

/** With the means of gpt-oss's template: macros that call themselves, namespaces, slices, refusals, the date. */
const template = `
{%- macro type_of(spec, required, nullable=false) -%}
  {%- if spec.type == "array" -%}{{- type_of(spec['items'], required) + "[]" }}
  {%- elif spec.type is defined and spec.type is iterable and spec.type is not string -%}{{- spec.type|join(" | ") }}
  {%- elif spec.enum -%}{{- '"' + spec.enum|join('" | "') + '"' }}
  {%- elif spec.type == "object" -%}{
    {%- for name, inner in spec.properties.items() -%}{{ name }}{{ "?" if name not in (spec.required or []) }}: {{ type_of(inner, spec.required) }}{{ ", " if not loop.last }}{%- endfor -%}}
  {%- else -%}{{- "number" if spec.type == "integer" else spec.type }}{%- endif -%}
  {%- if nullable -%}{{- " | null" }}{%- endif -%}
{%- endmacro -%}
{%- macro system() -%}
  {%- if reasoning_effort is not defined %}{%- set reasoning_effort = "medium" %}{%- endif %}
  {{- "Date: " + strftime_now("%Y-%m-%d") + "\\nReasoning: " + reasoning_effort }}
{%- endmacro -%}
{{- "<|start|>system<|message|>" }}{{- system() }}{{- "<|end|>" }}
{%- if messages[0].role == "developer" or messages[0].role == "system" %}
  {%- set said = messages[0].content %}{%- set rest = messages[1:] %}
{%- else %}{%- set said = "" %}{%- set rest = messages %}{%- endif %}
{%- if said or tools %}
  {{- "<|start|>developer<|message|>" + said }}
  {%- for tool in tools or [] %}{%- set f = tool.function %}{{- "\\ntype " + f.name + " = (_: " + type_of(f.parameters, f.parameters.required) + ") => any;" }}{%- endfor %}
  {{- "<|end|>" }}
{%- endif %}
{%- set last = namespace(name=none) %}
{%- for message in rest -%}
  {%- if message.role == "assistant" -%}
    {%- if "content" in message and "<|channel|>" in message.content %}{{- raise_exception("Pass reasoning apart") }}{%- endif %}
    {%- if "tool_calls" in message %}
      {%- set later = namespace(found=false) %}
      {%- for next in rest[loop.index:] %}{%- if next.role == "assistant" and "tool_calls" not in next %}{%- set later.found = true %}{%- endif %}{%- endfor %}
      {%- set call = message.tool_calls[0].function %}
      {%- if message.content and message.thinking %}{{- raise_exception("Not both") }}
      {%- elif message.thinking and not later.found %}{{- "<|start|>assistant<|channel|>analysis<|message|>" + message.thinking + "<|end|>" }}{%- endif %}
      {{- "<|start|>assistant to=functions." + call.name + "<|channel|>commentary json<|message|>" }}
      {{- call.arguments if call.arguments is string else call.arguments|tojson }}{{- "<|call|>" }}
      {%- set last.name = call.name %}
    {%- elif "thinking" in message %}{{- raise_exception("Only before a call") }}
    {%- else %}{{- "<|start|>assistant<|channel|>final<|message|>" + message.content + "<|end|>" }}{%- set last.name = none %}{%- endif %}
  {%- elif message.role == "tool" -%}
    {%- if last.name is none %}{{- raise_exception("A result without a call") }}{%- endif %}
    {{- "<|start|>functions." + last.name + " to=assistant<|channel|>commentary<|message|>" + message.content|tojson + "<|end|>" }}
  {%- else -%}{{- "<|start|>" + message.role + "<|message|>" + message.content + "<|end|>" }}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|start|>assistant{%- endif -%}`;

const tools = [
  {
    type: 'function',
    function: {
      name: 'add',
      parameters: {
        type: 'object',
        required: ['a'],
        properties: { a: { type: 'array', items: { type: 'integer' } }, b: { enum: ['x', 'y'] }, c: { type: ['string', 'null'] } },
      },
    },
  },
];

function start(): Promise<Harness> {
  const json = JSON.parse(readFileSync(join(demoPath, 'tokenizer.json'), 'utf8')) as { added_tokens: unknown[] };
  const plain = { single_word: false, lstrip: false, rstrip: false, normalized: false, special: true };
  const added = control.map((content, i) => ({ id: FIRST + i, content, ...plain }));
  const path = writeModel({
    'tokenizer.json': { ...json, added_tokens: [...json.added_tokens, ...added] },
    'tokenizer_config.json': { chat_template: template },
  });
  const eosTokenIds = [idOf('<|return|>')]; // as a config.json that names one
  return Harness.start({ ...demoModel, path, vocabSize: FIRST + control.length, eosTokenIds });
}

const user = { role: 'user', content: 'Add.' };
const call = (n: string) => ({ id: n, type: 'function', function: { name: 'add', arguments: '{"a": [1]}' } });

test('a conversation with tools, calls, results and reasoning is rendered', async () => {
  const harness = await start();
  const shown = async (messages: readonly ChatMessage[], extra: object = {}): Promise<string> =>
    (await harness.decode(await harness.chat(messages, extra))).replace(/Date: \d{4}-\d\d-\d\d/, 'Date: D');
  const system = '<|start|>system<|message|>Date: D\nReasoning: medium<|end|>';
  const asked = '<|start|>user<|message|>Add.<|end|>';
  const called = '<|start|>assistant to=functions.add<|channel|>commentary json<|message|>{"a": [1]}<|call|>';
  const result = (text: string): string => `<|start|>functions.add to=assistant<|channel|>commentary<|message|>"${text}"<|end|>`;
  assert.equal(await shown([user]), `${system}${asked}<|start|>assistant`);
  assert.equal(
    await shown([{ role: 'system', content: 'Be brief.' }, user], { tools, templateArgs: { reasoning_effort: 'high' } }),
    `${system.replace('medium', 'high')}<|start|>developer<|message|>Be brief.\ntype add = (_: {a: number[], b?: "x" | "y", c?: string | null}) => any;<|end|>${asked}<|start|>assistant`,
  );
  const before = { role: 'assistant', content: null, reasoning_content: 'Hm.', tool_calls: [call('1'), call('2')] };
  const results = ['2', '1'].map((n) => ({ role: 'tool', tool_call_id: n, content: `r${n}` }));
  assert.equal(
    await shown([user, before, ...results]),
    `${system}${asked}<|start|>assistant<|channel|>analysis<|message|>Hm.<|end|>${called}${result('r1')}${called}${result('r2')}<|start|>assistant`,
  );
  assert.equal(
    await shown([user, { role: 'assistant', content: 'Two.', reasoning_content: 'Hm.' }, user]),
    `${system}${asked}<|start|>assistant<|channel|>final<|message|>Two.<|end|>${asked}<|start|>assistant`,
    'reasoning of earlier answers is left out',
  );
});

test('an answer is told as reasoning, content and calls, token by token, and control tokens are no text', async () => {
  const harness = await start();
  const ids = async (text: string): Promise<number[]> => harness.encode({ kind: 'text', text, addSpecialTokens: false });
  const chat = { kind: 'chat', messages: [user], addGenerationPrompt: true, tools } as const;
  const admitted = async (n: number) => {
    harness.submit(n, chat);
    await harness.until(() => harness.scheduler.some((m) => m.k === 'admit' && m.id === id(n)));
    return harness.scheduler.find((m) => m.k === 'admit' && m.id === id(n));
  };
  const admit = await admitted(1);
  assert.deepEqual(admit?.k === 'admit' && admit.stopTokenIds, [idOf('<|call|>')], 'beside what the model says of itself');

  const thought = '<|channel|>analysis<|message|>Let me add.<|end|><|start|>assistant';
  const tokens = await ids(`${thought}<|channel|>commentary to=functions.add <|constrain|>json<|message|>{"a": [1, 2]}`);
  for (const token of tokens) harness.step([[1, token]]);
  harness.step([[1, idOf('<|call|>'), FINISH.stopToken]]);
  const deltas = harness.deltas(1);
  const calls = deltas.flatMap((delta) => delta.calls ?? []);
  assert.equal(harness.text(1), '');
  assert.equal(deltas.map((delta) => delta.reasoning ?? '').join(''), 'Let me add.');
  assert.deepEqual([calls.flatMap(({ name }) => name ?? []), calls.map((one) => one.arguments).join('')], [['add'], '{"a": [1, 2]}']);
  assert.deepEqual(
    deltas.flatMap((delta) => delta.tokens),
    [...tokens, idOf('<|call|>')],
  );
  const counted = deltas.reduce((sum, delta) => sum + (delta.reasoningTokens ?? 0), 0);
  assert.equal(counted, (await ids('Let me add.')).length);

  await admitted(2);
  for (const token of await ids(`${thought}<|channel|>final<|message|>Three.`)) harness.step([[2, token]]);
  harness.step([[2, idOf('<|return|>'), FINISH.eos]]);
  assert.equal(harness.text(2), 'Three.');
  assert.equal(harness.deltas(2).at(-1)?.finish, 'stop');
});
