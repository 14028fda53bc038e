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
