/** Each method against each set of scopes: whoever lacks the scope that the documents tell of is refused, by both doors, and nobody else. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { openai } from '../../rpc/dialects/openai/errors.js';
import { type Scope, type Scopes, scopeNames } from '../../rpc/scope.js';
import { at, call, connectPeer, setup } from './harness.js';

const sets: readonly Scopes[] = [
  new Set(),
  ...scopeNames.map((name) => new Set([name])),
  new Set<Scope>(['infer', 'metrics']),
  new Set(scopeNames),
];

describe('scopes', () => {
  const { server } = setup();
  const methods = at(server.openrpc(), 'methods') as { name: string; 'x-scope'?: Scope }[];

  test('every method asks for the scope that the document tells of', async () => {
    assert.ok(methods.length > 20);
    for (const scopes of sets) {
      for (const { name, 'x-scope': need } of methods) {
        const peer = connectPeer(server, { scopes });
        peer.say(call(1, name, {}));
        const error = at((await peer.hear()).at(-1), 'error');
        const refused = need !== undefined && !scopes.has(need);
        assert.equal(at(error, 'code') === -32001, refused, `${name} with ${[...scopes]}`);
        if (refused) assert.deepEqual(at(error, 'data'), { scope: need });
        peer.connection.close();
      }
    }
  });

  test('so does every HTTP face, with 403 and insufficient_scope', async () => {
    for (const scopes of sets) {
      for (const { id, access, dialect } of server.faces()) {
        const { status, body } = await server.handleCall(id, { scopes, body: Buffer.from('{}') });
        const refused = access !== 'any' && !scopes.has(access);
        assert.equal(status === 403, refused, `${id} with ${[...scopes]}`);
        if (refused && dialect === openai) assert.equal(at(JSON.parse(body ?? ''), 'error', 'code'), 'insufficient_scope');
      }
    }
  });

  test('a batch is refused member by member, and a notification beyond its scope does nothing', async () => {
    const { server: other, drains } = setup();
    const peer = connectPeer(other, { scopes: new Set(['infer']) });
    peer.say([call(1, 'daemon.drain'), call(2, 'ping')]);
    peer.say({ jsonrpc: '2.0', method: 'daemon.drain' });
    const [answers] = (await peer.hear()) as unknown[][];
    assert.deepEqual([at(answers?.[0], 'error', 'code'), at(answers?.[1], 'result')], [-32001, {}]);
    assert.equal(drains.count, 0);
  });
});
