/** Several models in one daemon: calls go to the engine of the model they name, and no two requests have one number. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { RequestIds } from '../../actors/client-ids.js';
import { FakeEngineClient } from '../helpers/engine/fake-engine-client.js';
import { at, call, chat, connectPeer, guest, settle, setup } from './harness.js';

const create = 'chat.completions.create';

function twoModels(auto = true) {
  const ids = new RequestIds();
  const second = new FakeEngineClient({ auto, ids });
  return { ...setup({ auto, ids, others: [{ name: 'second', engine: second }] }), second };
}

describe('two models in one daemon', () => {
  test('are asked by name; without a name the first one is', async () => {
    const { engine, second, server } = twoModels();
    second.script = () => ['I am the second'];
    const peer = connectPeer(server);
    for (const [id, model] of [undefined, null, 'fake', 'second'].entries()) peer.say(call(id, create, chat('x', { model })));
    const answers = (await peer.hear()).sort((a, b) => Number(at(a, 'id')) - Number(at(b, 'id')));
    assert.deepEqual(
      answers.map((answer) => [at(answer, 'result', 'model'), at(answer, 'result', 'choices', 0, 'message', 'content')]),
      [...new Array<unknown>(3).fill(['fake', 'You said: x']), ['second', 'I am the second']],
    );
    assert.deepEqual([engine.all.length, second.all.length], [3, 1]);
    peer.say(call(9, create, chat('x', { model: 'third' })));
    const [refused] = await peer.hear();
    assert.equal(at(refused, 'error', 'code'), -32002);
    assert.match(String(at(refused, 'error', 'message')), /"third" is not served here; this daemon serves "fake", "second"/);
  });

  test('that stay for the life of a program are neither loaded nor unloaded, and a sentence says so', async () => {
    const peer = connectPeer(twoModels().server);
    for (const [id, method] of ['models.load', 'models.unload'].entries()) peer.say(call(id, method, { model: 'fake' }));
    for (const answer of await peer.hear()) {
      assert.equal(at(answer, 'error', 'code'), -32011);
      assert.match(String(at(answer, 'error', 'message')), /\w/);
    }
  });

  test('are both listed, each in the state of its own engine', async () => {
    const { second, server } = twoModels();
    second.current = 'starting';
    const peer = connectPeer(server);
    peer.say(call(1, 'models.list'));
    peer.say(call(2, 'models.get', { model: 'second' }));
    peer.say(call(3, create, chat('x', { model: 'second' })));
    peer.say(call(4, create, chat('x')));
    const [list, one, loading, answer] = await peer.hear();
    const rows = at(list, 'result', 'data') as unknown[];
    assert.deepEqual(
      rows.map((row) => [at(row, 'id'), at(row, 'state')]),
      [
        ['fake', 'ready'],
        ['second', 'starting'],
      ],
    );
    assert.equal(at(one, 'result', 'state'), 'starting');
    assert.equal(at(loading, 'error', 'code'), -32003);
    assert.equal(at(answer, 'result', 'model'), 'fake');
  });

  test('number no two requests alike, and requests.list and requests.cancel reach the right one', async () => {
    const { engine, second, server } = twoModels(false);
    const peers = [connectPeer(server, guest), connectPeer(server, guest)] as const;
    for (let i = 0; i < 3; i++) {
      peers[0].say(call(i, create, chat('x', { model: 'fake' })));
      peers[1].say(call(i, create, chat('x', { model: 'second' })));
    }
    const ids = [...engine.all, ...second.all].map((request) => request.id);
    assert.equal(new Set(ids).size, 6);

    const listed = async (peer: (typeof peers)[number]) => {
      peer.say(call('list', 'requests.list'));
      const rows = at((await peer.hear()).at(-1), 'result', 'requests') as unknown[];
      return rows.map((row) => String(at(row, 'request_id')));
    };
    const [first, other] = [await listed(peers[0]), await listed(peers[1])];
    assert.deepEqual([first.length, other.length, new Set([...first, ...other]).size], [3, 3, 6]);

    const cancel = async (peer: (typeof peers)[number], request_id: string | undefined) => {
      peer.say(call('cancel', 'requests.cancel', { request_id }));
      const answers = await peer.hear();
      return at(
        answers.find((answer) => at(answer, 'id') === 'cancel'),
        'result',
        'cancelled',
      );
    };
    assert.equal(await cancel(peers[0], other[1]), false, 'it is not its own');
    assert.equal(await cancel(peers[1], other[1]), true);
    assert.deepEqual([engine.cancelled, second.cancelled], [[], [second.all[1]?.id]]);
    const admin = connectPeer(server);
    assert.equal((await listed(admin)).length, 5);
    assert.equal(await cancel(admin, first[2]), true);
    assert.deepEqual(engine.cancelled, [engine.all[2]?.id]);
    await settle();
    assert.deepEqual([engine.live.length, second.live.length], [2, 2]);
  });
});

test('token ids beyond the vocabulary are refused by the tokenizer of the model that was asked, by the name of the parameter', async () => {
  const { engine, server } = setup();
  const peer = connectPeer(server);
  const cases = [
    ['logit_bias', create, chat('x', { logit_bias: { 65: 1, 256: 1 } })],
    ['stop_token_ids', create, chat('x', { stop_token_ids: [65, 256] })],
    ['prompt', 'completions.create', { prompt: [[65], [256]] }],
    ['ids', 'detokenize', { ids: [65, 256] }],
  ] as const;
  for (const [path, method, params] of cases) {
    peer.say(call(path, method, params));
    const [answer] = await peer.hear();
    assert.equal(at(answer, 'error', 'code'), -32602);
    assert.deepEqual(at(answer, 'error', 'data'), [{ path, message: '256 is not a token id of this model (0 .. 255)' }]);
    assert.equal(at(answer, 'error', 'message'), `Invalid params: ${path}: 256 is not a token id of this model (0 .. 255)`);
  }
  assert.equal(engine.live.length, 0);
});
