/**
 * The demo model in every quantized format: as other programs store it, its weights rounded to the nearest, and as the engine makes it while
 * loading. With what each may lose.
 */
import { createHash } from 'node:crypto';
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ggufParts } from '../../../config/gguf/files.js';
import { readGgufParts } from '../../../config/gguf/read.js';
import { type Meta, type TensorSpec, writeGguf } from '../native/gguf.js';
import { ggufFromFolder } from '../native/gguf-from-pack.js';
import { demoModel, fixture } from '../native/native-engine.js';
import { type RawTensor, readRawTensors, widenedBf16, writeRawTensors } from '../native/safetensors.js';
import { awq, float8, gptq, type Matrix, packed, plainBf16, plainF16, q8Blocks, type StoredWeight } from './stored-weights.js';

export interface DemoFormat {
  readonly name: string;
  /** Writes the model into an empty folder and returns its path; absent: the model as it is. */
  readonly write?: (folder: string) => string;
  /** Of its weights (sumOfWeights) as an independent program (numpy), which is outside of this project, writes them. */
  readonly sum?: string;
  /** inference.quantization */
  readonly quantization?: 'int8' | 'int4' | 'fp8';
  /** Most mean Kullback-Leibler divergence from the model as it is, in nats. */
  readonly most: number;
  /** Eight bits lose less than rounding activations to eight bits (2e-6 of the same measure), so they are judged without it. */
  readonly eightBits?: boolean;
}

/** Of what weights that are rounded to the nearest lose in float64, by that program. */
const slack = 1.5;

type Config = Record<string, unknown>;
type Plain = typeof plainF16;

const configOf = (): Config => JSON.parse(readFileSync(join(demoModel(), 'config.json'), 'utf8')) as Config;
const floatsOf = ({ data }: RawTensor): Float32Array => widenedBf16(new Float32Array(data.slice().buffer));

/** A folder in which `quantize` gives the tensors of each linear layer; all else is `plain`. */
function inSafetensors(dtype: 'float16' | 'bfloat16', quantization_config: Config, quantize: (w: Matrix) => StoredWeight) {
  const plain: Plain = dtype === 'float16' ? plainF16 : plainBf16;
  return (folder: string): string => {
    const tensors: [string, RawTensor][] = [];
    for (const [name, tensor] of readRawTensors(join(demoModel(), 'model.safetensors'))) {
      const [rows = 0, cols = 0] = tensor.shape;
      const data = floatsOf(tensor);
      const module = /^(.*_proj)\.weight$/.exec(name)?.[1];
      if (module === undefined) tensors.push([name, plain(tensor.shape, data)]);
      else for (const [end, part] of Object.entries(quantize({ rows, cols, data }))) tensors.push([`${module}.${end}`, part]);
    }
    writeRawTensors(join(folder, 'model.safetensors'), new Map(tensors.sort(([a], [b]) => (a < b ? -1 : 1))));
    writeFileSync(join(folder, 'config.json'), JSON.stringify({ ...configOf(), dtype, quantization_config }));
    for (const file of ['tokenizer.json', 'tokenizer_config.json', 'generation_config.json'])
      copyFileSync(join(demoModel(), file), join(folder, file));
    return folder;
  };
}

const q4k = (): string => fixture('golden', 'quant-demo-q4k', 'model.gguf');
const q8Type = 8;

/** Matrices as Q8_0; the vocabulary is that of the file of Q4_K. */
function inQ8(folder: string): string {
  const { spec } = ggufFromFolder(demoModel());
  const vocabulary = [...readGgufParts(ggufParts(q4k()), () => true).metadata].filter(([key]) => key.startsWith('tokenizer.'));
  const tensors = (Object.entries(spec.tensors ?? {}) as [string, TensorSpec][]).map(([name, t]): [string, TensorSpec] => {
    const [cols = 0, rows = 0] = t.dims.map(Number);
    const data = new Float32Array(t.data.buffer, t.data.byteOffset, t.data.byteLength / 4);
    return [name, t.dims.length < 2 ? t : { ...t, type: q8Type, data: q8Blocks({ rows, cols, data }) }];
  });
  const metadata = [...(spec.metadata as readonly (readonly [string, Meta])[]), ...(vocabulary as [string, Meta][])];
  return writeGguf(join(folder, 'model.gguf'), { metadata, tensors });
}

const gptqConfig = (group_size: number, sym: boolean): Config => ({ quant_method: 'gptq', bits: 4, group_size, desc_act: false, sym });
const awqConfig: Config = { quant_method: 'awq', bits: 4, group_size: 64, zero_point: true, version: 'gemm' };
const compressed = (format: string, weights: Config, input_activations: Config | null = null): Config => ({
  quant_method: 'compressed-tensors',
  format,
  ignore: ['lm_head'],
  config_groups: { group_0: { targets: ['Linear'], weights: { symmetric: true, ...weights }, input_activations } },
});
const packedConfig = compressed('pack-quantized', { num_bits: 4, type: 'int', strategy: 'group', group_size: 32 });
const rowsConfig = compressed(
  'float-quantized',
  { num_bits: 8, type: 'float', strategy: 'channel' },
  { num_bits: 8, type: 'float', strategy: 'token', dynamic: true },
);
const blocksConfig: Config = { quant_method: 'fp8', activation_scheme: 'dynamic', weight_block_size: [128, 128] };

/** As other programs store it. The file of q4_k is one that such a program made. */
export const storedFormats: readonly DemoFormat[] = [
  {
    name: 'gptq-g32',
    write: inSafetensors('float16', gptqConfig(32, true), (w) => gptq(w, 32, true)),
    sum: '4846c3dd5f9ec31a4a337f4039c188eec4ac32d8108fba1f216b620827846361',
    most: slack * 2.7e-4,
  },
  {
    name: 'gptq-g64',
    write: inSafetensors('float16', gptqConfig(64, false), (w) => gptq(w, 64, false)),
    sum: '9a686b835a8c5496f1db0cc4b0db4aa855c5b89a5db8c1b7c5f04f67b499c2a5',
    most: slack * 2.5e-4,
  },
  {
    name: 'awq-g64',
    write: inSafetensors('float16', awqConfig, (w) => awq(w, 64)),
    sum: '8afafa0108d997661b44ef26d8a93589fda5b789c51b7732e4e44506f77ee055',
    most: slack * 2.5e-4,
  },
  {
    name: 'ct-w4a16-g32',
    write: inSafetensors('bfloat16', packedConfig, (w) => packed(w, 32)),
    sum: 'fa736ae63ca7b624bca96aea7291852c9a0d146b7308042ce1758fb259e87c32',
    most: slack * 2.8e-4,
  },
  {
    name: 'fp8-channel',
    write: inSafetensors('bfloat16', rowsConfig, (w) => float8(w, 'weight_scale', 1, w.cols)),
    sum: '10544040ba3f01f515ec69db419fa149618b9e83a146e42778683753573b63de',
    most: slack * 8.7e-6,
  },
  {
    name: 'fp8-block',
    write: inSafetensors('bfloat16', blocksConfig, (w) => float8(w, 'weight_scale_inv', 128, 128)),
    sum: '1c77e633c6d6f5945eef1d1a98b6bdef7a5d1155642240899dc7697c0a17ce5a',
    most: slack * 1.1e-5,
  },
  {
    name: 'q8_0',
    write: inQ8,
    sum: 'eaa2db0031b57c95b13c7977953a3c22d040b1674b286302725f9df2bbdd3d75',
    most: slack * 1.0e-6,
    eightBits: true,
  },
  { name: 'q4_k', write: q4k, most: slack * 1.8e-4 },
];

/**
 * Made while loading: no worse than rounding to the nearest, which the list of the formats above has for int8 as Q8_0. Of fp8 it has that
 * with scales in bf16, which were lucky here: with scales in float32, as the engine has them, the same program loses 1.28e-5. The searched
 * int4 is to be better than any other of four bits, without slack.
 */
export const loadedFormats: readonly DemoFormat[] = [
  { name: 'int8 on load', quantization: 'int8', most: slack * 1.0e-6, eightBits: true },
  { name: 'int4 on load', quantization: 'int4', most: 2.5e-4 },
  { name: 'fp8 on load', quantization: 'fp8', most: slack * 1.28e-5 },
];

/** SHA-256 of all tensors of a model that was written here, in the order of their names. */
export function sumOfWeights(path: string): string {
  const sum = createHash('sha256');
  if (path.endsWith('.gguf')) {
    const file = readFileSync(path);
    const { tensors } = readGgufParts([path], () => false);
    for (const [, { shape, type, offset }] of [...tensors].sort(([a], [b]) => (a < b ? -1 : 1))) {
      const count = shape.reduce((a, b) => a * b, 1);
      sum.update(file.subarray(offset, offset + (type === q8Type ? (count / 32) * 34 : count * 4)));
    }
  } else {
    for (const { data } of readRawTensors(join(path, 'model.safetensors')).values()) sum.update(data);
  }
  return sum.digest('hex');
}
