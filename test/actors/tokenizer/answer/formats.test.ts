/** Which format is found from the texts by which templates of known models can be told. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { reasoningFormats } from '../../../../actors/tokenizer/answer/formats/reasoning.js';
import { callFormatOf, callFormats, reasoningFormatOf } from '../../../../actors/tokenizer/answer/formats/table.js';
import { schema } from '../../../../config/schema.js';

const calls: readonly (readonly [model: string, template: string, format: string])[] = [
  ['Qwen 2.5 and 3', `within <tool_call></tool_call> XML tags:\\n<tool_call>\\n{\\"name\\": <function-name>, "arguments": …}`, 'hermes'],
  ['Hermes 3', `{{- '<tool_call>\\n' }}{{- tool_call | tojson }}{{- '\\n</tool_call>' }}`, 'hermes'],
  ['Mistral 7B v0.3', `{{- "[TOOL_CALLS] [" }}{%- set out = tool_call.function|tojson %}`, 'mistral_list'],
  ['Mistral Small 3.2', `{{- '[TOOL_CALLS]' + tool_call.function.name }}{{- '[CALL_ID]' + tool_call.id }}{{- '[ARGS]' }}`, 'mistral'],
  ['Ministral 3', `{{- '[TOOL_CALLS]' + tool['function']['name'] + '[ARGS]' + arguments }}`, 'mistral'],
  ['gpt-oss', `{{- "<|start|>assistant<|channel|>final<|message|>" + message.content + "<|end|>" }}`, 'harmony'],
  ['Granite 3', `respond only with <|tool_call|> followed by a JSON list`, 'granite'],
  ['Llama 3.1', `{"name": function name, "parameters": dictionary of argument name and its value}{{- "<|python_tag|>" }}`, 'llama3_json'],
  ['Llama 3.2 with Python lists', `[func_name1(params_name1=params_value1, params_name2=params_value2...)]`, 'pythonic'],
  ['one that says nothing of calls', `{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}`, 'llama3_json'],
];

for (const [model, template, format] of calls) {
  test(`the template of ${model} asks for calls in the format ${format}`, () => assert.equal(callFormatOf(template, 'auto')?.name, format));
}

test('reasoning is found from its end marker, which templates look for in earlier answers', () => {
  for (const [template, format] of [
    [`{%- if '</think>' in content %}{%- set content = content.split('</think>')[-1] %}{% endif %}`, 'think'],
    [`{{- '<|im_start|>assistant\\n<think>\\n' }} … message.content.split("</think>")`, 'think'],
    [`'[THINK]' + block['thinking'] + '[/THINK]'`, 'mistral'],
    [`{{ message.content }}`, undefined],
  ] as const)
    assert.equal(reasoningFormatOf(template, 'auto')?.name, format, template);
});

test('an option names the format, or none, whatever the template says', () => {
  assert.equal(callFormatOf('<tool_call>', 'pythonic')?.name, 'pythonic');
  assert.equal(callFormatOf('<tool_call>', 'none'), null);
  assert.equal(reasoningFormatOf('', 'think')?.name, 'think');
  assert.equal(reasoningFormatOf('</think>', 'none'), null);
});

test('the options offer all formats', () => {
  const names = (formats: readonly { readonly name: string }[]): string[] => ['auto', 'none', ...formats.map(({ name }) => name)].sort();
  assert.deepEqual([...schema.inference.tool_call_parser.values].sort(), names(callFormats));
  assert.deepEqual([...schema.inference.reasoning_parser.values].sort(), names(reasoningFormats));
});

test('ids of calls differ, and look as the templates of a format want them', () => {
  for (const { name, newId } of callFormats) {
    const ids = Array.from({ length: 50 }, newId);
    assert.equal(new Set(ids).size, 50);
    for (const id of ids) assert.match(id, name.startsWith('mistral') ? /^[A-Za-z0-9]{9}$/ : /^call_[0-9a-f]{24}$/);
  }
});
