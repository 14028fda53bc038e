/** What stands around the form that an answer is held to. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { formatsOf } from '../../../../actors/tokenizer/answer/formats/table.js';
import { answerGrammar } from '../../../../actors/tokenizer/constrain/answer-grammar.js';
import { grammarLimits } from '../../../../actors/tokenizer/constrain/grammar-limits.js';
import { loadConfig } from '../../../../config/load.js';
import { matcherOf } from '../answer/grammar-matcher.js';

const limits = grammarLimits(loadConfig({ env: {} }).config.structured_output);
const constraint = { kind: 'choice', choices: ['yes', 'no'] } as const;

async function matcher(parsers: { toolCalls: string; reasoning: string }): Promise<(text: string) => boolean> {
  const grammar = answerGrammar({ constraint, chat: { tools: {}, style: { ...formatsOf('', parsers), opened: false } } }, limits);
  assert.ok(grammar?.markers);
  return matcherOf(grammar.text);
}

test('a form comes in the final channel of an answer in channels, reasoning before it', async () => {
  const matches = await matcher({ toolCalls: 'harmony', reasoning: 'think' });
  const thought = '<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant';
  for (const right of ['<|channel|>final<|message|>yes', `${thought}<|channel|>final<|message|>no`]) assert.ok(matches(right), right);
  for (const wrong of ['yes', '<think>x</think>yes', `${thought}yes`, '<|channel|>final<|message|>perhaps'])
    assert.ok(!matches(wrong), wrong);
});

test('it comes behind reasoning that is marked, or at once', async () => {
  const matches = await matcher({ toolCalls: 'hermes', reasoning: 'think' });
  for (const right of ['yes', '<think>Hm.</think>\n\nno']) assert.ok(matches(right), right);
  for (const wrong of ['<think>Hm.', '<|channel|>final<|message|>yes']) assert.ok(!matches(wrong), wrong);
});

test('the arguments of a forced call are an object, whatever else the parameters of the tool would allow', async () => {
  const style = { ...formatsOf('', { toolCalls: 'hermes', reasoning: 'none' }), opened: false };
  const forced = (parameters: object): string | undefined => {
    const tools = { tools: [{ type: 'function', function: { name: 'ping', parameters } }], toolChoice: 'required' } as const;
    return answerGrammar({ constraint: null, chat: { tools, style } }, limits)?.text;
  };
  for (const parameters of [
    {},
    { type: ['object', 'null'] },
    { anyOf: [{ type: 'object' }, { type: 'string' }], allOf: [{ description: 'x' }] },
    { $ref: '#/$defs/any', $defs: { any: {} } },
  ]) {
    const matches = await matcherOf(forced(parameters) ?? '', true);
    const call = (args: string): string => `<tool_call>{"name": "ping", "arguments": ${args}}</tool_call>`;
    for (const right of ['{}', '{"a": [1]}']) assert.ok(matches(call(right)), `${JSON.stringify(parameters)}: ${right}`);
    for (const wrong of ['null', '"x"', '1', '[]']) assert.ok(!matches(call(wrong)), `${JSON.stringify(parameters)}: ${wrong}`);
  }
  assert.throws(() => forced({ type: 'string' }), /no value/);
});
