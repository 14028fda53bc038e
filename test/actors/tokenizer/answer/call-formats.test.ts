import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { marker } from '../../../../actors/tokenizer/answer/marker.js';
import { type Read, read } from './reading.js';

type Case = readonly [title: string, answer: string, content: string, calls: Read['calls']];

const weather = '{"name": "get_weather", "arguments": {"city": "Paris"}}';
const paris = ['get_weather', '{"city": "Paris"}'] as const;
const sum = ['add', '{"a":1,"b":[2,{"c":"}]"}]}'] as const;

const cases: Readonly<Record<string, readonly Case[]>> = {
  hermes: [
    ['one call', `<tool_call>\n${weather}\n</tool_call>`, '', [paris]],
    ['text before it', `Let me look.\n\n<tool_call>${weather}</tool_call>`, 'Let me look.', [paris]],
    ['text after it', `<tool_call>${weather}</tool_call>\n\nThere. `, 'There. ', [paris]],
    ['two calls', `<tool_call>${weather}</tool_call>\n<tool_call>{"name":"add","arguments":${sum[1]}}</tool_call>`, '', [paris, sum]],
    ['the name behind the arguments', '<tool_call>{"arguments": {"city": "Paris"}, "id": 7, "name": "get_weather"}', '', [paris]],
    ['"parameters"', '<tool_call>{"name": "get_weather", "parameters": {"city": "Paris"}}</tool_call>', '', [paris]],
    ['arguments as a text of JSON', '<tool_call>{"name": "add", "arguments": "{\\"a\\": 1}"}</tool_call>', '', [['add', '{"a": 1}']]],
    ['no arguments', '<tool_call>{"name": "now"}</tool_call>', '', [['now', '{}']]],
    ['null for arguments', '<tool_call>{"name": "now", "arguments": null}</tool_call>', '', [['now', '{}']]],
    [
      'a marker inside a string',
      '<tool_call>{"name": "add", "arguments": {"a": "</tool_call>"}}</tool_call>',
      '',
      [['add', '{"a": "</tool_call>"}']],
    ],
    ['a brace too many', `<tool_call>${weather}}</tool_call> ok`, '}ok', [paris]],
    ['the answer cut inside the arguments', '<tool_call>{"name": "add", "arguments": {"a": 1', '', [['add', '{"a": 1']]],
    [
      'a function that was not offered',
      '<tool_call>{"name": "rm", "arguments": {}}</tool_call>',
      '<tool_call>{"name": "rm", "arguments": {}}</tool_call>',
      [],
    ],
    ['no JSON', '<tool_call>hello</tool_call>', '<tool_call>hello</tool_call>', []],
    ['a list of arguments', '<tool_call>{"name": "add", "arguments": [1]}', '<tool_call>{"name": "add", "arguments": [1]}', []],
    ['the answer cut before the arguments', 'A <tool_call>{"name": "add", "argu', 'A <tool_call>{"name": "add", "argu', []],
    [
      'a call behind one that is none',
      `<tool_call>oops</tool_call>\n<tool_call>${weather}</tool_call>`,
      '<tool_call>oops</tool_call>',
      [paris],
    ],
    ['the beginning of a marker', 'a < b, <tool', 'a < b, <tool', []],
    ['plain text', ' Hello  ', ' Hello  ', []],
    ['nothing', '', '', []],
  ],
  mistral: [
    ['a list', `[TOOL_CALLS] [${weather}, {"name": "add", "arguments": ${sum[1]}, "id": "abcdefghi"}]`, '', [paris, sum]],
    ['text before a list', `Well: [TOOL_CALLS][${weather}]`, 'Well:', [paris]],
    ['a name and its arguments', '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}', '', [paris]],
    ['the same twice', `[TOOL_CALLS]get_weather[ARGS]${paris[1]}[TOOL_CALLS]add[ARGS]${sum[1]}`, '', [paris, sum]],
    ['an id between', '[TOOL_CALLS]get_weather[CALL_ID]a1b2c3d4e[ARGS]{"city": "Paris"}', '', [paris]],
    ['no marker between', '[TOOL_CALLS]get_weather{"city": "Paris"}', '', [paris]],
    ['an object alone', `[TOOL_CALLS]${weather}`, '', [paris]],
    ['a function that was not offered', '[TOOL_CALLS]rm[ARGS]{}', '[TOOL_CALLS]rm[ARGS]{}', []],
    ['an empty list', '[TOOL_CALLS] []', '[TOOL_CALLS] []', []],
    ['a list that ends early', `[TOOL_CALLS] [${weather}, `, '', [paris]],
    ['a second one that is none', `[TOOL_CALLS] [${weather}, {"x": 1}] end`, ', {"x": 1}] end', [paris]],
    ['only the marker', 'so [TOOL_CALLS]', 'so [TOOL_CALLS]', []],
    ['brackets in text', 'see [1] and [TOOL', 'see [1] and [TOOL', []],
  ],
  mistral_list: [['a list', `[TOOL_CALLS] [${weather}]`, '', [paris]]],
  granite: [
    ['a list', `<|tool_call|>[${weather}]`, '', [paris]],
    ['plain text', 'x <|tool', 'x <|tool', []],
  ],
  llama3_json: [
    ['one call', '{"name": "get_weather", "parameters": {"city": "Paris"}}', '', [paris]],
    ['behind a marker', '<|python_tag|>{"name": "get_weather", "parameters": {"city": "Paris"}}', '', [paris]],
    ['two calls', `{"name": "get_weather", "parameters": {"city": "Paris"}}; {"name":"add","parameters":${sum[1]}}\n`, '', [paris, sum]],
    ['text before a marker', `Sure. <|python_tag|>${weather}`, 'Sure. ', [paris]],
    ['text before the object', `Sure: ${weather}`, `Sure: ${weather}`, []],
    ['text after the object', `${weather} done`, `${weather} done`, []],
    ['an unfinished object', '{"name": "add", "parameters": {"a": 1', '{"name": "add", "parameters": {"a": 1', []],
    ['arguments that are no JSON', '{"name": "add", "parameters": {"a": oops}}', '{"name": "add", "parameters": {"a": oops}}', []],
    ['no arguments', '{"name": "now"}', '{"name": "now"}', []],
    ['Python behind the marker', '<|python_tag|>import math', '<|python_tag|>import math', []],
  ],
  pythonic: [
    ['one call', '[get_weather(city="Paris")]', '', [paris]],
    [
      'two calls with all kinds of literals',
      " [add(a=-1.5, b=[1, 'x\\'y', True], c={'k': None, \"l\": (1, 2)},), now()]\n",
      '',
      [
        ['add', '{"a": -1.5, "b": [1, "x\'y", true], "c": {"k": null, "l": [1, 2]}}'],
        ['now', '{}'],
      ],
    ],
    ['large numbers', '[add(a=12345678901234567890)]', '', [['add', '{"a": 12345678901234567890}']]],
    ['a function that was not offered', '[rm(a=1)]', '[rm(a=1)]', []],
    ['an expression', '[add(a=1+2)]', '[add(a=1+2)]', []],
    ['a word that is no literal', '[add(a=constructor)]', '[add(a=constructor)]', []],
    ['an argument without a name', '[add(1)]', '[add(1)]', []],
    ['the same argument twice', '[add(a=1, a=2)]', '[add(a=1, a=2)]', []],
    ['text after the list', '[now()] now', '[now()] now', []],
    ['a list of other things', '[1, 2]', '[1, 2]', []],
    ['an unfinished list', '[now()', '[now()', []],
    ['nothing but white space', '  \n', '  \n', []],
  ],
};

for (const [format, list] of Object.entries(cases)) {
  describe(`answers in the format ${format}`, () => {
    for (const [title, answer, content, calls] of list) {
      test(title, () => assert.deepEqual(read({ format }, answer), { content, reasoning: '', calls }));
    }
  });
}

test('with parallel false the first call stays and the others are left out', () => {
  const answer = `Hm. <tool_call>${weather}</tool_call><tool_call>{"name":"add","arguments":{}}</tool_call>`;
  assert.deepEqual(read({ format: 'hermes', parallel: false }, answer), { content: 'Hm.', reasoning: '', calls: [paris] });
});

test('hidden control tokens are read as markers and are never part of the content', () => {
  const hidden = (text: string): string => text.replace(/\[\w+\]|<\|?\/?\w+\|?>/g, (token) => marker(token).unit);
  for (const [format, list] of Object.entries(cases)) {
    for (const [title, answer, content, calls] of list) {
      if (/inside a string|beginning of|in text|plain/.test(title)) continue;
      const expected = { content: hidden(content).replace(/[\udc00-\udfff]/gu, ''), reasoning: '', calls };
      assert.deepEqual(read({ format }, hidden(answer)), expected, `${format}: ${title}`);
    }
  }
});

test('reasoning comes before calls', () => {
  const wish = { format: 'hermes', reasoning: 'think' };
  assert.deepEqual(read(wish, `<think>\nHm.\n</think>\n\n<tool_call>${weather}</tool_call>`), {
    content: '',
    reasoning: '\nHm.\n',
    calls: [paris],
  });
});
