/** Calls of the addon's op table for tests: kernel sets of this machine, and paged caches with shuffled blocks. */
import { type BackendName, loadAddon, type OpCall } from '../../../native/index.js';
import { type FloatType, randomFloats, randomInt, roundAll } from './reference-ops.js';

const addon = loadAddon();

/** The backend of calls that name none, so that the cases of the CPU are those of another one too. */
const usualBackend = (process.env['INFERD_TEST_BACKEND'] ?? 'cpu') as BackendName; // the addon refuses a name that it does not know

/** Kernel sets that this build holds and this CPU runs, "reference" among them; of another backend the one that it has. */
export const isas: readonly string[] = usualBackend === 'cpu' ? addon.systemInfo().usableIsas : ['auto'];

/** Whether a kernel set multiplies quantized weights by activations of 8 bits. */
export const roundsActivations = (isa: string): boolean => !['reference', 'neon'].includes(isa);

export interface Setup {
  readonly isa: string;
  readonly threads?: number;
  /** That of INFERD_TEST_BACKEND when absent, else the CPU. */
  readonly backend?: BackendName;
  /** Type of activations on CUDA; bf16 when absent. */
  readonly activation?: 'f16' | 'bf16';
}

type Arrays = OpCall['inputs'];

export function runOp(setup: Setup, op: string, attrs: OpCall['attrs'], inputs: Arrays): Arrays {
  const { isa, threads = 1, backend = usualBackend, activation } = setup;
  return addon.runOp({ op, backend, isa, threads, attrs: activation === undefined ? attrs : { ...attrs, activation }, inputs });
}

/** A float output by name. */
export function floats(result: Arrays, name: string): Float32Array {
  const array = result[name];
  if (!(array instanceof Float32Array)) throw new Error(`the op has no float output ${name}`);
  return array;
}

/** An integer output by name. */
export function ints(result: Arrays, name: string): Int32Array {
  const array = result[name];
  if (!(array instanceof Int32Array)) throw new Error(`the op has no integer output ${name}`);
  return array;
}

export interface StepRow {
  readonly slot: number;
  readonly start: number;
  readonly count: number;
  /** Of ROW_FLAG; none when absent. */
  readonly flags?: number;
}

export interface PagedShape {
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly blockSize: number;
  readonly kvDtype: FloatType;
  /** Context length of each slot. */
  readonly lengths: readonly number[];
}

/** Keys and values of some slots in blocks in random order, with room for all positions. Entries behind a slot's end name a spare block. */
export class PagedCache {
  readonly shape: PagedShape;
  readonly maxBlocks: number;
  readonly numBlocks: number;
  readonly blocks: Int32Array;
  readonly k: Float32Array;
  readonly v: Float32Array;

  constructor(shape: PagedShape, random: () => number) {
    this.shape = shape;
    this.maxBlocks = Math.ceil(Math.max(...shape.lengths) / shape.blockSize);
    const used = shape.lengths.map((length) => Math.ceil(length / shape.blockSize));
    this.numBlocks = used.reduce((sum, count) => sum + count, 1);
    const order = Array.from({ length: this.numBlocks }, (_, i) => i);
    for (let i = order.length - 1; i > 0; i--) {
      const j = randomInt(random, 0, i);
      [order[i], order[j]] = [order[j]!, order[i]!];
    }
    const spare = order.at(-1)!;
    this.blocks = new Int32Array(this.maxBlocks * shape.lengths.length).fill(spare);
    let next = 0;
    for (const [slot, count] of used.entries()) for (let i = 0; i < count; i++) this.blocks[slot * this.maxBlocks + i] = order[next++]!;
    const size = this.numBlocks * shape.kvHeads * shape.blockSize * shape.headDim;
    this.k = roundAll(shape.kvDtype, randomFloats(random, size));
    this.v = roundAll(shape.kvDtype, randomFloats(random, size));
  }

  /** Index of element `d` of the vector at `position` of a slot. */
  at(slot: number, kvHead: number, position: number, d: number): number {
    const { kvHeads, blockSize, headDim } = this.shape;
    const block = this.blocks[slot * this.maxBlocks + Math.floor(position / blockSize)]!;
    return ((block * kvHeads + kvHead) * blockSize + (position % blockSize)) * headDim + d;
  }

  attrs(rows: readonly StepRow[]): Record<string, number | string> {
    const { heads, kvHeads, headDim, blockSize, kvDtype, lengths } = this.shape;
    return {
      ...{ heads, kv_heads: kvHeads, head_dim: headDim, block_size: blockSize, kv_dtype: kvDtype },
      ...{ num_blocks: this.numBlocks, max_blocks: this.maxBlocks, max_slots: lengths.length, num_rows: rows.length },
    };
  }

  inputs(rows: readonly StepRow[], qkv: Float32Array): Record<string, Float32Array | Int32Array> {
    const words = Int32Array.from(rows.flatMap((r) => [r.slot, r.start, r.count, r.flags ?? 0]));
    return { rows: words, qkv, blocks: this.blocks, k: this.k, v: this.v };
  }
}
