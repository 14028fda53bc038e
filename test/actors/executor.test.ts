import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MessageChannel, receiveMessageOnPort } from 'node:worker_threads';
import { AdapterLoads } from '../../actors/executor/adapter-loads.js';
import { type CapacityInput, kvBlocks, type SwapInput, swapBlocks } from '../../actors/executor/capacity.js';
import { ExecutorRecorder } from '../../actors/executor/recorder.js';
import { type KvSettings, startNativeEngine } from '../../actors/executor/startup.js';
import { StepClock } from '../../actors/executor/step-clock.js';
import type { CallReply } from '../../actors/messages/calls.js';
import { Control } from '../../actors/runtime/actor.js';
import type { AdapterInfo, EngineOptions, NativeEngine } from '../../native/index.js';
import { createEngine } from '../helpers/engine/fake-native-engine.js';

const MIB = 2 ** 20;
const host: CapacityInput = {
  backend: 'cpu',
  freeBytes: 1000 * MIB,
  totalBytes: 4000 * MIB,
  stepBytes: 100 * MIB,
  blockBytes: MIB,
  blockSize: 16,
  maxSlots: 64,
  maxModelLen: 1600,
  utilization: 0.5,
  override: null,
  numRanks: 1,
};

test('on a host the KV cache takes a share of the free memory', () => {
  assert.equal(kvBlocks(host), 450);
});

test('ranks on a host share that memory, ranks on GPUs have one each', () => {
  assert.equal(kvBlocks({ ...host, numRanks: 2 }), 200);
  assert.equal(kvBlocks({ ...host, numRanks: 2, blockBytes: MIB / 2, stepBytes: 50 * MIB }), 450);
  const gpu = { ...host, backend: 'cuda' } as const;
  assert.equal(kvBlocks({ ...gpu, freeBytes: 4000 * MIB, numRanks: 4 }), kvBlocks({ ...gpu, freeBytes: 4000 * MIB }));
});

test('on a host the KV cache is never larger than all slots can use', () => {
  assert.equal(kvBlocks({ ...host, maxSlots: 3 }), 300);
});

test('on a GPU the weights and step memory count towards the share of total memory', () => {
  assert.equal(kvBlocks({ ...host, backend: 'cuda', freeBytes: 3000 * MIB, utilization: 0.9, maxSlots: 3 }), 3600 - 1000);
});

test('a given number of blocks is taken as it is', () => {
  assert.equal(kvBlocks({ ...host, override: 100 }), 100);
});

test('a cache that cannot hold one longest sequence is refused with the arithmetic', () => {
  const small = { ...host, freeBytes: 200 * MIB };
  assert.throws(
    () => kvBlocks(small),
    /50 blocks of 16 tokens \(200 MiB free of 4000 MiB.*needs 100; set scheduler\.max_model_len to at most 800/,
  );
  assert.throws(() => kvBlocks({ ...host, override: 99 }), /99 blocks .*raise cache\.num_gpu_blocks_override/);
  assert.throws(() => kvBlocks({ ...host, freeBytes: 50 * MIB }), { name: 'InferdError', message: /would have 0 blocks/ });
});

const swap: SwapInput = {
  wanted: true,
  bytes: null,
  fraction: 0.1,
  numRanks: 1,
  hostFreeBytes: 1000 * MIB,
  blockBytes: MIB,
  blockSize: 16,
  maxSlots: 64,
  maxModelLen: 1600,
};

test('swap space is a share of the free host memory, or the bytes that are given, shared by all ranks', () => {
  assert.equal(swapBlocks(swap), 100);
  assert.equal(swapBlocks({ ...swap, bytes: 20 * MIB + 5 }), 20);
  assert.equal(swapBlocks({ ...swap, numRanks: 4 }), 25);
  assert.equal(swapBlocks({ ...swap, maxSlots: 1, maxModelLen: 160 }), 10, 'never more than all slots can use');
  assert.equal(swapBlocks({ ...swap, fraction: null, wanted: false }), 0);
});

test('swap space that starves the host, or that is wanted and holds no block, is refused with the arithmetic', () => {
  assert.equal(swapBlocks({ ...swap, bytes: 700 * MIB }), 700);
  assert.throws(
    () => swapBlocks({ ...swap, bytes: 701 * MIB }),
    /would take 701 MiB \(cache\.swap_space_bytes = 735051776\), more than 0\.7 of the 1000 MiB .* at most 734003200/,
  );
  const little = { ...swap, bytes: 1000 };
  assert.throws(() => swapBlocks(little), /1000 bytes \(cache\.swap_space_bytes = 1000\) holds no KV block of 1048576 bytes/);
  assert.equal(swapBlocks({ ...little, wanted: false }), 0);
});

test('on a GPU the refusal shows what the share of the memory is and what is in use', () => {
  const full = { ...host, backend: 'cuda', freeBytes: 450 * MIB, utilization: 0.9 } as const;
  assert.throws(() => kvBlocks(full), {
    message: /utilization = 0\.9 of 4000 MiB is 3600 MiB, of which 3550 MiB are in use by weights, \d+ MiB of steps and other programs/,
  });
  assert.throws(() => kvBlocks({ ...full, freeBytes: 100 * MIB }), {
    message:
      /would have 0 blocks .* needs 100; raise cache\.gpu_memory_utilization or lower scheduler\.max_num_batched_tokens or free memory\.$/,
  });
});

test('the guess for a step is the shorter of the last two of its size', () => {
  const clock = new StepClock();
  assert.equal(clock.predictMs(1), 0);
  clock.record(1, 5);
  assert.equal(clock.predictMs(1), 0, 'one step proves nothing');
  clock.record(1, 3);
  assert.equal(clock.predictMs(1), 3);
  clock.record(2048, 100);
  clock.record(1500, 80);
  assert.equal(clock.predictMs(1), 3);
  assert.equal(clock.predictMs(2000), 0);
  assert.equal(clock.predictMs(2 ** 31 - 1), 0);
});

const options: EngineOptions = {
  modelPath: '/nowhere',
  backend: 'cpu',
  deviceId: 0,
  threads: 1,
  weightDtype: 'auto',
  quantization: 'none',
  kvDtype: 'f32',
  blockSize: 16,
  maxSlots: 4,
  maxBatchTokens: 64,
  maxModelLen: 256,
  slidingWindow: 0,
  loadDummy: false,
  rank: 0,
  worldSize: 1,
  isa: 'auto',
};

const kv: KvSettings = {
  utilization: 0.5,
  numBlocksOverride: null,
  preemptionMode: 'auto',
  swapBytes: null,
  swapFraction: null,
  groups: 1,
  loading: 0,
};

function withControl<T>(use: (control: Control, tell: (message: object) => void) => T): T {
  const { port1, port2 } = new MessageChannel();
  try {
    return use(new Control(port2, {}), (message) => port1.postMessage(message));
  } finally {
    port1.close();
  }
}

test('an engine is loaded in chunks, sized and given its KV cache', () => {
  withControl((control) => {
    const started = startNativeEngine(createEngine, options, kv, control);
    assert.equal(started?.capacity.numBlocks, 4 * 16);
    assert.equal(started?.capacity.kvDtype, 'f32');
  });
});

test('keys and values in fp8 without scales of the checkpoint are worth a line of the log, and nothing else is', () => {
  const linesOf = (kvDtype: string, kvScaledLayers: number): string[] => {
    const { port1, port2 } = new MessageChannel();
    try {
      const engineOf = (o: EngineOptions): NativeEngine =>
        Object.assign(createEngine(o), { info: () => ({ ...createEngine(o).info(), kvDtype, kvScaledLayers }) });
      startNativeEngine(engineOf, options, kv, new Control(port2, {}));
      const lines: string[] = [];
      for (let got = receiveMessageOnPort(port1); got !== undefined; got = receiveMessageOnPort(port1)) {
        const message = got.message as { k: string; message?: string };
        if (message.k === 'log') lines.push(message.message ?? '');
      }
      return lines;
    } finally {
      port1.close();
    }
  };
  assert.equal(linesOf('fp8', 0).length, 1);
  assert.match(linesOf('fp8', 0)[0] ?? '', /the checkpoint has no scales of keys and values/);
  assert.deepEqual([linesOf('fp8', 2), linesOf('int8', 0), linesOf('f32', 0)], [[], [], []]);
});

test('swap space is taken before the KV cache where both lie in host memory, and not at all for recompute', () => {
  withControl((control) => {
    const capacity = (preemptionMode: KvSettings['preemptionMode'], backend: EngineOptions['backend']) => {
      const settings = { ...kv, preemptionMode, swapFraction: 0.5, utilization: 0.9 };
      const big: EngineOptions = { ...options, backend, maxSlots: 4096, maxModelLen: 16_384 };
      const started = startNativeEngine(createEngine, big, settings, control);
      return [started?.capacity.numSwapBlocks, started?.capacity.numBlocks];
    };
    // 1024 MiB are free, 1 MiB is for steps, a block has 1 KiB.
    assert.deepEqual(capacity('swap', 'cpu'), [512 * 1024, Math.floor(0.9 * 511 * 1024)]);
    assert.deepEqual(capacity('swap', 'cuda'), [512 * 1024, Math.floor(0.9 * 2048 * 1024) - 1024 * 1024]);
    assert.deepEqual(capacity('recompute', 'cpu'), [0, Math.floor(0.9 * 1023 * 1024)]);
  });
});

test('groups of one host take equal parts of it, and leave room for the weights that the others are still loading', () => {
  withControl((control) => {
    const capacity = (groups: number, loading: number, backend: EngineOptions['backend'] = 'cpu', ranks: Partial<EngineOptions> = {}) => {
      const settings = { ...kv, swapFraction: 0.25, utilization: 0.9, groups, loading };
      const big: EngineOptions = { ...options, backend, maxSlots: 4096, maxModelLen: 16_384, ...ranks };
      const started = startNativeEngine(
        (o) => Object.assign(createEngine(o), { info: () => ({ ...createEngine(o).info(), weightBytes: 2 ** 26 }) }),
        big,
        settings,
        control,
      );
      return [started?.capacity.numSwapBlocks, started?.capacity.numBlocks];
    };
    // 1024 MiB are free, 1 MiB is for the steps of each group, a block has 1 KiB, weights are 64 MiB.
    assert.deepEqual(capacity(2, 0), [128 * 1024, Math.floor((0.9 * (768 - 2) * 1024) / 2)]);
    assert.deepEqual(capacity(2, 1), [128 * 1024, Math.floor((0.9 * (768 - 64 - 2) * 1024) / 2)]);
    assert.deepEqual(
      capacity(2, 0, 'cpu', { rank: 1, worldSize: 2, dpAttention: true }),
      capacity(2, 0),
      'ranks that are groups count once',
    );
    const [alone, shared] = [capacity(1, 0, 'cuda'), capacity(2, 1, 'cuda')];
    assert.deepEqual(
      [shared[0], shared[1]],
      [Math.floor((alone[0] ?? 0) / 2), alone[1]],
      'each has a GPU of its own, and part of the host',
    );
  });
});

test('a stop request between two chunks ends the loading and closes the engine', () => {
  withControl((control, tell) => {
    let chunks = 0;
    let closed = false;
    const create = (o: EngineOptions): NativeEngine => {
      const engine = createEngine(o);
      const load = engine.load.bind(engine);
      engine.load = (maxBytes) => {
        if (++chunks === 1) tell({ k: 'stop' });
        return { ...load(maxBytes), done: false };
      };
      engine.close = () => {
        closed = true;
        return true;
      };
      return engine;
    };
    assert.equal(startNativeEngine(create, options, kv, control), null);
    assert.equal(chunks, 1);
    assert.ok(closed);
  });
});

test('a recording that the engine refuses goes on nowhere, and the next one can begin', () => {
  const { port1, port2 } = new MessageChannel();
  let refuses = true;
  const engine = Object.assign(createEngine(options), {
    profileStart() {
      if (refuses) throw new Error('no room');
    },
  });
  const recorder = new ExecutorRecorder(engine, new Control(port2, {}), () => ({ kind: 'out_of_memory' }));
  recorder.onCall({ k: 'record', call: 1, maxEvents: 10 });
  assert.equal(recorder.spans.on, false);
  refuses = false;
  recorder.onCall({ k: 'record', call: 2, maxEvents: 10 });
  recorder.onCall({ k: 'handover', call: 3 });
  const replies: (readonly [number, boolean])[] = [];
  for (let m = receiveMessageOnPort(port1); m !== undefined; m = receiveMessageOnPort(port1)) {
    const { call, ok } = m.message as CallReply;
    replies.push([call, ok]);
  }
  assert.deepEqual(replies, [
    [1, false],
    [2, true],
    [3, true],
  ]);
  port1.close();
});

test('an engine whose KV cache does not fit is closed again', () => {
  withControl((control) => {
    let closed = false;
    const create = (o: EngineOptions): NativeEngine => {
      const engine = createEngine(o);
      engine.close = () => {
        closed = true;
        return true;
      };
      return engine;
    };
    const small: KvSettings = { ...kv, numBlocksOverride: 15 };
    assert.throws(() => startNativeEngine(create, options, small, control), /one sequence of max_model_len = 256 tokens needs 16/);
    assert.ok(closed);
  });
});

test('an adapter is answered for once it has been read, and until then nobody waits for it', () => {
  const read = new Map<number, AdapterInfo | null>();
  const said: unknown[] = [];
  const engine = {
    beginAdapter: (id: number) => void read.set(id, null),
    adapterRead: (id: number) => {
      const info = read.get(id);
      if (info === undefined) throw new Error(`${id} is torn`);
      return info;
    },
    unloadAdapter: (id: number) => void read.delete(id),
  };
  const answers = {
    answer: (call: number, value: unknown) => void said.push([call, value]),
    refuse: (call: number) => void said.push([call]),
  };
  const loads = new AdapterLoads(engine, answers, (error) => ({ kind: 'bad_model', message: String(error) }));
  const info: AdapterInfo = { rank: 8, modules: 2, bytes: 64, base: '' };

  for (const adapter of [1, 2, 3]) loads.onCall({ k: 'load_adapter', call: 10 + adapter, adapter, folder: '/x' });
  assert.deepEqual([loads.answer(), said], [true, []], 'none has been read');
  read.set(2, info);
  assert.deepEqual([loads.answer(), said.splice(0)], [true, [[12, info]]], 'the second is there first');
  read.delete(1);
  assert.deepEqual([loads.answer(), said.splice(0)], [true, [[11]]], 'the first is torn, which harms no other');
  loads.onCall({ k: 'unload_adapter', call: 20, adapter: 3 });
  assert.deepEqual([loads.answer(), said], [false, [[13], [20, null]]], 'the third is called off, and so answered too');
});
