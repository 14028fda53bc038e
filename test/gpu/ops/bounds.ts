/** How far a result on CUDA may be from its float64 reference, and what else the tests of the op table on CUDA share. */
import assert from 'node:assert/strict';
import type { PagedShape, StepRow } from '../../helpers/native/op-table.js';
import { normalizedError } from '../../helpers/native/reference-ops.js';

export type Type = 'f16' | 'bf16';
/** Squared relative error of a result stored in 16 bits. */
export const STORED = { f16: 2 ** -22, bf16: 2 ** -16 } as const;
/** Of what was rotated: angles are float32 on CUDA, exact to 1e-4 radians at the positions tested. */
export const ROTATED = { f16: 2 * STORED.f16 + 1e-8, bf16: 2 * STORED.bf16 } as const;

export function close(got: Float32Array, want: Float64Array, bound: number, what: string): void {
  const error = normalizedError(got, want);
  assert.ok(error <= bound, `${what}: normalized error ${error} is above ${bound}`);
}

/** Leaves the large sizes out, for compute-sanitizer. */
export const quick = process.env['INFERD_TEST_QUICK'] === '1';

export const rowWidth = (s: PagedShape): number => (s.heads + 2 * s.kvHeads) * s.headDim;
export const tokensOf = (rows: readonly StepRow[]): number => rows.reduce((sum, r) => sum + r.count, 0);
