/** Collectives between ranks that are threads: the same bits everywhere, and one end for all when a rank does not come. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { floats, ints, runOp } from '../helpers/native/op-table.js';
import { randomFloats, randomInt, randomSource } from '../helpers/native/reference-ops.js';

const setup = { isa: 'reference' };

/** The sum over the ranks in their order, in float32. */
function reduced(x: Float32Array, ranks: number): Float32Array {
  const each = x.length / ranks;
  const sum = new Float32Array(each);
  for (let r = 0; r < ranks; r++) for (let i = 0; i < each; i++) sum[i] = Math.fround(sum[i]! + x[r * each + i]!);
  return Float32Array.from({ length: x.length }, (_, i) => sum[i % each]!);
}

describe('ranks between threads', () => {
  it('all_reduce adds in the order of ranks and gives every rank the same bits', () => {
    const random = randomSource(41);
    for (const ranks of [1, 2, 3, 4, 8]) {
      for (let round = 0; round < 4; round++) {
        const rows = randomInt(random, 1, 5);
        const cols = randomInt(random, 1, 700);
        const x = randomFloats(random, ranks * rows * cols, 100);
        const out = floats(runOp(setup, 'comm_all_reduce', { ranks, rows, cols, times: 1 }, { x }), 'out');
        assert.deepEqual(out, reduced(x, ranks), `${ranks} ranks, ${rows} x ${cols}`);
      }
    }
  });

  it('ten thousand reductions in a row never mix two of them', () => {
    // Of ranks that begin with 1 and -1 by turns every sum is 0; of -1, 1, 1 it is 1, and then 3^n until rounding stops it.
    const x = Float32Array.from({ length: 4 * 64 }, (_, i) => (Math.floor(i / 64) % 2 === 0 ? 1 : -1));
    const out = floats(runOp(setup, 'comm_all_reduce', { ranks: 4, rows: 1, cols: 64, times: 10_000 }, { x }), 'out');
    assert.ok(out.every((value) => value === 0));
    const powers = floats(
      runOp(setup, 'comm_all_reduce', { ranks: 2, rows: 1, cols: 3, times: 100 }, { x: new Float32Array(6).fill(1) }),
      'out',
    );
    assert.ok(powers.every((value) => value === 2 ** 100));
  });

  it('all_gather puts the parts side by side in the order of ranks', () => {
    const [ranks, rows, cols] = [3, 2, 5];
    const x = Float32Array.from({ length: ranks * rows * cols }, (_, i) => i);
    const out = floats(runOp(setup, 'comm_all_gather', { ranks, rows, cols }, { x }), 'out');
    for (let r = 0; r < ranks; r++) {
      for (let row = 0; row < rows; row++) {
        for (let c = 0; c < ranks * cols; c++) {
          const from = Math.floor(c / cols);
          assert.equal(out[(r * rows + row) * ranks * cols + c], x[(from * rows + row) * cols + (c % cols)]);
        }
      }
    }
  });

  it('rows of each, as many as it has, come to all and their sums back to it', () => {
    const random = randomSource(43);
    for (const ranks of [1, 2, 3, 4, 8]) {
      for (let round = 0; round < 6; round++) {
        const cols = randomInt(random, 1, 40);
        const counts = Int32Array.from({ length: ranks }, () => (round === 0 ? 0 : randomInt(random, 0, 3)));
        const total = counts.reduce((a, b) => a + b, 0);
        const x = randomFloats(random, total * cols, 100);
        const y = randomFloats(random, ranks * total * cols, 100);
        const result = runOp(setup, 'comm_rows', { ranks, cols }, { counts, x, y });
        for (let r = 0; r < ranks; r++) {
          assert.deepEqual(
            floats(result, 'all').subarray(r * total * cols, (r + 1) * total * cols),
            x,
            `rank ${r} of ${ranks} sees all rows`,
          );
          assert.equal(
            ints(result, 'first')[r],
            counts.subarray(0, r).reduce((a, b) => a + b, 0),
          );
        }
        assert.deepEqual(floats(result, 'back'), reduced(y, ranks).subarray(0, total * cols), `${ranks} ranks, ${counts}`);
      }
    }
  });

  for (const how of ['leaves', 'throws', 'sleeps']) {
    it(`when a rank ${how}, the others are told once, within the limit`, () => {
      for (const at_op of [0, 7]) {
        const attrs = { ranks: 4, times: 20, lost: 2, at_op, limit_ms: 300, how };
        const result = runOp(setup, 'comm_parts', attrs, {});
        const ended = ints(result, 'ended');
        const waited = ints(result, 'waited_ms');
        for (let r = 0; r < 4; r++) {
          // A rank that left hears nothing any more; one that overslept finds the group ended.
          assert.equal(ended[r], r === 2 && how === 'leaves' ? 0 : 1, `rank ${r} at op ${at_op}`);
          assert.ok(waited[r]! < 5000, `rank ${r} waited ${waited[r]} ms`);
        }
      }
    });
  }

  it('no rank leaves while others read what it published: it frees that at once', () => {
    // So large that the allocator gives them back to the system: reading one that is gone ends the process.
    const [ranks, rounds] = [3, 24];
    const ended = ints(runOp(setup, 'comm_abandoned', { ranks, cols: 10 * 2 ** 20, rounds }, {}), 'ended');
    assert.deepEqual([...ended], new Array<number>(ranks).fill(rounds));
  });
});
