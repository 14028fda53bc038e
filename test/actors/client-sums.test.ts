/** Answers of several engine groups as one. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { partOf, sumOf } from '../../actors/client-sums.js';
import type { RecentSteps } from '../../actors/messages/calls.js';
import type { RequestId } from '../../actors/messages/ids.js';
import { KV_CELL, type KvMap } from '../../actors/messages/kv-map.js';
import { Rig } from './scheduler/rig.js';

const id = (n: number): RequestId => n as RequestId; // tests number requests themselves

test('numbers are added up, but the longest times and the size of a block stay', () => {
  const one = new Rig().scheduler.stats();
  const busy = { ...one, requests: { ...one.requests, running: 3 }, step: { count: 5, p50_ms: 2, p99_ms: 9 } };
  const sum = sumOf('stats', [busy, { ...one, step: { count: 1, p50_ms: 4, p99_ms: 4 } }]);
  assert.deepEqual([sum.requests.running, sum.step], [3, { count: 6, p50_ms: 4, p99_ms: 9 }]);
  assert.deepEqual([sum.kv.block_size, sum.kv.total_blocks], [one.kv.block_size, 2 * one.kv.total_blocks]);
});

test('steps of all groups come in the order of their ends, each group with a number of its own', () => {
  const steps = (next: readonly number[], atMs: readonly number[]): RecentSteps => {
    return { next, atMs, execUs: atMs, promptTokens: atMs, decodeTokens: atMs, running: atMs };
  };
  const both = sumOf('recent', [steps([7], [1, 4]), steps([0, 9], [2, 3])]);
  assert.deepEqual(
    [both.next, both.atMs, both.running],
    [
      [7, 9],
      [1, 2, 3, 4],
      [1, 2, 3, 4],
    ],
  );
});

test('pools lie one behind the other, with owners numbered through as far as numbers go', () => {
  const pool = (cells: readonly number[], owners: number): KvMap => {
    return {
      totalBlocks: cells.length,
      blocksPerCell: 1,
      cells: Uint8Array.from(cells),
      owners: Array.from({ length: owners }, (_, i) => ({ id: id(i), blocks: 1 })),
    };
  };
  const { owner, shared, others } = KV_CELL;
  const both = sumOf('kvMap', [pool([owner, owner + 1, 0], 2), pool([1, shared, owner], 1)]);
  assert.deepEqual([...both.cells], [owner, owner + 1, 0, 1, shared, owner + 2]);
  assert.deepEqual([both.totalBlocks, both.owners.length], [6, 3]);
  const many = sumOf('kvMap', [pool([owner], 200), pool([owner + 100], 101)]);
  assert.deepEqual([...many.cells], [owner, others]);
  assert.deepEqual(partOf('kvMap', { maxCells: 9 }, 2), { maxCells: 4 });
});

test('what happened to a request is known to the group that had it', () => {
  const timeline = { arrivalMs: 1, promptTokens: 1, generatedTokens: 0, marks: [], leftOut: 0 };
  assert.equal(sumOf('timeline', [null, timeline]), timeline);
  assert.equal(sumOf('timeline', [null, null]), null);
});
