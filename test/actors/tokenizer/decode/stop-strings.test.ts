import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { StopMatcher, StopStrings } from '../../../../actors/tokenizer/decode/stop-strings.js';

interface Outcome {
  readonly text: string;
  readonly matched: string | null;
  /** Length shown after each chunk. */
  readonly shown: readonly number[];
}

function run(stops: readonly string[], chunks: readonly string[], includeStop: boolean, uncheckedChunks: number): Outcome {
  const matcher = new StopMatcher(new StopStrings(stops), includeStop);
  let text = '';
  const shown: number[] = [];
  for (let i = 0; i < chunks.length && matcher.matched === null; i++) {
    text += matcher.push(chunks[i]!, i >= uncheckedChunks); // i < length
    shown.push(text.length);
  }
  if (matcher.matched === null) text += matcher.flush();
  return { text, matched: matcher.matched, shown };
}

/** The same by looking at the whole text after each chunk. */
function naive(stops: readonly string[], chunks: readonly string[], includeStop: boolean, uncheckedChunks: number): Outcome {
  let whole = '';
  const shown: number[] = [];
  for (let i = 0; i < chunks.length; i++) {
    const before = whole.length;
    whole += chunks[i]!; // i < length
    let best = -1;
    let matched: string | null = null;
    for (const stop of stops) {
      for (let at = 0; i >= uncheckedChunks && at + stop.length <= whole.length; at++) {
        if (at + stop.length <= before || !whole.startsWith(stop, at)) continue;
        if (best < 0 || at < best) {
          best = at;
          matched = stop;
        }
        break;
      }
    }
    if (matched !== null) {
      const text = whole.slice(0, includeStop ? best + matched.length : best);
      return { text, matched, shown: [...shown, text.length] };
    }
    let held = 0;
    for (const stop of stops) for (let k = 1; k < stop.length; k++) if (whole.endsWith(stop.slice(0, k))) held = Math.max(held, k);
    shown.push(whole.length - held);
  }
  return { text: whole, matched: null, shown };
}

test('stop strings are found wherever they begin, and only text that may become one is held back', () => {
  const letters = (max: number) => fc.string({ unit: fc.constantFrom('a', 'b', '😀'), minLength: 1, maxLength: max });
  fc.assert(
    fc.property(
      fc.array(letters(5), { minLength: 1, maxLength: 4 }),
      fc.array(letters(4), { maxLength: 12 }),
      fc.boolean(),
      fc.integer({ min: 0, max: 6 }),
      (stops, chunks, includeStop, unchecked) => {
        assert.deepEqual(run(stops, chunks, includeStop, unchecked), naive(stops, chunks, includeStop, unchecked));
      },
    ),
    { numRuns: 5000 },
  );
});

test('of several stop strings the one that starts first wins, then the one listed first', () => {
  assert.deepEqual(run(['cd', 'bcd'], ['abcde'], false, 0), { text: 'a', matched: 'bcd', shown: [1] });
  assert.deepEqual(run(['bc', 'bcd'], ['abcde'], false, 0), { text: 'a', matched: 'bc', shown: [1] });
  assert.deepEqual(run(['bcd', 'bc'], ['abcde'], true, 0), { text: 'abcd', matched: 'bcd', shown: [4] });
});

test('a stop string inside the first unchecked text is text; one that ends behind it counts', () => {
  assert.deepEqual(run(['END'], ['xEND', 'yEND'], false, 1), { text: 'xENDy', matched: 'END', shown: [4, 5] });
  assert.deepEqual(run(['END'], ['xEN', 'Dy'], false, 1), { text: 'x', matched: 'END', shown: [1, 1] });
});

test('time grows with the text, not with text times stop string', () => {
  const stop = `${'a'.repeat(100_000)}b`;
  const matcher = new StopMatcher(new StopStrings([stop]), false);
  for (let i = 0; i < 2000; i++) matcher.push('a'.repeat(100), true);
  matcher.push('b', true);
  assert.equal(matcher.matched, stop);
});

test('empty stop strings are dropped, and half a surrogate pair never cuts a character', () => {
  assert.deepEqual(new StopStrings(['', 'x']).list, ['x']);
  assert.deepEqual(run(['\ude00'], ['a😀b'], false, 0), { text: 'a😀b', matched: null, shown: [4] });
});
