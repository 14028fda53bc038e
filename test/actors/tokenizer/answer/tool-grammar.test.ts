import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { withoutMarker } from '../../../../actors/tokenizer/answer/avoid-marker.js';
import { callFormatOf, callFormats, reasoningFormatOf } from '../../../../actors/tokenizer/answer/formats/table.js';
import { constrainsCalls, toolConstraint } from '../../../../actors/tokenizer/answer/tool-constraint.js';
import { type ToolGrammarOptions, toolGrammar } from '../../../../actors/tokenizer/answer/tool-grammar.js';
import { matcherOf } from './grammar-matcher.js';
import { read } from './reading.js';

/** Stands in for the grammar of JSON Schema: `{x: number}` where there are properties, else any object of letters and digits. */
const schemaGrammar: ToolGrammarOptions['schemaGrammar'] = (schema, root) =>
  (schema as { properties?: unknown }).properties === undefined
    ? `${root} ::= "{" [a-z0-9": ,]* "}"`
    : `${root} ::= "{\\"x\\": " ${root}-number "}"\n${root}-number ::= [0-9]+`;

const parameters = { type: 'object', properties: { x: { type: 'integer' } } };
const tools = [
  { name: 'add', parameters, strict: true },
  { name: 'get_weather', parameters, strict: false },
];

function grammar(format: string, changes: Partial<ToolGrammarOptions> = {}): string | null {
  const found = callFormatOf('', format);
  assert.ok(found);
  return toolGrammar({ format: found, tools, choice: 'required', parallel: true, reasoning: null, schemaGrammar, ...changes });
}

async function matcher(format: string, changes: Partial<ToolGrammarOptions> = {}): Promise<(text: string) => boolean> {
  const text = grammar(format, changes);
  assert.ok(text !== null);
  return matcherOf(text);
}

/** A call of each format, and several. */
const written: Readonly<
  Record<string, { readonly one: (name: string, args: string) => string; readonly many: (calls: string[]) => string }>
> = {
  hermes: {
    one: (name, args) => `<tool_call>\n{"name": "${name}", "arguments": ${args}}\n</tool_call>`,
    many: (calls) => calls.join('\n'),
  },
  mistral: { one: (name, args) => `[TOOL_CALLS]${name}[ARGS]${args}`, many: (calls) => calls.join('') },
  mistral_list: { one: (name, args) => `{"name": "${name}", "arguments": ${args}}`, many: (calls) => `[TOOL_CALLS] [${calls.join(', ')}]` },
  granite: { one: (name, args) => `{"name": "${name}", "arguments": ${args}}`, many: (calls) => `<|tool_call|>[${calls.join(', ')}]` },
  llama3_json: { one: (name, args) => `{"name": "${name}", "parameters": ${args}}`, many: (calls) => calls.join('; ') },
};
const fits = '{"x": 12}';
const misfits = '{"y": "z"}';

for (const [format, { one, many }] of Object.entries(written)) {
  describe(`the grammar of calls in the format ${format}`, () => {
    test('forces a call of some tool, with arguments that fit', async () => {
      const matches = await matcher(format);
      assert.ok(matches(many([one('add', fits)])));
      assert.ok(matches(many([one('add', fits), one('get_weather', fits)])));
      for (const wrong of ['', 'Hello', many([one('add', misfits)]), many([one('rm', fits)]), `Hi ${many([one('add', fits)])}`])
        assert.ok(!matches(wrong), wrong);
    });

    test('forces one call where there may be no second', async () => {
      const matches = await matcher(format, { parallel: false });
      assert.ok(matches(many([one('add', fits)])));
      assert.ok(!matches(many([one('add', fits), one('add', fits)])));
    });

    test('forces one call of one tool by its name', async () => {
      const matches = await matcher(format, { choice: { name: 'get_weather' } });
      assert.ok(matches(many([one('get_weather', fits)])));
      assert.ok(!matches(many([one('add', fits)])));
      assert.ok(!matches(many([one('get_weather', fits), one('get_weather', fits)])));
    });

    test('with auto lets text and calls pass, and holds strict tools to their schemas', async () => {
      const matches = await matcher(format, { choice: 'auto' });
      for (const right of ['', 'Hello <b> [x] there', many([one('add', fits)]), many([one('get_weather', misfits), one('add', fits)])])
        assert.ok(matches(right), right);
      assert.ok(!matches(many([one('add', misfits)])));
      assert.ok(!matches(many([one('get_weather', misfits), one('add', misfits)])));
      const { shape } = callFormatOf('', format) ?? {};
      if (shape?.marker) {
        assert.ok(matches(`Well. ${many([one('add', fits)])} So`));
        assert.ok(!matches(`Well. ${many([one('add', misfits)])}`));
        assert.ok(!matches(`text ${shape.marker.text} text`));
      } else assert.ok(!matches('{"anything": "else"}'));
    });

    test('what it matches is read as calls', () => {
      const answer = many([one('add', fits), one('get_weather', fits)]);
      assert.deepEqual(read({ format, names: ['add', 'get_weather'] }, answer), {
        content: '',
        reasoning: '',
        calls: [
          ['add', fits],
          ['get_weather', fits],
        ],
      });
    });
  });
}

test('only forced calls and strict tools constrain a prompt', () => {
  const offered = (strict: boolean) => [{ type: 'function', function: { name: 'add', parameters, strict } }];
  assert.equal(constrainsCalls({}), false);
  assert.equal(constrainsCalls({ tools: [], toolChoice: 'required' }), false);
  assert.equal(constrainsCalls({ tools: offered(false) }), false);
  assert.equal(constrainsCalls({ tools: offered(true) }), true);
  assert.equal(constrainsCalls({ tools: offered(false), toolChoice: 'required' }), true);
});

test('auto without a strict tool constrains nothing', () => {
  assert.equal(grammar('hermes', { choice: 'auto', tools: tools.filter((tool) => !tool.strict) }), null);
});

test('reasoning may come first, and must where the prompt has opened it', async () => {
  const format = reasoningFormatOf('', 'think');
  assert.ok(format);
  const call = '{"name": "add", "parameters": {"x": 1}}';
  const closed = await matcher('llama3_json', { reasoning: { format, opened: false } });
  const opened = await matcher('llama3_json', { reasoning: { format, opened: true } });
  for (const [answer, whenClosed, whenOpened] of [
    [call, true, false],
    [`<think>\nHm. <b>\n</think>\n\n${call}`, true, true],
    [`Hm.</think>${call}`, false, true],
    [`<think>Hm.${call}`, false, false],
  ] as const)
    assert.deepEqual([closed(answer), opened(answer)], [whenClosed, whenOpened], answer);
});

test('calls that are not JSON cannot be constrained, nor tools that are not there', () => {
  assert.throws(() => grammar('pythonic'), /pythonic cannot be constrained/);
  assert.throws(() => grammar('hermes', { choice: { name: 'rm' } }), /no such tool/);
  assert.throws(() => grammar('hermes', { tools: [] }), /no such tool/);
});

test('a prompt with its tools and its choice gives the grammar', async () => {
  const reasoning = reasoningFormatOf('', 'think');
  const calls = callFormatOf('', 'hermes');
  const format = { calls, reasoning, units: new Map<number, string>() };
  const tool = (name: string, strict: boolean | null) => ({ type: 'function', function: { name, parameters, strict } });
  const prompt = { kind: 'chat', messages: [], addGenerationPrompt: true, tools: [tool('add', null)] } as const;
  const of = (changes: object, wanted = format) => toolConstraint({ ...prompt, ...changes }, wanted, true, schemaGrammar);
  assert.equal(of({}), null);
  assert.equal(of({ tools: [], toolChoice: 'required' }), null);
  const call = '<tool_call>{"name": "add", "arguments": {"x": 1}}</tool_call>';
  const required = await matcherOf(of({ toolChoice: 'required' }) ?? '');
  assert.deepEqual([required(`Hm.</think>${call}`), required(`Hm.</think>${call}${call}`)], [true, true]);
  const single = await matcherOf(of({ toolChoice: { name: 'add' }, parallelToolCalls: false }) ?? '');
  assert.deepEqual([single(`</think>${call}`), single(`</think>${call}${call}`), single('</think>no')], [true, false, false]);
  const strict = await matcherOf(of({ tools: [tool('add', true)] }) ?? '');
  assert.deepEqual([strict(`</think>ok ${call}`), strict(`</think>${call.replace('1', '"y"')}`)], [true, false]);
  assert.throws(() => of({ toolChoice: 'required' }, { ...format, calls: null }), /tool_call_parser = "none"/);
});

test('text without a marker is exactly what the expression for it matches', async () => {
  const markers = [...callFormats.flatMap((one) => one.markers.map(({ text }) => text)), '</think>', '[/THINK]'];
  for (const one of new Set(markers)) {
    const matches = await matcherOf(`root ::= ${withoutMarker(one)}`);
    const part = fc.oneof(
      fc.nat(one.length).map((length) => one.slice(0, length)),
      fc.constantFrom(...one, 'x', '\n', '😀'),
      { weight: 1, arbitrary: fc.constant(one) },
    );
    fc.assert(
      fc.property(fc.array(part, { maxLength: 6 }), (parts) => {
        const text = parts.join('');
        assert.equal(matches(text), !text.includes(one), text);
      }),
      { numRuns: 300 },
    );
  }
  assert.throws(() => withoutMarker('<<x>'), /begin in one place/);
});

describe('the grammar of answers in channels', () => {
  const call = (name: string, args: string): string => `<|channel|>commentary to=functions.${name} <|constrain|>json<|message|>${args}`;
  const thought = '<|channel|>analysis<|message|>a < b <|e<|end|><|start|>assistant';

  test('forces one call, behind reasoning or at once', async () => {
    const matches = await matcher('harmony');
    for (const right of [call('add', fits), thought + call('get_weather', fits)]) assert.ok(matches(right), right);
    const wrong = [
      '',
      thought,
      call('add', misfits),
      call('rm', fits),
      call('add', fits) + call('add', fits),
      '<|channel|>final<|message|>Hi',
    ];
    for (const text of wrong) assert.ok(!matches(text), text);
    assert.deepEqual(read({ format: 'harmony' }, thought + call('add', fits)).calls, [['add', fits]]);
  });

  test('with auto lets a final answer pass, and holds strict tools to their schemas', async () => {
    const matches = await matcher('harmony', { choice: 'auto' });
    for (const right of ['<|channel|>final<|message|>Hi <b>', `${thought}<|channel|>final<|message|>`, call('get_weather', misfits)])
      assert.ok(matches(right), right);
    for (const text of [call('add', misfits), 'Hi']) assert.ok(!matches(text), text);
  });
});
