/** Calls hold a lease of their model's engine: they wait for one that is being loaded, tell how far it is, and give it back once. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { InferdError } from '../../actors/messages/errors.js';
import { fixedModels, type Lease, type LeaseAsker, type Models, type Served } from '../../rpc/models.js';
import { createRpcServer } from '../../rpc/server.js';
import { at, call, chat, connectPeer, notify, settle, setup } from './harness.js';

/** One model that is loaded when the test says so. */
class SlowModels implements Models {
  readonly #models: Models;
  readonly #served: Served;
  readonly asked: { readonly asker: LeaseAsker; readonly come: () => void; readonly refuse: (error: Error) => void }[] = [];
  given = 0;
  released = 0;

  constructor(served: Served) {
    this.#served = served;
    this.#models = fixedModels(served);
  }

  find: Models['find'] = (name) => ({ ...this.#models.find(name), engine: null });
  list: Models['list'] = () => this.#models.list();
  loaded: Models['loaded'] = () => [];
  load: Models['load'] = (name, asker) => this.#models.load(name, asker);
  unload: Models['unload'] = (name) => this.#models.unload(name);

  acquire(_name: string | null | undefined, asker: LeaseAsker): Promise<Lease> {
    return new Promise((resolve, reject) => {
      const come = (): void => {
        this.given++;
        resolve({ served: this.#served, release: () => this.released++ });
      };
      this.asked.push({ asker, come, refuse: reject });
    });
  }
}

function loading() {
  const { deps, engine } = setup();
  const models = new SlowModels(deps.models.loaded()[0] as Served); // proof: setup has one
  return { models, engine, peer: connectPeer(createRpcServer({ ...deps, models })) };
}

const create = 'chat.completions.create';

describe('a call whose model is being loaded', () => {
  test('tells its stream how far that is, then answers as ever and gives the lease back', async () => {
    const { models, engine, peer } = loading();
    peer.say(call(1, create, chat('x', { stream: true })));
    await settle();
    models.asked[0]?.asker.onLoading?.({ phase: 'weights', done: 1, total: 4 });
    const [told] = await peer.hear();
    assert.deepEqual(at(told, 'params'), { token: 1, seq: 0, kind: 'loading', phase: 'weights', done: 1, total: 4 });
    assert.equal(engine.all.length, 0);
    models.asked[0]?.come();
    const rest = await peer.hear();
    assert.deepEqual(at(rest[0], 'params', 'seq'), 1);
    assert.equal(at(rest.at(-1), 'result', 'model'), 'fake');
    assert.deepEqual([models.given, models.released], [1, 1]);
  });

  test('is cancelled while it waits, and a lease that comes later goes back', async () => {
    const { models, engine, peer } = loading();
    peer.say(call(1, create, chat('x')));
    peer.say(call(2, 'embeddings.create', { input: 'x' }));
    await settle();
    assert.equal(models.asked.length, 2);
    for (const id of [1, 2]) peer.say(notify('$/cancelRequest', { id }));
    const answers = await peer.hear();
    assert.deepEqual(
      answers.map((answer) => at(answer, 'error', 'code')),
      [-32800, -32800],
    );
    for (const { come } of models.asked) come();
    assert.deepEqual(await peer.hear(), []);
    assert.deepEqual([engine.all.length, models.given, models.released], [0, 2, 2]);
  });

  test('is refused as the load is, once', async () => {
    const { models, peer } = loading();
    peer.say(call(1, create, chat('x')));
    peer.say(call(2, 'embeddings.create', { input: 'x' }));
    peer.say(call(3, 'tokenize', { text: 'x' }));
    await settle();
    for (const { refuse } of models.asked) refuse(new InferdError('out_of_memory', 'It does not fit; unload "other"'));
    const answers = await peer.hear();
    assert.deepEqual(
      answers.map((answer) => at(answer, 'error', 'message')),
      new Array(3).fill('It does not fit; unload "other"'),
    );
  });

  test('checks its parameters before it waits', async () => {
    const { models, peer } = loading();
    peer.say(call(1, create, chat('x', { n: 0 })));
    peer.say(call(2, 'embeddings.create', { input: 'x', dimensions: 9 }));
    peer.say(call(3, 'tokenize', {}));
    assert.deepEqual(
      (await peer.hear()).map((answer) => at(answer, 'error', 'code')),
      [-32602, -32602, -32602],
    );
    assert.equal(models.asked.length, 0);
  });

  test('gives its lease back when it fails, and holds none while it is not asked', async () => {
    const { models, peer } = loading();
    peer.say(call(1, 'detokenize', { ids: [999] }));
    peer.say(call(2, 'tokenize', { text: 'ab' }));
    await settle();
    for (const { come } of models.asked) come();
    await peer.hear();
    assert.deepEqual([models.given, models.released], [2, 2]);
  });
});
