/** Prompts that are certain to be refused are cut to what still is; whatever might be accepted stays as it is. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { nextCut } from '../../../actors/messages/text-cuts.js';
import { cutTexts, type TextLimits } from '../../../rpc/decode/cut-texts.js';

const stretch = {
  bytes: 20,
  units: 0,
  controlStarts: '<',
  longestControl: 5,
  failure: { kind: 'invalid_params', message: 'too long' },
} as const;
const limits: TextLimits = new Map([
  ['', { chars: 10, stretch }],
  ['big', { chars: 1000, stretch }],
  ['unknown', { chars: Number.POSITIVE_INFINITY, stretch: null }],
  ['stretch only', { chars: Number.POSITIVE_INFINITY, stretch }],
]);
const long = 'x'.repeat(50);

function after(method: string, params: object): unknown {
  const given = structuredClone(params);
  cutTexts(method, given, limits);
  return given;
}

test('a prompt is cut to little more than its model may take', () => {
  assert.deepEqual(after('completions.create', { prompt: long, suffix: long }), { prompt: 'x'.repeat(11), suffix: long });
  assert.deepEqual(after('completions.create', { prompt: ['a', long] }), { prompt: ['a', 'x'.repeat(11)] });
  assert.deepEqual(after('embeddings.create', { input: [long] }), { input: ['x'.repeat(11)] });
  const parts = { messages: [{ role: 'user', content: [{ type: 'text', text: long }] }] };
  assert.deepEqual(after('chat.completions.create', parts), {
    messages: [{ role: 'user', content: [{ type: 'text', text: 'x'.repeat(13) }] }],
  });
});

test('a text of any length is cut to the stretch in it that its tokenizer cannot take', () => {
  const text = `${'ab '.repeat(30)}${long}`;
  const cut = ` ${'x'.repeat(20)}`;
  const { content } = (after('tokenize', { messages: [{ role: 'user', content: text }] }) as { messages: [{ content: string }] })
    .messages[0];
  assert.equal(content, `a${cut}x`);
  assert.deepEqual(after('completions.create', { prompt: text, truncate_prompt_tokens: 4 }), { prompt: cut, truncate_prompt_tokens: 4 });
  assert.deepEqual(after('completions.create', { prompt: text, model: 'stretch only' }), { prompt: cut, model: 'stretch only' });
});

test('a raw text that only the tokenizer refuses goes no further, and what it is refused with is told', () => {
  for (const name of ['text', 'prompt']) {
    const params = { [name]: 'x'.repeat(5000) };
    assert.deepEqual(cutTexts('tokenize', params, limits), stretch.failure);
    assert.deepEqual(params, { [name]: 'x'.repeat(21) });
  }
  assert.equal(cutTexts('tokenize', { text: 'x'.repeat(20) }, limits), null);
  assert.equal(cutTexts('completions.create', { prompt: long }, limits), null);
});

test('texts are found in the bodies of all faces', () => {
  const texts: readonly (readonly [string, (text: string) => object])[] = [
    ['messages.create', (text) => ({ system: [{ type: 'text', text }], messages: [{ role: 'user', content: text }] })],
    [
      'messages.create',
      (text) => ({ messages: [{ role: 'user', content: [{ type: 'tool_result', content: [{ type: 'text', text }] }] }] }),
    ],
    ['messages.count_tokens', (text) => ({ system: text, messages: [{ role: 'user', content: [{ type: 'text', text }] }] })],
    ['responses.create', (text) => ({ instructions: text, input: text })],
    ['responses.create', (text) => ({ input: [{ role: 'user', content: [{ type: 'input_text', text }] }, { output: text }] })],
    ['ollama.chat', (text) => ({ messages: [{ role: 'user', content: text }] })],
    ['ollama.generate', (text) => ({ prompt: text, system: text })],
    ['ollama.embed', (text) => ({ input: [text, text] })],
    ['ollama.embeddings', (text) => ({ prompt: text })],
    ['tokenize', (text) => ({ messages: [{ role: 'user', content: text }] })],
  ];
  for (const [face, body] of texts) {
    const got = JSON.stringify(after(face, body(long)));
    assert.doesNotMatch(got, /x{24}/, face);
    assert.match(got, /x{11}/, face);
  }
  assert.notDeepEqual(after('ollama.embed', { model: 'big:latest', input: 'x'.repeat(1002) }), {
    model: 'big:latest',
    input: 'x'.repeat(1002),
  });
});

test('nothing is cut that might be accepted, or is none of a prompt', () => {
  const kept: readonly (readonly [string, object])[] = [
    ['completions.create', { prompt: 'x'.repeat(10) }],
    ['completions.create', { prompt: long, model: 'big' }],
    ['completions.create', { prompt: long, lora: 'not loaded' }],
    ['completions.create', { prompt: long, model: 'not loaded' }],
    ['completions.create', { prompt: long, model: 'unknown' }],
    ['completions.create', { prompt: long, model: 7 }],
    ['completions.create', { prompt: long, model: 'unknown', truncate_prompt_tokens: 4 }],
    ['completions.create', { prompt: 'xx '.repeat(50), truncate_prompt_tokens: 4 }],
    ['completions.create', { prompt: [1, 2, 3] }],
    ['chat.completions.create', { messages: [{ role: 'assistant', content: long }, null, 'x', { role: 'user' }] }],
    ['chat.completions.create', { messages: long }],
    ['tokenize', { text: 'xx '.repeat(50) }],
    ['tokenize', { text: 'x'.repeat(20) }],
    ['tokenize', { text: `${'x'.repeat(19)}<tok>`.repeat(3) }],
    ['tokenize', { text: long, model: 'unknown' }],
    ['ping', { text: long }],
    ['toString', { prompt: long }],
  ];
  for (const [method, params] of kept) assert.deepEqual(after(method, params), params, `${method} ${JSON.stringify(params)}`);
  for (const params of [null, undefined, [long], 'text', 3]) cutTexts('completions.create', params, limits);
});

const text = fc
  .array(fc.constantFrom(' ', '\n', '\u2003', '\x1c', '\u200b', 'a', 'é', '\u{1f600}'), { maxLength: 80 })
  .map((all) => all.join(''));
const contentAfter = (method: string, content: string): string => {
  const { messages } = after(method, { messages: [{ role: 'user', content }] }) as { messages: [{ content: string }] };
  return messages[0].content;
};
const blanks = '\\s\\x1c-\\x1f\\x85\\u180e\\u200b';
const pythonBlanks = '\\s\\x1c-\\x1f\\x85';
const trims = ['', '\\s', blanks, pythonBlanks].map((set) => (one: string): string => {
  return set === '' ? one : one.replace(new RegExp(`^[${set}]+`, 'u'), '').replace(new RegExp(`[${set}]+$`, 'u'), '');
});

test('a text is as much too long as before, trimmed and not', () => {
  fc.assert(
    fc.property(text, (content) => {
      const got = contentAfter('chat.completions.create', content);
      for (const trim of trims) {
        if (trim(content).length <= 10) assert.equal(trim(got), trim(content));
        else assert.ok(trim(got).length > 10, `${JSON.stringify(content)} -> ${JSON.stringify(got)}`);
      }
      assert.ok(got.length <= 35);
    }),
  );
});

/** Bytes of the longest stretch that the tokenizer gets at once, as slices.ts cuts. */
function longestStretch(content: string): number {
  let most = 0;
  for (const part of content.split('<tok>')) {
    for (let from = 0; from < part.length; ) {
      const to = nextCut(part, from + 1, part.length);
      most = Math.max(most, Buffer.byteLength(part.slice(from, to)));
      from = to;
    }
  }
  return most;
}

test('a text is refused for a stretch that cannot be cut when it would have been, trimmed and not, and else it is the same', () => {
  const stretchy = fc
    .array(
      fc.tuple(fc.constantFrom(' ', '\n', '\u200b', 'a', 'é', '\u{1f600}', '.', '<tok>', '<', '\ud800'), fc.integer({ min: 1, max: 30 })),
      {
        maxLength: 6,
      },
    )
    .map((runs) => runs.map(([unit, count]) => unit.repeat(count)).join(''));
  fc.assert(
    fc.property(stretchy, (content) => {
      const chat = contentAfter('tokenize', content);
      const { prompt: raw } = after('completions.create', { prompt: content, truncate_prompt_tokens: 1 }) as { prompt: string };
      for (const [got, forms] of [
        [raw, trims.slice(0, 1)],
        [chat, trims],
      ] as const) {
        for (const trim of forms) {
          if (longestStretch(trim(content)) <= 20) assert.equal(trim(got), trim(content));
          else assert.ok(longestStretch(trim(got)) > 20, `${JSON.stringify(content)} -> ${JSON.stringify(got)}`);
        }
      }
    }),
    { numRuns: 3000 },
  );
});
