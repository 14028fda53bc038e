/** Embeddings end to end: golden vectors of a model with sentence-transformers files, and what a crowded engine does to them. */
import assert from 'node:assert/strict';
import { cpSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { startTestDaemon, type TestDaemon } from '../helpers/daemon/daemon.js';
import { fixture } from '../helpers/native/native-engine.js';
import { readSafetensors } from '../helpers/native/safetensors.js';
import { tempFolder } from '../helpers/temp-folder.js';

type Embeddings = readonly { readonly embedding: readonly number[] }[];

const pack = 'qwen3-qknorm';
const golden = readSafetensors(fixture('golden', 'embeddings', 'golden.safetensors'));
const ids = [...(golden.get(`${pack}.input_ids`)?.data ?? [])];
const maxError = 1e-5;

async function withDaemon(sets: readonly string[], body: (at: TestDaemon) => Promise<void>): Promise<void> {
  const at = await startTestDaemon(sets);
  try {
    await body(at);
  } finally {
    await at.close();
  }
}

async function embed(at: TestDaemon, input: unknown): Promise<Embeddings> {
  const headers = { 'content-type': 'application/json' };
  const response = await fetch(`${at.http}/v1/embeddings`, { method: 'POST', headers, body: JSON.stringify({ input }) });
  assert.equal(response.status, 200, await response.clone().text());
  return ((await response.json()) as { data: Embeddings }).data;
}

/** The pack with the files of sentence-transformers that pool so. */
function modelThatPools(mode: string): string {
  const folder = tempFolder();
  cpSync(join(fixture('golden'), pack), folder, { recursive: true });
  const type = (name: string): string => `sentence_transformers.models.${name}`;
  const modules = [
    { idx: 0, name: '0', path: '', type: type('Transformer') },
    { idx: 1, name: '1', path: '1_Pooling', type: type('Pooling') },
    { idx: 2, name: '2', path: '2_Normalize', type: type('Normalize') },
  ];
  mkdirSync(join(folder, '1_Pooling'));
  writeFileSync(join(folder, 'modules.json'), JSON.stringify(modules));
  writeFileSync(join(folder, '1_Pooling', 'config.json'), JSON.stringify({ [`pooling_mode_${mode}`]: true }));
  return folder;
}

for (const [mode, name] of [
  ['lasttoken', 'last'],
  ['mean_tokens', 'mean'],
] as const) {
  test(`a model whose files say ${mode} gives the golden vector, in chunks of 16 beside other inputs`, async () => {
    const sets = [
      `inference.model_name=${modelThatPools(mode)}`,
      `inference.pooling=${name === 'last' ? 'mean' : 'last'}`, // which the files win over
      ...['scheduler.max_num_batched_tokens=16', 'scheduler.max_num_sequences=4'],
    ];
    await withDaemon(sets, async (at) => {
      const wanted = golden.get(`${pack}.${name}`)?.data ?? new Float32Array();
      const data = await embed(at, [ids, [5, 6, 7], ids, ids.slice(0, 30)]);
      for (const one of [0, 2]) {
        const vector = data[one]?.embedding ?? [];
        assert.equal(vector.length, wanted.length);
        for (const [i, x] of vector.entries()) assert.ok(Math.abs(x - (wanted[i] ?? Number.NaN)) <= maxError, `${x} for ${wanted[i]}`);
      }
    });
  });
}

test('a model that pools otherwise serves answers, and says of embeddings why not', async () => {
  await withDaemon([`inference.model_name=${modelThatPools('cls_token')}`], async (at) => {
    const socket = await at.open();
    const id = socket.send('embeddings.create', { input: 'a' });
    const { error } = await socket.reply(id);
    assert.equal(error?.code, -32011);
    assert.match(error?.message ?? '', /pools by "cls_token"/);
    const { choices } = await socket.call('completions.create', { prompt: [5, 6], max_tokens: 2 });
    assert.equal(choices?.length, 1);
    await socket.close();
  });
});

test('where blocks are short and answers grow, no bit of a vector changes', async () => {
  const input = Array.from({ length: 12 }, (_, i) => Array.from({ length: 150 + 9 * i }, (_, at) => 100 + ((at * (i + 3)) % 900)));
  for (const pooling of ['last', 'mean']) {
    const quiet: Embeddings[] = [];
    await withDaemon([`inference.pooling=${pooling}`], async (at) => void quiet.push(await embed(at, input)));
    const crowded = [
      `inference.pooling=${pooling}`,
      ...['scheduler.max_model_len=512', 'scheduler.max_num_batched_tokens=64', 'scheduler.max_num_sequences=8'],
      ...['cache.num_gpu_blocks_override=40', 'cache.swap_space_bytes=4000000', 'cache.enable_prefix_caching=true'],
    ];
    await withDaemon(crowded, async (at) => {
      const socket = await at.open();
      const long = { prompt: 'Count from 1 to 100.', max_tokens: 250, ignore_eos: true, temperature: 0 };
      const answers = Array.from({ length: 5 }, () => socket.call('completions.create', long));
      assert.deepEqual(await embed(at, input), quiet[0], pooling);
      await Promise.all(answers);
      assert.ok(((await at.untilFreed()).requests?.preempted_total ?? 0) > 0, 'something gave way');
      await socket.close();
    });
  }
});
