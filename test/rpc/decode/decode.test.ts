import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { packMessage } from '../../../actors/messages/codec.js';
import { decodeMessage, decodeValue } from '../../../rpc/decode/decode.js';
import { messageLimits, scanJson } from '../../../rpc/decode/json-scan.js';
import { scanMsgpack } from '../../../rpc/decode/msgpack-scan.js';

const limit = 4 * 2 ** 20;
const bytes = (text: string) => Buffer.from(text, 'utf8');

describe('decoding JSON', () => {
  test('four megabytes of open brackets are refused without being parsed', () => {
    const message = decodeMessage(Buffer.alloc(limit, '['), 'json', limit);
    assert.equal(message.kind === 'failed' && message.failure.kind, 'parse_error');
  });

  test('closed but deep nesting is an invalid request', () => {
    const message = decodeMessage(`${'['.repeat(65)}${']'.repeat(65)}`, 'json', limit);
    assert.equal(message.kind === 'failed' && message.failure.kind, 'invalid_request');
  });

  test('a message of a million empty arrays is refused', () => {
    const message = decodeMessage(`[${'[],'.repeat(1_200_000)}[]]`, 'json', limit);
    assert.equal(message.kind === 'failed' && message.failure.kind, 'invalid_request');
  });

  test('a message with too many members of objects is refused', () => {
    const message = decodeMessage(`{${'"a":1,'.repeat(messageLimits.maxKeys)}"b":1}`, 'json', limit);
    assert.equal(message.kind === 'failed' && message.failure.kind, 'invalid_request');
  });

  test('a message of exactly the limit is taken, one byte more is not', () => {
    const text = '{"jsonrpc":"2.0","id":1,"method":"ping"}';
    assert.equal(decodeMessage(text, 'json', text.length).kind, 'single');
    assert.equal(decodeMessage(text, 'json', text.length - 1).kind, 'failed');
  });

  test('an id of 1024 characters is echoed, a longer one is refused', () => {
    const idOf = (length: number) => {
      const message = decodeMessage(JSON.stringify({ jsonrpc: '2.0', id: 'x'.repeat(length), method: 'ping' }), 'json', limit);
      return message.kind === 'single' && message.member.kind === 'call' ? message.member.id : null;
    };
    assert.equal(idOf(1024), 'x'.repeat(1024));
    assert.equal(idOf(1025), null);
  });

  test('own members named __proto__ are dropped, also when written with escapes', () => {
    for (const name of ['__proto__', '\\u005f_proto__', '__pr\\u006fto__', '__\\u0070roto__']) {
      const message = decodeMessage(`{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":{"${name}":{"x":1}},"b":2}}`, 'json', limit);
      assert.ok(message.kind === 'single' && message.member.kind === 'call');
      assert.deepEqual(message.member.params, { a: {}, b: 2 });
    }
  });

  test('the scan never calls valid JSON broken', () => {
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        assert.notEqual(scanJson(bytes(JSON.stringify(value))), 'broken');
      }),
    );
  });

  test('the scan finds the end of every long string, whatever escapes stand before it', () => {
    const piece = fc.constantFrom('\\', '"', '\n', '[', '}', 'a'.repeat(61), 'b'.repeat(64), 'é', '\u{1f600}');
    const text = fc.array(piece, { maxLength: 40 }).map((pieces) => pieces.join(''));
    fc.assert(
      fc.property(fc.array(text, { maxLength: 4 }), (texts) => {
        const json = JSON.stringify(texts);
        assert.equal(scanJson(bytes(json)), null);
        assert.equal(scanJson(bytes(json.slice(0, -1))), 'broken'); // without its bracket
        if (texts.length > 0) assert.equal(scanJson(bytes(`${json.slice(0, -2)}]`)), 'broken'); // without the last quote
      }),
      { numRuns: 1000 },
    );
  });

  test('the scan says deep exactly when the depth is above the limit', () => {
    const { letrec, array, oneof, constant, string } = fc;
    const { nested } = letrec((tie) => ({
      nested: oneof(
        { maxDepth: 6, depthIdentifier: 'd' },
        constant(1),
        string(),
        array(tie('nested'), { maxLength: 3, depthIdentifier: 'd' }),
      ),
    }));
    const depth = (value: unknown): number => (Array.isArray(value) ? 1 + Math.max(0, ...value.map(depth)) : 0);
    fc.assert(
      fc.property(nested as fc.Arbitrary<unknown>, (value) => {
        const fault = scanJson(bytes(JSON.stringify(value)), { ...messageLimits, maxDepth: 3 });
        assert.equal(fault === 'deep', depth(value) > 3);
      }),
    );
  });
});

describe('decoding msgpack', () => {
  test('says the same as JSON for every message', () => {
    const json = fc.jsonValue({ maxDepth: 5 });
    const id = fc.oneof(fc.string(), fc.integer(), fc.constant(null), fc.double({ noNaN: true, noDefaultInfinity: true }), fc.boolean());
    const request = fc.record(
      { jsonrpc: fc.constantFrom('2.0', '1.0'), id, method: fc.string(), params: json },
      { requiredKeys: ['jsonrpc'] },
    );
    fc.assert(
      fc.property(fc.oneof(json, request, fc.array(request, { maxLength: 3 })), (value) => {
        const viaJson = decodeMessage(JSON.stringify(value), 'json', limit);
        const viaMsgpack = decodeMessage(packMessage(JSON.parse(JSON.stringify(value))), 'msgpack', limit);
        assert.equal(JSON.stringify(viaMsgpack), JSON.stringify(viaJson));
      }),
      {
        examples: [
          [JSON.parse('{"jsonrpc":"2.0","method":"m","params":{"__proto__":[]}}')],
          [JSON.parse('{"__proto__":{"jsonrpc":"2.0"}}')],
        ],
      },
    );
  });

  test('own members named __proto__ are dropped, and what is only called alike stays', () => {
    const params = JSON.parse('{"a":[{"__proto__":{"x":1},"__proto_":2}],"b":"__proto__","c":{"d":9007199254740991}}');
    const message = decodeMessage(packMessage({ jsonrpc: '2.0', method: 'm', params }), 'msgpack', limit);
    assert.ok(message.kind === 'single' && message.member.kind === 'call');
    assert.deepEqual(message.member.params, { a: [{ __proto_: 2 }], b: '__proto__', c: { d: 9007199254740991 } });
  });

  const refused: readonly (readonly [string, string, string])[] = [
    ['an extension type', 'd40100', 'type'],
    ['a timestamp', 'd6ff00000000', 'type'],
    ['a long extension', 'c70201ffff', 'type'],
    ['binary', 'c40100', 'type'],
    ['the unused tag', 'c1', 'broken'],
    ['an integer as map key', '810101', 'type'],
    ['nil as map key', '81c001', 'type'],
    ['an integer beyond 2^53', 'cf0020000000000001', 'type'],
    ['a very negative integer', 'd38000000000000000', 'type'],
    ['NaN', 'cb7ff8000000000000', 'type'],
    ['infinity', 'ca7f800000', 'type'],
    ['a string that is not UTF-8', 'a1ff', 'broken'],
    ['a truncated string', 'a5616263', 'broken'],
    ['a truncated number', 'cd01', 'broken'],
    ['an array longer than the message', 'ddffffffff', 'broken'],
    ['a map longer than the message', 'dfffffffff', 'broken'],
    ['bytes after the end', 'c0c0', 'broken'],
    ['nothing', '', 'broken'],
    ['65 levels', `${'91'.repeat(65)}c0`, 'deep'],
  ];
  for (const [title, hex, fault] of refused) test(`refuses ${title}`, () => assert.equal(scanMsgpack(Buffer.from(hex, 'hex')), fault));

  test('takes 64 levels, and 64-bit integers that a double holds', () => {
    assert.equal(scanMsgpack(Buffer.from(`${'91'.repeat(64)}c0`, 'hex')), null);
    const message = decodeMessage(
      Buffer.from('84a76a736f6e727063a3322e30a26964d30000000000000007a66d6574686f64a470696e67a6706172616d7380', 'hex'),
      'msgpack',
      limit,
    );
    assert.deepEqual(message, { kind: 'single', member: { kind: 'call', id: 7, method: 'ping', params: {} } });
  });

  test('never throws, whatever the bytes', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 64 }), (data) => void decodeMessage(data, 'msgpack', limit)),
      { numRuns: 2000 },
    );
  });

  test('a text frame is a parse error', () => {
    const message = decodeMessage('{}', 'msgpack', limit);
    assert.equal(message.kind === 'failed' && message.failure.kind, 'parse_error');
  });
});

describe('a member named __proto__ in a schema', () => {
  const held = '{"const":{"__proto__":1}}';
  const schema: unknown = JSON.parse(held);
  const params: Readonly<Record<string, unknown>> = {
    response_format: { type: 'json_schema', json_schema: { schema } },
    guided_json: schema,
    structured_outputs: { json: schema },
    tools: [{ type: 'function', function: { name: 'f', parameters: schema } }],
    format: schema,
    text: { format: { type: 'json_schema', schema } },
    output_config: { format: { type: 'json_schema', schema } },
  };
  const sentence = (name: string): string => `${name} holds a member named "__proto__", which is not supported`;

  for (const [name, value] of Object.entries(params)) {
    test(`is refused by its place, in bodies and in messages of both encodings: ${name}`, () => {
      const body = { model: 'm', [name]: value };
      assert.deepEqual(decodeValue(bytes(JSON.stringify(body))), {
        kind: 'failed',
        failure: { kind: 'invalid_request', message: sentence(name) },
      });
      const call = { jsonrpc: '2.0', id: 7, method: 'chat.completions.create', params: body };
      const refused = { kind: 'single', member: { kind: 'invalid', id: 7, reason: sentence(name) } };
      assert.deepEqual(decodeMessage(JSON.stringify(call), 'json', limit), refused);
      assert.deepEqual(decodeMessage(packMessage(call), 'msgpack', limit), refused);
    });
  }

  test('is refused in params that have no names, and in one call of a batch only', () => {
    const ping = { jsonrpc: '2.0', id: 1, method: 'ping' };
    const message = decodeMessage(JSON.stringify([ping, { ...ping, id: 2, params: ['m', schema] }]), 'json', limit);
    assert.ok(message.kind === 'batch');
    assert.deepEqual(message.members, [
      { kind: 'call', id: 1, method: 'ping' },
      { kind: 'invalid', id: 2, reason: sentence('params[1]') },
    ]);
  });

  test('is dropped from the members that hold none', () => {
    const { value } = decodeValue(bytes(`{"__proto__":{"model":"x"},"messages":[${held}],"guided_json":{"const":"__proto__"}}`));
    assert.deepEqual(value, { messages: [{ const: {} }], guided_json: { const: '__proto__' } });
  });
});
