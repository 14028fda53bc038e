/** What routing does to many requests: conversations keep their prefix hits, skewed load is spread, and the limits hold. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { Cluster, randoms, type Sent } from './cluster.js';

/** 200 conversations, at most 24 at a time, of which half share a long beginning. Returns the hits and how many requests each group had. */
function converse(numGroups: number, numBlocks: number, seed: number): { hits: number; prompts: number; perGroup: number[] } {
  const cluster = new Cluster(numGroups, { blockSize: 16, numBlocks, maxBatchTokens: 256, maxSlots: 16, maxModelLen: 2048 });
  const random = randoms(seed);
  const text = (count: number): number[] => Array.from({ length: count }, () => 8 + random(40));
  const system = text(150);
  const conversations = Array.from({ length: 200 }, (_, i) => ({ said: i % 2 === 0 ? [...system] : [], turns: 3 + random(4) }));
  const open = new Map<number, Sent>();
  const perGroup = cluster.rigs.map(() => 0);
  let prompts = 0;
  for (;;) {
    const idle = [...conversations.keys()].filter((i) => !open.has(i) && conversations[i]!.turns > 0); // i < length
    while (open.size < 24 && idle.length > 0) {
      const [i = 0] = idle.splice(random(Math.min(idle.length, 40)), 1);
      const one = conversations[i]!; // as above
      one.said.push(...text(10 + random(60)));
      one.turns--;
      const sent = cluster.send({ prompt: one.said, maxTokens: 5 + random(30), ignoreEos: true });
      prompts += one.said.length;
      perGroup[sent.group]!++;
      open.set(i, sent);
    }
    if (open.size === 0) break;
    cluster.step();
    for (const [i, { rig, id }] of open) {
      const told = rig.told(id);
      if (told.finish === 0) continue;
      conversations[i]!.said.push(...told.tokens);
      open.delete(i);
    }
  }
  for (const rig of cluster.rigs) rig.assertIdle();
  return { hits: cluster.hits, prompts, perGroup };
}

describe('200 conversations', () => {
  for (const seed of [1, 2, 3]) {
    test(`keep 95 % of the prefix hits of one group, and use both; seed ${seed}`, () => {
      const [one, two] = [converse(1, 8192, seed), converse(2, 4096, seed)];
      assert.equal(one.prompts > 0 && one.hits > 0.5 * one.prompts, true, 'there is something to find');
      assert.ok(two.hits >= 0.95 * one.hits, `${two.hits} of ${one.hits}`);
      const [least = 0, most = 0] = [...two.perGroup].sort((a, b) => a - b);
      assert.ok(least >= 0.4 * (least + most), `${two.perGroup}`);
    });
  }
});

interface Arrival {
  readonly step: number;
  readonly promptLen: number;
  readonly maxTokens: number;
}

/** Steps from arrival to the first token of each request, when request i goes to `assign(i)`; undefined: where the router says. */
function firstTokens(arrivals: readonly Arrival[], assign: (i: number) => number | undefined): number[] {
  const cluster = new Cluster(2, { blockSize: 16, numBlocks: 4096, maxBatchTokens: 128, maxSlots: 32, maxModelLen: 8192 });
  const random = randoms(7);
  const sent: (Sent & { readonly at: number })[] = [];
  const waits: number[] = [];
  let next = 0;
  while (next < arrivals.length || cluster.busy) {
    for (; next < arrivals.length && arrivals[next]!.step <= cluster.steps; next++) {
      const { promptLen, maxTokens } = arrivals[next]!; // next < length
      const prompt = Array.from({ length: promptLen }, () => 8 + random(40));
      sent.push({ ...cluster.send({ prompt, maxTokens, ignoreEos: true }, assign(next)), at: cluster.steps });
    }
    cluster.step();
    for (const [i, { rig, id, at }] of sent.entries()) {
      if (waits[i] === undefined && rig.told(id).tokens.length > 0) waits[i] = cluster.steps - at;
    }
  }
  return waits;
}

const percentile99 = (values: readonly number[]): number => [...values].sort((a, b) => a - b)[Math.ceil(0.99 * values.length) - 1] ?? 0;

describe('one request a hundred times as long as the others', () => {
  for (const seed of [1, 2, 3]) {
    test(`holds up the others by no more than half as much again as under the best assignment; seed ${seed}`, () => {
      const random = randoms(seed);
      const arrivals = Array.from({ length: 150 }, (_, i): Arrival => {
        return { step: Math.floor(i / 1.3), promptLen: i === 20 ? 6000 : 40 + random(40), maxTokens: 4 + random(8) };
      });
      const routed = percentile99(firstTokens(arrivals, () => undefined));
      // All shares of the short ones that may stay away from the long one, as long as that is computed, and some arbitrary assignments.
      const assignments = [
        ...[0, 0.05, 0.1, 0.2, 0.3, 0.5].flatMap((share) =>
          [70, 80, 90, 110].map((until) => {
            const draw = randoms(seed + 99);
            return (i: number): number => (i === 20 ? 0 : i > 20 && i < until ? (draw(1000) < 1000 * share ? 0 : 1) : i % 2);
          }),
        ),
        ...[5, 6, 7].map((s) => {
          const draw = randoms(s);
          return (_i: number): number => draw(2);
        }),
      ];
      const best = Math.min(...assignments.map((assign) => percentile99(firstTokens(arrivals, assign))));
      assert.ok(routed <= 1.5 * best, `${routed} steps where ${best} are possible`);
    });
  }
});

test('as many wait in all groups together as one group would let wait, and whoever was admitted before is never refused', () => {
  const cluster = new Cluster(3, { maxQueue: 5, maxSlots: 2, maxBatchTokens: 8 });
  const ask = { prompt: [9, 10, 11], maxTokens: 4, ignoreEos: true };
  const sent = Array.from({ length: 20 }, (_, i) => cluster.send(ask, i % 2)); // none goes to the third
  const refused = sent.filter(({ rig, id }) => rig.entry(id).refused !== null);
  assert.equal(refused.length, 20 - 5 - 3 * 2);
  assert.equal(refused[0]?.rig.entry(refused[0].id).refused?.failure.kind, 'overloaded');
  const again = cluster.send({ ...ask, again: true }, 0);
  assert.equal(again.rig.entry(again.id).refused, null);
  while (cluster.busy) cluster.step();
  for (const rig of cluster.rigs) rig.assertIdle();
  const later = Array.from({ length: 12 }, () => cluster.send(ask, 2));
  assert.equal(later.filter(({ rig, id }) => rig.entry(id).refused !== null).length, 1, 'every place is free again');
});
