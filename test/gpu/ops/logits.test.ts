/** Sampling and scoring on CUDA against the CPU backend, which has tests of its own against float64. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { floats, ints, runOp, type Setup } from '../../helpers/native/op-table.js';
import { randomFloats, randomSource } from '../../helpers/native/reference-ops.js';
import { plainParams } from '../../helpers/native/reference-sampler.js';
import { type SampleCase, sampleAll } from '../../helpers/native/sample-op.js';
import { close, quick } from './bounds.js';

describe('CUDA, logits', () => {
  const setup: Setup = { isa: 'auto', backend: 'cuda' };
  const cpu: Setup = { isa: 'reference' };

  it('greedy, penalized and drawn tokens are those of the CPU backend', () => {
    const random = randomSource(21);
    for (const [vocab, count] of quick
      ? ([
          [100, 8],
          [4096, 8],
        ] as const)
      : ([
          [100, 24],
          [4096, 256],
          [50_000, 24],
          [151_936, 3],
        ] as const)) {
      const cases: SampleCase[] = Array.from({ length: count }, (_, i) => ({
        logits: randomFloats(random, vocab, 6),
        params: {
          ...plainParams,
          temperature: i % 3 === 0 ? 0 : 0.7 + 0.1 * i,
          ...(i % 4 === 1 ? { top_k: 5 } : {}),
          ...(i % 4 === 2 ? { top_p: 0.8 } : {}),
          ...(i % 5 === 1 ? { min_p: 0.05 } : {}),
          ...(i % 5 === 2 ? { repetition_penalty: 1.3, frequency_penalty: 0.2, presence_penalty: 0.1 } : {}),
          ...(i % 7 === 3 ? { allowed: new Set([0, 31, 32, vocab - 1, (i * 997) % vocab]) } : {}),
          ...(i % 7 === 5 ? { allowed: new Set([(i * 997) % vocab]) } : {}),
          prompt: [1, 2, 3, 4],
          output: [5, 6, 6, 7],
        },
        seed: [i, 7],
        topLogprobs: i % 2 === 0 ? 5 : -1,
      }));
      const got = sampleAll(setup, cases);
      const want = sampleAll(cpu, cases);
      const same = got.filter((s, i) => s.token === want[i]?.token).length;
      // A draw may land within rounding of the boundary between two tokens.
      assert.ok(same >= cases.length - 1, `${same} of ${cases.length} tokens agree at a vocabulary of ${vocab}`);
    }
  });

  it('scores are those of the CPU backend', () => {
    const random = randomSource(22);
    for (const vocab of [100, 4096, 130_000]) {
      const inputs = { logits: randomFloats(random, 3 * vocab, 6), targets: Int32Array.from([0, vocab - 1, 17]) };
      const attrs = { rows: 3, vocab, top: 5 };
      const [got, want] = [runOp(setup, 'score', attrs, inputs), runOp(cpu, 'score', attrs, inputs)];
      assert.deepEqual(ints(got, 'ranks'), ints(want, 'ranks'));
      assert.deepEqual(ints(got, 'top_ids').subarray(0, 5), ints(want, 'top_ids').subarray(0, 5));
      close(floats(got, 'logprobs'), Float64Array.from(floats(want, 'logprobs')), 1e-10, 'logprobs');
    }
  });
});
