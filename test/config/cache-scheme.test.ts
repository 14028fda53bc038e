/** What the quantization_config of a model asks of the cache. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { asksForFloat8Cache } from '../../config/cache-scheme.js';

test('a cache in fp8 is asked for by a scheme of 8-bit floats with scales of the checkpoint, and by nothing else', () => {
  const asks = (scheme: unknown): boolean => asksForFloat8Cache({ quantization_config: { quant_method: 'fp8', kv_cache_scheme: scheme } });
  const scheme = { num_bits: 8, type: 'float', strategy: 'tensor', dynamic: false };
  assert.ok(asks(scheme));
  assert.ok(asks({ num_bits: 8, type: 'float' }));
  for (const other of [null, undefined, 'fp8', [], { ...scheme, type: 'int' }, { ...scheme, num_bits: 4 }, { ...scheme, dynamic: true }])
    assert.equal(asks(other), false, JSON.stringify(other));
  assert.ok(asksForFloat8Cache({ compression_config: { kv_cache_scheme: scheme } }));
  for (const config of [{}, { quantization_config: null }, { quantization_config: 8 }]) assert.equal(asksForFloat8Cache(config), false);
});
