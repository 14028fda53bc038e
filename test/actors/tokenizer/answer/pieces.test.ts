/** However an answer is cut into pieces, what is read of it is the same. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { marker } from '../../../../actors/tokenizer/answer/marker.js';
import { cutAt, cuts, formatNames, newReader, read, readPieces } from './reading.js';

/** Parts of which answers are made: whole calls, their parts, markers as text and as hidden tokens, and what looks like them. */
const part = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.constantFrom(
      '{"name": "add", "arguments": {"a": 1}}',
      '{"name": "get_weather", "parameters": {"city": "Zürich 😀", "l": [1, {"x": "]}"}]}}',
      '{"arguments": {"a": "\\"}"}, "name": "add"}',
      '{"name": "add", "arguments": "{\\"a\\": 1}"}',
      '{"name": "rm", "arguments": {}}',
      '{"name": "now"}',
      '{"name": "add", "arguments": {',
      'get_weather[ARGS]{"city": "X"}',
      'add[CALL_ID]abcdefghi[ARGS]{}',
      '[add(a=1, b="x"), now()]',
      '[add(',
    ),
  },
  {
    weight: 4,
    arbitrary: fc.constantFrom(
      '<tool_call>',
      '</tool_call>',
      '[TOOL_CALLS]',
      '[ARGS]',
      '<|python_tag|>',
      '<|tool_call|>',
      '<think>',
      '</think>',
    ),
  },
  {
    weight: 2,
    arbitrary: fc
      .constantFrom('<tool_call>', '</tool_call>', '[TOOL_CALLS]', '[ARGS]', '<|python_tag|>', '<think>', '</think>')
      .map((text) => marker(text).unit),
  },
  {
    weight: 3,
    arbitrary: fc.constantFrom(
      '[',
      ']',
      '{',
      '}',
      ',',
      ';',
      '"',
      '\\',
      ' ',
      '\n',
      ' '.repeat(80),
      '<',
      '</',
      '<tool',
      '[TOOL',
      'name',
      ': ',
    ),
  },
  fc.string({ unit: 'grapheme', maxLength: 5 }),
  // Characters whose second half looks like a hidden token.
  fc.constantFrom('\u{1f400}', '\u{1f801}', '\u{1f405}'),
);
const answer = fc.array(part, { maxLength: 10 }).map((parts) => parts.join(''));

for (const format of formatNames) {
  test(`answers in the format ${format} are read the same in any pieces`, () => {
    fc.assert(
      fc.property(answer, cuts, fc.boolean(), fc.boolean(), (text, at, opened, parallel) => {
        const wish = { format, reasoning: 'think', opened, parallel };
        const whole = read(wish, text);
        assert.deepEqual(readPieces(wish, cutAt(text, at)), whole);
        assert.deepEqual(readPieces(wish, [...text]), whole);
      }),
      { numRuns: 400 },
    );
  });

  test(`in the format ${format} nothing is lost but markers of calls and white space beside them`, () => {
    const spaceless = (text: string): string => text.replace(/\s/g, '');
    fc.assert(
      fc.property(answer, (text) => {
        const { content, calls } = read({ format }, text);
        if (calls.length === 0) assert.equal(spaceless(content), spaceless(text.replace(/[\udc00-\udfff]/gu, '')));
      }),
      { numRuns: 400 },
    );
  });
}

test('text is told as soon as it can be no call, and arguments as they come', () => {
  const steps = (format: string, pieces: readonly string[]): string[] => {
    const reader = newReader({ format });
    return pieces.map((piece) => {
      reader.push(piece);
      const { content, calls } = reader.take();
      return content + calls.map((call) => `${call.name ?? ''}(${call.arguments}`).join('');
    });
  };
  assert.deepEqual(steps('llama3_json', ['{', 'x', ' more']), ['', '{x', ' more']);
  assert.deepEqual(steps('hermes', ['Hi', ' you', ' <tool', 's>']), ['Hi', ' you', '', ' <tools>']);
  assert.deepEqual(steps('hermes', ['<tool_call>', '{"name": "add"', ', "arguments": {', '"a": ', '1}', '}', '</tool_call>']), [
    '',
    '',
    'add({',
    '("a": ',
    '(1}',
    '',
    '',
  ]);
  assert.deepEqual(steps('mistral', ['[TOOL_CALLS]', 'add', '[ARGS]', '{"a"', ': 1}', ' and']), ['', '', '', 'add({"a"', '(: 1}', 'and']);
});

test('a long run of white space, an answer of one kind of character and a deep object are read in time that grows with their length', () => {
  const many = 200_000;
  for (const format of formatNames) {
    for (const text of [' ', '<', '[', '{', '"', '\\', 'a', '[TOOL_CALLS]', '<tool_call>{']) {
      const reader = newReader({ format, reasoning: 'think' });
      for (let i = 0; i < many / text.length; i++) {
        reader.push(text);
        reader.take();
      }
      reader.end();
    }
  }
});
