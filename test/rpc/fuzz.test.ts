/** Arbitrary input: nothing throws, every well-formed request is answered exactly once, whatever stands around it. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { packMessage, unpackMessage } from '../../actors/messages/codec.js';
import { RpcConnection } from '../../rpc/connection.js';
import { scanMsgpack } from '../../rpc/decode/msgpack-scan.js';
import { allScopes } from '../../rpc/scope.js';
import { at, connectPeer, guest, MemoryWire, settle, setup } from './harness.js';
import { loadVectors, playVector } from './vectors.js';

const methods = [
  'ping',
  'tokenize',
  'detokenize',
  'models.get',
  'models.list',
  'initialize',
  'requests.list',
  'nope',
  'completions.create',
  'chat.completions.create',
  '$/credit',
  '$/cancelRequest',
  'rpc.discover',
  'stats.get',
];
const params = fc.oneof(
  fc.jsonValue({ maxDepth: 3 }),
  fc.record(
    {
      text: fc.jsonValue({ maxDepth: 1 }),
      prompt: fc.oneof(fc.string(), fc.array(fc.integer({ min: -1, max: 300 })), fc.jsonValue({ maxDepth: 2 })),
      messages: fc.oneof(fc.constant([{ role: 'user', content: 'x' }]), fc.jsonValue({ maxDepth: 3 })),
      ids: fc.array(fc.integer({ min: 0, max: 255 })),
      model: fc.constantFrom('fake', 'other', null),
      n: fc.integer({ min: -1, max: 9 }),
      max_tokens: fc.integer({ min: -1, max: 5 }),
      temperature: fc.double(),
      stream: fc.oneof(fc.boolean(), fc.record({ token: fc.string(), credit: fc.integer({ min: 0, max: 1000 }) })),
      id: fc.integer({ min: 0, max: 50 }),
      token: fc.string(),
      stop: fc.jsonValue({ maxDepth: 1 }),
    },
    { requiredKeys: [] },
  ),
);

describe('fuzzing', () => {
  test('any bytes: nothing throws, and the connection still answers', async () => {
    const { server } = setup();
    const peer = connectPeer(server);
    await fc.assert(
      fc.asyncProperty(
        fc.oneof(
          fc.uint8Array({ maxLength: 200 }),
          fc.json().map((text) => Buffer.from(text)),
        ),
        async (data) => {
          peer.connection.receive(data);
          await settle(1);
          peer.wire.take();
          peer.say({ jsonrpc: '2.0', id: 'alive', method: 'ping' });
          await settle(1);
          assert.deepEqual(peer.wire.take(), [{ jsonrpc: '2.0', id: 'alive', result: {} }]);
        },
      ),
      { numRuns: 500 },
    );
  });

  test('requests among garbage, in messages and batches, alone and in parallel: one answer each, none for notifications', async () => {
    const request = fc.record({ method: fc.constantFrom(...methods), params, notification: fc.boolean() });
    const plan = fc.array(fc.array(fc.oneof(request, fc.constant('garbage' as const)), { minLength: 1, maxLength: 6 }), { maxLength: 8 });
    await fc.assert(
      fc.asyncProperty(plan, fc.boolean(), async (messages, msgpack) => {
        const { server } = setup({ config: { server: { slow_client_timeout_s: 0.05 } } });
        const wire = new MemoryWire();
        const connection = new RpcConnection(server, wire, { encoding: msgpack ? 'msgpack' : 'json', scopes: guest.scopes });
        const expected: string[] = [];
        let id = 0;
        for (const members of messages) {
          const frame = members.map((member) => {
            if (member === 'garbage') return 7;
            const structured = typeof member.params === 'object' && member.params !== null;
            const body = { jsonrpc: '2.0', method: member.method, ...(structured ? { params: member.params } : {}) };
            if (member.notification) return body;
            expected.push(`id-${id}`);
            return { ...body, id: `id-${id++}` };
          });
          const plain: unknown = JSON.parse(JSON.stringify(frame.length === 1 ? frame[0] : frame));
          connection.receive(msgpack ? packMessage(plain) : JSON.stringify(plain));
        }
        const answered: unknown[] = [];
        for (let turn = 0; turn < 400 && answered.filter((a) => a !== null).length < expected.length; turn++) {
          await (turn < 100 ? settle(1) : new Promise((resolve) => setTimeout(resolve, 5)));
          for (const raw of wire.frames.splice(0)) {
            if (msgpack) assert.equal(scanMsgpack(raw as Uint8Array), null);
            const frame = msgpack ? unpackMessage(raw as Uint8Array) : (JSON.parse(raw as string) as unknown);
            for (const one of [frame].flat()) if (at(one, 'method') === undefined) answered.push(at(one, 'id'));
          }
        }
        connection.close();
        assert.deepEqual(answered.filter((a) => a !== null).sort(), expected.sort());
      }),
      { numRuns: 150 },
    );
  });
});

describe('msgpack', () => {
  test('says the same as JSON: every vector that is a JSON message', async () => {
    for (const file of ['requests.io', 'batches.io', 'params.io', 'calls.io']) {
      for (const vector of loadVectors(file)) {
        const { server } = setup();
        const wire = new MemoryWire();
        const connection = new RpcConnection(server, wire, { encoding: 'msgpack', scopes: allScopes });
        // What JSON says differently, or msgpack cannot say.
        if (
          /1e999|9007199254740993|escaped __proto__|own __proto__|1e\+?300/.test(
            `${vector.title}${vector.steps.map((s) => s.text).join('')}`,
          )
        )
          continue;
        await playVector(vector, {
          send: (frame) => connection.receive(packMessage(JSON.parse(frame as string))),
          next: async () => {
            for (let turn = 0; turn < 2000 && wire.frames.length === 0; turn++) await settle(1);
            const frame = wire.frames.shift();
            assert.ok(frame instanceof Uint8Array, 'a binary frame was expected');
            assert.equal(scanMsgpack(frame), null, 'plain msgpack without extension types');
            return unpackMessage(frame);
          },
        });
        connection.close();
      }
    }
  });
});
