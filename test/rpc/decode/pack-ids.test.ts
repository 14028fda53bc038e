/** Long lists of token ids of a large message come in one piece each; everything else stays what it was. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { LargeMessages } from '../../../rpc/decode/large-messages.js';
import { packIds } from '../../../rpc/decode/pack-ids.js';

const LONG = 5000;
const ids = (length: number, fill = 7): number[] => new Array<number>(length).fill(fill);

test('a long list of ids, and each of several, is packed where the method has ids', () => {
  const params = { prompt: ids(LONG) as unknown, input: ids(LONG) };
  assert.equal(packIds('completions.create', params).length, 1);
  assert.deepEqual(params, { prompt: Int32Array.from(ids(LONG)), input: ids(LONG) });
  const several = { input: [ids(LONG, 1), ids(3), ids(LONG, 2)] as unknown[] };
  assert.equal(packIds('embeddings.create', several).length, 2);
  assert.deepEqual(several.input, [Int32Array.from(ids(LONG, 1)), ids(3), Int32Array.from(ids(LONG, 2))]);
});

test('a list with anything else in it stays as it is, and so do params of other forms', () => {
  for (const odd of [0.5, -0, 2 ** 31, '1', null, [1], Number.NaN]) {
    const params = { ids: [...ids(LONG), odd] as unknown[] };
    assert.deepEqual(packIds('detokenize', params), []);
    assert.deepEqual(params.ids, [...ids(LONG), odd]);
  }
  for (const params of [undefined, null, 'text', 7, [ids(LONG)], { ids: 'text' }, { ids: {} }])
    assert.deepEqual(packIds('detokenize', params), []);
  const other = { ids: ids(LONG) };
  assert.deepEqual(packIds('ping', other), []);
  assert.deepEqual(other.ids, ids(LONG));
});

test('through the thread the numbers are those that were sent, as a message and as a body', async () => {
  const large = new LargeMessages(2 ** 24, () => new Map());
  await fc.assert(
    fc.asyncProperty(fc.array(fc.integer({ min: -5, max: 2 ** 24 }), { minLength: 1, maxLength: 50 }), async (some) => {
      const sent = Array.from({ length: LONG }, (_, i) => some[i % some.length]);
      const call = { jsonrpc: '2.0', id: 1, method: 'detokenize', params: { ids: sent } };
      const message = await large.message([Buffer.from(JSON.stringify(call))], 'json');
      assert.ok(message.kind === 'single' && message.member.kind === 'call');
      const body = await large.value([Buffer.from(JSON.stringify({ tokens: sent }))], 'detokenize');
      for (const packed of [(message.member.params as { ids: unknown }).ids, (body.value as { tokens: unknown }).tokens]) {
        assert.ok(packed instanceof Int32Array);
        assert.deepEqual([...packed], sent);
      }
    }),
    { numRuns: 20 },
  );
});
