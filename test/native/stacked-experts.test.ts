/** Experts that a checkpoint holds in one tensor for all of a layer: the same model as with a matrix for each, in either orientation. */
import assert from 'node:assert/strict';
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { it } from 'node:test';
import { generate, type Run, readGolden } from '../helpers/native/golden.js';
import { fixture, nativeError, openEngine } from '../helpers/native/native-engine.js';
import { readSafetensors, widenedBf16, writeSafetensors } from '../helpers/native/safetensors.js';
import { withModelFolder } from '../helpers/native/tiny-model.js';

const EXPERTS = 6;

type Tensors = Map<string, { shape: readonly number[]; data: Float32Array }>;

/** A pack with its tensors, in float32, as `change` leaves them. */
function withChanged(change: (tensors: Tensors) => void, use: (folder: string) => void, name = 'gpt-oss'): void {
  const pack = join(fixture('golden'), name);
  const tensors: Tensors = new Map();
  for (const [name, { shape, data }] of readSafetensors(join(pack, 'model.safetensors'))) {
    tensors.set(name, { shape, data: widenedBf16(data) });
  }
  change(tensors);
  withModelFolder(null, (folder) => {
    writeFileSync(join(folder, 'config.json'), readFileSync(join(pack, 'config.json')));
    copyFileSync(join(pack, 'tokenizer.json'), join(folder, 'tokenizer.json'));
    writeSafetensors(join(folder, 'model.safetensors'), tensors);
    use(folder);
  });
}

function transposed(data: Float32Array, rows: number, cols: number): Float32Array {
  return data.map((_, i) => data[(i % rows) * cols + Math.floor(i / rows)]!);
}

function answers(folder: string, name = 'gpt-oss'): Run {
  const engine = openEngine(folder, { weightDtype: 'f32' }, 32);
  const run = generate(engine, readGolden(name).ids, 8, 16);
  engine.close();
  return run;
}

it('experts with tensors of their own, and a stack of upright matrices, are the model of the stack', () => {
  const wanted = answers(fixture('golden', 'gpt-oss'));
  const stacks = (tensors: Tensors) => [...tensors].filter(([name]) => /experts\.gate_up_proj$/.test(name));
  withChanged(
    (tensors) => {
      for (const [name, { shape, data }] of stacks(tensors)) {
        const [, inputs = 0, outputs = 0] = shape;
        const each = Array.from({ length: EXPERTS }, (_, e) => [
          ...transposed(data.subarray(e * inputs * outputs, (e + 1) * inputs * outputs), inputs, outputs),
        ]);
        tensors.set(name, { shape: [EXPERTS, outputs, inputs], data: Float32Array.from(each.flat()) });
      }
    },
    (folder) => assert.deepEqual(answers(folder), wanted),
  );
  withChanged(
    (tensors) => {
      for (const [name, { shape, data }] of stacks(tensors)) {
        const [, inputs = 0, outputs = 0] = shape;
        for (let e = 0; e < EXPERTS; e++) {
          const matrix = transposed(data.subarray(e * inputs * outputs, (e + 1) * inputs * outputs), inputs, outputs);
          const rows = (first: number) =>
            Float32Array.from(
              { length: (outputs / 2) * inputs },
              (_, i) => matrix[(2 * Math.floor(i / inputs) + first) * inputs + (i % inputs)]!,
            );
          for (const [i, part] of ['gate_proj', 'up_proj'].entries())
            tensors.set(name.replace('gate_up_proj', `${e}.${part}.weight`), { shape: [outputs / 2, inputs], data: rows(i) });
        }
        tensors.delete(name);
      }
    },
    (folder) => assert.deepEqual(answers(folder), wanted),
  );
});

/** Puts the matrices of a pack's experts into stacks, upright as newer checkpoints have them or lying. */
function stack(tensors: Tensors, { lying, block = 'mlp', parts = ['gate_proj', 'up_proj', 'down_proj'] }: Stacking): void {
  const [gate = '', up = '', down = ''] = parts;
  for (const router of [...tensors.keys()].filter((name) => name.endsWith(`.${block}.gate.weight`))) {
    const layer = router.slice(0, router.indexOf(`${block}.gate.weight`));
    const taken = (e: number, part: string) => {
      const name = `${layer}${block}.experts.${e}.${part}.weight`;
      const tensor = tensors.get(name);
      tensors.delete(name);
      return tensor;
    };
    for (const [name, of] of [
      ['gate_up_proj', [gate, up]],
      ['down_proj', [down]],
    ] as const) {
      const each: Float32Array[] = [];
      let shape: readonly number[] = [];
      for (let e = 0; ; e++) {
        const matrices = of.map((part) => taken(e, part));
        if (matrices.some((m) => m === undefined)) break;
        const cols = matrices[0]?.shape[1] ?? 0;
        const upright = Float32Array.from(matrices.flatMap((m) => [...(m?.data ?? [])]));
        const rows = upright.length / cols;
        each.push(lying ? transposed(upright, rows, cols) : upright);
        shape = lying ? [cols, rows] : [rows, cols];
      }
      tensors.set(`${layer}mlp.experts.${name}`, { shape: [each.length, ...shape], data: Float32Array.from(each.flatMap((m) => [...m])) });
    }
    const gateTensor = tensors.get(router);
    tensors.delete(router);
    if (gateTensor !== undefined) tensors.set(`${layer}mlp.gate.weight`, gateTensor);
  }
}
interface Stacking {
  readonly lying: boolean;
  readonly block?: string;
  readonly parts?: readonly string[];
}

for (const [name, names] of [
  ['qwen2-moe', {}],
  ['qwen3-moe', {}],
  ['deepseek-v2', {}], // whose matrices of down_proj are square
  ['deepseek-v3-mla', {}],
  ['mixtral-moe', { block: 'block_sparse_moe', parts: ['w1', 'w3', 'w2'] }],
] as const) {
  it(`${name}: stacks of its experts, upright and lying, are the model of a matrix for each`, () => {
    const wanted = answers(fixture('golden', name), name);
    for (const lying of [false, true]) {
      withChanged(
        (tensors) => stack(tensors, { lying, ...names }),
        (folder) => assert.deepEqual(answers(folder, name), wanted, lying ? 'lying' : 'upright'),
        name,
      );
    }
  });
}

it('a stack of a wrong shape, and one that lacks an expert, are refused by name', () => {
  for (const shape of [
    [EXPERTS, 64, 64],
    [EXPERTS - 1, 64, 128],
    [EXPERTS * 64, 128],
  ]) {
    const count = shape.reduce((product, n) => product * n, 1);
    withChanged(
      (tensors) => tensors.set('model.layers.1.mlp.experts.gate_up_proj', { shape, data: new Float32Array(count) }),
      (folder) => assert.throws(() => openEngine(folder), nativeError('bad_model', /layers\.1\.mlp\.experts\.gate_up_proj has the shape/)),
    );
  }
  withChanged(
    (tensors) => tensors.delete('model.layers.2.mlp.experts.down_proj_bias'),
    (folder) =>
      assert.throws(() => openEngine(folder), nativeError('bad_model', /lacks tensors .*layers\.2\.mlp\.experts\.0\.down_proj\.bias/)),
  );
});
