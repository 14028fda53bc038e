/**
 * Heads that draft against reference figures (float32, two implementations): at every place of a text the logits of the first draft, with the
 * text as the target's history, and chains of drafts. The target is made to sample the text by a bias.
 */
import assert from 'node:assert/strict';
import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import type { EngineOptions, NativeEngine } from '../../../native/index.js';
import { blockSets, fixture, openEngine, runStep } from '../../helpers/native/native-engine.js';
import { readSafetensors, widenedBf16, writeSafetensors } from '../../helpers/native/safetensors.js';
import { tempFolder } from '../../helpers/temp-folder.js';

/** Logits are up to 140 large; the usual mistakes are off by 8 and more. */
const TOLERANCE = 1e-3;
const BLOCK = 16;

interface Pack {
  readonly target: string;
  readonly head: NonNullable<EngineOptions['drafts']>['method'];
  readonly path: string | null;
  readonly golden: string;
  readonly prefix: string;
}

const packs: Record<string, Pack> = {
  'a layer for multi-token prediction': { target: 'mtp', head: 'mtp', path: null, golden: 'mtp/golden', prefix: 'mtp_' },
  'EAGLE-3 in the layout of the hub': { target: 'llama3.1-gqa', head: 'eagle3', path: 'eagle3/a', golden: 'eagle3/golden-a', prefix: '' },
  'EAGLE-3 in the layout of speculators': {
    target: 'llama3.1-gqa',
    head: 'eagle3',
    path: 'eagle3/b',
    golden: 'eagle3/golden-b',
    prefix: '',
  },
  'EAGLE of the first generation': { target: 'llama3.1-gqa', head: 'eagle3', path: 'eagle3/c', golden: 'eagle3/golden-c', prefix: '' },
};

function numbers(golden: ReturnType<typeof readSafetensors>, name: string): { shape: readonly number[]; data: readonly number[] } {
  const tensor = golden.get(name);
  assert.ok(tensor !== undefined, name);
  return { shape: tensor.shape, data: [...tensor.data] };
}

/** What is drafted behind `ids`, of which the target samples the last one, in a prompt of one or two chunks. */
function draftsBehind(engine: NativeEngine, ids: readonly number[], count: number, cut = 0): { ids: number[]; logits: number[] } {
  const prompt = ids.slice(0, -1);
  const last = ids.at(-1) ?? 0;
  const blocks = Math.ceil((ids.length + count) / BLOCK);
  const rows =
    cut === 0
      ? [{ start: 0, count: prompt.length }]
      : [
          { start: 0, count: cut },
          { start: cut, count: prompt.length - cut },
        ];
  for (const [i, row] of rows.entries()) {
    const first = i === 0;
    const sampled = i === rows.length - 1;
    runStep(engine, {
      ...(first ? { newSlots: [{ slot: 0, tokens: prompt, bias: [[last, 1e4]] }], blockSets: blockSets(0, 0, blocks) } : {}),
      rows: [{ slot: 0, ...row }],
      samples: sampled ? [{ row: 0, slot: 0, drafts: count }] : [],
    });
  }
  const [made] = engine.madeDrafts?.() ?? [];
  runStep(engine, { freed: [0] });
  assert.ok(made !== undefined);
  return { ids: [...made.ids], logits: [...made.logits] };
}

function openWith({ target, head = 'ngram' }: Pack, modelPath: string | null): NativeEngine {
  return openEngine(target.startsWith('/') ? target : fixture('golden', target), {
    maxModelLen: 192,
    maxBatchTokens: 192,
    blockSize: BLOCK,
    drafts: { maxTokens: 4, ngramMin: 1, ngramMax: 1, method: head, ...(modelPath === null ? {} : { modelPath }) },
  });
}

for (const [name, pack] of Object.entries(packs)) {
  describe(name, () => {
    const golden = readSafetensors(fixture('golden', `${pack.golden}.safetensors`));
    const input = numbers(golden, 'input_ids').data;
    const open = (): NativeEngine => openWith(pack, pack.path === null ? null : fixture('golden', pack.path));

    test('has the logits of the reference', () => {
      const wanted = numbers(golden, pack.prefix === 'mtp_' ? 'mtp_logits' : 'draft_logits');
      const width = wanted.shape[1] ?? 0;
      const engine = open();
      try {
        for (let row = 0; row < input.length - 1; row += 7) {
          const { logits } = draftsBehind(engine, input.slice(0, row + 2), 1);
          assert.equal(logits.length, width);
          const worst = Math.max(...logits.map((value, i) => Math.abs(value - (wanted.data[row * width + i] ?? Number.NaN))));
          assert.ok(worst <= TOLERANCE, `row ${row}: ${worst}`);
        }
      } finally {
        engine.close();
      }
    });

    test('drafts the chains of the reference, with a prompt in one chunk and in two', () => {
      const lengths = numbers(golden, `${pack.prefix}draft_lengths`).data;
      const { shape, data } = numbers(golden, `${pack.prefix}draft_ids`);
      const depth = shape[1] ?? 0;
      const engine = open();
      try {
        for (const [i, length] of lengths.entries()) {
          for (const cut of [0, Math.floor(length / 3)])
            assert.deepEqual(
              draftsBehind(engine, input.slice(0, length), depth, cut).ids,
              data.slice(i * depth, (i + 1) * depth),
              `${length}`,
            );
        }
      } finally {
        engine.close();
      }
    });
  });
}

describe('a head of the first generation is told by its tensors', () => {
  const pack = packs['EAGLE of the first generation'];
  assert.ok(pack !== undefined);
  const folder = fixture('golden', 'eagle3', 'c');
  const stored = [...readSafetensors(join(folder, 'model.safetensors'))];
  const own = new Map(stored.map(([name, { shape, data }]) => [name, { shape, data: widenedBf16(data) }]));
  const input = numbers(readSafetensors(fixture('golden', `${pack.golden}.safetensors`)), 'input_ids').data;
  type Tensors = typeof own;

  function drafted(more: Tensors): readonly number[] {
    const changed = tempFolder();
    cpSync(folder, changed, { recursive: true });
    writeSafetensors(join(changed, 'model.safetensors'), new Map([...own, ...more]));
    const engine = openWith(pack as Pack, changed);
    const { logits } = draftsBehind(engine, input.slice(0, 40), 1);
    engine.close();
    return logits;
  }
  const vector = (data: Float32Array) => ({ shape: [data.length], data });
  const at = (name: string): string => `layers.0.self_attn.${name}`;
  const plain = drafted(new Map());

  test('one that brings a head for its logits is still one', () => {
    assert.deepEqual(drafted(new Map([['lm_head.weight', { shape: [320, 64], data: new Float32Array(320 * 64) }]])), plain);
  });

  test('biases of its attention count', () => {
    const [groups, dim] = [2, 64];
    const out = own.get(at('o_proj.weight'));
    assert.ok(out !== undefined);
    const [rows = 0, cols = 0] = out.shape;
    const ofValues = Float32Array.from({ length: cols / groups }, (_, i) => Math.sin(i + 1));
    // Shares of attention add up to one, so that what is added to every value comes out once.
    const ofOutput = Float32Array.from({ length: rows }, (_, row) =>
      out.data
        .subarray(row * cols, (row + 1) * cols)
        .reduce((sum, w, col) => sum + w * (ofValues[Math.floor(col / dim / groups) * dim + (col % dim)] ?? 0), 0),
    );
    const none = (name: string): [string, Tensors extends Map<string, infer T> ? T : never] => [
      at(`${name}.bias`),
      vector(new Float32Array(own.get(at(`${name}.weight`))?.shape[0] ?? 0)),
    ];
    const values = drafted(new Map([none('q_proj'), none('k_proj'), [at('v_proj.bias'), vector(ofValues)]]));
    const output = drafted(new Map([[at('o_proj.bias'), vector(ofOutput)]]));
    const furthest = (a: readonly number[], b: readonly number[]): number =>
      Math.max(...a.map((value, i) => Math.abs(value - (b[i] ?? 0))));
    assert.ok(furthest(values, plain) > 0.1);
    assert.ok(furthest(values, output) < TOLERANCE, `${furthest(values, output)}`);
  });
});

test('an EAGLE-3 head without use_aux_hidden_state reads what the head of the target reads', () => {
  const widened = (folder: string) =>
    new Map(
      [...readSafetensors(join(folder, 'model.safetensors'))]
        .filter(([name]) => name !== 'd2t' && name !== 't2d')
        .map(([name, { shape, data }]) => [name, { shape, data: widenedBf16(data) }]),
    );
  const changed = (folder: string, tensors: ReturnType<typeof widened>, more: Record<string, unknown>): string => {
    const to = tempFolder();
    cpSync(folder, to, { recursive: true });
    writeFileSync(join(to, 'config.json'), JSON.stringify({ ...JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8')), ...more }));
    writeSafetensors(join(to, 'model.safetensors'), tensors);
    return to;
  };
  // Where the final norm of the target has no weights of its own, the norm of the head makes the same of states before and behind it.
  const size = 64;
  const base = widened(fixture('golden', 'llama3.1-gqa'));
  base.set('model.norm.weight', { shape: [size], data: new Float32Array(size).fill(1) });
  const target = changed(fixture('golden', 'llama3.1-gqa'), base, {});
  const layers = (JSON.parse(readFileSync(join(target, 'config.json'), 'utf8')) as { num_hidden_layers: number }).num_hidden_layers;

  const head = fixture('golden', 'eagle3', 'a');
  const own = widened(head);
  const output = new Float32Array(320 * size).map((_, i) => Math.sin(i));
  own.set('lm_head.weight', { shape: [320, size], data: output });
  const shared = { draft_vocab_size: 320, norm_before_residual: true };
  const first = new Float32Array(size * 3 * size);
  for (let i = 0; i < size; i++) first[i * 3 * size + i] = 1;
  own.set('fc.weight', { shape: [size, 3 * size], data: first });
  const ofLayers = changed(head, own, { ...shared, eagle_config: { eagle_aux_hidden_state_layer_ids: [layers, layers, layers] } });
  own.delete('fc.weight');
  const without = changed(head, own, { ...shared, eagle_config: { use_aux_hidden_state: false } });

  const input = numbers(readSafetensors(fixture('golden', 'eagle3', 'golden-a.safetensors')), 'input_ids').data.slice(0, 40);
  const [a, b] = [ofLayers, without].map((folder) => {
    const engine = openWith({ target, head: 'eagle3', path: null, golden: '', prefix: '' }, folder);
    const { logits } = draftsBehind(engine, input, 1);
    engine.close();
    return logits;
  });
  const worst = Math.max(...(a ?? []).map((value, i) => Math.abs(value - (b?.[i] ?? Number.NaN))));
  assert.ok(worst < TOLERANCE, `${worst}`);
});
