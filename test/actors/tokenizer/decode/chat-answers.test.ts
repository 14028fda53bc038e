/** Answers to chat prompts, token by token through a real tokenizer: calls, reasoning, and control tokens that mark them. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { FINISH, type GenerationParams, type PromptInput } from '../../../../actors/messages/requests.js';
import { demoModel, demoPath, Harness, id, writeModel } from '../harness.js';

const PYTHON_TAG = 4094;
const EOS = 4092;
const tools = [{ type: 'function', function: { name: 'add', parameters: { type: 'object', properties: { a: {} } } } }];

type Chat = Extract<PromptInput, { kind: 'chat' }>;

/** A tokenizer of the demo model with another chat template. */
function withTemplate(template: string): Promise<Harness> {
  const folder = writeModel({
    'tokenizer.json': readFileSync(join(demoPath, 'tokenizer.json'), 'utf8'),
    'tokenizer_config.json': { chat_template: template },
  });
  return Harness.start({ ...demoModel, path: folder });
}

async function admit(harness: Harness, n: number, chat: Partial<Chat>, values: Partial<GenerationParams> = {}): Promise<void> {
  harness.submit(n, { kind: 'chat', messages: [{ role: 'user', content: 'Hi' }], addGenerationPrompt: true, ...chat }, values);
  await harness.until(() => harness.scheduler.some((m) => m.k === 'admit' && m.id === id(n)));
}

const idsOf = (harness: Harness, text: string): Promise<number[]> => harness.encode({ kind: 'text', text, addSpecialTokens: false });

/** Plays the model: one token a step, the last with the end. */
function play(harness: Harness, n: number, ids: readonly number[], index = 0): void {
  for (const token of ids) harness.step([[n, token, FINISH.none, index]]);
  harness.step([[n, EOS, FINISH.eos, index]]);
}

function answer(harness: Harness, n: number, index = 0) {
  const deltas = harness.deltas(n, index);
  const calls = deltas.flatMap((delta) => delta.calls ?? []);
  return {
    text: deltas.map((delta) => delta.text).join(''),
    reasoning: deltas.map((delta) => delta.reasoning ?? '').join(''),
    names: calls.flatMap((call) => call.name ?? []),
    args: calls.map((call) => call.arguments).join(''),
    tokens: deltas.flatMap((delta) => delta.tokens),
    reasoningTokens: deltas.reduce((sum, delta) => sum + (delta.reasoningTokens ?? 0), 0),
  };
}

test('a marker that is a control token reaches the reader and not the text, and every token is told', async () => {
  const harness = await withTemplate('{{ messages[0].content }}<|python_tag|>');
  const call = await idsOf(harness, '{"name": "add", "parameters": {"a": "é😀"}}');
  const text = await idsOf(harness, 'Wait.');
  await admit(harness, 1, { tools });
  const ids = [...text, PYTHON_TAG, ...call];
  play(harness, 1, ids);
  const read = answer(harness, 1);
  assert.deepEqual([read.text, read.names, read.args], ['Wait.', ['add'], '{"a": "é😀"}']);
  assert.deepEqual(read.tokens, [...ids, EOS]);
  // Behind it stands no call: the text is the answer's, the marker is not.
  await admit(harness, 2, { tools });
  play(harness, 2, [...text, PYTHON_TAG, ...text]);
  assert.equal(answer(harness, 2).text, 'Wait.Wait.');
});

test('with skip_special_tokens off the marker of what is no call is text, as all control tokens are', async () => {
  const harness = await withTemplate('{{ messages[0].content }}');
  const text = await idsOf(harness, 'Wait.');
  await admit(harness, 1, { tools }, { skipSpecialTokens: false });
  play(harness, 1, [PYTHON_TAG, ...text]);
  assert.equal(answer(harness, 1).text, '<|python_tag|>Wait.<|eot_id|>');
  const call = await idsOf(harness, '{"name": "add", "parameters": {}}');
  await admit(harness, 2, { tools }, { skipSpecialTokens: false });
  play(harness, 2, [PYTHON_TAG, ...call]);
  assert.deepEqual([answer(harness, 2).names, answer(harness, 2).text], [['add'], '<|eot_id|>']);
});

test('a hidden marker completes no stop string, and breaks one off', async () => {
  const harness = await withTemplate('{{ messages[0].content }}');
  const [a, b] = [await idsOf(harness, 'ab'), await idsOf(harness, 'cd')];
  await admit(harness, 1, { tools }, { stop: ['python', 'bc'] });
  play(harness, 1, [...a, PYTHON_TAG, ...b]);
  assert.equal(answer(harness, 1).text, 'abcd');
});

test('tokens of text that is held back are told at once, so that their times are known', async () => {
  const harness = await withTemplate('{{ messages[0].content }}');
  const call = await idsOf(harness, '{"name": "add", "parameters": {"a": 1}}');
  await admit(harness, 1, { tools });
  harness.step([[1, call[0] ?? 0]]);
  assert.deepEqual(
    harness.deltas(1).map(({ text, tokens }) => [text, tokens]),
    [['', call.slice(0, 1)]],
  );
});

test('without tools, and in text completions, nothing is a call', async () => {
  const harness = await withTemplate('{{ messages[0].content }}');
  const text = '{"name": "add", "parameters": {}}';
  const call = await idsOf(harness, text);
  await admit(harness, 1, {});
  play(harness, 1, call);
  assert.deepEqual([answer(harness, 1).text, answer(harness, 1).names], [text, []]);
  await harness.admit(2);
  play(harness, 2, call);
  assert.equal(answer(harness, 2).text, text);
});

const thinking = `{{ messages[0].content }}{% if '</think>' in 'x' %}{% endif %}{% if open %}<think>\n{% endif %}{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}`;

test('reasoning is told apart and counted, in each sequence', async () => {
  const harness = await withTemplate(thinking);
  const [start, body, end, rest] = [
    await idsOf(harness, '<think>'),
    await idsOf(harness, 'Hm, so.'),
    await idsOf(harness, '</think>'),
    await idsOf(harness, '\n\nParis.'),
  ];
  await admit(harness, 1, {}, { n: 2, bestOf: 2 });
  play(harness, 1, [...start, ...body, ...end, ...rest]);
  play(harness, 1, rest, 1);
  const first = answer(harness, 1);
  assert.deepEqual([first.reasoning, first.text], ['Hm, so.', '\n\nParis.']);
  // The markers take several tokens here: only their last one is not counted.
  assert.ok(first.reasoningTokens >= body.length && first.reasoningTokens < start.length + body.length + end.length);
  assert.deepEqual([answer(harness, 1, 1).text, answer(harness, 1, 1).reasoningTokens], ['\n\nParis.', 0]);
});

test('a template that opens the reasoning in the prompt is noticed, and one that closes it too', async () => {
  const harness = await withTemplate(thinking);
  const ids = await idsOf(harness, 'Hm.</think>Paris.');
  await admit(harness, 1, { templateArgs: { open: true } });
  play(harness, 1, ids);
  assert.deepEqual([answer(harness, 1).reasoning, answer(harness, 1).text], ['Hm.', 'Paris.']);
  await admit(harness, 2, { templateArgs: { enable_thinking: false } });
  play(harness, 2, ids);
  assert.deepEqual([answer(harness, 2).reasoning, answer(harness, 2).text], ['', 'Hm.</think>Paris.']);
});

test('a stop string ends a call where it stands', async () => {
  const harness = await withTemplate('{{ messages[0].content }}<tool_call>');
  const ids = await idsOf(harness, '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call> STOP here');
  await admit(harness, 1, { tools }, { stop: ['STOP'] });
  for (const token of ids) harness.step([[1, token]]);
  const read = answer(harness, 1);
  assert.deepEqual([read.text, read.names, read.args], ['', ['add'], '{"a": 1}']);
  assert.equal(harness.deltas(1).at(-1)?.stopReason, 'STOP');
});

test('an answer that goes on after a restart of the engine is read on', async () => {
  const harness = await withTemplate('{{ messages[0].content }}<tool_call>');
  const ids = await idsOf(harness, '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>');
  await admit(harness, 1, { tools });
  for (const token of ids.slice(0, 9)) harness.step([[1, token]]);
  harness.restartEngine();
  play(harness, 1, ids.slice(9));
  assert.deepEqual([answer(harness, 1).names, answer(harness, 1).args], [['add'], '{"a": 1}']);
});
