/** Products with adapters for the op table, with what they should be in float64. */
import { type FloatType, linear, randomFloats, randomInt, roundAll } from './reference-ops.js';

export interface AdaptedSize {
  readonly rows: number;
  /** Outputs of the weight; gated: of each half. */
  readonly outs: number;
  readonly cols: number;
  readonly rank: number;
  readonly places: number;
  readonly sections: number;
}

/** Inputs of an op `linear` and its like, rows using places at random and some none, and y: what stands there ahead of the epilogue. */
export function adaptedProduct(random: () => number, type: FloatType, size: AdaptedSize, products = size.outs) {
  const { rows, cols, rank, places, sections } = size;
  const rounded = (count: number, spread = 1): Float32Array => roundAll(type, randomFloats(random, count, spread));
  const inputs = {
    x: rounded(rows * cols),
    weight: rounded(products * cols, 0.2),
    places: Int32Array.from({ length: rows }, () => randomInt(random, -1, places - 1)),
    adapter_a: rounded(places * sections * rank * cols, 0.3),
    adapter_b: rounded(places * products * rank, 0.3),
  };
  const attrs = { rows, cols, outs: size.outs, dtype: type, adapter_places: places, adapter_rank: rank, sections };
  /** Of x as it is, or as a norm leaves it. */
  const want = (x: Float32Array | Float64Array): Float64Array => {
    const y = linear(x, inputs.weight, null, cols);
    const outputs = products / sections;
    for (const [row, place] of inputs.places.entries()) {
      if (place < 0) continue;
      for (let section = 0; section < sections; section++) {
        const first = (place * sections + section) * rank;
        const low = linear(
          x.slice(row * cols, (row + 1) * cols),
          inputs.adapter_a.subarray(first * cols, (first + rank) * cols),
          null,
          cols,
        );
        for (let o = section * outputs; o < (section + 1) * outputs; o++)
          for (let r = 0; r < rank; r++)
            y[row * products + o] =
              (y[row * products + o] ?? 0) + (low[r] ?? 0) * (inputs.adapter_b[(place * products + o) * rank + r] ?? 0);
      }
    }
    return y;
  };
  return { inputs, attrs, want };
}
