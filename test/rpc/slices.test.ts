/** Large answers in pieces: the same bytes as at once, pieces of a bounded size, nothing kept when they are closed. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { packMessage } from '../../actors/messages/codec.js';
import { packedIds, packedList } from '../../rpc/packed-list.js';
import { isLarge, slicesOf } from '../../rpc/slices.js';

function joined(value: unknown, encoding: 'json' | 'msgpack'): Buffer {
  const slices = slicesOf(value, encoding);
  const parts: Buffer[] = [];
  for (let slice = slices.next(); slice !== null; slice = slices.next()) parts.push(Buffer.from(slice as string));
  slices.close();
  return Buffer.concat(parts);
}

function assertSame(value: unknown, plain: unknown): void {
  assert.ok(joined(value, 'json').equals(Buffer.from(JSON.stringify(plain))), 'as JSON');
  assert.ok(joined(value, 'msgpack').equals(packMessage(plain)), 'as msgpack');
}

/** A list whose elements are made when they are read, and what it stands for. */
function list<T>(items: readonly T[]): T[] {
  return packedList({ length: items.length, chars: JSON.stringify(items).length, iterate: () => items });
}

const text = 'Ein "Satz" \\ mit 🦊, \u0001 und\nmehr. ';

test('answers with long texts and lists are, piece by piece, the bytes of the whole', () => {
  const ids = Array.from({ length: 70_000 }, (_, i) => (i * 7919) % 128_256);
  const rows = Array.from({ length: 3000 }, (_, i) => (i % 5 === 0 ? null : { [`${i}`]: -i / 3, [text.slice(i % 9)]: [i, text] }));
  const value = (packed: boolean) => ({
    jsonrpc: '2.0',
    id: 'a',
    result: {
      choices: Array.from({ length: 20 }, (_, index) => ({ index, text: index === 3 ? text.repeat(9000) : text, stop_reason: undefined })),
      empty: packed ? list([]) : [],
      few: packed ? list([1, 2]) : [1, 2],
      ids: packed ? packedIds(ids.length, [Int32Array.from(ids.slice(0, 50_000)), Int32Array.from(ids.slice(50_000))]) : ids,
      rows: packed ? list(rows) : rows,
      members: Object.fromEntries(Array.from({ length: 20 }, (_, i) => [`m${i}`, i === 7 ? 'x'.repeat(70_000) : i / 3])),
      usage: { prompt_tokens: 3 },
    },
  });
  assert.ok(isLarge(value(true)));
  const { choices, ...rest } = value(false).result;
  const plain = { ...value(false), result: { choices: choices.map(({ stop_reason: _, ...choice }) => choice), ...rest } };
  const packed = value(true);
  assertSame({ ...packed, result: { ...packed.result, choices: plain.result.choices } }, plain);
  assert.ok(joined(packed, 'json').equals(Buffer.from(JSON.stringify(plain))), 'members without a value are left out');
  assertSame([packed.result.ids, 'y'.repeat(65_530)], [ids, 'y'.repeat(65_530)]);
});

test('any JSON value is the same in pieces', () => {
  const long = fc
    .tuple(fc.string({ unit: 'grapheme', minLength: 1, maxLength: 40 }), fc.constantFrom(1, 3000))
    .map(([s, n]) => s.repeat(n));
  const { value } = fc.letrec((tie) => ({
    value: fc.oneof(
      { maxDepth: 4 },
      fc.jsonValue({ maxDepth: 1 }),
      long,
      fc.array(tie('value'), { maxLength: 30 }),
      fc.dictionary(fc.string({ maxLength: 9 }), tie('value'), { maxKeys: 20, noNullPrototype: true }),
    ),
  }));
  fc.assert(
    fc.property(fc.array(value, { minLength: 1, maxLength: 20 }), (values) => {
      const plain: unknown = JSON.parse(JSON.stringify(values));
      assert.ok(joined(plain, 'json').equals(Buffer.from(JSON.stringify(plain))));
      assert.ok(joined(list(plain as unknown[]), 'json').equals(Buffer.from(JSON.stringify(plain))));
      assert.ok(joined(plain, 'msgpack').equals(packMessage(plain)));
    }),
    { numRuns: 60 },
  );
});

test('halves of characters that stand alone are written as JSON.stringify does, wherever a text is cut', () => {
  for (const shift of [0, 1, 2]) assertSameJson(`${'x'.repeat(shift)}${'🦊'.repeat(40_000)}\ud800${'y'.repeat(5000)}\udc00`);
  function assertSameJson(value: string): void {
    assert.equal(joined(value, 'json').toString(), JSON.stringify(value));
  }
});

test('no piece is much longer than another, and none is made before it is asked for', () => {
  let made = 0;
  const rows = packedList({
    length: 100_000,
    chars: 100_000 * 20,
    *iterate() {
      for (let i = 0; i < 100_000; i++) {
        made++;
        yield { text: `row ${i}`, half: i / 2 };
      }
    },
  });
  for (const encoding of ['json', 'msgpack'] as const) {
    made = 0;
    const slices = slicesOf({ rows, again: 'z'.repeat(500_000) }, encoding);
    assert.equal(made, 0);
    const first = slices.next();
    assert.ok(made > 0 && made < 10_000, `${made} elements for the first piece`);
    const lengths = [first?.length ?? 0];
    for (let slice = slices.next(); slice !== null; slice = slices.next()) lengths.push(slice.length);
    assert.ok(Math.max(...lengths) < 2 ** 17, `a piece of ${Math.max(...lengths)}`);
    assert.ok(Math.min(...lengths.slice(0, -1)) >= 2 ** 16);
  }
});

test('closing tells it once, and there are no more pieces', () => {
  let closed = 0;
  const slices = slicesOf('x'.repeat(300_000), 'json', () => closed++);
  assert.ok(slices.next());
  slices.close();
  slices.close();
  assert.deepEqual([closed, slices.next()], [1, null]);
});

test('only what is longer than a piece is large', () => {
  assert.equal(isLarge({ id: 1, result: { text: 'x'.repeat(60_000) } }), false);
  assert.equal(isLarge({ id: 1, result: { text: 'x'.repeat(66_000) } }), true);
  assert.equal(isLarge(packedIds(1000, [])), false);
  assert.equal(isLarge(packedIds(100_000, [])), true);
  assert.equal(isLarge(Array.from({ length: 100_000 }, () => null)), true);
});
