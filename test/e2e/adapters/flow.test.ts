/**
 * Adapters in a whole daemon with the demo model and the pirate (test/fixtures/lora): loaded and unloaded while it runs, by RPC and as the
 * controller of AIBrix does, mixed with requests to the base, and never served from each other's KV.
 */
import assert from 'node:assert/strict';
import { cpSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { startTestDaemon, type TestDaemon } from '../../helpers/daemon/daemon.js';
import { fixture } from '../../helpers/native/native-engine.js';
import { readSafetensors, widenedBf16, writeSafetensors } from '../../helpers/native/safetensors.js';
import { tempFolder } from '../../helpers/temp-folder.js';
import type { Answer, RpcSocket } from '../../helpers/wire/rpc-socket.js';

const question = [{ role: 'user', content: 'What is 99 + 75?' }];
const folder = tempFolder();

/** The pirate with all it adds taken `times`, so that it is another adapter. */
function variant(name: string, times: number): void {
  const path = join(folder, name);
  cpSync(fixture('lora'), path, { recursive: true });
  const file = join(path, 'adapter_model.safetensors');
  const tensors = new Map([...readSafetensors(file)].map(([key, { shape, data }]) => [key, { shape, data: widenedBf16(data) }]));
  for (const [key, { data }] of tensors) if (key.includes('lora_B')) for (let i = 0; i < data.length; i++) data[i] = (data[i] ?? 0) * times;
  writeSafetensors(file, tensors);
}

describe('adapters of a daemon', () => {
  let daemon: TestDaemon;
  let rpc: RpcSocket;
  before(async () => {
    for (const [name, times] of Object.entries({ pirate: 1, half: 0.5, none: 0 })) variant(name, times);
    daemon = await startTestDaemon([
      'lora.enabled=true',
      `lora.folders=[${JSON.stringify(folder)}]`,
      'lora.max_loras=2',
      'lora.max_adapters=4',
    ]);
    rpc = await daemon.open();
  });
  after(() => daemon.close());

  const post = (path: string, body: object): Promise<Response> =>
    fetch(`${daemon.http}${path}`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) });
  const ask = (model: string, more: object = {}): Promise<Answer> =>
    rpc.call('chat.completions.create', { model, messages: question, temperature: 0, max_tokens: 24, ...more });
  const textOf = (answer: Answer): string => String(answer.choices?.[0]?.message?.content);
  const cachedOf = (answer: Answer): number =>
    (answer.usage as unknown as { prompt_tokens_details: { cached_tokens: number } }).prompt_tokens_details.cached_tokens;

  test('the pirate answers as a pirate, under its own name, and the base as before', async () => {
    const plain = textOf(await ask('demo'));
    assert.match(plain, /99 \+ 75 = 174/);
    const loaded = await rpc.call('adapters.load', { name: 'pirate', path: 'pirate' });
    assert.deepEqual([loaded['parent'], loaded['rank'], loaded['modules']], ['demo', 8, 56]);
    const answer = await ask('pirate');
    assert.equal(answer['model'], 'pirate');
    assert.match(textOf(answer), /^Arr!.*99 \+ 75 = 174.*Aye, captain!/s);
    assert.equal(textOf(await ask('demo', { lora: 'pirate' })), textOf(answer), 'lora names it too');
    assert.equal(textOf(await ask('demo')), plain);
    const { data } = (await (await fetch(`${daemon.http}/v1/models`)).json()) as { data: Answer[] };
    const listed = data.find(({ id }) => id === 'pirate');
    assert.deepEqual([listed?.['parent'], listed?.['root']], ['demo', join(folder, 'pirate')]);
  });

  test('A, then B, then the base: the same prompt shares no KV, and each finds its own again', async () => {
    await rpc.call('adapters.load', { name: 'half', path: join(folder, 'half') });
    const long = { messages: [{ role: 'user', content: `Say hello. ${'All the ships of the sea. '.repeat(12)}` }] };
    for (const model of ['pirate', 'half', 'demo']) assert.equal(cachedOf(await ask(model, long)), 0, model);
    for (const model of ['pirate', 'half', 'demo']) assert.ok(cachedOf(await ask(model, long)) > 32, model);
  });

  test('a batch of more adapters than run at once, and the base, answers each as alone', async () => {
    await rpc.call('adapters.load', { name: 'none', path: 'none' });
    const models = ['pirate', 'demo', 'none', 'half'];
    const alone = new Map<string, string>();
    for (const model of models) alone.set(model, textOf(await ask(model, { logprobs: true, top_logprobs: 3 })));
    assert.equal(alone.get('none'), alone.get('demo'), 'an adapter of zeros changes nothing');
    const all = await Promise.all(
      Array.from({ length: 16 }, async (_, i) => [models[i % 4] ?? '', textOf(await ask(models[i % 4] ?? ''))] as const),
    );
    for (const [model, text] of all) assert.equal(text, alone.get(model), model);
    await daemon.untilFreed();
  });

  test('what is loaded again under a name is another adapter, and nothing of the old one is left', async () => {
    const old = textOf(await ask('pirate'));
    const again = await post('/v1/load_lora_adapter', { lora_name: 'pirate', lora_path: 'pirate' });
    assert.equal(again.status, 400, 'it has been loaded');
    assert.match(await again.text(), /already been loaded/);
    const streaming = rpc.call('chat.completions.create', { model: 'pirate', messages: question, temperature: 0, max_tokens: 24 });
    assert.equal((await post('/v1/unload_lora_adapter', { lora_name: 'none' })).status, 200);
    const replaced = await post('/v1/load_lora_adapter', { lora_name: 'pirate', lora_path: join(folder, 'none'), load_inplace: true });
    assert.equal(replaced.status, 200, await replaced.clone().text());
    assert.equal(textOf(await streaming), old, 'a request goes on with what it began with');
    const fresh = await ask('pirate');
    assert.equal(cachedOf(fresh), 0);
    assert.equal(textOf(fresh), textOf(await ask('demo')), 'the one of zeros');
  });

  test('the flow of a controller: look, load, ask, load again, unload, ask in vain', async () => {
    const ids = async (): Promise<unknown[]> => {
      const { data } = (await (await fetch(`${daemon.http}/v1/models`)).json()) as { data: Answer[] };
      return data.map(({ id }) => id);
    };
    const body = { lora_name: 'ship-1', lora_path: join(folder, 'pirate') };
    assert.ok(!(await ids()).includes('ship-1'));
    const first = await post('/v1/load_lora_adapter', body);
    assert.equal(first.status, 200);
    assert.match(await first.text(), /Success: LoRA adapter 'ship-1' added successfully\./);
    assert.ok((await ids()).includes('ship-1'));
    assert.equal((await post('/v1/load_lora_adapter', body)).status, 400);
    const answer = (await (
      await post('/v1/chat/completions', { model: 'ship-1', messages: question, temperature: 0, max_tokens: 24 })
    ).json()) as Answer;
    assert.match(textOf(answer), /Arr!/);
    const gone = await post('/v1/unload_lora_adapter', { lora_name: 'ship-1' });
    assert.equal(gone.status, 200);
    assert.match(await gone.text(), /Success: LoRA adapter 'ship-1' removed successfully\./);
    assert.equal((await post('/v1/unload_lora_adapter', { lora_name: 'ship-1' })).status, 404);
    assert.equal((await post('/v1/chat/completions', { model: 'ship-1', messages: question })).status, 404);
    assert.ok(!(await ids()).includes('ship-1'));
  });

  test('answers go on while an adapter is read that takes long', async () => {
    const path = join(folder, 'long');
    cpSync(join(folder, 'pirate'), path, { recursive: true });
    const config = join(path, 'adapter_config.json');
    const patterns = Object.fromEntries(Array.from({ length: 4000 }, (_, i) => [`none_${i}`, 1]));
    writeFileSync(config, JSON.stringify({ ...(JSON.parse(readFileSync(config, 'utf8')) as object), alpha_pattern: patterns }));
    let read = false;
    const loading = rpc.call('adapters.load', { name: 'long', path: 'long' }).then((answer) => {
      read = true;
      return answer;
    });
    let answered = 0;
    for (; !read; answered++) await ask('demo', { max_tokens: 1 });
    // Two can be told apart from none: one that was on its way before it was read, and one that began behind it.
    assert.ok(answered > 6, `${answered} answers`);
    assert.equal((await loading)['rank'], 8);
    assert.match(textOf(await ask('long')), /^Arr!/);
    await rpc.call('adapters.unload', { name: 'long' });
  });

  test('refusals name what is wrong, and cost nothing', async () => {
    const status = async (body: object): Promise<number> => (await post('/v1/load_lora_adapter', body)).status;
    assert.equal(await status({ lora_name: 'x' }), 400);
    assert.equal(await status({ lora_path: 'pirate' }), 400);
    assert.equal(await status({ lora_name: 'x', lora_path: 'nowhere' }), 404);
    assert.equal(await status({ lora_name: 'x', lora_path: '/etc' }), 404, 'outside of lora.folders');
    assert.equal(await status({ lora_name: 'x', lora_path: '../' }), 404);
    symlinkSync('/etc', join(folder, 'way-out'));
    assert.equal(await status({ lora_name: 'x', lora_path: 'way-out' }), 404, 'links lead nowhere else');
    assert.equal(await status({ lora_name: 'demo', lora_path: 'pirate' }), 400, 'the name of the model');
    mkdirSync(join(folder, 'empty'));
    assert.equal(await status({ lora_name: 'x', lora_path: 'empty' }), 400);
    const dora = join(folder, 'dora');
    cpSync(join(folder, 'pirate'), dora, { recursive: true });
    const config = join(dora, 'adapter_config.json');
    writeFileSync(config, JSON.stringify({ ...(JSON.parse(readFileSync(config, 'utf8')) as object), use_dora: true }));
    const refused = await post('/v1/load_lora_adapter', { lora_name: 'x', lora_path: 'dora' });
    assert.equal(refused.status, 400);
    assert.match(await refused.text(), /use_dora/);
    assert.match(textOf(await ask('demo')), /174/);
  });
});

test('adapters survive a restart of the engine, and are off unless they are asked for', async () => {
  variant('pirate', 1);
  const daemon = await startTestDaemon([
    'lora.enabled=true',
    `lora.preload=["captain=${join(folder, 'pirate')}"]`,
    `lora.folders=[${JSON.stringify(folder)}]`,
  ]);
  try {
    const rpc = await daemon.open();
    const ask = () => rpc.call('chat.completions.create', { model: 'captain', messages: question, temperature: 0, max_tokens: 24 });
    const text = (await ask()).choices?.[0]?.message?.content;
    assert.match(String(text), /Arr!/);
    const { engine } = daemon.daemon;
    daemon.mayFail();
    engine.killActor('executor', 0);
    while (engine.client.state() !== 'restarting') await new Promise((resolve) => setTimeout(resolve, 1));
    assert.equal((await ask()).choices?.[0]?.message?.content, text);
  } finally {
    await daemon.close();
  }
  const plain = await startTestDaemon();
  try {
    const rpc = await plain.open();
    await assert.rejects(rpc.call('adapters.load', { name: 'x', path: 'y' }), /lora.enabled/);
  } finally {
    await plain.close();
  }
});
