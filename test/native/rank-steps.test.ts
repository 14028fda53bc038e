/**
 * Random work through a real scheduler on the ranks of a split model, with too few blocks for it: in each of thousands of steps, two of them
 * in flight, all ranks must answer with the same bits, or a later step would go apart. (The comparison is in openRanks.)
 */
import assert from 'node:assert/strict';
import { it } from 'node:test';
import type { RequestId } from '../../actors/messages/ids.js';
import type { Admit } from '../../actors/messages/requests.js';
import { packSamplingRow } from '../../actors/messages/sampling.js';
import { Scheduler, type SchedulerOptions } from '../../actors/scheduler/scheduler.js';
import { generation } from '../helpers/engine/generation.js';
import { openRanks } from '../helpers/native/native-engine.js';
import { randomInt, randomSource } from '../helpers/native/reference-ops.js';
import { tinyConfig, withModelFolder } from '../helpers/native/tiny-model.js';

const VOCAB = 200;
const BLOCKS = 30;
const BLOCK_SIZE = 4;

const options: SchedulerOptions = {
  blockSize: BLOCK_SIZE,
  numBlocks: BLOCKS,
  numSwapBlocks: BLOCKS,
  swapCostTokens: 1,
  maxSlots: 8,
  maxBatchTokens: 24,
  mixedStepTokens: 16,
  maxModelLen: 64,
  enableChunkedPrefill: true,
  enablePrefixCaching: true,
  delayFactor: 0,
  policy: 'fcfs',
  preemptionMode: 'auto',
  drafts: null,
  adapterPlaces: 0,
  maxQueue: 1000,
  queueTimeoutMs: 1e9,
  keptTimelines: 8,
  eosTokenIds: [7],
  epoch: 3,
  maxStepsInFlight: 2,
};

const bytes = (words: readonly number[]): Uint8Array => new Uint8Array(Int32Array.from(words).buffer);
const bits = (value: number): number => new Int32Array(new Float32Array([value]).buffer)[0] ?? 0;

function randomAdmit(random: () => number, id: number): Admit {
  const pick = <T>(...of: readonly T[]): T => of[randomInt(random, 0, of.length - 1)] as T; // proof: in range
  const stem = randomInt(random, 0, 2);
  const prompt = Array.from({ length: randomInt(random, 1, 20) }, (_, i) => (i * (stem + 3)) % VOCAB);
  const pooling = pick(null, null, null, null, null, 'mean' as const, 'last' as const);
  const sampling = {
    ...generation().sampling,
    temperature: pick(0, 0, 0.7, 1.3),
    top_p: pick(1, 0.8),
    top_k: pick(0, 5),
    min_p: pick(0, 0.02),
    repetition_penalty: pick(1, 1, 1.4),
    frequency_penalty: pick(0, 0, 0.6),
    presence_penalty: pick(0, 0, -0.3),
    min_tokens: pick(0, 0, 3),
  };
  const row = packSamplingRow(sampling, {
    seedLo: randomInt(random, 0, 5),
    seedHi: 0,
    topLogprobs: pick(-1, -1, 0, 2),
    promptLogprobs: pick(-1, -1, -1, 1),
  });
  return {
    k: 'admit',
    id: id as RequestId,
    promptIds: bytes(prompt),
    generated: [],
    finished: [],
    samplingRow: new Uint8Array(row.buffer),
    bias: bytes(pick([], [3, bits(4)])),
    maxTokens: pooling === null ? randomInt(random, 1, 24) : 0,
    stopTokenIds: pick([], [11, 12]),
    ignoreEos: pick(true, false),
    bestOf: pooling === null ? pick(1, 1, 2, 3) : 1,
    priority: 0,
    arrivalMs: id,
    turn: 0,
    ...(pooling === null ? {} : { pooling }),
  };
}

for (const [numRanks, numSteps] of [
  [2, 10_000],
  [4, 1500],
] as const) {
  it(`${numSteps} random steps on ${numRanks} ranks, preempted, forked, swapped and aborted`, () => {
    const random = randomSource(numRanks);
    const config = { ...tinyConfig, vocab_size: VOCAB, num_attention_heads: 4, num_key_value_heads: 2, intermediate_size: 32 };
    withModelFolder(config, (folder) => {
      const { maxSlots, maxBatchTokens, maxModelLen } = options;
      const native = { loadDummy: true, threads: 1, blockSize: BLOCK_SIZE, maxSlots, maxBatchTokens, maxModelLen };
      const engine = openRanks(folder, numRanks, native, BLOCKS, BLOCKS);
      const scheduler = new Scheduler(options);
      const result = new Uint8Array(1 << 18);
      let admitted = 0;
      let steps = 0;
      let swapped = 0;
      for (let now = 1; steps < numSteps; now++) {
        if (scheduler.stats().requests.waiting < 4) scheduler.admit(randomAdmit(random, ++admitted), 0, now);
        swapped += scheduler.stats().kv.swap_used > 0 ? 1 : 0;
        if (random() < 0.01) scheduler.abort([randomInt(random, Math.max(1, admitted - 8), admitted) as RequestId], now);
        const plan = scheduler.schedule(now);
        if (plan !== null) {
          engine.submit(plan);
          steps++;
        }
        scheduler.takeOutputs();
        if (plan !== null && scheduler.stepsInFlight < options.maxStepsInFlight) continue;
        if (engine.pending() === 0) continue;
        scheduler.update(result.subarray(0, engine.wait(result, 60_000)), now);
        assert.equal(engine.lastError(), '');
        scheduler.takeOutputs();
      }
      const { requests, kv, tokens } = scheduler.stats();
      const told = JSON.stringify({ requests, kv, tokens, swapped });
      assert.ok(requests.finished_total > numSteps / 20 && requests.preempted_total > numSteps / 100, told);
      assert.ok(tokens.prefix_hit_total > 0 && swapped > 10, told);
      engine.close();
    });
  });
}
