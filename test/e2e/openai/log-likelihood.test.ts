/**
 * What lm-eval asks of a completions server: prompts as token ids, several at once, echoed with the log-probability of each token, and no
 * answer or one token of it. On the golden packs in float32, against what transformers computed.
 */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { startTestDaemon } from '../../helpers/daemon/daemon.js';
import { packs, readGolden } from '../../helpers/native/golden.js';
import { fixture } from '../../helpers/native/native-engine.js';

interface Choice {
  readonly text: string;
  readonly finish_reason: string;
  readonly logprobs: { readonly token_logprobs: readonly (number | null)[]; readonly tokens: readonly string[] };
}
interface Completion {
  readonly choices: readonly Choice[];
  readonly usage: { readonly prompt_tokens: number; readonly completion_tokens: number };
}

function logSoftmaxAt(logits: Float32Array, id: number): number {
  const max = logits.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY);
  return (logits[id] ?? 0) - max - Math.log(logits.reduce((sum, logit) => sum + Math.exp(logit - max), 0));
}

for (const pack of packs) {
  test(`${pack}: echoed log-probabilities are those of the golden logits`, async () => {
    const golden = readGolden(pack);
    const vocab = golden.logits.length / golden.ids.length;
    const wanted = golden.ids.slice(1).map((id, i) => logSoftmaxAt(golden.logits.subarray(i * vocab, (i + 1) * vocab), id));
    const at = await startTestDaemon([
      `inference.model_name=${join(fixture('golden'), pack)}`,
      'inference.dtype=f32',
      'cache.cache_dtype=f32',
      'scheduler.max_num_batched_tokens=16',
      'scheduler.max_num_sequences=8',
    ]);
    try {
      for (const maxTokens of [0, 1]) {
        const prompts = [golden.ids, golden.ids.slice(0, 5)];
        const body = { prompt: prompts, max_tokens: maxTokens, temperature: 0, logprobs: 1, echo: true, seed: 1234 };
        const headers = { 'content-type': 'application/json' };
        const response = await fetch(`${at.http}/v1/completions`, { method: 'POST', headers, body: JSON.stringify(body) });
        const { choices, usage } = (await response.json()) as Completion;
        assert.equal(usage.completion_tokens, maxTokens * prompts.length);
        assert.equal(usage.prompt_tokens, golden.ids.length + 5);
        for (const [k, { logprobs, finish_reason }] of choices.entries()) {
          const length = prompts[k]?.length ?? 0;
          if (maxTokens === 0) assert.equal(finish_reason, 'length');
          assert.equal(logprobs.token_logprobs.length, length + maxTokens);
          assert.equal(logprobs.token_logprobs[0], null);
          for (let i = 1; i < length; i++) {
            const difference = Math.abs((logprobs.token_logprobs[i] ?? 0) - (wanted[i - 1] ?? 0));
            assert.ok(difference <= 1e-3, `token ${i} of prompt ${k}: ${difference}`);
          }
        }
      }
    } finally {
      await at.close();
    }
  });
}
