/**
 * Ranks that attend to sequences of their own and share the experts of a model (data-parallel attention): golden packs, an idle rank, and
 * that nothing of what the others do changes a bit.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { RESULT } from '../../../actors/messages/step.js';
import type { NativeEngine } from '../../../native/index.js';
import { closeAll, Greedy, openApart, runScripts } from '../../helpers/native/dp-attention.js';
import { generate, openPack, readGolden } from '../../helpers/native/golden.js';
import { answer, fixture, nativeError, openEngine } from '../../helpers/native/native-engine.js';
import { buildPlan } from '../../helpers/native/plan.js';
import { randomInt, randomSource } from '../../helpers/native/reference-ops.js';
import { tinyConfig, withModelFolder } from '../../helpers/native/tiny-model.js';

/** As of whole models. */
const maxLogitError = 2e-3;
const COUNT = 32;

const moe = {
  ...tinyConfig,
  architectures: ['Qwen3MoeForCausalLM'],
  num_experts: 7,
  num_experts_per_tok: 3,
  norm_topk_prob: true,
  moe_intermediate_size: 20,
};
const dummy = { loadDummy: true, weightDtype: 'f32' } as const;

for (const pack of ['mixtral-moe', 'qwen2-moe', 'qwen3-moe', 'deepseek-v2', 'deepseek-v3-mla', 'gpt-oss']) {
  describe(pack, () => {
    const golden = readGolden(pack);
    for (const numRanks of [2, 4]) {
      it(`gives the golden ids on each of ${numRanks} ranks, beside other prompts, in chunks, late, and beside an idle rank`, (t) => {
        const other = golden.ids.map((id) => (id * 3 + 1) % 90);
        const whole = openPack(pack);
        const wanted = generate(whole, other, COUNT, 16).tokens;
        whole.close();
        const ranks = openApart(fixture('golden', pack), numRanks);
        for (let at = 0; at < numRanks; at++) {
          const first = new Greedy({ prompt: golden.ids, count: COUNT, delay: 5 * at, chunk: at % 2 === 0 ? 7 : 1 << 20 });
          const second = new Greedy({ prompt: other, count: COUNT, delay: at === 0 ? 9 : 2, chunk: 5 });
          const scripts = ranks.map((_, i) => (i === at ? first : i === (at + 1) % numRanks ? second : undefined));
          // Once a golden prompt goes beside no other at all.
          if (at === numRanks - 1) scripts[0] = undefined;
          runScripts(ranks, scripts);
          const errors = first.logits.map((value, i) => Math.abs(value - (golden.logits[i] ?? Number.NaN)));
          const max = errors.reduce((a, b) => Math.max(a, b), 0);
          t.diagnostic(`rank ${at}: max |logit - golden| = ${max.toExponential(2)}`);
          assert.equal(errors.length, golden.logits.length);
          assert.ok(max <= maxLogitError, `max |logit - golden| = ${max}`);
          assert.deepEqual(first.tokens, golden.greedyIds);
          if (scripts.includes(second)) assert.deepEqual(second.tokens, wanted);
        }
        closeAll(ranks);
      });
    }
  });
}

describe('what the other ranks do', () => {
  it('changes no bit of what a rank answers, whoever comes when', () => {
    withModelFolder({ ...moe, num_experts: 9 }, (folder) => {
      const random = randomSource(7);
      const ranks = openApart(folder, 4, dummy);
      const prompt = Array.from({ length: 40 }, (_, i) => (i * 11 + 5) % 32);
      const own = (at: number, chunk: number): Greedy => {
        const greedy = new Greedy({ prompt, count: 20, chunk });
        const others = ranks.map((_, i) => {
          if (i === at) return greedy;
          if (random() < 0.3) return undefined;
          const length = randomInt(random, 1, 30);
          const tokens = Array.from({ length }, () => randomInt(random, 0, 31));
          return new Greedy({
            prompt: tokens,
            count: randomInt(random, 1, 20),
            delay: randomInt(random, 0, 12),
            chunk: randomInt(random, 1, 9),
          });
        });
        runScripts(ranks, others);
        return greedy;
      };
      const first = new Greedy({ prompt, count: 20 });
      runScripts(ranks, [first, undefined, undefined, undefined]);
      for (let round = 0; round < 24; round++) {
        const again = own(round % 4, randomInt(random, 1, 40));
        assert.deepEqual(again.tokens, first.tokens);
        assert.deepEqual(again.logprobs, first.logprobs);
        assert.deepEqual(again.logits, first.logits);
      }
      closeAll(ranks);
    });
  });

  it('may be the largest step on all of them at once', () => {
    withModelFolder(moe, (folder) => {
      const prompts = [0, 1, 2, 3].map((n) => Array.from({ length: 48 }, (_, i) => (i * (2 * n + 3) + n) % 32));
      const ranks = openApart(folder, 4, { ...dummy, maxBatchTokens: 48, maxSlots: 4 });
      const alone = prompts.map((prompt, at) => {
        const greedy = new Greedy({ prompt, count: 4, chunk: 5 });
        runScripts(
          ranks,
          ranks.map((_, i) => (i === at ? greedy : undefined)),
        );
        return greedy.logits;
      });
      const together = prompts.map((prompt) => new Greedy({ prompt, count: 4 }));
      runScripts(ranks, together);
      assert.deepEqual(
        together.map(({ logits }) => logits),
        alone,
      );
      closeAll(ranks);
    });
  });

  it('is answered by the same tokens as a model on one rank gives', () => {
    withModelFolder(moe, (folder) => {
      const whole = openEngine(folder, dummy);
      const prompts = [0, 1, 2].map((n) => Array.from({ length: 9 + 7 * n }, (_, i) => (i * (n + 3) + n) % 32));
      const wanted = prompts.map((prompt, slot) => generate(whole, prompt, 12, 16, { slot, firstBlock: 8 * slot }).tokens);
      whole.close();
      const ranks = openApart(folder, 3, dummy);
      const scripts = prompts.map((prompt, n) => new Greedy({ prompt, count: 12, delay: 2 * n }));
      runScripts(ranks, scripts);
      assert.deepEqual(
        scripts.map(({ tokens }) => tokens),
        wanted,
      );
      closeAll(ranks);
    });
  });
});

describe('an idle rank', () => {
  /** Of all the ranks' steps in flight, the answers that are due: two at most, as executors have. */
  const settle = (ranks: readonly NativeEngine[], left: number): void => {
    while ((ranks[0]?.pending() ?? 0) > left) for (const rank of ranks) assert.equal(answer(rank, 1 << 12).errorCode, 0);
  };

  it('stays in step for a hundred thousand steps, two in flight, of which some are empty everywhere', () => {
    withModelFolder({ ...moe, num_hidden_layers: 1, num_experts: 2, num_experts_per_tok: 1 }, (folder) => {
      const random = randomSource(11);
      const ranks = openApart(folder, 2, { ...dummy, threads: 2 });
      const probe = (at: number): Greedy => {
        const greedy = new Greedy({ prompt: [1, 2, 3, 4], count: 12 });
        runScripts(
          ranks,
          ranks.map((_, i) => (i === at ? greedy : undefined)),
        );
        return greedy;
      };
      const before = probe(0);
      const empty = buildPlan({});
      const samples = [{ row: 0, slot: 0 }];
      /** A short life of a sequence, plan by plan. */
      const life = [
        buildPlan({
          newSlots: [{ slot: 0, tokens: [5, 6, 7] }],
          blockSets: [{ slot: 0, index: 0, block: 0 }],
          rows: [{ slot: 0, start: 0, count: 3 }],
          samples,
        }),
        ...[3, 4, 5, 6, 7].map((start) => buildPlan({ rows: [{ slot: 0, start, count: 1 }], samples })),
        buildPlan({ freed: [0] }),
      ];
      const at = ranks.map(() => 0);
      const next = (rank: number, begins: number): Uint8Array => {
        const now = at[rank] ?? 0;
        if (random() > (now === 0 ? begins : 0.7)) return empty;
        at[rank] = (now + 1) % life.length;
        return life[now] ?? empty;
      };
      const steps = 100_000;
      for (let step = 0; step < steps || at.some((now) => now > 0); step++) {
        settle(ranks, random() < 0.5 ? 1 : 0);
        // The second is idle until nearly the end.
        const begins = step >= steps ? 0 : 0.5;
        for (const [i, rank] of ranks.entries()) rank.submit(next(i, i === 1 && step < 0.9 * steps ? 0 : begins));
      }
      settle(ranks, 0);
      for (const rank of [0, 1]) {
        const after = probe(rank);
        assert.deepEqual([after.tokens, after.logprobs, after.logits], [before.tokens, before.logprobs, before.logits]);
      }
      closeAll(ranks);
    });
  });

  it('takes part in as many collectives as a busy one', () => {
    withModelFolder(moe, (folder) => {
      const ranks = openApart(folder, 2, dummy);
      for (const rank of ranks) rank.profileStart?.(1000);
      runScripts(ranks, [new Greedy({ prompt: [1, 2, 3], count: 1 }), undefined]);
      const [busy, idle] = ranks.map((rank) => {
        const trace = rank.profileStop?.();
        return [...(trace?.name ?? [])]
          .map((n) => trace?.names[n])
          .filter((name) => name === 'gather_rows_of_ranks' || name === 'scatter_sums');
      });
      // Two layers; rows and what their routers say. Nobody has rows in the step that frees the slot.
      assert.equal(busy?.length, 2 * 3 + 2 * 1);
      assert.deepEqual(idle, busy);
      closeAll(ranks);
    });
  });
});

describe('ranks with sequences of their own', () => {
  it('hold all of the model but the experts of the others, and count its parameters whole', () => {
    withModelFolder({ ...moe, num_experts: 8 }, (folder) => {
      const whole = openEngine(folder, dummy);
      const ranks = openApart(folder, 2, dummy);
      const expertBytes = 2 * 3 * 20 * 32 * 4; // in two layers
      for (const rank of ranks) {
        assert.equal(rank.info().parameters, whole.info().parameters);
        assert.equal(rank.info().blockBytes, whole.info().blockBytes);
        const saved = whole.info().weightBytes - rank.info().weightBytes;
        assert.ok(saved >= 4 * expertBytes && saved < 6.5 * expertBytes, `${saved}`);
      }
      closeAll([whole, ...ranks]);
    });
  });

  it('end together when one fails', () => {
    withModelFolder(moe, (folder) => {
      const ranks = openApart(folder, 2, { ...dummy, commFault: { at: 2, sleepMs: 0 } });
      for (const rank of ranks) rank.submit(buildPlan({}));
      for (const rank of ranks) answer(rank);
      for (const rank of ranks) rank.submit(buildPlan({}));
      const said = ranks.map((rank) => {
        const result = new Uint8Array(1 << 12);
        assert.ok(rank.wait(result, 30_000) > 0, 'the step ends');
        return [new Int32Array(result.buffer)[RESULT.errorCode], /a fault made by a test/.test(rank.lastError?.() ?? '')];
      });
      assert.deepEqual(said, [
        [1, true],
        [1, true],
      ]);
      closeAll(ranks);
    });
  });

  it('end together when one is closed, at once', () => {
    withModelFolder(moe, (folder) => {
      const [first, second] = openApart(folder, 2, dummy);
      first?.submit(buildPlan({}));
      second?.close();
      const result = new Uint8Array(1 << 12);
      assert.ok((first?.wait(result, 5000) ?? 0) > 0, 'long before the others would be given up');
      assert.match(first?.lastError?.() ?? '', /rank 1 was closed/);
      first?.close();
    });
  });

  it('refuse a model without experts, and one with fewer than ranks', () => {
    withModelFolder(tinyConfig, (folder) => {
      assert.throws(
        () => openApart(folder, 2, dummy),
        nativeError('unsupported', /has no experts .* set parallel\.enable_dp_attention to false/),
      );
    });
    withModelFolder({ ...moe, num_experts: 3 }, (folder) => {
      assert.throws(
        () => openApart(folder, 4, dummy),
        nativeError('unsupported', /cannot be shared by 4 ranks: it has 3; set parallel\.enable_dp_attention to false/),
      );
    });
  });
});
