/** All vectors against a connection in memory, and the ones without streams against HTTP bodies. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { z } from 'zod';
import { RpcConnection } from '../../rpc/connection.js';
import { defineMethod, type Method } from '../../rpc/method.js';
import { allScopes } from '../../rpc/scope.js';
import { MemoryWire, setup } from './harness.js';
import { loadVectors, playVector, type VectorPeer, vectorFiles } from './vectors.js';

/** The methods that the specification's examples call. */
const exampleMethods: readonly Method[] = [
  defineMethod({
    name: 'subtract',
    summary: 'Example.',
    params: z.object({ minuend: z.number(), subtrahend: z.number() }),
    result: z.number(),
    handler: ({ minuend, subtrahend }) => minuend - subtrahend,
  }),
  defineMethod({
    name: 'sum',
    summary: 'Example.',
    params: z.object({ a: z.number(), b: z.number(), c: z.number() }),
    result: z.number(),
    handler: ({ a, b, c }) => a + b + c,
  }),
  defineMethod({
    name: 'get_data',
    summary: 'Example.',
    params: z.object({}),
    result: z.array(z.unknown()),
    handler: () => ['hello', 5],
  }),
];

class MemoryPeer implements VectorPeer {
  readonly #wire = new MemoryWire();
  readonly #connection: RpcConnection;

  constructor() {
    const { server } = setup({ extra: exampleMethods });
    this.#connection = new RpcConnection(server, this.#wire, { encoding: 'json', scopes: allScopes });
  }

  send(frame: string | Uint8Array): void {
    this.#connection.receive(frame);
  }

  async next(): Promise<unknown> {
    for (let turn = 0; turn < 2000 && this.#wire.frames.length === 0; turn++) await new Promise((resolve) => setImmediate(resolve));
    const frame = this.#wire.frames.shift();
    assert.ok(frame !== undefined, 'a frame was expected and none came');
    return JSON.parse(frame as string);
  }
}

let count = 0;
for (const file of vectorFiles()) {
  describe(`vectors of ${file}`, () => {
    for (const vector of loadVectors(file)) {
      count++;
      test(vector.title, () => playVector(vector, new MemoryPeer()));
    }
  });
}

test('there are enough vectors', () => assert.ok(count >= 120, `${count}`));

describe('the same messages over HTTP', () => {
  for (const file of ['spec.io', 'requests.io', 'json.io', 'bytes.io', 'batches.io']) {
    test(file, async () => {
      const { server } = setup({ extra: exampleMethods });
      for (const vector of loadVectors(file)) {
        const answers: unknown[] = [];
        await playVector(vector, {
          send: (frame) => {
            answers.push(
              server.handlePost(typeof frame === 'string' ? Buffer.from(frame) : frame).then(({ status, body }) => {
                assert.equal(status, body === null ? 204 : 200);
                return body;
              }),
            );
          },
          next: async () => {
            for (;;) {
              const body = (await answers.shift()) as string | null | undefined;
              assert.ok(body !== undefined, 'an answer was expected and none came');
              if (body !== null) return JSON.parse(body);
            }
          },
        });
      }
    });
  }
});
