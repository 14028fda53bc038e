/**
 * Three models beside each other under load, one of them loaded and unloaded many times: does memory stay flat, are requests lost, do answers
 * stay what they were? Run by hand: node dist/test/bench/models.js [--cycles 100]. Prints one JSON line, and fails when a request is
 * lost or answered otherwise.
 */
import assert from 'node:assert/strict';
import { cpSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { packageRoot } from '../../native/index.js';
import { startTestDaemon } from '../helpers/daemon/daemon.js';
import { tempFolder } from '../helpers/temp-folder.js';
import { RpcSocket } from '../helpers/wire/rpc-socket.js';
import { origin } from './report.js';

const cycles = Number(parseArgs({ options: { cycles: { type: 'string', default: '100' } } }).values.cycles);
const [comes, stays] = ['qwen3-qknorm', 'llama3.1-gqa'];
const folder = tempFolder();
for (const name of [comes, stays]) cpSync(join(packageRoot(), 'test', 'fixtures', 'golden', name), join(folder, name), { recursive: true });

const at = await startTestDaemon([
  'cache.num_gpu_blocks_override=512',
  'scheduler.max_num_sequences=8',
  `models.directories=["${folder}"]`,
  'models.keep_alive_s=0',
]);

async function answer(socket: RpcSocket, model: string, i: number): Promise<string> {
  const params = { model, prompt: `${i} apples`, max_tokens: 16, temperature: 0, ignore_eos: true, return_token_ids: true };
  const { result, error } = await socket.reply(socket.send('completions.create', params));
  assert.equal(error, undefined, JSON.stringify(error));
  return JSON.stringify((result as unknown as { readonly choices: readonly { readonly token_ids: unknown }[] }).choices[0]?.token_ids);
}

interface Held {
  readonly rss_mib: number;
  readonly threads: number;
  readonly files: number;
}

function held(): Held {
  globalThis.gc?.();
  return {
    rss_mib: Math.round(process.memoryUsage.rss() / 2 ** 20),
    threads: readdirSync('/proc/self/task').length,
    files: readdirSync('/proc/self/fd').length,
  };
}

const models = ['demo', comes, stays];
const control = await RpcSocket.open(at.ws);
const expected = new Map<string, string[]>();
for (const model of models) expected.set(model, await Promise.all([0, 1, 2, 3].map((i) => answer(control, model, i))));

let ended = false;
const load = models.map(async (model) => {
  const socket = await RpcSocket.open(at.ws);
  let count = 0;
  for (; !ended; count++) {
    assert.equal(await answer(socket, model, count % 4), expected.get(model)?.[count % 4], model);
    socket.log.length = 0; // of the client, and no part of what is measured
  }
  await socket.close();
  return count;
});

const marks: Held[] = [];
const startedMs = performance.now();
for (let i = 0; i < cycles; i++) {
  const { error } = await control.reply(control.send('models.unload', { model: comes }));
  assert.ok(error === undefined || /is not loaded/.test(error.message), error?.message);
  const loaded = await control.reply(control.send('models.load', { model: comes }));
  assert.equal(loaded.error, undefined, JSON.stringify(loaded.error));
  if (i === Math.floor(cycles / 10) || i === Math.floor(cycles / 2) || i === cycles - 1) marks.push(held());
}
ended = true;
const answered = await Promise.all(load);
await control.close();
await at.close();
const seconds = Math.round((performance.now() - startedMs) / 100) / 10;
console.log(
  JSON.stringify({
    bench: 'models',
    cycles,
    seconds,
    answered: Object.fromEntries(models.map((m, i) => [m, answered[i]])),
    held: marks,
    ...origin(),
  }),
);
