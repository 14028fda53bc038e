/** The engine behind its JavaScript face: order of calls, steps, results and teardown. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { after, before, describe, test } from 'node:test';
import { Worker } from 'node:worker_threads';
import { engineFault } from '../../actors/messages/errors.js';
import { ROW_FLAG } from '../../actors/messages/step.js';
import {
  addonFile,
  type DeviceTrace,
  type EngineOptions,
  loadAddon,
  type NativeEngine,
  type NativeError,
  TRACE_KIND,
} from '../../native/index.js';
import { answer, blockSets, engineOptions, fixture, nativeError, openEngine, runStep } from '../helpers/native/native-engine.js';
import { buildPlan, type PlanSpec } from '../helpers/native/plan.js';
import { tinyConfig, withModelFolder } from '../helpers/native/tiny-model.js';

const pack = fixture('golden', 'llama3.1-gqa');
const vocab = 320;
const open = (options: Partial<EngineOptions> = {}, numBlocks = 64): NativeEngine => openEngine(pack, options, numBlocks);
const prompt = Array.from({ length: 40 }, (_, i) => (i * 37) % vocab);
const prefill = (slot: number, firstBlock: number, tokens: readonly number[] = prompt): PlanSpec => ({
  newSlots: [{ slot, tokens }],
  blockSets: blockSets(slot, firstBlock, 4),
  rows: [{ slot, start: 0, count: tokens.length }],
  samples: [{ row: 0, slot }],
});

function logSoftmax(logits: Float32Array): Float64Array {
  const max = logits.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY);
  const sum = logits.reduce((a, b) => a + Math.exp(b - max), 0);
  return Float64Array.from(logits, (v) => v - max - Math.log(sum));
}

describe('the life of an engine', () => {
  test('calls out of order are usage errors', () => {
    const engine = loadAddon().createEngine(engineOptions(pack));
    const plan = buildPlan(prefill(0, 0));
    assert.throws(() => engine.submit(plan), nativeError('usage', /after allocateKv/));
    assert.throws(() => engine.allocateKv(8), nativeError('usage', /after the weights/));
    assert.throws(() => engine.wait(new Uint8Array(64), 0), nativeError('usage', /no step in flight/));
    while (!engine.load(10_000).done);
    assert.throws(() => engine.submit(plan), nativeError('usage', /after allocateKv/));
    assert.throws(() => engine.allocateKv(0), nativeError('usage', /numBlocks is 0/));
    engine.allocateKv(8);
    assert.throws(() => engine.allocateKv(8), nativeError('usage', /once/));
    engine.close();
    engine.close();
    assert.throws(() => engine.info(), nativeError('closed', /closed/));
    assert.throws(() => engine.submit(plan), nativeError('closed', /closed/));
  });

  test('loading goes in pieces of about the size asked for and tells how far it is', () => {
    const engine = loadAddon().createEngine(engineOptions(pack));
    let last = 0;
    let calls = 0;
    for (;;) {
      const p = engine.load(50_000);
      calls++;
      assert.ok(p.doneBytes > last && p.doneBytes - last < 100_000, `${p.doneBytes - last} bytes in one call`);
      last = p.doneBytes;
      if (!p.done) continue;
      assert.equal(p.doneBytes, p.totalBytes);
      break;
    }
    assert.ok(calls > 5);
    assert.equal(engine.load(1).done, true);
    engine.close();
  });

  test('info tells sizes that add up', () => {
    const engine = open({ kvDtype: 'bf16', blockSize: 8 });
    const info = engine.info();
    assert.equal(info.architecture, 'LlamaForCausalLM');
    assert.equal(info.vocabSize, vocab);
    assert.equal(info.blockBytes, 3 * 2 * 2 * 64 * 8 * 2);
    assert.equal(info.parameters, 2 * 320 * 64 + 3 * (2 * 64 + 256 * 64 * 2 + 128 * 64 * 2 + 3 * 176 * 64) + 64);
    assert.equal(info.dtype, 'bf16');
    assert.ok(info.freeBytes > 0 && info.totalBytes >= info.freeBytes && info.stepBytes > 0 && info.weightBytes > 0);
    assert.match(info.backend, /^cpu \S+ x2$/);
    engine.close();
  });

  test('a KV pool that cannot fit is refused with the arithmetic', () => {
    const engine = loadAddon().createEngine(engineOptions(pack));
    while (!engine.load(1 << 24).done);
    assert.throws(
      () => engine.allocateKv(2 ** 26),
      nativeError('out_of_memory', /blocks of 49152 bytes \(3 layers x 2 x 2 heads x 64 dims x 16 tokens x f32\) need 3072\.00 GiB/),
    );
    engine.allocateKv(4);
    engine.close();
  });

  const refused: readonly (readonly [options: Record<string, unknown>, code: NativeError['code'], message: RegExp])[] = [
    // What is missing depends on the machine: the library, the driver, or only this GPU.
    [{ backend: 'cuda', deviceId: 63 }, 'unsupported', /no CUDA backend|No NVIDIA driver|GPU/],
    [{ backend: 'metal' }, 'unsupported', /no backend "metal"/],
    [{ isa: 'sse9' }, 'unsupported', /sse9/],
    [{ quantization: 'int2' }, 'usage', /quantization is "int2"; none, int8 and int4 are known/],
    [{ worldSize: 2 }, 'unsupported', /several devices/],
    [{ kvDtype: 'fp4' }, 'usage', /kvDtype is "fp4"; f32, f16, bf16, fp8 and int8 are known/],
    [{ kvDtype: 'fp8' }, 'unsupported', /cannot hold keys and values as fp8, which needs a GPU/],
    [{ kvDtype: 'int8' }, 'unsupported', /cannot hold keys and values as int8, which needs a GPU/],
    [{ blockSize: 0 }, 'usage', /blockSize is 0/],
    [{ maxSlots: -1 }, 'usage', /maxSlots is -1/],
    [{ maxBatchTokens: 2 ** 31 }, 'usage', /maxBatchTokens must be a whole number/],
    [{ maxModelLen: 1.5 }, 'usage', /maxModelLen must be a whole number/],
    [{ loadDummy: 'yes' }, 'usage', /loadDummy must be true or false/],
    [{ modelPath: 7 }, 'usage', /modelPath must be a string/],
    [{ modelPath: '/nonexistent' }, 'io', /Cannot open \/nonexistent\/config.json: No such file/],
  ];
  for (const [options, code, message] of refused) {
    test(`options with ${JSON.stringify(options)} are refused`, () => {
      assert.throws(() => loadAddon().createEngine({ ...engineOptions(pack), ...options } as EngineOptions), nativeError(code, message));
    });
  }

  test('random weights load without a checkpoint and are the same every time', () => {
    withModelFolder({ ...tinyConfig, tie_word_embeddings: true }, (folder) => {
      const tokens = [1, 2].map(() => {
        const engine = openEngine(folder, { loadDummy: true, weightDtype: 'f32' }, 8);
        const out = runStep(engine, {
          ...prefill(0, 0, [1, 2, 3]),
          newSlots: [{ slot: 0, tokens: [1, 2, 3], sampling: { topLogprobs: 3 } }],
        });
        engine.close();
        return out.samples;
      });
      assert.deepEqual(tokens[0], tokens[1]);
      assert.ok(Number.isFinite(tokens[0]?.[0]?.logprob));
    });
  });

  test('a worker thread that is terminated with a step in flight takes its engine down cleanly', async () => {
    const code = `
      const { parentPort, workerData } = require('node:worker_threads');
      const addon = require(workerData.addon);
      const engine = addon.createEngine(workerData.options);
      while (!engine.load(1 << 24).done);
      engine.allocateKv(16);
      for (const plan of workerData.plans) engine.submit(plan);
      parentPort.postMessage(engine.pending());
      for (;;) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1000);`;
    const tokens = Array.from({ length: 200 }, (_, i) => i);
    const plans = [
      buildPlan({ newSlots: [{ slot: 0, tokens }], blockSets: blockSets(0, 0, 16), rows: [{ slot: 0, start: 0, count: 200 }] }),
      buildPlan({ rows: [{ slot: 0, start: 0, count: 200 }] }),
    ];
    for (let i = 0; i < 3; i++) {
      const worker = new Worker(code, { eval: true, workerData: { addon: addonFile(), plans, options: engineOptions(pack) } });
      const pending = await new Promise((resolve, reject) => worker.once('message', resolve).once('error', reject));
      assert.equal(pending, 2);
      await worker.terminate();
    }
  });
});

test('threads that are terminated inside calls, also calls that fail, do not take the process down', () => {
  const thread = `
    const { parentPort, workerData } = require('node:worker_threads');
    const addon = require(workerData);
    parentPort.postMessage('running');
    for (;;) {
      addon.systemInfo();
      try {
        addon.createEngine({});
      } catch {}
    }`;
  const script = `
    const { Worker } = require('node:worker_threads');
    (async () => {
      for (let i = 0; i < 30; i++) {
        const worker = new Worker(${JSON.stringify(thread)}, { eval: true, workerData: process.argv[1] });
        await new Promise((resolve) => worker.once('message', resolve));
        await new Promise((resolve) => setTimeout(resolve, i % 7));
        await worker.terminate();
      }
    })();`;
  const { status, signal, stderr } = spawnSync(process.execPath, ['-e', script, addonFile()], { encoding: 'utf8' });
  assert.deepEqual([status, signal], [0, null], stderr);
});

test('memory that runs out in a thread of the sampler fails the step, and the process goes on', {
  skip: process.platform !== 'linux',
}, () => {
  const helpers = new URL('../helpers/native/', import.meta.url).href;
  // What sampling needs of a vocabulary of 2 million is 8 MB a piece, so that a piece and a half more are not enough for one thread.
  const config = { ...tinyConfig, vocab_size: 2 ** 21, hidden_size: 8, intermediate_size: 8, num_hidden_layers: 1 };
  const script = `
    import { execFileSync } from 'node:child_process';
    import { readFileSync } from 'node:fs';
    import { answer, blockSets, openEngine, runStep } from '${helpers}native-engine.js';
    import { buildPlan } from '${helpers}plan.js';
    const slots = [0, 1, 2, 3, 4, 5, 6, 7];
    const limit = (bytes) => execFileSync('prlimit', ['--pid', String(process.pid), '--data=' + bytes + ':']);
    const used = () => 1024 * Number(/VmData:\\s+(\\d+)/.exec(readFileSync('/proc/self/status', 'utf8'))[1]);
    const plan = (temperature) => ({
      newSlots: slots.map((slot) => ({ slot, tokens: [1], sampling: { temperature } })),
      blockSets: slots.flatMap((slot) => blockSets(slot, slot, 1)),
      rows: slots.map((slot) => ({ slot, start: 0, count: 1 })),
      samples: slots.map((slot) => ({ row: slot, slot })),
    });
    const open = () => openEngine(process.argv[1], { loadDummy: true, weightDtype: 'bf16', maxBatchTokens: 8 }, 8);
    const engine = open();
    runStep(engine, plan(0));
    const drawing = buildPlan({ freed: slots, ...plan(1) });
    limit(used() + 12 * 2 ** 20);
    engine.submit(drawing);
    const failed = answer(engine);
    limit('unlimited');
    const after = runStep(engine, { freed: slots });
    engine.close();
    const again = open();
    const drawn = runStep(again, plan(1));
    console.log(JSON.stringify([failed.errorCode, failed.samples.length, after.errorCode, drawn.errorCode, drawn.samples.length]));
    again.close();`;
  withModelFolder(config, (folder) => {
    const { stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', script, folder], { encoding: 'utf8' });
    const want = [engineFault.outOfMemory, 0, engineFault.step, engineFault.none, 8];
    assert.equal(stdout.trim(), JSON.stringify(want), stderr);
  });
});

describe('steps', () => {
  let engine: NativeEngine;
  before(() => {
    engine = open();
  });
  after(() => engine.close());
  const free = (...slots: number[]): void => void runStep(engine, { freed: slots });

  test('answer with the numbers of their plan, empty ones too', () => {
    const a = runStep(engine, { step: 2 ** 31 - 1, epoch: -5 });
    assert.deepEqual([a.step, a.epoch, a.errorCode, a.samples.length, a.logits.length], [2 ** 31 - 1, -5, 0, 0, 0]);
  });

  test('a third step in flight is a usage error and harms nothing', () => {
    engine.submit(buildPlan({ step: 1 }));
    engine.submit(buildPlan({ step: 2 }));
    assert.throws(() => engine.submit(buildPlan({ step: 3 })), nativeError('usage', /Two steps are in flight/));
    assert.equal(engine.pending(), 2);
    assert.deepEqual([answer(engine).step, answer(engine).step], [1, 2]);
    assert.equal(engine.pending(), 0);
  });

  test('a result buffer that is too small can be tried again', () => {
    engine.submit(buildPlan({ step: 9 }));
    assert.throws(() => engine.wait(new Uint8Array(60), 60_000), nativeError('usage', /needs 64 bytes and the buffer has 60/));
    assert.equal(engine.pending(), 1);
    assert.equal(answer(engine).step, 9);
  });

  test('wait gives up after its time', () => {
    engine.submit(buildPlan(prefill(0, 0)));
    const result = new Uint8Array(1 << 16);
    let waits = 0;
    while (engine.wait(result, 0) === 0) waits++;
    assert.ok(waits >= 0 && engine.pending() === 0);
    free(0);
  });

  test('unaligned plan and result buffers work', () => {
    const plan = buildPlan({ step: 4 });
    const shifted = new Uint8Array(plan.length + 1);
    shifted.set(plan, 1);
    engine.submit(shifted.subarray(1));
    const bytes = engine.wait(new Uint8Array(101).subarray(1), 60_000);
    assert.equal(bytes, 64);
  });

  test('a batch of slots gives each the answer it gets alone', () => {
    const prompts = [prompt, prompt.slice(3, 20), prompt.slice(10), [5]];
    const alone = prompts.map((tokens) => {
      const { samples } = runStep(engine, { ...prefill(0, 0, tokens), newSlots: [{ slot: 0, tokens, sampling: { topLogprobs: 4 } }] });
      free(0);
      return samples[0];
    });
    const together = runStep(engine, {
      newSlots: prompts.map((tokens, slot) => ({ slot, tokens, sampling: { topLogprobs: 4 } })),
      blockSets: prompts.flatMap((_, slot) => blockSets(slot, slot * 4, 4)),
      rows: prompts.map((tokens, slot) => ({ slot, start: 0, count: tokens.length })),
      samples: prompts.map((_, slot) => ({ row: 3 - slot, slot: 3 - slot })),
    });
    assert.deepEqual(together.samples, alone.map((s, slot) => ({ ...s, slot })).reverse());
    free(0, 1, 2, 3);
  });

  test('a row from the device starts at the last token of its history, however late its plan lets it start', () => {
    const both = [0, 1].map((slot) => prefill(slot, slot * 4));
    runStep(engine, { newSlots: both.flatMap((p) => p.newSlots ?? []), blockSets: both.flatMap((p) => p.blockSets ?? []) });
    const rows = [0, 1].map((slot) => ({ slot, start: 0, count: prompt.length }));
    const samples = rows.map(({ slot }, row) => ({ row, slot }));
    runStep(engine, { rows, samples });
    const plan = (i: number): Uint8Array => {
      const start = prompt.length + i;
      const late = { slot: 1, start: start + (i % 3), count: 1, flags: ROW_FLAG.fromDevice };
      return buildPlan({ rows: [{ slot: 0, start, count: 1 }, late], samples });
    };
    engine.submit(plan(0));
    for (let i = 1; i <= 8; i++) {
      engine.submit(plan(i)); // before the token that it continues is known
      const [host, device] = answer(engine).samples;
      assert.equal(device?.token, host?.token);
    }
    answer(engine);
    // Beside rows of a prompt, too.
    const start = prompt.length + 9;
    const [, device, host] = runStep(engine, {
      ...prefill(2, 8),
      rows: [
        { slot: 2, start: 0, count: prompt.length },
        { slot: 1, start: start + 1, count: 1, flags: ROW_FLAG.fromDevice },
        { slot: 0, start, count: 1 },
      ],
      samples: [2, 1, 0].map((slot, row) => ({ row, slot })),
    }).samples;
    assert.equal(device?.token, host?.token);
    free(0, 1, 2);
  });

  test('logprobs, ranks, top entries and prompt logprobs are the log-softmax of the raw logits', () => {
    const flags = ROW_FLAG.rawLogits | ROW_FLAG.promptLogprobs;
    const a = runStep(engine, {
      ...prefill(0, 0),
      newSlots: [{ slot: 0, tokens: prompt, promptLen: 38, sampling: { topLogprobs: 5, promptLogprobs: 2 } }],
      rows: [{ slot: 0, start: 0, count: prompt.length, flags }],
    });
    const logprobs = a.logits.map((row) => logSoftmax(row.values));
    const check = (entry: (typeof a.samples)[number], position: number, tops: number): void => {
      const row = logprobs[position] ?? new Float64Array();
      const order = [...row.keys()].sort((x, y) => (row[y] ?? 0) - (row[x] ?? 0));
      assert.ok(Math.abs(entry.logprob - (row[entry.token] ?? Number.NaN)) < 1e-4);
      assert.equal(entry.rank, order.indexOf(entry.token) + 1);
      assert.deepEqual(
        entry.tops.map((t) => t.id),
        order.slice(0, tops),
      );
      for (const t of entry.tops) assert.ok(Math.abs(t.logprob - (row[t.id] ?? Number.NaN)) < 1e-4);
    };
    assert.deepEqual(
      a.logits.map((row) => row.position),
      [...prompt.keys()],
    );
    const sample = a.samples[0];
    assert.ok(sample);
    check(sample, prompt.length - 1, 5);
    assert.equal(sample.rank, 1);
    assert.deepEqual(
      a.prompts.map((p) => [p.position, p.token]),
      prompt
        .slice(0, 38)
        .map((token, i) => [i, token])
        .slice(1),
      'only tokens of the prompt are scored',
    );
    for (const p of a.prompts) check(p, p.position - 1, 2);
    free(0);
  });

  test('a token is the same to the last bit whichever other rows of its step are asked for', () => {
    const half = prompt.length >> 1;
    const asked = (flags: number) => {
      const newSlots = [0, 1].map((slot) => ({ slot, tokens: prompt, sampling: { topLogprobs: 5 } }));
      const { samples } = runStep(engine, {
        newSlots,
        blockSets: [...blockSets(0, 0, 4), ...blockSets(1, 4, 4)],
        rows: [
          { slot: 0, start: 0, count: half, flags },
          { slot: 1, start: 0, count: prompt.length, flags },
        ],
        samples: [{ row: 1, slot: 1 }],
      });
      const rest = runStep(engine, {
        rows: [{ slot: 0, start: half, count: prompt.length - half, flags }],
        samples: [{ row: 0, slot: 0 }],
      });
      free(0, 1);
      return [...samples, ...rest.samples].map(({ slot: _, ...sample }) => sample);
    };
    const few = asked(0);
    assert.deepEqual(few, asked(ROW_FLAG.rawLogits));
    assert.deepEqual(few[0], few[1], 'a prompt in two pieces, of which the first asks for no row');
  });

  test('a fork shares blocks, samples from the same row and goes its own way after a copy', () => {
    runStep(engine, {
      newSlots: [{ slot: 0, tokens: prompt.slice(0, 20), sampling: { temperature: 1, seedLo: 11 } }],
      blockSets: blockSets(0, 0, 2),
      rows: [{ slot: 0, start: 0, count: 19 }],
    });
    const both = runStep(engine, {
      newSlots: [{ slot: 1, forkOf: 0, promptLen: 20, sampling: { temperature: 1, seedLo: 11, sequenceIndex: 1 } }],
      blockSets: [...blockSets(1, 0, 1), { slot: 1, index: 1, block: 5 }],
      rows: [{ slot: 0, start: 19, count: 1 }],
      samples: [
        { row: 0, slot: 0 },
        { row: 0, slot: 1 },
      ],
    });
    assert.equal(both.samples.length, 2);
    // Position 19 was written to block 1 only; the copy brings all of it to the fork's own block.
    const next = (slot: number, copies: PlanSpec['copies'] = []): number[] => {
      const a = runStep(engine, { copies, rows: [{ slot, start: 20, count: 1 }], samples: [{ row: 0, slot }] });
      return a.samples.map((s) => s.token);
    };
    const forked = next(1, [{ src: 1, dst: 5 }]);
    free(1);
    const history = [...prompt.slice(0, 20), both.samples[1]?.token ?? -1];
    const fresh = runStep(engine, {
      ...prefill(2, 8, history),
      newSlots: [{ slot: 2, tokens: history, promptLen: 20, sampling: { temperature: 1, seedLo: 11, sequenceIndex: 1 } }],
    });
    assert.deepEqual(forked, [fresh.samples[0]?.token]);
    free(0, 2);
  });

  test('logit bias, masked ids and min_tokens reach the sampler', () => {
    const tokens = prompt.slice(0, 5);
    const biased = runStep(engine, { ...prefill(0, 0, tokens), newSlots: [{ slot: 0, tokens, bias: [[123, 100]] }] });
    assert.equal(biased.samples[0]?.token, 123);
    const masked = runStep(engine, {
      ...prefill(1, 4, tokens),
      newSlots: [{ slot: 1, tokens, bias: [[123, 100]], masked: [123], sampling: { minTokens: 1 } }],
    });
    assert.notEqual(masked.samples[0]?.token, 123);
    const after = runStep(engine, { rows: [{ slot: 1, start: 5, count: 1 }], samples: [{ row: 0, slot: 1 }] });
    assert.equal(after.samples[0]?.token, 123);
    free(0, 1);
  });

  test('blocks and slots freed by a plan can be used again by the next while the first still runs', () => {
    const first = runStep(engine, prefill(0, 0)).samples;
    engine.submit(buildPlan({ rows: [{ slot: 0, start: 40, count: 1 }], samples: [{ row: 0, slot: 0 }] }));
    engine.submit(buildPlan({ freed: [0], ...prefill(0, 0) }));
    answer(engine);
    assert.deepEqual(answer(engine).samples, first);
    free(0);
  });
});

test('scoring and sampling more rows than the logits buffer holds gives what few rows give', () => {
  // 64 MiB of logits are 16 rows of this vocabulary.
  const config = { ...tinyConfig, vocab_size: 2 ** 20, tie_word_embeddings: true };
  withModelFolder(config, (folder) => {
    const engine = openEngine(folder, { loadDummy: true, maxSlots: 41, maxModelLen: 64 }, 64);
    const slots = Array.from({ length: 40 }, (_, i) => i);
    const rows = slots.map((slot) => ({ slot, start: 0, count: 3 }));
    const sampling = { topLogprobs: 1, temperature: 1 };
    const newSlots = slots.map((slot) => ({ slot, tokens: [slot, 2, 3], sampling: { ...sampling, seedLo: slot } }));
    const sets = slots.flatMap((slot) => blockSets(slot, slot, 1));
    const together = runStep(engine, { newSlots, blockSets: sets, rows, samples: slots.map((slot) => ({ row: slot, slot })) });
    const alone = slots.flatMap((slot) => {
      const spec = { freed: [slot], newSlots: newSlots.slice(slot, slot + 1), blockSets: blockSets(slot, slot, 1) };
      return runStep(engine, { ...spec, rows: rows.slice(slot, slot + 1), samples: [{ row: 0, slot }] }).samples;
    });
    assert.deepEqual(together.samples, alone);

    runStep(engine, { newSlots: [{ slot: 40, tokens: slots, sampling: { promptLogprobs: 1 } }], blockSets: blockSets(40, 40, 3) });
    const score = (start: number, count: number): unknown[] => [
      ...runStep(engine, { rows: [{ slot: 40, start, count, flags: ROW_FLAG.promptLogprobs }] }).prompts,
    ];
    const scored = score(0, 40);
    assert.equal(scored.length, 39);
    assert.deepEqual(
      scored,
      [0, 10, 20, 30].flatMap((start) => score(start, 10)),
    );
    engine.close();
  });
});

test('a sliding window given as an option changes what late positions see', () => {
  const last = (slidingWindow: number, tokens: readonly number[]): Float32Array | undefined => {
    const engine = open({ slidingWindow });
    const a = runStep(engine, { ...prefill(0, 0, tokens), rows: [{ slot: 0, start: 0, count: 40, flags: ROW_FLAG.rawLogits }] });
    engine.close();
    return a.logits[39]?.values;
  };
  const changed = [...prompt];
  changed[0] = 300;
  assert.notDeepEqual(last(0, changed), last(0, prompt), 'full attention sees token 0');
  assert.deepEqual(last(4, changed), last(4, prompt), 'three layers of window 4 do not');
  assert.deepEqual(last(64, prompt), last(0, prompt), 'a window longer than the sequence is full attention');
});

describe('a recording', () => {
  const names = (trace: DeviceTrace, kind: number): string[] =>
    [...trace.kind].flatMap((k, i) => (k === kind ? [trace.names[trace.name[i] ?? -1] ?? '?'] : []));

  test('has the steps and ops of its time in order, on the clock of the engine', () => {
    const engine = open();
    runStep(engine, prefill(0, 0));
    const before = engine.profileClock?.() ?? 0;
    engine.profileStart?.(10_000);
    for (let i = 0; i < 3; i++) {
      const step = 7 + i;
      runStep(engine, { step, rows: [{ slot: 0, start: prompt.length + i, count: 1 }], samples: [{ row: 0, slot: 0 }] });
    }
    const trace = engine.profileStop?.();
    const after = engine.profileClock?.() ?? 0;
    runStep(engine, prefill(1, 4));
    engine.close();
    assert.ok(trace !== undefined);
    assert.deepEqual([trace.source, trace.note, trace.dropped], ['ops', '', 0]);
    const steps = [...trace.kind].flatMap((kind, i) => (kind === TRACE_KIND.step ? [trace.value[i]] : []));
    assert.deepEqual(steps, [7, 8, 9]);
    const ops = names(trace, TRACE_KIND.op);
    for (const name of ['linear', 'attention', 'rope_and_cache', 'sample'])
      assert.equal(ops.filter((op) => op === name).length % 3, 0, name);
    assert.ok(ops.includes('linear') && ops.includes('sample'));
    for (let i = 0; i < trace.kind.length; i++) {
      const start = trace.startUs[i] ?? 0;
      assert.ok(start >= before && start + (trace.durationUs[i] ?? 0) <= after, 'within the recording');
      assert.ok(i === 0 || start >= (trace.startUs[i - 1] ?? 0), 'in order of start');
    }
  });

  test('keeps what there is room for and counts the rest', () => {
    const engine = open();
    engine.profileStart?.(5);
    runStep(engine, prefill(0, 0));
    const trace = engine.profileStop?.();
    engine.close();
    assert.equal(trace?.kind.length, 5);
    assert.ok((trace?.dropped ?? 0) > 5);
  });

  test('runs one at a time and ends with its engine', () => {
    const engine = open();
    assert.throws(() => engine.profileStop?.(), nativeError('usage', /No recording is running/));
    assert.throws(() => engine.profileStart?.(0), nativeError('usage', /maxEvents is 0/));
    engine.profileStart?.(100);
    assert.throws(() => engine.profileStart?.(100), nativeError('usage', /running already/));
    engine.submit(buildPlan(prefill(0, 0)));
    engine.close();
  });
});
