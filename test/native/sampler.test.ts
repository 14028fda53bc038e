/** The sampler on every kernel set: each parameter against the plain reference, distributions, seeds, log-probabilities, hostile logits. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import type { SamplingParamName } from '../../actors/messages/sampling.js';
import { loadAddon } from '../../native/index.js';
import { floats, ints, isas, runOp } from '../helpers/native/op-table.js';
import { randomFloats, randomInt, randomSource } from '../helpers/native/reference-ops.js';
import {
  acceptableDraws,
  distribution,
  editLogits,
  logProbs,
  philox,
  plainParams,
  ranking,
  type SamplerParams,
  uniformDraw,
} from '../helpers/native/reference-sampler.js';
import { type SampleCase, sampleAll } from '../helpers/native/sample-op.js';

/** Distance of a border of the cumulative distribution that float32 exponentials and sums may move. */
const SLACK = 2e-5;

function randomParams(random: () => number, vocab: number): SamplerParams {
  const maybe = <T>(on: () => T, off: T) => (random() < 0.4 ? on() : off);
  const ids = (n: number) => Array.from({ length: n }, () => randomInt(random, 0, vocab - 1));
  const distinct = [...new Set(ids(4))];
  return {
    temperature: maybe(() => 0.2 + random() * 1.8, 1),
    top_p: maybe(() => 0.05 + random() * 0.94, 1),
    top_k: maybe(() => randomInt(random, 1, 60), 0),
    min_p: maybe(() => random() * 0.3, 0),
    typical_p: maybe(() => 0.1 + random() * 0.89, 1),
    repetition_penalty: maybe(() => 0.5 + random() * 1.4, 1),
    frequency_penalty: maybe(() => random() * 4 - 2, 0),
    presence_penalty: maybe(() => random() * 4 - 2, 0),
    min_tokens: randomInt(random, 0, 10),
    bias: maybe(() => distinct.map((id) => [id, random() * 20 - 10] as const), []),
    masked: maybe(() => distinct.slice(0, 2), []),
    prompt: ids(randomInt(random, 1, 30)),
    output: ids(randomInt(random, 0, 20)),
    ...maybe<{ allowed?: ReadonlySet<number> }>(() => ({ allowed: new Set(ids(randomInt(random, 1, 40))) }), {}),
  };
}

/** The case's token must be one that the reference may draw with the case's own random number. */
function assertDrawn(c: SampleCase, token: number, what: string): void {
  const uniform = uniformDraw(c.seed ?? [0, 0], c.params.output.length, c.sequence ?? 0);
  const allowed = acceptableDraws(distribution(c.logits, c.params), uniform, SLACK);
  assert.ok(allowed.has(token), `${what}: drew ${token}, expected one of ${[...allowed].join()} with ${JSON.stringify(c.params)}`);
}

it('the random numbers are Philox4x32-10', () => {
  assert.deepEqual(philox([0, 0, 0, 0], [0, 0]), [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]);
  const ones = 0xffffffff;
  assert.deepEqual(philox([ones, ones, ones, ones], [ones, ones]), [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]);
  const pi = philox([0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344], [0xa4093822, 0x299f31d0]);
  assert.deepEqual(pi, [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1]);
});

it('where the best token is taken, exactly the fields that the record says edit the logits change an answer', () => {
  const logits = Float32Array.of(1, 2, 3, 2.9, 0, -1);
  const greedy: SamplerParams = { ...plainParams, temperature: 0, prompt: [2], output: [2, 2], masked: [2] };
  const edited: Record<SamplingParamName | 'top_logprobs', Partial<SampleCase>> = {
    temperature: { params: { ...greedy, temperature: 9e-6 } },
    top_p: { params: { ...greedy, top_p: 0.01 } },
    min_p: { params: { ...greedy, min_p: 1 } },
    typical_p: { params: { ...greedy, typical_p: 0.01 } },
    repetition_penalty: { params: { ...greedy, repetition_penalty: 2 } },
    frequency_penalty: { params: { ...greedy, frequency_penalty: 2 } },
    presence_penalty: { params: { ...greedy, presence_penalty: 2 } },
    top_k: { params: { ...greedy, top_k: 1 } },
    min_tokens: { params: { ...greedy, min_tokens: 3 } },
    top_logprobs: { topLogprobs: 0 },
  };
  const edits = loadAddon().layout()['SAMPLING_EDITS'] ?? {};
  const plain = sampleAll({ isa: 'reference' }, [{ logits, params: greedy }])[0];
  for (const [name, change] of Object.entries(edited)) {
    const got = sampleAll({ isa: 'reference' }, [{ logits, params: greedy, ...change }])[0];
    assert.equal(isDeepStrictEqual(got, plain) ? 0 : 1, edits[name], name);
  }
});

for (const isa of isas) {
  describe(`kernels ${isa}`, () => {
    it('each parameter alone gives the token that the reference draws with the same random number', () => {
      const random = randomSource(21);
      const history = { prompt: [3, 5, 7, 7], output: [11, 11, 3, 250] };
      const variants: Partial<SamplerParams>[] = [
        {},
        ...[0.01, 0.3, 2].map((temperature) => ({ temperature })),
        ...[1, 2, 40, 319, 320, 10000].map((top_k) => ({ top_k })),
        ...[1e-6, 0.1, 0.5, 0.9, 0.999].map((top_p) => ({ top_p })),
        ...[0.001, 0.1, 1].map((min_p) => ({ min_p })),
        ...[1e-6, 0.2, 0.9, 0.99].map((typical_p) => ({ typical_p })),
        ...[0.5, 1.2, 2].map((repetition_penalty) => ({ ...history, repetition_penalty })),
        ...[-2, 0.7, 2].map((frequency_penalty) => ({ ...history, frequency_penalty })),
        ...[-2, 0.7, 2].map((presence_penalty) => ({ ...history, presence_penalty })),
        { bias: [[17, 100]] },
        { bias: [[17, -100]], temperature: 0 },
        { ...history, min_tokens: 5, masked: [1, 2] },
        { ...history, min_tokens: 4, masked: [1, 2] },
        { allowed: new Set([9]) },
        { allowed: new Set([0, 31, 32, 200, 319]), temperature: 0 },
        { ...history, allowed: new Set([3, 11, 250, 251]), repetition_penalty: 2, bias: [[17, 100]], top_p: 0.9 },
      ];
      for (const [v, variant] of variants.entries()) {
        const cases = Array.from({ length: 24 }, (_, i) => {
          const logits = randomFloats(random, 320, 2.5);
          if (variant.masked) logits[1] = logits[2] = 20;
          return { logits, params: { ...plainParams, ...variant }, seed: [v, i] as const };
        });
        const sampled = sampleAll({ isa }, cases);
        for (const [i, c] of cases.entries()) assertDrawn(c, sampled[i]!.token, JSON.stringify(variant));
      }
    });

    it('random combinations of all parameters agree with the reference for vocabularies up to 5000', () => {
      const random = randomSource(22);
      for (const vocab of [1, 2, 17, 320, 1000, 5000]) {
        for (const spread of [0.1, 2, 8]) {
          const cases = Array.from({ length: 25 }, () => ({
            logits: randomFloats(random, vocab, spread),
            params: randomParams(random, vocab),
            seed: [randomInt(random, 0, 2 ** 31 - 1), randomInt(random, 0, 2 ** 31 - 1)] as const,
            sequence: randomInt(random, 0, 7),
          }));
          const sampled = sampleAll({ isa, threads: 2 }, cases);
          for (const [i, c] of cases.entries()) assertDrawn(c, sampled[i]!.token, `vocab ${vocab}, spread ${spread}`);
        }
      }
    });

    it('equal logits are cut by lower id', () => {
      const logits = new Float32Array(2000).fill(1);
      for (const params of [{ top_k: 100 }, { top_p: 0.05 }, { typical_p: 0.05 }]) {
        const cases = Array.from({ length: 50 }, (_, i) => ({ logits, params: { ...plainParams, ...params }, seed: [i, 1] as const }));
        const ids = sampleAll({ isa }, cases).map((s) => s.token);
        assert.ok(Math.max(...ids) <= 100 && Math.max(...ids) > 60, JSON.stringify(params));
      }
      assert.equal(sampleAll({ isa }, [{ logits, params: { ...plainParams, temperature: 0 } }])[0]!.token, 0);
    });

    it('draws follow the exact distribution (chi-square over 6000 seeds)', () => {
      const random = randomSource(23);
      const logits = randomFloats(random, 40, 1.5);
      for (const params of [plainParams, { ...plainParams, temperature: 0.7, top_p: 0.9 }, { ...plainParams, typical_p: 0.8, top_k: 20 }]) {
        const counts = new Float64Array(40);
        const n = 6000;
        for (let seed = 0; seed < n; seed += 500) {
          const cases = Array.from({ length: 500 }, (_, i) => ({ logits, params, seed: [seed + i, 99] as const }));
          for (const s of sampleAll({ isa }, cases)) counts[s.token]!++;
        }
        const want = distribution(logits, params);
        let chi = 0;
        let rest = { expected: 0, got: 0 };
        let cells = 0;
        for (let id = 0; id < 40; id++) {
          const expected = n * (want.get(id) ?? 0);
          if (expected === 0) assert.equal(counts[id], 0, `token ${id} cannot be drawn`);
          if (expected < 5) rest = { expected: rest.expected + expected, got: rest.got + counts[id]! };
          else {
            chi += (counts[id]! - expected) ** 2 / expected;
            cells++;
          }
        }
        if (rest.expected > 0) chi += (rest.got - rest.expected) ** 2 / rest.expected;
        // Mean `cells`, variance twice that; the seeds are fixed, so this either always holds or never.
        assert.ok(chi < cells + 4 * Math.sqrt(2 * cells), `chi-square ${chi} over ${cells} cells`);
      }
    });

    it('a draw depends on seed, output position and sequence index, and not on batch mates, threads or the prompt', () => {
      const random = randomSource(24);
      const logits = randomFloats(random, 3000, 1);
      const of = (output: number, seed: readonly [number, number], sequence: number, prompt = 3): SampleCase => ({
        ...{ logits, seed, sequence },
        params: { ...plainParams, prompt: new Array(prompt).fill(1), output: new Array(output).fill(2) },
      });
      const token = (c: SampleCase) => sampleAll({ isa }, [c])[0]!.token;
      const base = of(5, [1, 2], 0);
      const alone = token(base);
      const mates = Array.from({ length: 31 }, (_, i) => ({ ...of(i, [i, 7], i), params: randomParams(random, 3000) }));
      for (const threads of [1, 2]) {
        const batch = sampleAll({ isa, threads }, [...mates.slice(0, 20), base, ...mates.slice(20)]);
        assert.equal(batch[20]!.token, alone);
      }
      assert.equal(token(of(5, [1, 2], 0, 900)), alone, 'another prompt length');
      const others = [of(6, [1, 2], 0), of(5, [2, 2], 0), of(5, [1, 3], 0), of(5, [1, 2], 1)].map(token);
      assert.equal(new Set([alone, ...others]).size, 5, 'five different draws');
    });

    it('log-probabilities, ranks and top lists are those of the raw logits, ties by lower id', () => {
      const random = randomSource(25);
      for (const vocab of [1, 5, 19, 320, 1023]) {
        const cases = [-1, 0, 1, 5, 20].map((topLogprobs) => {
          // Coarse values make ties common.
          const logits = randomFloats(random, vocab, 4).map(Math.round);
          return { logits, topLogprobs, params: { ...randomParams(random, vocab), temperature: 1.5 }, seed: [topLogprobs, 5] as const };
        });
        const sampled = sampleAll({ isa }, cases);
        for (const [i, c] of cases.entries()) {
          const s = sampled[i]!;
          if (c.topLogprobs < 0) {
            assert.ok(Number.isNaN(s.logprob) && s.rank === 0 && s.top.length === 0);
            continue;
          }
          const raw = logProbs(c.logits);
          const order = ranking(c.logits);
          assert.ok(Math.abs(s.logprob - raw[s.token]!) < 1e-5);
          assert.equal(s.rank, 1 + order.indexOf(s.token));
          assert.deepEqual(
            s.top.map((t) => t.id),
            order.slice(0, c.topLogprobs),
          );
          for (const t of s.top) assert.ok(Math.abs(t.logprob - raw[t.id]!) < 1e-5);
        }
      }
    });

    it('score gives the log-probability, rank and top list of given targets', () => {
      const random = randomSource(26);
      const [rows, vocab] = [7, 777];
      const logits = randomFloats(random, rows * vocab, 5);
      const targets = Int32Array.from({ length: rows }, (_, i) => i * 111);
      for (const top of [0, 3, 20]) {
        const result = runOp({ isa, threads: 2 }, 'score', { rows, vocab, top }, { logits, targets });
        for (let r = 0; r < rows; r++) {
          const row = logits.subarray(r * vocab, (r + 1) * vocab);
          const raw = logProbs(row);
          const order = ranking(row);
          assert.ok(Math.abs(floats(result, 'logprobs')[r]! - raw[targets[r]!]!) < 2e-5);
          assert.equal(ints(result, 'ranks')[r], 1 + order.indexOf(targets[r]!));
          assert.equal(ints(result, 'top_counts')[r], top);
          assert.deepEqual([...ints(result, 'top_ids').subarray(r * 20, r * 20 + top)], order.slice(0, top));
        }
      }
    });

    it('greedy takes the best edited logit, and hostile logits never crash', () => {
      const random = randomSource(27);
      for (const vocab of [1, 9, 320, 4099]) {
        const fill = (value: number) => new Float32Array(vocab).fill(value);
        const oneNumber = fill(NaN);
        oneNumber[vocab - 1] = -3;
        const infinite = randomFloats(random, vocab);
        infinite[vocab >> 1] = Infinity;
        for (const [logits, want] of [
          [fill(NaN), 0],
          [fill(-Infinity), 0],
          [oneNumber, vocab - 1],
          [infinite, vocab >> 1],
        ] as const) {
          for (const params of [
            { temperature: 0 },
            {},
            { top_k: 3, top_p: 0.5, typical_p: 0.5, min_p: 0.1 },
            { repetition_penalty: 1.5, prompt: [0] },
          ]) {
            const c = { logits, params: { ...plainParams, ...params } };
            const [plain, scored] = [sampleAll({ isa }, [c])[0]!, sampleAll({ isa }, [{ ...c, topLogprobs: 20 }])[0]!];
            assert.equal(plain.token, want);
            assert.equal(scored.token, want);
            assert.equal(scored.top.length, Math.min(20, vocab));
          }
        }
        const cases = Array.from({ length: 30 }, () => ({
          logits: randomFloats(random, vocab, 3),
          params: { ...randomParams(random, vocab), temperature: 0 },
        }));
        const sampled = sampleAll({ isa }, cases);
        for (const [i, c] of cases.entries()) assert.equal(sampled[i]!.token, ranking(editLogits(c.logits, c.params))[0]);
      }
    });

    it('a vocabulary of 256k with every limit agrees with the reference', () => {
      const random = randomSource(28);
      const logits = randomFloats(random, 262_144, 3);
      for (const params of [
        {},
        { top_k: 50 },
        { top_p: 0.9 },
        { typical_p: 0.7 },
        { top_k: 1000, top_p: 0.8, min_p: 0.01, typical_p: 0.9 },
      ]) {
        const c = { logits, params: { ...plainParams, ...params }, seed: [4, 4] as const };
        assertDrawn(c, sampleAll({ isa }, [c])[0]!.token, JSON.stringify(params));
      }
    });
  });
}
