/**
 * An adapter for benchmarks: every linear of a layer, in PEFT's layout, in a temporary folder. Its numbers are arbitrary, as those of
 * --load-dummy are.
 */
import { closeSync, mkdtempSync, openSync, rmSync, writeFileSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Sizes } from './work.js';

/** Pieces that files are written in, bytes. */
const pieceBytes = 2 ** 20;

/** Calls `use` with the folder, which is deleted behind it. */
export function withDummyAdapter<T>(sizes: Sizes, rank: number, use: (folder: string) => T): T {
  const folder = mkdtempSync(join(tmpdir(), 'inferd-bench-adapter-'));
  try {
    writeFileSync(
      join(folder, 'adapter_config.json'),
      JSON.stringify({ peft_type: 'LORA', r: rank, lora_alpha: rank, target_modules: 'all-linear' }),
    );
    writeTensors(join(folder, 'adapter_model.safetensors'), tensorsOf(sizes, rank));
    return use(folder);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

interface Shape {
  readonly name: string;
  readonly shape: readonly [number, number];
}

function tensorsOf({ hidden, inner, queries, keys, layers }: Sizes, rank: number): Shape[] {
  const modules = [
    ['self_attn.q_proj', hidden, queries],
    ['self_attn.k_proj', hidden, keys],
    ['self_attn.v_proj', hidden, keys],
    ['self_attn.o_proj', queries, hidden],
    ['mlp.gate_proj', hidden, inner],
    ['mlp.up_proj', hidden, inner],
    ['mlp.down_proj', inner, hidden],
  ] as const;
  return Array.from({ length: layers }, (_, layer) =>
    modules.flatMap(([module, inputs, outputs]): Shape[] => {
      const prefix = `base_model.model.model.layers.${layer}.${module}`;
      return [
        { name: `${prefix}.lora_A.weight`, shape: [rank, inputs] },
        { name: `${prefix}.lora_B.weight`, shape: [outputs, rank] },
      ];
    }),
  ).flat();
}

/** bf16, small numbers of both signs, over and over. */
function writeTensors(path: string, tensors: readonly Shape[]): void {
  let end = 0;
  const entries = tensors.map(({ name, shape }) => {
    const start = end;
    end += shape[0] * shape[1] * 2;
    return [name, { dtype: 'BF16', shape, data_offsets: [start, end] }];
  });
  const text = JSON.stringify(Object.fromEntries(entries));
  const header = Buffer.from(text.padEnd(Math.ceil(text.length / 8) * 8));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(header.length));
  // Sign by turns, exponent of about 2^-7, any mantissa.
  const piece = new Uint16Array(pieceBytes / 2).map((_, i) => ((i * 40_503) & 0x807f) | 0x3c00);
  const bytes = Buffer.from(piece.buffer);
  const file = openSync(path, 'w');
  try {
    writeSync(file, length);
    writeSync(file, header);
    for (let at = 0; at < end; at += bytes.length) writeSync(file, bytes, 0, Math.min(bytes.length, end - at));
  } finally {
    closeSync(file);
  }
}
