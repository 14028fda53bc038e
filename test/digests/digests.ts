/**
 * What the engine computes, as SHA-256 digests, a line each: two versions that print the same lines on the same machine give the same
 * answers to the last bit. For changes of structure, which must change no answer:
 *
 *   node dist/test/digests/digests.js > before     (then the other version)     node dist/test/digests/digests.js > after; diff before after
 *
 * For each kernel set of this machine: logits, tokens and log-probabilities of every golden pack, in every way that the golden test puts a
 * prompt through the engine; the token ids of the evaluation set; 200 seeded streams with mixed parameters, every event of them.
 */
import { createHash, type Hash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { silentLog } from '../../actors/runtime/log.js';
import { loadConfig } from '../../config/load.js';
import { resolveModelFolder } from '../../config/models/model-folder.js';
import { startDaemon } from '../../daemon/daemon.js';
import { startEngine } from '../../daemon/life/engine.js';
import { type EngineOptions, loadAddon, packageRoot } from '../../native/index.js';
import { privateEnv } from '../helpers/daemon/daemon.js';
import { generate, openPack, packs, type Run, readGolden, type Way } from '../helpers/native/golden.js';
import { mixedRequest, pooled } from '../helpers/wire/mixed-requests.js';
import { RpcSocket } from '../helpers/wire/rpc-socket.js';

const TOKENS = 32;
const STREAMS = 200;
/** Few enough that the slowest kernel set answers each in time. */
const IN_FLIGHT = 6;

/** The ways of test/native/golden.test.ts. */
const ways: Readonly<Record<string, { readonly options: Partial<EngineOptions>; readonly way: (promptLength: number) => Way }>> = {
  whole: { options: {}, way: () => ({}) },
  'chunks of 7': { options: {}, way: () => ({ slot: 1, firstBlock: 16, chunk: 7 }) },
  cached: { options: {}, way: (n) => ({ slot: 2, firstBlock: 16, cachedBlocks: Math.floor(n / 2 / 16) }) },
  'two in flight': { options: {}, way: () => ({ slot: 3, firstBlock: 16, runAhead: true }) },
  swapped: { options: {}, way: () => ({ slot: 4, firstBlock: 16, swapAt: 9 }) },
  'blocks of 1': { options: { blockSize: 1 }, way: () => ({}) },
  'bf16 cache': { options: { kvDtype: 'bf16' }, way: () => ({}) },
  'f16 cache': { options: { kvDtype: 'f16' }, way: () => ({}) },
  int8: { options: { quantization: 'int8' }, way: () => ({}) },
  int4: { options: { quantization: 'int4' }, way: () => ({}) },
};

function print(isa: string, what: string, hash: Hash): void {
  process.stdout.write(`${hash.digest('hex')}  ${isa}  ${what}\n`);
}

function addRun(hash: Hash, run: Run): Hash {
  for (const [position, values] of [...run.logits].sort(([a], [b]) => a - b)) {
    hash.update(`${position}:`).update(new Uint8Array(values.buffer, values.byteOffset, values.byteLength));
  }
  return hash.update(Int32Array.from(run.tokens)).update(Float32Array.from(run.logprobs));
}

function digestPacks(isa: string): void {
  for (const pack of packs) {
    const { ids } = readGolden(pack);
    for (const [name, { options, way }] of Object.entries(ways)) {
      const engine = openPack(pack, { ...options, isa });
      const blockSize = options.blockSize ?? 16;
      const { slot = 0, ...rest } = way(ids.length);
      // What a later slot takes from the cache has to be there.
      if (slot > 0) generate(engine, ids, TOKENS, blockSize);
      const run = generate(engine, ids, TOKENS, blockSize, { slot, ...rest });
      print(isa, `golden ${pack}, ${name}`, addRun(createHash('sha256'), run));
      engine.close();
    }
  }
}

async function digestDaemon(isa: string): Promise<void> {
  const env = privateEnv();
  const sets = ['server.port=0', 'inference.device=cpu', 'inference.threads=2', 'scheduler.max_num_batched_tokens=256'];
  const { config } = loadConfig({ sets, env });
  const executor = new URL('./forced-isa.js', import.meta.url);
  executor.searchParams.set('isa', isa);
  const daemon = await startDaemon({
    config,
    model: resolveModelFolder(config, env),
    log: silentLog,
    publish: true,
    signals: false,
    env,
    startEngine: (c, model, hooks) => startEngine(c, model, hooks, { executorModule: executor.href }),
  });
  const socket = await RpcSocket.open(daemon.addresses.ws);
  const cases = readFileSync(join(packageRoot(), 'test', 'fixtures', 'eval', 'demo.jsonl'), 'utf8')
    .trim()
    .split('\n');
  const answered: string[] = [];
  await pooled(
    cases.length,
    async (i) => {
      const { messages, tools } = JSON.parse(cases[i] ?? '') as { messages: unknown; tools?: unknown };
      const params = { messages, temperature: 0, return_token_ids: true, ...(tools === undefined ? {} : { tools }) };
      const { choices } = await socket.call('chat.completions.create', params);
      answered[i] = JSON.stringify(choices?.map((choice) => choice.token_ids));
    },
    IN_FLIGHT,
  );
  print(isa, `evaluation set, ${cases.length} answers`, createHash('sha256').update(answered.join('\n')));

  const streamed: string[] = [];
  await pooled(
    STREAMS,
    async (i) => {
      const { method, params } = mixedRequest(i);
      const id = socket.send(method, { ...params, stream: true });
      const { result, error } = await socket.reply(id);
      // How many steps' tokens one event holds is a matter of time, so they are added up.
      const sum = new Map<number, unknown[]>();
      for (const event of socket.events(id)) {
        for (const choice of (event.params?.['choices'] ?? []) as { index: number; delta?: { content?: string }; text?: string }[]) {
          const { delta, text, index, ...rest } = choice;
          sum.set(
            index,
            [...(sum.get(index) ?? []), delta?.content ?? text ?? '', ...Object.values(rest)].filter((v) => v !== null),
          );
        }
      }
      const flat = [...sum].sort(([a], [b]) => a - b).map(([index, parts]) => [index, joined(parts)]);
      streamed[i] = JSON.stringify([flat, error ?? result?.choices, result?.usage?.completion_tokens]);
    },
    IN_FLIGHT,
  );
  print(isa, `${STREAMS} seeded streams`, createHash('sha256').update(streamed.join('\n')));
  await socket.close();
  await daemon.stop('done');
}

/** The texts of a choice as one, its token ids as one list, the rest as it is. */
function joined(parts: readonly unknown[]): unknown[] {
  const texts = parts.filter((p) => typeof p === 'string').join('');
  return [texts, parts.flatMap((p) => (Array.isArray(p) ? (p as unknown[]) : []))];
}

for (const isa of loadAddon().systemInfo().usableIsas) {
  digestPacks(isa);
  await digestDaemon(isa);
}
