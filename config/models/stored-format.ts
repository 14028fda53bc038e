/**
 * The name of the format that the weights of a model are stored in, for people: "GGUF Q4_K_M", "GPTQ int4", "FP8", "BF16". Told by what the
 * files say of themselves; how the weights are read is decided by their tensors, in native/core/formats. Pure.
 */
import type { GgufHead } from '../gguf/read.js';

type Json = Readonly<Record<string, unknown>>;

/** Names of general.file_type, whose numbers have gaps. */
const fileTypes: Readonly<Record<number, string>> = {
  0: 'F32',
  1: 'F16',
  2: 'Q4_0',
  3: 'Q4_1',
  7: 'Q8_0',
  8: 'Q5_0',
  9: 'Q5_1',
  10: 'Q2_K',
  11: 'Q3_K_S',
  12: 'Q3_K_M',
  13: 'Q3_K_L',
  14: 'Q4_K_S',
  15: 'Q4_K_M',
  16: 'Q5_K_S',
  17: 'Q5_K_M',
  18: 'Q6_K',
  21: 'Q2_K_S',
  25: 'IQ4_NL',
  32: 'BF16',
  38: 'MXFP4',
};

/** "GGUF Q4_K_M", or "GGUF" of a file that does not say. */
export function ggufFormat(head: GgufHead): string {
  const type = head.metadata.get('general.file_type');
  const name = typeof type === 'number' ? fileTypes[type] : undefined;
  return name === undefined ? 'GGUF' : `GGUF ${name}`;
}

const methods: Readonly<Record<string, (quantization: Json) => string>> = {
  gptq: (q) => `GPTQ ${integers(q['bits'])}`,
  awq: (q) => `AWQ ${integers(q['bits'] ?? 4)}`,
  fp8: (q) => (Array.isArray(q['weight_block_size']) ? 'FP8 in blocks' : 'FP8'),
  fbgemm_fp8: () => 'FP8',
  'compressed-tensors': compressedTensors,
};

/** Of a folder with safetensors, by its config.json. */
export function safetensorsFormat(config: Json): string {
  const quantization = object(config['quantization_config']) ?? object(config['compression_config']);
  const method = quantization?.['quant_method'];
  if (quantization !== null && typeof method === 'string')
    return Object.hasOwn(methods, method) ? (methods[method]?.(quantization) ?? method) : method.slice(0, 40);
  const dtype = config['torch_dtype'] ?? config['dtype'];
  const names: Readonly<Record<string, string>> = { bfloat16: 'BF16', float16: 'F16', float32: 'F32' };
  return (typeof dtype === 'string' && Object.hasOwn(names, dtype) ? names[dtype] : undefined) ?? 'safetensors';
}

/** The weights of all groups, where they are the same. */
function compressedTensors(quantization: Json): string {
  const kinds = new Set(Object.values(object(quantization['config_groups']) ?? {}).map((group) => weightsOf(object(group), quantization)));
  const [kind] = kinds;
  return `compressed-tensors ${kinds.size > 1 ? 'mixed' : (kind ?? 'dense')}`;
}

function weightsOf(group: Json | null, quantization: Json): string {
  const format = group?.['format'] ?? quantization['format'];
  if (format === 'mxfp4-pack-quantized') return 'MXFP4';
  if (format === 'nvfp4-pack-quantized') return 'NVFP4';
  const weights = object(group?.['weights']);
  return weights?.['type'] === 'float' ? `FP${String(weights['num_bits'])}` : integers(weights?.['num_bits']);
}

const integers = (bits: unknown): string => (typeof bits === 'number' ? `int${bits}` : 'integers');
const object = (value: unknown): Json | null =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Json) : null;
