/**
 * Reads a systemd unit by the rules of systemd.syntax and systemd.unit: sections, words with quotes and C escapes, "%%". Written apart from
 * the code that writes units, so that both are checked where systemd itself is not installed.
 */
import assert from 'node:assert/strict';

export interface Unit {
  /** Each value of a key in order, as it stands in the file. */
  all(section: string, key: string): readonly string[];
  /** The only value. */
  one(section: string, key: string): string;
  /** All words of all lines with the key. */
  words(section: string, key: string): readonly string[];
}

export function readUnit(text: string): Unit {
  const values = new Map<string, string[]>();
  let section = '';
  for (const line of text.split('\n')) {
    if (line === '' || /^[#;]/.test(line)) continue;
    const header = /^\[(\w+)\]$/.exec(line);
    if (header !== null) {
      section = header[1] ?? '';
      continue;
    }
    const [, key, value] = /^([A-Z][A-Za-z]+)=(.*)$/.exec(line) ?? assert.fail(`not a line of a unit: ${line}`);
    assert.ok(!line.endsWith('\\'), `a line that goes on: ${line}`);
    const name = `${section}.${key}`;
    values.set(name, [...(values.get(name) ?? []), value ?? '']);
  }
  const all = (inSection: string, key: string): readonly string[] => values.get(`${inSection}.${key}`) ?? [];
  return {
    all,
    one(inSection, key) {
      const found = all(inSection, key);
      assert.equal(found.length, 1, `${inSection}.${key} is there once`);
      return found[0] ?? '';
    },
    words: (inSection, key) => all(inSection, key).flatMap(splitWords),
  };
}

/** Words between white space; quotes hold one together, a backslash escapes, "%%" is a percent sign. */
export function splitWords(text: string): readonly string[] {
  const words: string[] = [];
  let word: string | null = null;
  let quote = '';
  for (let i = 0; i < text.length; i++) {
    const c = text[i] ?? '';
    if (c === '\\') {
      const [written, plain] = escapeAt(text.slice(i));
      word = (word ?? '') + plain;
      i += written.length - 1;
    } else if (c === '%') {
      assert.equal(text[++i], '%', `a specifier: ${text.slice(i - 1)}`);
      word = `${word ?? ''}%`;
    } else if (c === quote) quote = '';
    else if (quote === '' && (c === '"' || c === "'")) {
      assert.equal(word, null, 'a quote opens at the start of a word');
      quote = c;
      word = '';
    } else if (quote === '' && /\s/.test(c)) {
      if (word !== null) words.push(word);
      word = null;
    } else word = (word ?? '') + c;
  }
  assert.equal(quote, '', `an open quote: ${text}`);
  return word === null ? words : [...words, word];
}

/** The escape at the start of a text, and what it stands for. */
function escapeAt(text: string): readonly [string, string] {
  const hex = /^\\x([0-9a-f]{2})/.exec(text);
  if (hex !== null) return [hex[0], String.fromCharCode(Number.parseInt(hex[1] ?? '', 16))];
  const letter = text[1] ?? '';
  const plain = { n: '\n', t: '\t', s: ' ', '\\': '\\', '"': '"', "'": "'" }[letter];
  return [text.slice(0, 2), plain ?? assert.fail(`an unknown escape: ${text.slice(0, 4)}`)];
}
