/** Prompts that are certain to be too long are cut to what is still too long; whatever might be accepted stays as it is. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { cutTexts } from '../../../rpc/decode/cut-texts.js';

const limits = new Map([
  ['', 10],
  ['big', 1000],
]);
const long = 'x'.repeat(50);

function after(method: string, params: object): unknown {
  const given = structuredClone(params);
  cutTexts(method, given, limits);
  return given;
}

test('a prompt is cut to little more than its model may take', () => {
  assert.deepEqual(after('completions.create', { prompt: long, suffix: long }), { prompt: 'x'.repeat(12), suffix: long });
  assert.deepEqual(after('completions.create', { prompt: ['a', long] }), { prompt: ['a', 'x'.repeat(12)] });
  assert.deepEqual(after('embeddings.create', { input: [long] }), { input: ['x'.repeat(12)] });
  const parts = { messages: [{ role: 'user', content: [{ type: 'text', text: long }] }] };
  assert.deepEqual(after('chat.completions.create', parts), {
    messages: [{ role: 'user', content: [{ type: 'text', text: 'x'.repeat(12) }] }],
  });
});

test('nothing is cut that might be accepted, or is none of a prompt', () => {
  const kept: readonly (readonly [string, object])[] = [
    ['completions.create', { prompt: 'x'.repeat(10) }],
    ['completions.create', { prompt: long, model: 'big' }],
    ['completions.create', { prompt: long, model: 'not loaded' }],
    ['completions.create', { prompt: long, model: 7 }],
    ['completions.create', { prompt: long, truncate_prompt_tokens: 4 }],
    ['completions.create', { prompt: [1, 2, 3] }],
    ['chat.completions.create', { messages: [{ role: 'assistant', content: long }, null, 'x', { role: 'user' }] }],
    ['chat.completions.create', { messages: long }],
    ['tokenize', { prompt: long }],
    ['toString', { prompt: long }],
  ];
  for (const [method, params] of kept) assert.deepEqual(after(method, params), params, `${method} ${JSON.stringify(params)}`);
  for (const params of [null, undefined, [long], 'text', 3]) cutTexts('completions.create', params, limits);
});

test('a text is as much too long as before, trimmed and not', () => {
  const text = fc
    .array(fc.constantFrom(' ', '\n', '\u2003', '\x1c', '\u200b', 'a', 'é', '\u{1f600}'), { maxLength: 80 })
    .map((all) => all.join(''));
  const blanks = '\\s\\x1c-\\x1f\\x85\\u180e\\u200b';
  const pythonBlanks = '\\s\\x1c-\\x1f\\x85';
  fc.assert(
    fc.property(text, (content) => {
      const { messages } = after('chat.completions.create', { messages: [{ role: 'user', content }] }) as {
        messages: [{ content: string }];
      };
      const got = messages[0].content;
      for (const set of ['', '\\s', blanks, pythonBlanks]) {
        const trim = (one: string): string =>
          set === '' ? one : one.replace(new RegExp(`^[${set}]+`, 'u'), '').replace(new RegExp(`[${set}]+$`, 'u'), '');
        if (trim(content).length <= 10) assert.equal(trim(got), trim(content));
        else assert.ok(trim(got).length > 10, `${JSON.stringify(content)} -> ${JSON.stringify(got)}`);
      }
      assert.ok(got.length <= 34);
    }),
  );
});
