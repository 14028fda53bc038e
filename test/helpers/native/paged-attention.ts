/** Attention over a paged cache as the op table runs it, and its reference in float64. */
import { floats, type PagedCache, type PagedShape, runOp, type StepRow } from './op-table.js';
import { attendOne } from './reference-ops.js';

export const rowWidth = (s: PagedShape) => (s.heads + 2 * s.kvHeads) * s.headDim;
export const tokensOf = (rows: readonly StepRow[]) => rows.reduce((sum, r) => sum + r.count, 0);

export function attend(
  cache: PagedCache,
  rows: readonly StepRow[],
  qkv: Float32Array,
  window: number,
  setup: { isa: string; threads?: number },
  softcap = 0,
  sinks: Float32Array | null = null,
) {
  const attrs = { ...cache.attrs(rows), scale: 1 / Math.sqrt(cache.shape.headDim), window, softcap };
  return floats(runOp(setup, 'attention', attrs, { ...cache.inputs(rows, qkv), ...(sinks && { sinks }) }), 'out');
}

export function attendReference(
  cache: PagedCache,
  rows: readonly StepRow[],
  qkv: Float32Array,
  window: number,
  softcap = 0,
  sinks: Float32Array | null = null,
): Float64Array {
  const { heads, kvHeads, headDim } = cache.shape;
  const out = new Float64Array(tokensOf(rows) * heads * headDim);
  const options = { scale: Math.fround(1 / Math.sqrt(headDim)), window, softcap };
  let token = 0;
  for (const row of rows) {
    for (let i = 0; i < row.count; i++, token++) {
      for (let h = 0; h < heads; h++) {
        const kvHead = Math.floor(h / (heads / kvHeads));
        const start = token * rowWidth(cache.shape) + h * headDim;
        const read = {
          key: (j: number, d: number) => cache.k[cache.at(row.slot, kvHead, j, d)]!,
          value: (j: number, d: number) => cache.v[cache.at(row.slot, kvHead, j, d)]!,
        };
        const own = { ...options, sink: sinks?.[h] ?? -Infinity };
        out.set(attendOne(qkv.subarray(start, start + headDim), row.start + i, read, own), (token * heads + h) * headDim);
      }
    }
  }
  return out;
}
