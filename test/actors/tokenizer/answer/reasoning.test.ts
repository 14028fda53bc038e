import assert from 'node:assert/strict';
import { test } from 'node:test';
import { newReader, read } from './reading.js';

const think = (text: string, opened = false) => {
  const { reasoning, content } = read({ reasoning: 'think', opened }, text);
  return [reasoning, content];
};

test('reasoning at the beginning of an answer is cut off, with the text as it is', () => {
  assert.deepEqual(think('<think>\nHm.\n</think>\n\nParis.'), ['\nHm.\n', '\n\nParis.']);
  assert.deepEqual(think(' \n<think>a</think>b'), ['a', 'b']);
  assert.deepEqual(think('<think></think>b'), ['', 'b']);
});

test('an answer that does not begin with reasoning is content, markers and all', () => {
  assert.deepEqual(think('Paris. <think>no</think>'), ['', 'Paris. <think>no</think>']);
  assert.deepEqual(think('  Paris'), ['', '  Paris']);
  assert.deepEqual(think('<thin'), ['', '<thin']);
  assert.deepEqual(think('</think>x'), ['', '</think>x']);
});

test('what a template opened in the prompt goes on until the end marker; the model may open it again', () => {
  assert.deepEqual(think('Hm.</think>Paris', true), ['Hm.', 'Paris']);
  assert.deepEqual(think('<think>\nHm.</think>Paris', true), ['\nHm.', 'Paris']);
  assert.deepEqual(think('a < b </thin', true), ['a < b </thin', '']);
});

test('reasoning that is cut off has no answer', () => {
  assert.deepEqual(think('<think>on and on </th'), ['on and on </th', '']);
});

test('only the first end marker ends it', () => {
  assert.deepEqual(think('<think>a</think>b</think>c'), ['a', 'b</think>c']);
});

test('Mistral marks with brackets', () => {
  const { reasoning, content } = read({ reasoning: 'mistral' }, '[THINK]a[/THINK]b');
  assert.deepEqual([reasoning, content], ['a', 'b']);
});

test('the reader tells whether it is inside the reasoning, for those who count tokens', () => {
  const reader = newReader({ reasoning: 'think' });
  const states = ['<think>', 'a', 'b', '</think>', 'c'].map((text) => {
    reader.push(text);
    return reader.reasons;
  });
  assert.deepEqual(states, [true, true, true, false, false]);
  assert.equal(newReader({ reasoning: 'think', opened: true }).reasons, true);
  assert.equal(newReader({ format: 'hermes' }).reasons, null);
});
