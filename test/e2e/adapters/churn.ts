/**
 * Loads and unloads adapters of a daemon under load, and weighs it (1,000 loads when no number is given):
 *
 *   node --max-old-space-size=64 --max-semi-space-size=4 dist/test/e2e/adapters/churn.js [LOADS]
 *
 * Clients ask the base and two adapters all the while; every tenth load takes a name that is in use (load_inplace). Fails when an answer
 * differs from what it was at first, when anything is left behind, or when memory grows by more than 16 MiB from the first fifth on. The
 * heaps of the threads are small, since in large ones garbage waits for minutes to be collected and looks like growth.
 */
import assert from 'node:assert/strict';
import { getHeapStatistics } from 'node:v8';
import { startTestDaemon } from '../../helpers/daemon/daemon.js';
import { fixture } from '../../helpers/native/native-engine.js';

const loads = Number(process.argv[2] ?? 1000);
const MOST_GROWTH_BYTES = 16 * 2 ** 20;
const CLIENTS = 6;
const messages = [{ role: 'user', content: 'What is 99 + 75?' }];
const path = fixture('lora');

assert.ok(
  getHeapStatistics().heap_size_limit < 2 ** 27,
  'the heaps are too large to tell growth from garbage; see the header for the flags',
);

// A small cache, all of whose pages are resident soon.
const daemon = await startTestDaemon([
  'lora.enabled=true',
  `lora.folders=[${JSON.stringify(fixture())}]`,
  'lora.max_loras=3',
  'cache.num_gpu_blocks_override=256',
]);
try {
  const control = await daemon.open();
  const load = (name: string, inPlace = false) => control.call('adapters.load', { name, path, load_inplace: inPlace });
  await load('kept');
  await load('replaced');
  const names = ['demo', 'kept', 'replaced'];
  const wanted = new Map<string, string>();
  let answers = 0;
  let over = false;
  const client = async (i: number): Promise<void> => {
    const rpc = await daemon.open();
    for (let n = i; !over; n++) {
      const model = names[n % names.length] ?? '';
      const { choices } = await rpc.call('chat.completions.create', { model, messages, temperature: 0, max_tokens: 24 });
      const text = String(choices?.[0]?.message?.content);
      assert.equal(text, wanted.get(model) ?? text, model);
      wanted.set(model, text);
      answers++;
      rpc.log.length = 0; // The daemon is to be weighed, not what its clients remember.
    }
    await rpc.close();
  };
  const clients = Array.from({ length: CLIENTS }, (_, i) => client(i));
  const weights: number[] = [];
  const began = performance.now();
  for (let i = 0; i < loads; i++) {
    if (i % 10 === 9) await load('replaced', true);
    await load('passing');
    if (i % 3 === 0) await control.call('chat.completions.create', { model: 'passing', messages, temperature: 0, max_tokens: 4 });
    await control.call('adapters.unload', { name: 'passing' });
    control.log.length = 0;
    if (i % Math.max(1, Math.floor(loads / 10)) === 0) weights.push(process.memoryUsage().rss);
  }
  weights.push(process.memoryUsage().rss);
  over = true;
  await Promise.all(clients);
  const left = (await control.call('adapters.list')) as unknown as { data: { name: string }[] };
  assert.deepEqual(left.data.map(({ name }) => name).sort(), ['kept', 'replaced']);
  await daemon.untilFreed();
  const settled = weights.slice(Math.ceil(weights.length / 5));
  const growth = Math.max(...settled) - (settled[0] ?? 0);
  const seconds = ((performance.now() - began) / 1000).toFixed(1);
  process.stdout.write(
    `${loads} loads and unloads in ${seconds} s beside ${answers} answers; resident MiB: ${weights.map((w) => Math.round(w / 2 ** 20)).join(' ')}\n`,
  );
  assert.ok(growth < MOST_GROWTH_BYTES, `memory grew by ${Math.round(growth / 2 ** 20)} MiB`);
} finally {
  await daemon.close();
}
