/**
 * Several models in one daemon, on the CPU: the demo model and golden packs. They answer as in daemons of their own, are loaded by name, by
 * call and unloaded again, and one that crashes or does not fit disturbs no other.
 */
import assert from 'node:assert/strict';
import { cpSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { loadAddon, packageRoot } from '../../native/index.js';
import { startTestDaemon, type TestDaemon } from '../helpers/daemon/daemon.js';
import { eventually } from '../helpers/eventually.js';
import { tempFolder } from '../helpers/temp-folder.js';
import { scrape } from '../helpers/wire/exposition.js';
import type { RpcSocket } from '../helpers/wire/rpc-socket.js';

const packs = ['qwen3-qknorm', 'llama3.1-gqa'] as const;

/** A folder with copies of golden packs, as models.directories names it. */
function modelsFolder(names: readonly string[] = packs): string {
  const folder = tempFolder();
  for (const name of names) cpSync(join(packageRoot(), 'test', 'fixtures', 'golden', name), join(folder, name), { recursive: true });
  return folder;
}

const small = ['cache.num_gpu_blocks_override=512', 'scheduler.max_num_sequences=8'];
const question = (model: string, i: number) => ({
  model,
  prompt: `${i} apples and ${i * 7} pears`,
  max_tokens: 12,
  temperature: 0,
  ignore_eos: true,
  return_token_ids: true,
});

type Row = { readonly id: string; readonly state: string; readonly [key: string]: unknown };

async function stateOf(socket: RpcSocket, model: string): Promise<string> {
  const { data } = (await socket.call('models.list')) as unknown as { readonly data: readonly Row[] };
  return data.find(({ id }) => id === model)?.state ?? 'missing';
}

/** The token ids that a model answers to some questions. */
async function answers(socket: RpcSocket, model: string, count: number): Promise<unknown[]> {
  const ids = Array.from({ length: count }, (_, i) => socket.send('completions.create', question(model, i)));
  const replies = await Promise.all(ids.map((id) => socket.reply(id)));
  return replies.map(({ result, error }) => {
    assert.equal(error, undefined, JSON.stringify(error));
    return (result as unknown as { readonly choices: readonly { readonly token_ids: unknown }[] }).choices[0]?.token_ids;
  });
}

describe('three models in one daemon', async () => {
  const folder = modelsFolder();
  const at = await startTestDaemon([...small, `models.directories=["${folder}"]`, 'models.keep_alive_s=0']);
  const socket = await at.open();
  after(async () => {
    await socket.close();
    await at.close();
  });

  test('are listed with their states, the default one first', async () => {
    const { data } = (await socket.call('models.list')) as unknown as { readonly data: readonly Row[] };
    assert.deepEqual(
      data.map(({ id, state }) => [id, state]),
      [
        ['demo', 'ready'],
        ['llama3.1-gqa', 'unloaded'],
        ['qwen3-qknorm', 'unloaded'],
      ],
    );
    const reply = await fetch(`${at.http}/v1/models/qwen3-qknorm`);
    assert.equal(((await reply.json()) as Row).state, 'unloaded');
    const unknown = await socket.reply(socket.send('models.load', { model: 'no such model' }));
    assert.equal(unknown.error?.code, -32002);
    assert.match(unknown.error?.message ?? '', /serves "demo", "llama3.1-gqa", "qwen3-qknorm"/);
  });

  test('answer as each does in a daemon of its own, while all of them work', async () => {
    const beside = await Promise.all(['demo', ...packs].map((model) => answers(socket, model, 6)));
    assert.deepEqual(await Promise.all(packs.map((model) => stateOf(socket, model))), ['ready', 'ready']);
    for (const [i, model] of packs.entries()) {
      const alone = await startTestDaemon([
        ...small,
        `inference.model_name="${join(folder, model)}"`,
        `inference.served_model_name=${model}`,
      ]);
      const other = await alone.open();
      assert.deepEqual(beside[i + 1], await answers(other, model, 6), model);
      await other.close();
      await alone.close();
    }
  });

  test('tell their figures apart, and tokenize each with its own vocabulary', async () => {
    const figures = await scrape(at.http);
    for (const model of ['demo', ...packs]) assert.ok(figures.value('vllm:generation_tokens_total', { model_name: model }) >= 72, model);
    const counts = await Promise.all(['demo', ...packs].map((model) => socket.call('tokenize', { text: 'Hello, apples', model })));
    assert.ok(new Set(counts.map((one) => JSON.stringify(one))).size > 1);
  });

  test('a stream tells how far loading is, and a call that waits can be cancelled', async () => {
    const [model] = packs;
    assert.equal(((await socket.call('models.unload', { model })) as unknown as Row).state, 'unloaded');
    const cancelled = socket.send('completions.create', question(model, 1));
    socket.send('$/cancelRequest', { id: cancelled });
    assert.equal((await socket.reply(cancelled)).error?.code, -32800);
    await socket.call('models.load', { model });
    await socket.call('models.unload', { model });
    const id = socket.send('completions.create', { ...question(model, 1), stream: true });
    assert.equal((await socket.reply(id)).error, undefined);
    const kinds = socket.events(id).map(({ params }) => (params as { readonly kind?: string }).kind);
    assert.ok(kinds.includes('loading') && kinds.indexOf('loading') < kinds.indexOf('delta'), kinds.join());
    const load = socket.send('models.load', { model, stream: true });
    assert.equal(((await socket.reply(load)).result as unknown as Row).state, 'ready');
  });

  test('one is loaded and unloaded again and again, and no request of it or of the others is lost', async () => {
    const [model, other] = packs;
    const expected = [await answers(socket, model, 2), await answers(socket, other, 2)];
    let ended = false;
    const work = async (): Promise<number> => {
      let count = 0;
      for (; !ended; count++) {
        assert.deepEqual([await answers(socket, model, 2), await answers(socket, other, 2)], expected);
      }
      return count;
    };
    const working = work();
    for (let i = 0; i < 10; i++) {
      const reply = await socket.reply(socket.send('models.unload', { model }));
      assert.ok(reply.error === undefined || /is not loaded/.test(reply.error.message), reply.error?.message);
      await socket.call('models.load', { model });
    }
    ended = true;
    assert.ok((await working) > 0);
  });

  test('each load of one constrains answers anew, and each unload gives back what its grammars took', async () => {
    const [model] = packs;
    const asked = { ...question(model, 1), ignore_eos: false, structured_outputs: { choice: ['pear', 'apple'] } };
    const unload = async (): Promise<unknown> => socket.call('models.unload', { model });
    await unload();
    const before = loadAddon().grammarCounts();
    for (let i = 0; i < 5; i++) {
      const { result, error } = await socket.reply(socket.send('completions.create', asked));
      assert.equal(error, undefined, JSON.stringify(error));
      const { text } = (result as unknown as { readonly choices: readonly [{ readonly text: string }] }).choices[0];
      assert.match(text, /^(pear|apple)$/);
      assert.equal(loadAddon().grammarCounts().vocabularies, before.vocabularies + 1);
      await unload();
      await eventually('they are given back', () => loadAddon().grammarCounts().vocabularies === before.vocabularies);
      assert.deepEqual(loadAddon().grammarCounts(), before);
    }
    await socket.call('models.load', { model });
  });

  test('an executor that dies disturbs no request of the others', async () => {
    const [model] = packs;
    const story = socket.send('completions.create', { ...question('demo', 3), max_tokens: 200 });
    const restarted = socket.send('completions.create', { ...question(model, 3), max_tokens: 200 });
    at.mayFail();
    await eventually('both run', () => at.daemon.models.requests().length === 2);
    at.daemon.models.handle(model)?.killActor('executor', 0);
    for (const id of [story, restarted]) {
      const { result, error } = await socket.reply(id);
      assert.equal(error, undefined);
      assert.equal(result?.usage?.completion_tokens, 200);
    }
    assert.equal((await fetch(`${at.http}/health`)).status, 200);
  });

  test('one that gives up is failed, its requests end, the others go on, and it can be loaded again', async () => {
    const [model] = packs;
    const story = socket.send('completions.create', { ...question('demo', 4), max_tokens: 400 });
    at.mayFail();
    await eventually('it gives up', () => {
      const { state } = at.daemon.models.find(model).residence;
      if (state === 'ready') at.daemon.models.handle(model)?.killActor('executor', 0);
      return state === 'failed';
    });
    const refused = await socket.reply(socket.send('completions.create', question(model, 1)));
    assert.equal(refused.error?.code, -32012);
    assert.equal((await socket.reply(story)).result?.usage?.completion_tokens, 400);
    assert.equal((await fetch(`${at.http}/ready`)).status, 200);
    await socket.call('models.load', { model });
    assert.equal((await answers(socket, model, 1)).length, 1);
  });
});

/** One daemon for one test. */
async function withDaemon(sets: readonly string[], work: (at: TestDaemon, socket: RpcSocket) => Promise<void>): Promise<void> {
  const at = await startTestDaemon([...small, ...sets]);
  const socket = await at.open();
  try {
    await work(at, socket);
  } finally {
    await socket.close();
    await at.close();
  }
}

test('a model that does not fit is refused with what to do, and no other is unloaded for it', async () => {
  const folder = modelsFolder();
  writeFileSync(join(folder, 'qwen3-qknorm.toml'), '[cache]\nnum_gpu_blocks_override = 16777216\n');
  await withDaemon([`models.directories=["${folder}"]`, 'models.max_loaded=1', 'models.pinned=["demo"]'], async (at, socket) => {
    const large = await socket.reply(socket.send('models.load', { model: 'qwen3-qknorm' }));
    assert.equal(large.error?.code, -32007);
    const full = await socket.reply(socket.send('completions.create', question('llama3.1-gqa', 1)));
    assert.equal(full.error?.code, -32007);
    assert.match(full.error?.message ?? '', /max_loaded = 1; unload "demo" \(pinned\) first/);
    assert.equal(await stateOf(socket, 'demo'), 'ready');
    await socket.call('models.unload', { model: 'demo' });
    const alone = await socket.reply(socket.send('models.load', { model: 'qwen3-qknorm' }));
    assert.match(alone.error?.message ?? '', /needs .* GiB \(weights .*, KV cache .*\), but .* are free/);
    assert.equal((await answers(socket, 'llama3.1-gqa', 1)).length, 1);
    assert.equal((await fetch(`${at.http}/ready`)).status, 200);
  });
});

test('where one more would be too many, the one unused for longest makes room; what is unused for long leaves by itself', async () => {
  const folder = modelsFolder();
  const sets = [`models.directories=["${folder}"]`, 'models.max_loaded=2', 'models.keep_alive_s=1', 'models.preload=["llama3.1-gqa"]'];
  await withDaemon(sets, async (_, socket) => {
    await eventually('the model is loaded at the start', async () => (await stateOf(socket, 'llama3.1-gqa')) === 'ready');
    await answers(socket, 'demo', 1);
    await answers(socket, 'qwen3-qknorm', 1);
    assert.equal(await stateOf(socket, 'llama3.1-gqa'), 'unloaded');
    assert.equal(await stateOf(socket, 'demo'), 'ready');
    await eventually('it leaves', async () => (await stateOf(socket, 'qwen3-qknorm')) === 'unloaded');
    assert.equal(await stateOf(socket, 'demo'), 'ready', 'the default model stays');
  });
});

test('without load_on_demand only calls of an administrator load', async () => {
  const folder = modelsFolder(['llama3.1-gqa']);
  await withDaemon([`models.directories=["${folder}"]`, 'models.load_on_demand=false'], async (_, socket) => {
    const refused = await socket.reply(socket.send('completions.create', question('llama3.1-gqa', 1)));
    assert.equal(refused.error?.code, -32002);
    await socket.call('models.load', { model: 'llama3.1-gqa' });
    assert.equal((await answers(socket, 'llama3.1-gqa', 1)).length, 1);
  });
});

test("a model's own file is read, also the one of the user", async () => {
  const folder = modelsFolder(['llama3.1-gqa']);
  await withDaemon([`models.directories=["${folder}"]`], async ({ env }, socket) => {
    const own = join(env['HOME'] ?? '', '.config', 'inferd', 'models');
    mkdirSync(own, { recursive: true });
    writeFileSync(join(own, 'llama3.1-gqa.toml'), '[validation]\nmax_n = 1\n');
    const refused = await socket.reply(socket.send('completions.create', { ...question('llama3.1-gqa', 1), n: 2, temperature: 1 }));
    assert.equal(refused.error?.code, -32602);
    assert.match(refused.error?.message ?? '', /n: .*1/);
    assert.equal((await answers(socket, 'llama3.1-gqa', 1)).length, 1);
  });
});

test('a model of the cache is loaded at the revision that is asked for, under a name that says so', async () => {
  const cache = tempFolder();
  const repo = join(cache, 'models--org--name');
  const snapshot = (commit: string, pack: string, ref: string): void => {
    cpSync(join(packageRoot(), 'test', 'fixtures', 'golden', pack), join(repo, 'snapshots', commit), { recursive: true });
    mkdirSync(join(repo, 'refs'), { recursive: true });
    writeFileSync(join(repo, 'refs', ref), commit);
  };
  snapshot('c0ffee', 'llama3.1-gqa', 'main');
  snapshot('decade', 'qwen3-qknorm', 'v2');
  await withDaemon([`inference.cache_dir="${cache}"`], async (_, socket) => {
    const call = async (method: string, revision: string, model = 'org/name') => {
      const { result, error } = await socket.reply(socket.send(method, { model, revision }));
      return error?.message ?? (({ id, state }) => `${id} ${state}`)(result as unknown as Row);
    };
    assert.equal(await call('models.load', 'main'), 'org/name ready');
    assert.equal(await call('models.load', 'v2'), 'org/name@v2 ready');
    assert.notDeepEqual(await answers(socket, 'org/name@v2', 2), await answers(socket, 'org/name', 2));
    assert.equal(await call('models.unload', 'v2'), 'org/name@v2 unloaded');
    assert.equal(await stateOf(socket, 'org/name'), 'ready');
    assert.equal(
      await call('models.load', 'v3'),
      'The Hugging Face cache has no model "org/name" at revision "v3"; "inferd pull org/name@v3" fetches it',
    );
    assert.match(await call('models.load', 'v2', 'demo'), /has no model "demo" at revision "v2"/);
    assert.match(await call('models.load', '../x'), /revision/);
  });
});
