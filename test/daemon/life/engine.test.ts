/** The whole engine on real threads, with a fake model behind the real executor loop: its tokens can be computed from the prompt. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { afterEach, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { EngineState, RequestHandle } from '../../../actors/client-types.js';
import type { SchedulerStats } from '../../../actors/messages/calls.js';
import type { Failure } from '../../../actors/messages/errors.js';
import type { GenerationParams } from '../../../actors/messages/requests.js';
import { packSamplingRow } from '../../../actors/messages/sampling.js';
import { silentLog } from '../../../actors/runtime/log.js';
import { loadConfig } from '../../../config/load.js';
import { resolveModelFolder } from '../../../config/models/model-folder.js';
import type { Config } from '../../../config/schema.js';
import { type EngineHandle, startEngine } from '../../../daemon/life/engine.js';
import { type FakeNativeEngineSettings, fakeNativeEngineModule } from '../../helpers/engine/fake-native-engine.js';
import { generation } from '../../helpers/engine/generation.js';
import { referenceAnswer } from '../../helpers/engine/plan-interpreter.js';
import { eventually } from '../../helpers/eventually.js';

interface Answer {
  readonly tokens: number[][];
  readonly failure: Failure | null;
  readonly ends: number;
}

interface Asked {
  readonly handle: RequestHandle;
  readonly answer: Promise<Answer>;
  /** Resolves with the first tokens. */
  readonly begun: Promise<void>;
}

const engines: EngineHandle[] = [];
afterEach(async () => {
  await Promise.all(engines.splice(0).map((engine) => engine.stop()));
});

function open(settings: FakeNativeEngineSettings = {}, sets: readonly string[] = [], edit = (config: Config): Config => config) {
  const env = {};
  const loaded = loadConfig({ sets: ['scheduler.max_model_len=512', 'scheduler.max_num_sequences=16', ...sets], env });
  const config = edit(loaded.config);
  const model = resolveModelFolder(config, env);
  const states: EngineState[] = [];
  const executorModule = fakeNativeEngineModule({ vocab: model.vocabSize, ...settings });
  const engine = startEngine(config, model, { log: silentLog, onState: (state) => states.push(state) }, { executorModule });
  engines.push(engine);
  return { engine, model, states };
}

function ask(engine: EngineHandle, prompt: readonly number[], changes: Partial<GenerationParams> = {}): Asked {
  const params = generation({ ignoreEos: true, maxTokens: 40, ...changes });
  const tokens: number[][] = Array.from({ length: params.bestOf }, () => []);
  let ends = 0;
  let begin: () => void = () => {};
  const begun = new Promise<void>((resolve) => {
    begin = resolve;
  });
  let handle: RequestHandle | undefined;
  const answer = new Promise<Answer>((resolve) => {
    handle = engine.client.submit({ kind: 'ids', ids: prompt }, params, {
      onEncoded() {},
      onNotice() {},
      onStarted() {},
      onPromptLogprobs() {},
      onDeltas(deltas) {
        for (const d of deltas) tokens[d.index]?.push(...d.tokens);
        begin();
      },
      onEnd(failure) {
        ends++;
        begin();
        // A second end would be counted before this timer fires.
        setTimeout(() => resolve({ tokens, failure, ends }), 20);
      },
    });
  });
  assert.ok(handle);
  return { handle, answer, begun };
}

const prompts = Array.from({ length: 12 }, (_, i) => Array.from({ length: 5 + i * 7 }, (_, p) => 10 + ((i * 31 + p * 7) % 3000)));

function expected(prompt: readonly number[], vocabSize: number, count = 40): number[] {
  const params = generation();
  const row = packSamplingRow(params.sampling, params);
  return referenceAnswer(prompt, count, { row, bias: new Int32Array(0), masked: [], vocabSize }).tokens;
}

/** Resolves with the statistics when nothing runs and no block is held. */
async function statsSettle(engine: EngineHandle): Promise<SchedulerStats> {
  let stats = await engine.client.ask('stats', null);
  await eventually('no block is in use', async () => {
    stats = await engine.client.ask('stats', null);
    return stats.kv.used_blocks === 0 && stats.requests.running === 0;
  });
  return stats;
}

test('answers stay what they are where threads look for what comes before they sleep', async () => {
  const { engine, model } = open({ stepMs: 1 }, ['scheduler.spin_us=300']);
  await engine.ready;
  const [one = []] = prompts;
  for (let alone = 0; alone < 3; alone++) assert.deepEqual((await ask(engine, one).answer).tokens[0], expected(one, model.vocabSize));
  const answers = await Promise.all(prompts.map((prompt) => ask(engine, prompt).answer));
  for (const [i, { tokens }] of answers.entries()) assert.deepEqual(tokens[0], expected(prompts[i] ?? [], model.vocabSize));
});

test('requests run from start to tokens, many at once, and leave no block behind', async () => {
  const { engine, model, states } = open();
  assert.equal(engine.client.state(), 'starting');
  const early = await ask(engine, [1]).answer;
  assert.equal(early.failure?.kind, 'model_loading');
  await engine.ready;
  assert.deepEqual(states, ['ready']);
  assert.equal(engine.client.model()?.totalBlocks, 16 * (512 / 16));
  const answers = await Promise.all(prompts.map((prompt) => ask(engine, prompt).answer));
  for (const [i, { tokens, failure, ends }] of answers.entries()) {
    assert.deepEqual([failure, ends], [null, 1]);
    assert.deepEqual(tokens, [expected(prompts[i] ?? [], model.vocabSize)]);
  }
  const stats = await statsSettle(engine);
  assert.equal(stats.requests.finished_total, prompts.length);
  assert.equal(engine.client.healthy(), true);
});

test('a very long prompt crosses the plan ring and is answered', async () => {
  const { engine, model } = open({}, ['scheduler.max_model_len=4096']);
  await engine.ready;
  const prompt = Array.from({ length: 4000 }, (_, p) => 10 + (p % 4000));
  const { tokens } = await ask(engine, prompt, { maxTokens: 4 }).answer;
  assert.deepEqual(tokens, [expected(prompt, model.vocabSize, 4)]);
});

test('cancel during decoding ends the request once and frees its blocks', async () => {
  const { engine } = open({ stepMs: 3 });
  await engine.ready;
  const asked = ask(engine, prompts[3] ?? [], { maxTokens: 400 });
  await asked.begun;
  asked.handle.cancel();
  const { failure, ends } = await asked.answer;
  assert.deepEqual([failure?.kind, ends], ['cancelled', 1]);
  const stats = await statsSettle(engine);
  assert.equal(stats.requests.aborted_total, 1);
});

for (const kind of ['executor', 'scheduler'] as const) {
  test(`when the ${kind} is killed, every running request goes on with the same tokens`, async () => {
    const { engine, model, states } = open({ stepMs: 3 }, ['inference.num_tokenizer_workers=2']);
    await engine.ready;
    const asked = prompts.map((prompt) => ask(engine, prompt));
    await Promise.all(asked.map((a) => a.begun));
    engine.killActor(kind, 0);
    const late = ask(engine, [5, 6, 7]);
    for (const [i, { answer }] of asked.entries()) {
      const { tokens, failure, ends } = await answer;
      assert.deepEqual([failure, ends], [null, 1]);
      assert.deepEqual(tokens, [expected(prompts[i] ?? [], model.vocabSize)]);
    }
    assert.deepEqual((await late.answer).tokens, [expected([5, 6, 7], model.vocabSize)]);
    assert.deepEqual(states, ['ready', 'restarting', 'ready']);
    await statsSettle(engine);
    assert.equal(engine.client.healthy(), true);
  });
}

test('when a tokenizer is killed, its requests end once and retriable, the others go on, and it comes back', async () => {
  const { engine, model, states } = open({ stepMs: 3 }, ['inference.num_tokenizer_workers=2']);
  await engine.ready;
  const asked = prompts.map((prompt) => ask(engine, prompt));
  await Promise.all(asked.map((a) => a.begun));
  engine.killActor('tokenizer', 0);
  let lost = 0;
  for (const [i, { answer }] of asked.entries()) {
    const { tokens, failure, ends } = await answer;
    assert.equal(ends, 1);
    if (failure === null) assert.deepEqual(tokens, [expected(prompts[i] ?? [], model.vocabSize)]);
    else {
      lost++;
      assert.deepEqual([failure.kind, failure.data], ['engine_failure', { retriable: true }]);
    }
  }
  assert.ok(lost > 0 && lost < prompts.length, `${lost} lost`);
  assert.deepEqual(states, ['ready']);
  await statsSettle(engine);
  const again = await Promise.all(prompts.map((prompt) => ask(engine, prompt).answer));
  for (const { failure } of again) assert.equal(failure, null);
});

test('the only tokenizer being killed makes new requests wait, not fail', async () => {
  const { engine, model } = open();
  await engine.ready;
  engine.killActor('tokenizer', 0);
  await sleep(0);
  for (let i = 0; i < 3; i++) {
    const { tokens, failure } = await ask(engine, [1, 2, 3]).answer;
    if (failure === null) assert.deepEqual(tokens, [expected([1, 2, 3], model.vocabSize)]);
    else assert.deepEqual(failure.data, { retriable: true });
  }
});

test('actors killed one soon after the other while requests come and go: each request ends exactly once', async () => {
  const { engine, model, states } = open({ stepMs: 1 }, ['inference.num_tokenizer_workers=2']);
  await engine.ready;
  const asked: Asked[] = [];
  const kills = [
    ['executor', 0],
    ['tokenizer', 1],
    ['scheduler', 0],
  ] as const;
  for (const [kind, index] of kills) {
    for (let i = 0; i < 10; i++) {
      const one = ask(engine, prompts[i] ?? [], { maxTokens: 30 });
      asked.push(one);
      if (i % 4 === 3) setTimeout(() => one.handle.cancel(), i);
    }
    // The tokenizer dies while the engine restarts; a scheduler must be there to be killed.
    if (kind === 'scheduler') await eventually('the engine is back', () => states.filter((state) => state === 'ready').length === 2);
    else await sleep(20);
    engine.killActor(kind, index);
  }
  for (const [i, { answer }] of asked.entries()) {
    const { tokens, failure, ends } = await answer;
    assert.equal(ends, 1);
    const all = expected(prompts[i % 10] ?? [], model.vocabSize, 30);
    assert.deepEqual(tokens[0], failure === null ? all : all.slice(0, tokens[0]?.length));
    if (failure !== null && failure.kind !== 'cancelled') assert.deepEqual(failure.data, { retriable: true });
  }
  await statsSettle(engine);
});

test('a step that fails again and again uses the restarts up: requests end, the engine gives up', async () => {
  const { engine, states } = open({ failStep: 2 });
  await engine.ready;
  const kinds: (string | undefined)[] = [];
  for (let i = 0; i < 8 && engine.client.state() !== 'failed'; i++) kinds.push((await ask(engine, [1, 2, 3]).answer).failure?.kind);
  assert.ok(
    kinds.every((kind) => kind === 'engine_failure'),
    kinds.join(),
  );
  const { failure, fatal } = await engine.failed;
  assert.deepEqual([failure.kind, fatal], ['engine_failure', false]);
  assert.equal(states.at(-1), 'failed');
  assert.equal(states.filter((s) => s === 'restarting').length, 4);
  assert.equal((await ask(engine, [1]).answer).failure?.kind, 'engine_failure');
});

test('a fatal fault is not answered with a restart', async () => {
  const { engine, states } = open({ failStep: 2, fatal: true });
  await engine.ready;
  const { failure } = await ask(engine, [1, 2, 3]).answer;
  assert.equal(failure?.kind, 'engine_failure');
  assert.equal((await engine.failed).fatal, true);
  assert.deepEqual(states, ['ready', 'restarting', 'failed']);
});

test('a model that cannot be loaded makes ready reject with the reason, and nothing is left', async () => {
  const { engine } = open({ failLoad: 'model.safetensors is cut off' });
  await assert.rejects(engine.ready, { name: 'InferdError', message: 'model.safetensors is cut off' });
  assert.equal(engine.client.state(), 'failed');
});

test('settings that this machine cannot serve make ready reject with one sentence', async () => {
  // As "auto" finds a GPU, which the check of the configuration does not know.
  const { engine } = open({}, ['parallel.tensor_parallel_size=2'], (config) => ({
    ...config,
    inference: { ...config.inference, device: 'cuda' },
  }));
  await assert.rejects(engine.ready, { name: 'InferdError', message: /device_ids/ });
});

test('with several ranks every executor runs every plan, and the death of one restarts them all', async () => {
  const sets = [
    'inference.device=cuda',
    'inference.device_ids=[0, 1]',
    'parallel.tensor_parallel_size=2',
    'cache.num_gpu_blocks_override=512',
  ];
  const { engine, model, states } = open({ stepMs: 2 }, sets);
  await engine.ready;
  const asked = prompts.map((prompt) => ask(engine, prompt));
  await Promise.all(asked.map((a) => a.begun));
  engine.killActor('executor', 1);
  for (const [i, { answer }] of asked.entries()) assert.deepEqual((await answer).tokens, [expected(prompts[i] ?? [], model.vocabSize)]);
  assert.deepEqual(states, ['ready', 'restarting', 'ready']);
});

test('drain refuses new requests and lets the running ones finish', async () => {
  const { engine, model } = open({ stepMs: 3 });
  await engine.ready;
  const running = ask(engine, prompts[1] ?? []);
  await running.begun;
  const drained = engine.drain(10_000);
  assert.equal((await ask(engine, [1]).answer).failure?.kind, 'shutting_down');
  await drained;
  assert.deepEqual((await running.answer).tokens, [expected(prompts[1] ?? [], model.vocabSize)]);
  assert.equal(engine.client.state(), 'draining');
});

test('a drain that is too short ends what runs with shutting_down', async () => {
  const { engine } = open({ stepMs: 20 });
  await engine.ready;
  const running = ask(engine, prompts[1] ?? [], { maxTokens: 400 });
  await running.begun;
  await engine.drain(30);
  const { failure, ends } = await running.answer;
  assert.deepEqual([failure?.kind, ends], ['shutting_down', 1]);
});

test('stop ends what runs, may come twice, and may come before ready', async () => {
  const { engine } = open({ stepMs: 20 });
  await engine.ready;
  const running = ask(engine, prompts[1] ?? [], { maxTokens: 400 });
  await running.begun;
  await Promise.all([engine.stop(), engine.stop()]);
  assert.equal((await running.answer).failure?.kind, 'shutting_down');
  assert.equal(engine.client.state(), 'stopped');
  const early = open().engine;
  await early.stop();
  await assert.rejects(early.ready, { failure: { kind: 'shutting_down', message: 'The daemon is shutting down' } });
});

test('after stop the process ends by itself', () => {
  const script = `
    const { startEngine } = await import(${JSON.stringify(new URL('../../../daemon/life/engine.js', import.meta.url).href)});
    const { loadConfig } = await import(${JSON.stringify(new URL('../../../config/load.js', import.meta.url).href)});
    const { resolveModelFolder } = await import(${JSON.stringify(new URL('../../../config/models/model-folder.js', import.meta.url).href)});
    const { silentLog } = await import(${JSON.stringify(new URL('../../../actors/runtime/log.js', import.meta.url).href)});
    const { config } = loadConfig({ env: {} });
    const model = resolveModelFolder(config, {});
    const executorModule = ${JSON.stringify(fakeNativeEngineModule({ vocab: 4096 }))};
    const engine = startEngine(config, model, { log: silentLog }, { executorModule });
    await engine.ready;
    await engine.stop();
    process.on('exit', () => {
      const left = process.getActiveResourcesInfo().filter((name) => name !== 'PipeWrap'); // standard output
      console.log(JSON.stringify(left));
    });
  `;
  const out = execFileSync(process.execPath, ['--input-type=module', '-e', script], { encoding: 'utf8', timeout: 30_000 });
  assert.equal(out.trim(), '[]');
});
