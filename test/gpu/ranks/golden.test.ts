/**
 * Models split over two GPUs of this machine and more, in bf16, recorded as graphs and not: the greedy answers of the golden packs with
 * their log-probabilities, and that all ranks give the same, which openRanks checks in every step. Raw logits are not asked for: memory
 * for them is taken in the step, which can wait for another device, and one thread drives all ranks here. By the kernels of inferd and by
 * NCCL, which carry small parts that are then added alike, so that ids are the same. Needs two GPUs; takes as many as there are, up to 8.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import { ROW_FLAG } from '../../../actors/messages/step.js';
import { loadAddon, type NativeEngine } from '../../../native/index.js';
import { generate, openPackRanks, packs, readGolden } from '../../helpers/native/golden.js';
import { answer, blockSets, fixture, openEngine, openRanks, runStep } from '../../helpers/native/native-engine.js';
import { buildPlan } from '../../helpers/native/plan.js';
import { rankCounts } from '../../helpers/native/rank-counts.js';

/** As test/gpu/golden.test.ts: of one GPU. */
const closeLogprob = 0.3;
const NARROWEST = 64;

interface Shape {
  readonly hidden_size: number;
  readonly num_attention_heads: number;
  readonly head_dim?: number;
}
const shapeOf = (pack: string): Shape => JSON.parse(readFileSync(fixture('golden', pack, 'config.json'), 'utf8')) as Shape;

/** Of the heads that the kernels take. */
const wide = packs.filter((pack) => {
  const { hidden_size, num_attention_heads, head_dim } = shapeOf(pack);
  return (head_dim ?? hidden_size / num_attention_heads) >= NARROWEST && !/moe|deepseek|gpt-oss/.test(pack);
});
const splits = rankCounts().flatMap((ranks) =>
  wide.filter((pack) => shapeOf(pack).num_attention_heads % ranks === 0).map((pack) => ({ pack, ranks })),
);

const noNccl = loadAddon().ncclInfo().problem || false;
const waysToSum = [
  { allReduce: 'own', skip: false },
  { allReduce: 'nccl', skip: noNccl },
] as const;

for (const { pack, ranks } of splits) {
  describe(`${pack} over ${ranks} GPUs`, () => {
    const golden = readGolden(pack);
    const options = { backend: 'cuda', weightDtype: 'bf16', kvDtype: 'auto' } as const;
    /** What came first, by the kernels of inferd. */
    const idsOf = new Map<string, readonly number[]>();
    const cases = [[], [1, 4]].flatMap((graphSizes) => waysToSum.map((way) => ({ graphSizes, ...way })));
    for (const { graphSizes, allReduce, skip } of cases) {
      const how = graphSizes.length > 0 ? 'with graphs' : 'eager';
      test(`${how} and summed by ${allReduce} it stays within the bound of one GPU`, { skip }, (t) => {
        const engine = openPackRanks(pack, ranks, {
          ...options,
          graphSizes,
          prefillGraphSizes: graphSizes.map((size) => 16 * size),
          allReduce,
        });
        const ways = {
          whole: {},
          'chunks of 7': { slot: 1, firstBlock: 16, chunk: 7 },
          'run ahead': { slot: 3, firstBlock: 16, runAhead: true },
        };
        for (const [name, way] of Object.entries(ways)) {
          const run = generate(engine, golden.ids, 32, 16, { ...way, rawLogits: false });
          const ids = idsOf.get(`${how}, ${name}`);
          if (ids === undefined) idsOf.set(`${how}, ${name}`, run.tokens);
          else assert.deepEqual(run.tokens, ids, `${name}: the ids of both ways to sum`);
          const same = run.tokens.findIndex((token, i) => token !== golden.greedyIds[i]);
          const until = same < 0 ? run.tokens.length : same;
          const off = Math.max(
            0,
            ...run.logprobs.slice(0, until).map((value, i) => Math.abs(value - (golden.greedyLogprobs[i] ?? Number.NaN))),
          );
          t.diagnostic(`${name}: log-probabilities off by ${off.toFixed(3)}, first other token ${same}`);
          assert.ok(off <= closeLogprob, `${name}: off by ${off}`);
          if (same < 0) continue;
          const gap = Math.abs((run.logprobs[same] ?? Number.NaN) - (golden.greedyLogprobs[same] ?? Number.NaN));
          assert.ok(gap <= closeLogprob, `${name}: token ${same} differs by ${gap}`);
        }
        engine.close();
      });
    }
  });
}

/** Log-probabilities of all tokens of a prompt but the first, in one step. */
function scored(engine: NativeEngine, ids: readonly number[], blockSize: number): number[] {
  const sets = blockSets(0, 0, Math.ceil(ids.length / blockSize));
  const rows = [{ slot: 0, start: 0, count: ids.length, flags: ROW_FLAG.promptLogprobs }];
  const result = runStep(engine, {
    freed: [0],
    newSlots: [{ slot: 0, tokens: ids, sampling: { promptLogprobs: 0 } }],
    blockSets: sets,
    rows,
  });
  assert.equal(result.errorCode, 0);
  return result.prompts.map(({ logprob }) => logprob);
}

for (const ranks of rankCounts()) {
  test(`a long prompt over ${ranks} GPUs gets the tokens that it gets in short chunks, and from one GPU, and its tokens their scores`, (t) => {
    const length = 5000;
    const [count, blockSize] = [8, 16];
    const ids = Array.from({ length }, (_, i) => (i * 7919 + 13) % 100_000);
    const options = {
      backend: 'cuda',
      weightDtype: 'bf16',
      kvDtype: 'auto',
      loadDummy: true,
      maxBatchTokens: 5120,
      maxModelLen: 6000,
    } as const;
    const numBlocks = 2 * Math.ceil((length + count) / blockSize);
    const folder = fixture('shapes', 'llama-3.2-1b');
    const several = openRanks(folder, ranks, { ...options, blockSize, graphSizes: [] }, numBlocks);
    const split = generate(several, ids, count, blockSize, { rawLogits: false });
    const chunks = generate(several, ids, count, blockSize, { slot: 1, firstBlock: numBlocks / 2, chunk: 1000, rawLogits: false });
    const scores = scored(several, ids, blockSize);
    several.close();
    const one = openEngine(folder, { ...options, blockSize, graphSizes: [] }, numBlocks);
    const whole = generate(one, ids, count, blockSize, { rawLogits: false });
    const scoresOfOne = scored(one, ids, blockSize);
    one.close();
    t.diagnostic(`${split.tokens} / ${chunks.tokens} / ${whole.tokens}, log-probabilities ${split.logprobs[0]}, ${whole.logprobs[0]}`);
    for (const other of [chunks, whole]) {
      assert.equal(split.tokens[0], other.tokens[0]);
      assert.ok(Math.abs((split.logprobs[0] ?? Number.NaN) - (other.logprobs[0] ?? Number.NaN)) <= closeLogprob);
    }
    assert.equal(scores.length, length - 1);
    const off = Math.max(...scores.map((score, i) => Math.abs(score - (scoresOfOne[i] ?? Number.NaN))));
    t.diagnostic(`scores off by ${off}`);
    assert.ok(off <= closeLogprob);
  });
}

for (const { allReduce, skip } of waysToSum) {
  test(`a rank whose peer does not come, summed by ${allReduce}, ends its step with an error within the limit`, { skip }, () => {
    const options = { backend: 'cuda', weightDtype: 'bf16', kvDtype: 'auto', commTimeoutMs: 500, allReduce } as const;
    const engine = openPackRanks(wide[0] ?? '', 2, options);
    const [first, second] = engine.ranks;
    assert.ok(first !== undefined && second !== undefined);
    const row = { slot: 0, start: 0, count: 3 };
    first.submit(buildPlan({ newSlots: [{ slot: 0, tokens: [1, 2, 3] }], blockSets: [{ slot: 0, index: 0, block: 0 }], rows: [row] }));
    assert.notEqual(answer(first).errorCode, 0);
    assert.match(first.lastError?.() ?? '', /waited 500 ms/);
    engine.close();
  });
}
