/** Answers of gpt-oss: messages in channels. What all formats share is in call-formats.test.ts and pieces.test.ts. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { harmony } from '../../../../actors/tokenizer/answer/formats/harmony.js';
import { oneCallEach } from '../../../../actors/tokenizer/answer/formats/harmony-messages.js';
import { marker } from '../../../../actors/tokenizer/answer/marker.js';
import { cutAt, cuts, newReader, type Read, read, readPieces } from './reading.js';

const wish = { format: 'harmony' };
const hidden = (text: string): string => text.replace(/<\|\w+\|>/g, (token) => marker(token).unit);
const nothing: Read = { content: '', reasoning: '', calls: [] };
const thought = '<|channel|>analysis<|message|>User asks.<|end|>';

const cases: readonly (readonly [title: string, answer: string, expected: Partial<Read>])[] = [
  [
    'reasoning and an answer',
    `${thought}<|start|>assistant<|channel|>final<|message|>Paris.<|return|>`,
    { reasoning: 'User asks.', content: 'Paris.' },
  ],
  ['an answer alone', '<|channel|>final<|message|>Paris.', { content: 'Paris.' }],
  [
    'a call with the function behind the channel',
    `${thought}<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris"}<|call|>`,
    { reasoning: 'User asks.', calls: [['get_weather', '{"city": "Paris"}']] },
  ],
  [
    'a call with the function behind the role, which the prompt ends with',
    ' to=functions.add<|channel|>commentary json<|message|>{"a":1}',
    { calls: [['add', '{"a":1}']] },
  ],
  ['a call in another channel', '<|channel|>analysis to=functions.now<|message|>{}<|call|>', { calls: [['now', '{}']] }],
  ['a call without arguments', '<|channel|>commentary to=functions.now<|message|><|call|>', { calls: [['now', '{}']] }],
  [
    'text for the user before a call',
    '<|channel|>commentary<|message|>Let me look.<|end|><|start|>assistant<|channel|>commentary to=functions.now<|message|>{}<|call|>',
    { content: 'Let me look.', calls: [['now', '{}']] },
  ],
  [
    'several messages of one kind',
    '<|channel|>commentary<|message|>One.<|end|>\n<|start|>assistant<|channel|>final<|message|>Two.<|end|>',
    { content: 'One.\nTwo.' },
  ],
  [
    'a function that was not offered',
    '<|channel|>commentary to=functions.rm <|constrain|>json<|message|>{"a":1}<|call|>',
    { content: '{"a":1}' },
  ],
  ['reasoning that is cut off', '<|channel|>analysis<|message|>on and on <|en', { reasoning: 'on and on <|en' }],
  ['a header that is cut off behind a message', `${thought}<|start|>assistant<|chan`, { reasoning: 'User asks.' }],
  [
    'a message without an end before the next',
    '<|channel|>analysis<|message|>a<|start|>assistant<|channel|>final<|message|>b',
    { reasoning: 'a', content: 'b' },
  ],
  ['no header', 'Paris <|end', { content: 'Paris <|end' }],
  ['what looks like a header at first', ' to be', { content: ' to be' }],
  ['nothing', '', {}],
];

describe('answers in the format harmony', () => {
  for (const [title, answer, expected] of cases) {
    test(title, () => {
      assert.deepEqual(read(wish, answer), { ...nothing, ...expected });
      const whole = read(wish, hidden(answer));
      assert.deepEqual(whole, { ...nothing, ...expected }, 'with control tokens that clients do not see');
      assert.deepEqual(readPieces(wish, [...hidden(answer)]), whole, 'character by character');
    });
  }

  test('a header without an end is content, and its wait has a limit', () => {
    const reader = newReader(wish);
    reader.push(`<|channel|>${'x'.repeat(600)}`);
    assert.equal(reader.take().content.length, 611);
  });

  test('any parts are read the same in any pieces', () => {
    const parts = fc.constantFrom(
      ...['<|start|>', '<|channel|>', '<|message|>', '<|end|>', '<|call|>', '<|return|>', '<|constrain|>'].flatMap((m) => [m, hidden(m)]),
      ...['analysis', 'final', 'commentary', ' to=functions.add', 'assistant', '{"a":1}', ' ', '\n', 'Hi <', '<|', '|>', 'é😀'],
    );
    fc.assert(
      fc.property(fc.array(parts, { maxLength: 14 }), cuts, (texts, at) => {
        const text = texts.join('');
        const whole = read(wish, text);
        assert.deepEqual(readPieces(wish, cutAt(text, at)), whole);
        assert.deepEqual(readPieces(wish, [...text]), whole);
      }),
      { numRuns: 1000 },
    );
  });

  test('tokens of reasoning can be counted, and content comes as it is read', () => {
    const reader = newReader(wish);
    const seen = ['<|channel|>', 'analysis', '<|message|>', 'a', '<|end|>', '<|start|>assistant<|channel|>final<|message|>', 'b'].map(
      (text) => {
        reader.push(hidden(text));
        const { content, reasoning } = reader.take();
        return [reader.reasons, reasoning, content];
      },
    );
    assert.deepEqual(seen.slice(2), [
      [true, '', ''],
      [true, 'a', ''],
      [false, '', ''],
      [false, '', ''],
      [false, '', 'b'],
    ]);
  });

  test('it is found from the template, and ends with the tokens that only this format knows', () => {
    assert.ok(harmony.fits(`{{- "<|start|>assistant<|channel|>final<|message|>" + message.content }}`));
    assert.ok(!harmony.fits('<|start_header_id|>assistant<|message|>'));
    assert.deepEqual(
      harmony.channels?.ends.map(({ text }) => text),
      ['<|return|>', '<|call|>'],
    );
  });
});

describe('earlier messages for the template of gpt-oss', () => {
  const call = (id: string) => ({ id, type: 'function', function: { name: 'add', arguments: '{}' } });
  const result = (id: string) => ({ role: 'tool', content: `of ${id}`, tool_call_id: id });

  test('each call is in a message of its own, with its result behind it', () => {
    const user = { role: 'user', content: 'x' };
    const answer = { role: 'assistant', content: 'done' };
    const both = { role: 'assistant', content: null, reasoning_content: 'Hm.', tool_calls: [call('a'), call('b')] };
    assert.deepEqual(oneCallEach([user, both, result('b'), result('a'), answer]), [
      user,
      { role: 'assistant', thinking: 'Hm.', tool_calls: [call('a')] },
      result('a'),
      { role: 'assistant', tool_calls: [call('b')] },
      result('b'),
      answer,
    ]);
  });

  test('content stays before a call, in place of reasoning, and null is left out', () => {
    const one = (extra: object) => oneCallEach([{ role: 'assistant', content: null, tool_calls: [call('a')], ...extra }, result('other')]);
    assert.deepEqual(one({}), [{ role: 'assistant', tool_calls: [call('a')] }, result('other')]);
    assert.deepEqual(one({ content: 'y', reasoning_content: 'z' })[0], { role: 'assistant', content: 'y', tool_calls: [call('a')] });
  });
});
