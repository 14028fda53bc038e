/**
 * Adapters (LoRA) on the CPU: logits against what PEFT computed in float32, against weights that the same adapters were merged into, and
 * against each other in one batch; and every file that is refused.
 */
import assert from 'node:assert/strict';
import { cpSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { ROW_FLAG } from '../../../actors/messages/step.js';
import type { EngineOptions, NativeEngine } from '../../../native/index.js';
import { blockSets, fixture, nativeError, openEngine, openRanks, runStep } from '../../helpers/native/native-engine.js';
import { readSafetensors, type TestTensor, widenedBf16, writeSafetensors } from '../../helpers/native/safetensors.js';
import { tempFolder } from '../../helpers/temp-folder.js';

const base = fixture('golden', 'llama3.1-gqa');
const packs = ['a', 'b', 'c'] as const;
const folderOf = (pack: string): string => fixture('golden', 'lora', pack);
const golden = (pack: string): Map<string, TestTensor> => readSafetensors(fixture('golden', 'lora', `golden-${pack}.safetensors`));
const promptIds = [...(golden('a').get('input_ids')?.data ?? [])];
const room: Partial<EngineOptions> = { adapters: { places: 4, maxRank: 16 }, weightDtype: 'f32', maxBatchTokens: 1024 };
const prefix = 'base_model.model.';

type Loaded = NativeEngine & Required<Pick<NativeEngine, 'loadAdapter' | 'unloadAdapter' | 'beginAdapter' | 'adapterRead'>>;
const opened: NativeEngine[] = [];
function open(path = base, options: Partial<EngineOptions> = {}): Loaded {
  const engine = openEngine(path, { ...room, ...options });
  opened.push(engine);
  return engine as Loaded; // the addon has all of it
}
after(() => {
  for (const engine of opened) engine.close();
});

/** Logits at all positions of the prompt, with the adapter of a place, in slot 0. */
function logitsOf(engine: NativeEngine, adapter?: number, { chunk = promptIds.length } = {}): Float32Array {
  runStep(engine, {
    newSlots: [{ slot: 0, tokens: promptIds, ...(adapter === undefined ? {} : { adapter }) }],
    blockSets: blockSets(0, 0, Math.ceil(promptIds.length / 16)),
  });
  const rows: Float32Array[] = [];
  for (let start = 0; start < promptIds.length; start += chunk) {
    const count = Math.min(chunk, promptIds.length - start);
    rows.push(...runStep(engine, { rows: [{ slot: 0, start, count, flags: ROW_FLAG.rawLogits }] }).logits.map(({ values }) => values));
  }
  runStep(engine, { freed: [0] });
  return Float32Array.from(rows.flatMap((row) => [...row]));
}

function furthest(a: ArrayLike<number>, b: ArrayLike<number>): number {
  assert.equal(a.length, b.length);
  let most = 0;
  for (let i = 0; i < a.length; i++) most = Math.max(most, Math.abs((a[i] ?? Number.NaN) - (b[i] ?? Number.NaN)));
  return most;
}

function place(engine: NativeEngine & Required<Pick<NativeEngine, 'loadAdapter'>>, at: number, id: number, folder: string): void {
  engine.loadAdapter(id, folder);
  runStep(engine, { adapters: [{ place: at, adapter: id }] });
}

const settings = (pack: string): Record<string, unknown> =>
  JSON.parse(readFileSync(join(folderOf(pack), 'adapter_config.json'), 'utf8')) as Record<string, unknown>;

/** An adapter in a folder of its own. */
function written(config: Record<string, unknown>, tensors: ReadonlyMap<string, TestTensor>): string {
  const folder = tempFolder();
  writeFileSync(join(folder, 'adapter_config.json'), JSON.stringify(config));
  writeSafetensors(join(folder, 'adapter_model.safetensors'), tensors as Map<string, { shape: readonly number[]; data: Float32Array }>);
  return folder;
}

const tensorsOf = (pack: string): Map<string, TestTensor> => readSafetensors(join(folderOf(pack), 'adapter_model.safetensors'));
const moduleOf = (tensor: string): string => tensor.slice(prefix.length).replace(/\.lora_[AB]\.weight$/, '');

/** The model of a folder with factor B A added to the weights of every module of an adapter. */
function mergedModel(tensors: ReadonlyMap<string, TestTensor>, factor: number, model = base): string {
  const folder = tempFolder();
  cpSync(model, folder, { recursive: true });
  const stored = readSafetensors(join(model, 'model.safetensors'));
  const weights = new Map([...stored].map(([name, { shape, data }]) => [name, { shape, data: widenedBf16(data) }]));
  for (const module of new Set([...tensors.keys()].map(moduleOf))) {
    const a = tensors.get(`${prefix}${module}.lora_A.weight`);
    const b = tensors.get(`${prefix}${module}.lora_B.weight`);
    const weight = weights.get(`${module}.weight`);
    assert.ok(a && b && weight, module);
    const [rank = 0, inputs = 0] = a.shape;
    for (let o = 0; o < (b.shape[0] ?? 0); o++) {
      for (let i = 0; i < inputs; i++) {
        let sum = 0;
        for (let r = 0; r < rank; r++) sum += (b.data[o * rank + r] ?? 0) * (a.data[r * inputs + i] ?? 0);
        weight.data[o * inputs + i] = (weight.data[o * inputs + i] ?? 0) + factor * sum;
      }
    }
  }
  writeSafetensors(join(folder, 'model.safetensors'), weights);
  return folder;
}

describe('adapters', () => {
  const engine = open();
  const alone = new Map<string, Float32Array>();
  for (const [i, pack] of packs.entries()) {
    test(`${pack}: logits are those that PEFT computed, whole and in chunks`, () => {
      const info = engine.loadAdapter(i + 1, folderOf(pack));
      assert.equal(info.base, 'inferd/llama3.1-gqa');
      runStep(engine, { adapters: [{ place: i, adapter: i + 1 }] });
      const logits = logitsOf(engine, i);
      alone.set(pack, logits);
      const wanted = golden(pack).get('logits')?.data ?? [];
      assert.ok(furthest(logits, wanted) < 1e-3, `${furthest(logits, wanted)}`);
      assert.ok(furthest(logits, logitsOf(engine)) > 0.1, 'the base computes something else');
      assert.deepEqual(logitsOf(engine, i, { chunk: 3 }), logits);
    });
  }

  test('a batch of three adapters and the base computes each as if it were alone, bit for bit', () => {
    const plain = logitsOf(engine);
    assert.deepEqual(logitsOf(open(base, { adapters: { places: 1, maxRank: 1 } })), plain, 'room for adapters changes nothing');
    const slots = [0, 1, 2, 3];
    const answer = runStep(engine, {
      newSlots: slots.map((slot) => ({ slot, tokens: promptIds, ...(slot === 3 ? {} : { adapter: slot }) })),
      blockSets: slots.flatMap((slot) => blockSets(slot, slot * 12, Math.ceil(promptIds.length / 16))),
      rows: [2, 0, 3, 1].map((slot) => ({ slot, start: 0, count: promptIds.length, flags: ROW_FLAG.rawLogits })),
    });
    runStep(engine, { freed: slots });
    const of = (slot: number): Float32Array =>
      Float32Array.from(answer.logits.filter((row) => row.slot === slot).flatMap(({ values }) => [...values]));
    for (const [slot, pack] of packs.entries()) assert.deepEqual(of(slot), alone.get(pack), pack);
    assert.deepEqual(of(3), plain, 'the base');
  });

  test('greedy tokens are those that PEFT computed, of several adapters in one batch whose prompts come in pieces', () => {
    const wanted = packs.map((pack) => [...(golden(pack).get('greedy_ids')?.data ?? [])]);
    const tokens: number[][] = packs.map(() => []);
    const slots = [0, 1, 2];
    runStep(engine, {
      newSlots: slots.map((slot) => ({ slot, tokens: promptIds, adapter: slot })),
      blockSets: slots.flatMap((slot) => blockSets(slot, slot * 12, 12)),
    });
    for (let start = 0; start < promptIds.length; start += 60) {
      const count = Math.min(60, promptIds.length - start);
      const samples = start + count === promptIds.length ? slots.map((slot) => ({ row: 2 - slot, slot })) : [];
      const answer = runStep(engine, { rows: [2, 1, 0].map((slot) => ({ slot, start, count })), samples });
      for (const { slot, token } of answer.samples) tokens[slot]?.push(token);
    }
    for (let i = 1; i < 32; i++) {
      const rows = slots.map((slot) => ({ slot, start: promptIds.length + i - 1, count: 1 }));
      for (const { slot, token } of runStep(engine, { rows, samples: slots.map((slot) => ({ row: slot, slot })) }).samples)
        tokens[slot]?.push(token);
    }
    runStep(engine, { freed: slots });
    assert.deepEqual(tokens, wanted);
  });

  test('what is placed anew leaves nothing of what was there, and an unloaded adapter is placed no more', () => {
    runStep(engine, { adapters: [{ place: 1, adapter: 3 }] });
    assert.deepEqual(logitsOf(engine, 1), alone.get('c'), 'c adds to fewer linears than b did');
    engine.unloadAdapter(2);
    const twice = nativeError('bad_plan', /adapter 2, which is not loaded/);
    assert.throws(() => runStep(engine, { adapters: [{ place: 0, adapter: 2 }] }), twice);
    assert.throws(() => engine.unloadAdapter(2), nativeError('usage', /no adapter 2/));
  });

  test('a plan may not use an empty place, nor give away one that a sequence uses', () => {
    const use = (slot: number, adapter: number) => ({ newSlots: [{ slot, tokens: promptIds, adapter }] });
    assert.throws(() => runStep(engine, use(0, 3)), nativeError('bad_plan', /place 3, which holds no adapter/));
    assert.throws(() => runStep(engine, use(0, 4)), nativeError('bad_plan', /place is 4, outside -1..3/));
    runStep(engine, use(0, 0));
    const taken = { adapters: [{ place: 0, adapter: 3 }] };
    assert.throws(() => runStep(engine, taken), nativeError('bad_plan', /place 0, which a sequence uses/));
    runStep(engine, { freed: [0], ...taken });
    assert.deepEqual(logitsOf(engine, 0), alone.get('c'));
  });

  test('each target and each layer, alone and left out, computes what merged weights compute', () => {
    const all = tensorsOf('b');
    const parts = [
      ...new Set([...all.keys()].flatMap((name) => [/layers\.\d+\./.exec(name)?.[0] ?? '', /\w+_proj/.exec(name)?.[0] ?? ''])),
    ];
    assert.equal(parts.length, 10);
    const subset = (keep: (name: string) => boolean) => new Map([...all].filter(([name]) => keep(name)));
    const seen: Float32Array[] = [];
    for (const part of parts) {
      for (const tensors of [subset((name) => name.includes(part)), subset((name) => !name.includes(part))]) {
        const id = 100 + seen.length;
        place(engine, 2, id, written(settings('b'), tensors));
        const logits = logitsOf(engine, 2);
        engine.unloadAdapter(id);
        const merged = openEngine(mergedModel(tensors, 8 / Math.sqrt(4)), { weightDtype: 'f32' });
        const wanted = logitsOf(merged);
        merged.close();
        assert.ok(furthest(logits, wanted) < 1e-3, `${part}: ${furthest(logits, wanted)}`);
        for (const other of seen) assert.ok(furthest(logits, other) > 0.01, `${part} is like another part`);
        seen.push(logits);
      }
    }
  });

  test('one that was made for the model without its head computes the same', () => {
    const bare = new Map([...tensorsOf('c')].map(([name, t]) => [name.replace('model.model.layers', 'model.layers'), t]));
    place(engine, 2, 50, written(settings('c'), bare));
    assert.deepEqual(logitsOf(engine, 2), alone.get('c'));
    const twice = written(settings('c'), new Map([...bare, ...tensorsOf('c')]));
    assert.throws(() => engine.loadAdapter(51, twice), nativeError('bad_model', /down_proj" twice/));
  });

  test('two ranks compute what one does, with column and row shares of every linear', () => {
    for (const pack of packs) {
      const one = open(base, { kvDtype: 'f32' });
      place(one, 0, 1, folderOf(pack));
      const two = openRanks(base, 2, room);
      opened.push(two);
      place(two, 0, 1, folderOf(pack));
      assert.ok(furthest(logitsOf(one, 0), logitsOf(two, 0)) < 1e-3, pack);
    }
  });

  test('on a quantized base it adds the same as on a plain one', () => {
    const quantized = open(base, { quantization: 'int8' });
    place(quantized, 0, 1, folderOf('b'));
    const [with8, without8] = [logitsOf(quantized, 0), logitsOf(quantized)];
    const wanted = golden('b').get('logits')?.data ?? [];
    const rms = (x: ArrayLike<number>, y: ArrayLike<number>): number =>
      Math.sqrt(Array.from(x, (value, i) => (value - (y[i] ?? 0)) ** 2).reduce((sum, square) => sum + square, 0) / x.length);
    assert.ok(rms(with8, wanted) < 0.1 * rms(without8, wanted), `${rms(with8, wanted)} of ${rms(without8, wanted)}`);
  });

  for (const [what, pack, modules] of [
    ['a linear of a checkpoint that holds several adds to all of them', 'phi3-fused', ['self_attn.qkv_proj']],
    ['shared experts and their gate', 'qwen2-moe', ['mlp.shared_expert_gate', 'mlp.shared_expert.up_proj', 'mlp.shared_expert.down_proj']],
    ['rows that the model keeps in pairs of what is rotated together', 'deepseek-v2', ['self_attn.q_proj', 'self_attn.kv_a_proj_with_mqa']],
    ['queries of latent attention that have a rank', 'deepseek-v3-mla', ['self_attn.q_a_proj', 'self_attn.q_b_proj', 'self_attn.o_proj']],
  ] as const) {
    test(`${what}: of ${pack}, each computes what merged weights compute`, () => {
      const path = fixture('golden', pack);
      const stored = readSafetensors(join(path, 'model.safetensors'));
      const numbers = (count: number) => Float32Array.from({ length: count }, (_, i) => 0.3 * Math.sin(i * 12.9898));
      const engine = open(path);
      const plain = logitsOf(engine);
      for (const [i, name] of modules.entries()) {
        const module = `model.layers.0.${name}`;
        const [rows = 0, cols = 0] = stored.get(`${module}.weight`)?.shape ?? [];
        const tensors = new Map([
          [`${prefix}${module}.lora_A.weight`, { shape: [2, cols], data: numbers(2 * cols) }],
          [`${prefix}${module}.lora_B.weight`, { shape: [rows, 2], data: numbers(rows * 2) }],
        ]);
        const folder = written({ ...settings('b'), lora_alpha: 2, use_rslora: false }, tensors);
        place(engine, i, i + 1, folder);
        const logits = logitsOf(engine, i);
        assert.ok(furthest(logits, logitsOf(open(mergedModel(tensors, 1, path)))) < 1e-3, name);
        assert.ok(furthest(logits, plain) > 0.01, name);
        const two = openRanks(path, 2, room);
        opened.push(two);
        place(two, 0, 1, folder);
        assert.ok(furthest(logitsOf(two, 0), logits) < 1e-3, `${name}, two ranks`);
      }
    });
  }
});

describe('adapters that are refused', () => {
  const engine = open();
  let next = 1;
  const refused = (folder: string, code: 'unsupported' | 'bad_model' | 'io', message: RegExp): void =>
    assert.throws(() => engine.loadAdapter(next++, folder), nativeError(code, message));
  const b = tensorsOf('b');
  const some = new Map([...b].slice(0, 2));
  const [firstName = ''] = some.keys();

  test('by the name of a setting that changes the arithmetic', () => {
    const settingsRefused: Record<string, unknown> = {
      use_dora: true,
      modules_to_save: ['lm_head'],
      bias: 'all',
      lora_bias: true,
      fan_in_fan_out: true,
      layer_replication: [[0, 2]],
      trainable_token_indices: [3],
      target_parameters: ['mlp.experts'],
      use_qalora: true,
      use_bdlora: { match_strict: true },
      alora_invocation_tokens: [1, 2],
      peft_type: 'IA3',
      init_lora_weights: 'pissa_niter_16',
      use_next_years_idea: true,
    };
    for (const [key, value] of Object.entries(settingsRefused))
      refused(written({ ...settings('b'), [key]: value }, b), 'unsupported', new RegExp(`adapter_config.json.*${key}`));
  });

  test('by the name of a tensor that has no place', () => {
    const renamed = (to: string) => written(settings('b'), new Map([...b].map(([name, t], i) => [i === 0 ? to : name, t])));
    refused(
      written(settings('b'), new Map([...some].map(([name, t]) => [name.replace(/model.layers.*proj/, 'lm_head'), t]))),
      'unsupported',
      /lm_head.*no linear layer/,
    );
    refused(renamed('base_model.model.model.embed_tokens.lora_embedding_A'), 'unsupported', /lora_embedding_A.*embedding/);
    refused(renamed(firstName.replace('lora_A.weight', 'lora_magnitude_vector')), 'unsupported', /DoRA/);
    const moved = new Map([...some].map(([name, t]) => [name.replace('layers.0', 'layers.7'), t]));
    refused(written(settings('b'), moved), 'unsupported', /layers\.7\.mlp\.down_proj/);
    refused(renamed('lm_head.weight'), 'unsupported', /"lm_head.weight" is not one of an adapter/);
    refused(written(settings('b'), new Map([...b].slice(1))), 'bad_model', /down_proj" has only one of lora_A and lora_B/);
    refused(written(settings('b'), new Map()), 'bad_model', /its tensors are none/);
  });

  test('by shapes that do not fit, and ranks beyond the limit', () => {
    const shaped = (a: readonly number[], rows: number, rank: number) =>
      written(
        settings('b'),
        new Map([
          [firstName, { shape: a, data: new Float32Array((a[0] ?? 0) * (a[1] ?? 0)) }],
          [firstName.replace('lora_A', 'lora_B'), { shape: [rows, rank], data: new Float32Array(rows * rank) }],
        ]),
      );
    refused(shaped([4, 64], 64, 4), 'bad_model', /\[4, 64\].*do not fit the weight \[64, 176\]/);
    refused(shaped([4, 176], 64, 5), 'bad_model', /\[64, 5\]/);
    refused(shaped([17, 176], 64, 17), 'unsupported', /rank 17, and lora.max_rank is 16/);
    refused(shaped([0, 176], 64, 0), 'unsupported', /rank 0/);
  });

  test('by values that are no finite numbers, or become none with their factor', () => {
    for (const [matrix, value] of [
      ['lora_A', Number.NaN],
      ['lora_B', Number.POSITIVE_INFINITY],
    ] as const) {
      const name = firstName.replace('lora_A', matrix);
      const spoilt = new Map([...some].map(([of, t]) => [of, of === name ? { ...t, data: Float32Array.from(t.data) } : t]));
      const data = spoilt.get(name)?.data ?? assert.fail(name);
      data[data.length - 1] = value;
      refused(written(settings('b'), spoilt), 'bad_model', /down_proj" has values that are no finite numbers/);
    }
    const large = new Map([...some].map(([of, t]) => [of, { ...t, data: new Float32Array(t.data.length).fill(3e38) }]));
    refused(written({ ...settings('b'), lora_alpha: 1e6 }, large), 'bad_model', /down_proj" has values that are no finite numbers/);
  });

  test('broken files, pickles and patterns that could match for ever', () => {
    refused(join(tempFolder(), 'nowhere'), 'io', /adapter_config.json/);
    const pickle = written(settings('b'), b);
    renameSync(join(pickle, 'adapter_model.safetensors'), join(pickle, 'adapter_model.bin'));
    refused(pickle, 'unsupported', /adapter_model.bin, a pickle/);
    const torn = written(settings('b'), b);
    writeFileSync(join(torn, 'adapter_model.safetensors'), readFileSync(join(torn, 'adapter_model.safetensors')).subarray(0, 9000));
    refused(torn, 'bad_model', /safetensors/);
    const folder = join(tempFolder(), 'is-a-folder');
    mkdirSync(join(folder, 'adapter_config.json'), { recursive: true });
    refused(folder, 'io', /adapter_config.json/);
    refused(written({ ...settings('b'), lora_alpha: 'much' }, b), 'bad_model', /lora_alpha/);
    refused(written({ ...settings('b'), alpha_pattern: { '((a*)*)*$': 3 } }, b), 'unsupported', /pattern.*repeat/);
    refused(written({ ...settings('b'), alpha_pattern: { '[': 3 } }, b), 'bad_model', /no regular expression/);
    for (const pattern of ['a++', 'a{9}{9}{9}', 'a{100}', '\\\\++'])
      refused(written({ ...settings('b'), alpha_pattern: { [pattern]: 3 } }, b), 'unsupported', /pattern.*repeat/);
    refused(written({ ...settings('b'), alpha_pattern: [8] }, b), 'bad_model', /alpha_pattern must be an object/);
  });

  test('patterns of many choices take no longer than others, and "^" is the start of all of a name', () => {
    const c = tensorsOf('c');
    const none = { ...settings('c'), lora_alpha: 12, alpha_pattern: {} };
    const hostile = ['.?'.repeat(250), '(.|.)'.repeat(100)].map((part) => `${part}!`);
    const patterns = Object.fromEntries(['^mlp.down_proj', '^q_proj', ...hostile].map((pattern) => [pattern, 5]));
    const fitting = { 'layers\\.(0|1)\\.mlp\\.(up|down)_proj': 12, '^model\\.layers\\.\\d+\\.mlp\\.gate_proj': 12 };
    const loaded = [none, { ...none, alpha_pattern: patterns }, { ...none, lora_alpha: 5, alpha_pattern: { ...fitting, '.*': 12 } }];
    const logits = loaded.map((config, i) => {
      const adapted = open();
      place(adapted, 0, i + 1, written(config, c));
      return logitsOf(adapted, 0);
    });
    assert.deepEqual(logits[1], logits[0]);
    assert.deepEqual(logits[2], logits[0]);
  });

  test('tensors that lie at odd places of the file are read as they are', () => {
    const source = join(folderOf('a'), 'adapter_model.safetensors');
    const bytes = readFileSync(source);
    const headerBytes = Number(bytes.readBigUInt64LE());
    for (const more of [1, 2, 3]) {
      const folder = tempFolder();
      cpSync(folderOf('a'), folder, { recursive: true });
      const length = Buffer.alloc(8);
      length.writeBigUInt64LE(BigInt(headerBytes + more));
      const parts = [length, bytes.subarray(8, 8 + headerBytes), Buffer.alloc(more, ' '), bytes.subarray(8 + headerBytes)];
      writeFileSync(join(folder, 'adapter_model.safetensors'), Buffer.concat(parts));
      const engine = open();
      place(engine, 0, 1, folderOf('a'));
      place(engine, 1, 2, folder);
      assert.deepEqual(logitsOf(engine, 1), logitsOf(engine, 0), `${more} bytes further`);
    }
  });

  test('an engine without room for adapters has none', () => {
    const without = openEngine(base);
    opened.push(without);
    assert.throws(() => (without as Loaded).loadAdapter(1, folderOf('a')), nativeError('usage', /no room for adapters/));
  });
});

describe('an adapter that is read while steps go on', () => {
  /** Reading it takes far longer than a step, also on a busy machine: every module is compared with thousands of patterns. */
  const slow = (): string =>
    written(
      { ...settings('a'), alpha_pattern: Object.fromEntries(Array.from({ length: 40_000 }, (_, i) => [`none_${i}`, 1])) },
      tensorsOf('a'),
    );

  /** Steps of the base until the adapter has been read, and how many of them there were. */
  function stepsUntilRead(engine: Loaded, id: number): number {
    for (let steps = 0; ; steps++) {
      if (engine.adapterRead(id) !== null) return steps;
      runStep(engine, { freed: steps === 0 ? [] : [0], newSlots: [{ slot: 0, tokens: promptIds }] });
    }
  }

  test('lets steps be computed meanwhile, and is what it would be otherwise', () => {
    const engine = open();
    place(engine, 0, 1, folderOf('a'));
    const wanted = logitsOf(engine, 0);
    engine.beginAdapter(2, slow());
    assert.throws(() => engine.beginAdapter(2, folderOf('a')), nativeError('usage', /is being read already/));
    assert.ok(stepsUntilRead(engine, 2) >= 10);
    runStep(engine, { freed: [0], adapters: [{ place: 1, adapter: 2 }] });
    assert.deepEqual(logitsOf(engine, 1), wanted);
    assert.throws(() => engine.adapterRead(2), nativeError('usage', /is not being read/));
  });

  test('tells what is wrong with its files once it is asked, and its number is free again', () => {
    const engine = open();
    engine.beginAdapter(1, join(tempFolder(), 'nowhere'));
    assert.throws(() => stepsUntilRead(engine, 1), nativeError('io', /adapter_config.json/));
    assert.equal(engine.loadAdapter(1, folderOf('a')).base, 'inferd/llama3.1-gqa');
  });

  test('can be called off, and no other waits for it or gets its place', () => {
    const engine = open();
    const folder = slow();
    for (const id of [1, 2, 3]) engine.beginAdapter(id, folder);
    for (const id of [1, 2, 3]) engine.unloadAdapter(id);
    assert.throws(() => engine.adapterRead(1), nativeError('usage', /is not being read/));
    assert.equal(engine.loadAdapter(1, folderOf('b')).rank, engine.loadAdapter(4, folderOf('b')).rank);
  });

  test('does not outlive its engine', () => {
    const engine = open();
    engine.beginAdapter(1, slow());
    engine.beginAdapter(2, slow());
    assert.equal(engine.close(60_000), true);
  });
});
