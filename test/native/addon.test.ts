/** The border between JavaScript and C++: arguments that are no arguments get a sentence each, and nothing of the process is harmed. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { NEW_SLOT, NO_ADAPTER, PLAN } from '../../actors/messages/step.js';
import { type EngineOptions, loadAddon, type NativeEngine, type OpCall } from '../../native/index.js';
import { demoModel, engineOptions, nativeError, openEngine } from '../helpers/native/native-engine.js';
import { buildPlan, type PlanSpec } from '../helpers/native/plan.js';

const addon = loadAddon();
type Inputs = OpCall['inputs'];

/** What TypeScript would not let through. */
const odd = <T>(value: unknown): T => value as T;

describe('an engine', () => {
  test('is made of plain options only', () => {
    for (const options of [undefined, null, 7, 'cpu', []])
      assert.throws(() => addon.createEngine(odd<EngineOptions>(options)), nativeError('usage', /option/));
    for (const [name, value] of Object.entries({
      threads: Number.NaN,
      maxSlots: Number.POSITIVE_INFINITY,
      blockSize: 1.5,
      loadDummy: 1,
      isa: null,
    })) {
      const options = odd<EngineOptions>({ ...engineOptions(demoModel()), [name]: value });
      assert.throws(() => addon.createEngine(options), nativeError('usage', new RegExp(`the option ${name} must be`)));
    }
    const long = Array.from({ length: 4097 }, () => 1);
    assert.throws(() => addon.createEngine({ ...engineOptions(demoModel()), graphSizes: long }), nativeError('usage', /at most 4096/));
    for (const name of ['graphSizes', 'prefillGraphSizes'])
      assert.throws(
        () => addon.createEngine({ ...engineOptions(demoModel()), [name]: [16, 0] }),
        nativeError('usage', new RegExp(`${name} is 0, outside`)),
      );
  });

  test('takes no path that ends at a zero byte', () => {
    assert.throws(() => addon.createEngine(engineOptions(`${demoModel()}\0more`)), nativeError('usage', /modelPath holds a zero byte/));
  });

  test('passes on what a getter of its options throws', () => {
    const options = Object.defineProperty({ ...engineOptions(demoModel()) }, 'threads', {
      get: () => {
        throw new RangeError('mine');
      },
    });
    assert.throws(() => addon.createEngine(options), RangeError);
  });

  test('has methods for itself alone', () => {
    const engine = openEngine(demoModel());
    for (const other of [{}, Object.create(engine), new Uint8Array(8)])
      assert.throws(() => engine.load.call(odd<NativeEngine>(other), 1), TypeError);
    assert.throws(() => odd<() => unknown>(engine.constructor)(), TypeError);
    engine.close();
  });

  test('says that it is closed, in every call', () => {
    const engine = openEngine(demoModel());
    engine.close();
    engine.close();
    const calls: (() => unknown)[] = [
      ...[() => engine.load(1), () => engine.info(), () => engine.allocateKv(1), () => engine.submit(buildPlan({}))],
      ...[() => engine.wait(new Uint8Array(64), 0), () => engine.pending(), () => engine.lastError?.()],
      ...[() => engine.profileStart?.(1), () => engine.profileStop?.(), () => engine.profileClock?.()],
    ];
    for (const call of calls) assert.throws(call, nativeError('closed', /closed/));
  });

  test('takes no number that is none', () => {
    const engine = openEngine(demoModel());
    engine.submit(buildPlan({}));
    for (const value of [Number.NaN, -1, Number.POSITIVE_INFINITY, undefined, '5', {}, 2n]) {
      const number = odd<number>(value);
      assert.throws(() => engine.load(number), nativeError('usage', /maxBytes must be a number/));
      assert.throws(() => engine.allocateKv(number), nativeError('usage', /numBlocks must be a number/));
      assert.throws(() => engine.wait(new Uint8Array(64), number), nativeError('usage', /timeoutMs must be a number/));
      assert.throws(() => engine.profileStart?.(number), nativeError('usage', /maxEvents must be a number/));
    }
    assert.equal(engine.wait(new Uint8Array(64), 60_000), 64);
    engine.close();
  });

  test('sees a plan and a result buffer as long as they are: detached, shrunk or of another kind', () => {
    const engine = openEngine(demoModel());
    const detached = new Uint8Array(new ArrayBuffer(64));
    structuredClone(detached, { transfer: [detached.buffer] });
    const buffer = Reflect.construct(ArrayBuffer, [64, { maxByteLength: 128 }]) as ArrayBuffer;
    const shrunk = new Uint8Array(buffer, 16, 48);
    odd<{ resize: (bytes: number) => void }>(buffer).resize(8);
    for (const plan of [detached, shrunk]) assert.throws(() => engine.submit(plan), nativeError('bad_plan', /header/));
    engine.submit(buildPlan({ step: 3 }));
    for (const result of [detached, shrunk, new Uint8Array(63)])
      assert.throws(() => engine.wait(result, 60_000), nativeError('usage', /needs 64 bytes/));
    for (const result of [new Int32Array(16), new DataView(new ArrayBuffer(64)), new ArrayBuffer(64), [], null])
      assert.throws(() => engine.wait(odd<Uint8Array>(result), 60_000), nativeError('usage', /must be a Uint8Array/));
    assert.equal(engine.wait(new Uint8Array(new SharedArrayBuffer(64)), 60_000), 64);
    engine.close();
  });

  test('copies a plan before it looks at it: another thread that changes it changes nothing', () => {
    const engine = openEngine(demoModel());
    const shared = new Uint8Array(new SharedArrayBuffer(64));
    shared.set(buildPlan({ step: 5 } satisfies PlanSpec));
    engine.submit(shared);
    shared.fill(0xff);
    const result = new Int32Array(16);
    assert.equal(engine.wait(new Uint8Array(result.buffer), 60_000), 64);
    assert.equal(result[1], 5);
    engine.close();
  });
});

describe('the op table', () => {
  const run = (op: string, attrs: OpCall['attrs'], inputs: Inputs): unknown =>
    addon.runOp({ op, backend: 'cpu', isa: 'auto', threads: 2, attrs, inputs });
  const refused = (op: string, attrs: OpCall['attrs'], inputs: Inputs, message: RegExp): void =>
    assert.throws(() => run(op, attrs, inputs), nativeError('usage', message), op);
  const ints = (...values: number[]): Int32Array => Int32Array.from(values);
  const zeros = (count: number): Float32Array => new Float32Array(count);
  const most = 2 ** 31 - 1;

  test('counts bytes without wrapping around', () => {
    refused('add', { rows: most, cols: most, noise: 1 }, {}, /more bytes than can be counted/);
    refused('gated_mul', { rows: most, cols: most, noise: 1 }, {}, /more bytes than can be counted/);
    const attrs = { rows: 0, cols: 1, outs: 2 ** 30 + 5, dtype: 'f32', noise: 1 };
    assert.throws(() => run('linear_gated', attrs, {}), nativeError('bad_model', /2147483658 x 1 is not possible/));
  });

  test('takes no index of what is not there', () => {
    for (const id of [3, most, -1, -most]) {
      refused('embed', { rows: 1, vocab: 3, cols: 8, dtype: 'f32' }, { table: zeros(24), ids: ints(id) }, /element 0 of ids/);
      refused('gather_rows', { rows: 3, cols: 8, count: 1 }, { x: zeros(24), ids: ints(id) }, /element 0 of ids/);
      refused('score', { rows: 1, vocab: 3, top: 1 }, { logits: zeros(3), targets: ints(id) }, /element 0 of targets/);
      const cache = { num_blocks: 3, kv_heads: 1, block_size: 2, head_dim: 8, kv_dtype: 'f32', count: 1 };
      const [k, v] = [zeros(48), zeros(48)];
      refused('copy_blocks', cache, { k, v, pairs: ints(0, id) }, /element 1 of pairs/);
      const swap = { ...cache, swap_blocks: 2, urgent: 0 };
      refused('swap_blocks', swap, { k, v, outs: ints(0, id), ins: ints(0, 0) }, /outs|out of range/);
      refused('swap_blocks', swap, { k, v, outs: ints(0, 0), ins: ints(id, 0) }, /ins|out of range/);
    }
  });

  test('reads and rotates only what a cache and a head hold', () => {
    const attrs = {
      ...{ heads: 1, kv_heads: 1, head_dim: 8, block_size: 2, num_blocks: 2, max_blocks: 2, max_slots: 1, num_rows: 1 },
      ...{ kv_dtype: 'f32', scale: 1, window: 0, rotary_dim: 8, factor: 1, norm_eps: 1e-5 },
    };
    const inputs = { qkv: zeros(24), rows: ints(0, 0, 1, 0), blocks: ints(0, 1), k: zeros(32), v: zeros(32), inv_freq: zeros(4) };
    for (const op of ['attention', 'rope_and_cache', 'rope_and_attend']) {
      refused(op, attrs, { ...inputs, blocks: ints(-1, 0) }, /block 0 of slot 0 is -1/);
      refused(op, attrs, { ...inputs, rows: ints(0, 2, 1, 0), blocks: ints(0, 2) }, /block 1 of slot 0 is 2/);
      for (const row of [
        [1, 0, 1],
        [0, -1, 1],
        [0, 0, 0],
        [0, most, 1],
        [0, 0, most],
        [0, most, most],
      ])
        refused(op, attrs, { ...inputs, rows: ints(...row, 0) }, /row 0 is out of range/);
      refused(op, attrs, { ...inputs, rows: ints(0, 4, 1, 0) }, /rows are out of range/);
    }
    refused('rope_and_cache', { ...attrs, rotary_dim: 10 }, { ...inputs, inv_freq: zeros(5) }, /rotary_dim/);
    assert.doesNotThrow(() => run('attention', { ...attrs, window: most }, inputs));
  });

  test('samples only with tables and settings that an engine could have', () => {
    const row = (patch: Readonly<Record<number, number>>): Int32Array => {
      const values = Float32Array.of(0, 0, 0.8, 1, 0, 1, 1, ...zeros(17));
      const words = new Int32Array(values.buffer);
      words[11] = -1;
      for (const [at, value] of Object.entries(patch)) (Number(at) < 9 ? values : words)[Number(at)] = value;
      return words;
    };
    const attrs = { max_slots: 1, max_len: 4, max_bias: 1, max_masked: 1, vocab: 5, num_samples: 1 };
    const tables = {
      ...{ tokens: ints(1, 1, 1, 1), lengths: ints(2), prompt_lens: ints(1), sampling: row({}), logits: zeros(5), samples: ints(0, 0) },
      ...{ bias: ints(0, 0), num_bias: ints(0), masked: ints(0), num_masked: ints(0) },
    };
    assert.doesNotThrow(() => run('sample', attrs, tables));
    for (const [name, last] of [
      ['lengths', 4],
      ['prompt_lens', 4],
      ['num_bias', 1],
      ['num_masked', 1],
    ] as const)
      for (const value of [last + 1, -1, most])
        refused('sample', attrs, { ...tables, [name]: ints(value) }, new RegExp(`element 0 of ${name}`));
    for (const patch of [{ 2: Number.NaN }, { 3: -1 }, { 4: 2 }, { 5: 0 }, { 9: -5 }, { 11: 21 }])
      assert.throws(() => run('sample', attrs, { ...tables, sampling: row(patch) }), nativeError('bad_plan', /outside/));
  });

  test('applies a plan only when it fits its words and the tables', () => {
    const attrs = { max_slots: 1, max_len: 4, max_bias: 1, max_masked: 1, max_blocks: 2, num_rows: 0 };
    const tables = {
      ...{
        tokens: ints(1, 1, 1, 1),
        lengths: ints(2),
        prompt_lens: ints(1),
        sampling: new Int32Array(24),
        rows: ints(),
        blocks: ints(0, 0),
      },
      ...{ bias: ints(0, 0), num_bias: ints(0), masked: ints(0), num_masked: ints(0) },
    };
    const apply = (words: readonly number[]) =>
      run('apply_slots', { ...attrs, plan_words: words.length }, { ...tables, plan: ints(...words) });
    const header = (freed: number, newSlots: number, sets: number): number[] => {
      const words = new Array<number>(PLAN.headerWords).fill(0);
      words[PLAN.numFreed] = freed;
      words[PLAN.numNewSlots] = newSlots;
      words[PLAN.numBlockSets] = sets;
      return words;
    };
    const fresh = (...fixed: number[]): number[] => {
      const words = [...fixed.slice(0, NEW_SLOT.adapter), NO_ADAPTER, ...fixed.slice(NEW_SLOT.adapter)];
      return [...words, ...Array.from({ length: NEW_SLOT.fixedWords - words.length }, () => 0)];
    };
    assert.doesNotThrow(() => apply([...header(0, 1, 1), ...fresh(0, -1, 2, 1, 0, 0), 3, 3, 0, 1, 9]));
    for (const words of [
      [],
      header(-1, 0, 0),
      header(1, 0, 0),
      header(0, 1 << 20, 0),
      header(0, 0, most),
      [...header(0, 1, 0), ...fresh(1, -1, 0, 0, 0, 0)],
      [...header(0, 1, 0), ...fresh(0, 1, 0, 0, 0, 0)],
      [...header(0, 1, 0), ...fresh(0, -1, 5, 0, 0, 0), 1, 1, 1, 1, 1],
      [...header(0, 1, 0), ...fresh(0, -1, 0, 0, 2, 0), 1, 1, 1, 1],
      [...header(0, 1, 0), ...fresh(0, -1, 0, 0, 0, 2), 1, 1],
      [...header(0, 1, 0), ...fresh(0, -1, most, 0, most, most)],
      [...header(0, 0, 1), 0, 2, 0],
      [...header(0, 0, 1), 1, 0, 0],
      [...header(0, 0, 1), 0, -1, 0],
    ])
      assert.throws(() => apply(words), nativeError('usage', /the plan does not fit/));
  });
});
