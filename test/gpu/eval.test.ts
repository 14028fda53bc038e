/**
 * The evaluation set through a daemon on CUDA, in bf16, alone and in a crowd, with drafts, with graphs and without, and in a pool so small that
 * requests are preempted, by recompute and by swapping. The wanted answers were computed in float32, so a few may differ where 16 bits decide otherwise; the model
 * answers nearly all tasks by a wide margin.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { answerText } from '../../daemon/cli/eval/eval-set.js';
import { packageRoot } from '../../native/index.js';
import { connect } from '../../rpc/client/node.js';
import type { ChatCompletionParams } from '../../rpc/client/types.js';
import { startTestDaemon } from '../helpers/daemon/daemon.js';

interface Case {
  readonly task: string;
  readonly messages: unknown[];
  readonly tools?: unknown[];
  readonly got: string;
}

const cases = readFileSync(join(packageRoot(), 'test', 'fixtures', 'eval', 'demo.jsonl'), 'utf8')
  .trim()
  .split('\n')
  .map((line) => JSON.parse(line) as Case);

/** Share of answers that must be those of the float32 reference. */
const leastSame = 0.97;

const small = ['cache.num_gpu_blocks_override=72', 'scheduler.max_model_len=1024', 'scheduler.max_num_batched_tokens=64'];
/** So small that some request is swapped nearly all the time: the longest case takes 20 blocks. */
const tiny = ['cache.num_gpu_blocks_override=36', 'scheduler.max_model_len=512', 'scheduler.max_num_batched_tokens=64'];
const swap = [...tiny, 'scheduler.preemption_mode=swap', 'cache.swap_space_bytes=268435456'];

const settings = [
  { name: 'alone', inFlight: 1, sets: [] },
  { name: '32 in flight', inFlight: 32, sets: [] },
  { name: '32 in flight, with drafts', inFlight: 32, sets: ['speculative.method=ngram'] },
  { name: '32 in flight, no graphs', inFlight: 32, sets: ['inference.enforce_eager=true'] },
  { name: '32 in flight, f16, prefix cache off', inFlight: 32, sets: ['inference.dtype=f16', 'cache.enable_prefix_caching=false'] },
  { name: '32 in flight in a pool that is too small for them', inFlight: 32, sets: small },
  { name: '64 in flight in a pool that is too small, swapped', inFlight: 64, sets: swap, swaps: true },
  {
    name: '64 in flight in a pool that is too small, swapped, no graphs, prefix cache off',
    inFlight: 64,
    sets: [...swap, 'inference.enforce_eager=true', 'cache.enable_prefix_caching=false'],
    swaps: true,
  },
];

for (const { name, inFlight, sets, swaps = false } of settings) {
  test(`at least ${100 * leastSame} % of ${cases.length} cases are answered as in float32: ${name}`, async (t) => {
    const at = await startTestDaemon(['inference.device=cuda', ...sets]);
    try {
      const client = await connect({ url: at.ws });
      let next = 0;
      const other: string[] = [];
      const worker = async (): Promise<void> => {
        for (let i = next++; i < cases.length; i = next++) {
          const c = cases[i] as Case; // i < cases.length
          const body = { messages: c.messages, temperature: 0, ...(c.tools ? { tools: c.tools } : {}) };
          const answer = await client.chat.completions.create(body as unknown as ChatCompletionParams & { stream: false });
          const text = answerText(answer.choices[0]?.message ?? {});
          if (text !== c.got) other.push(`${c.task}: ${JSON.stringify(text)} instead of ${JSON.stringify(c.got)}`);
        }
      };
      const swapped = await at.mostSwapped(Promise.all(Array.from({ length: inFlight }, worker)));
      assert.equal(swapped > 0, swaps, `${swapped} blocks were on the host at a time`);
      await client.close();
      const { requests } = await at.untilFreed();
      t.diagnostic(`preempted ${requests?.preempted_total} times, at most ${swapped} blocks swapped at a time`);
      t.diagnostic(`${cases.length - other.length} of ${cases.length} answers are the same`);
      for (const line of other.slice(0, 5)) t.diagnostic(line);
      assert.ok(other.length <= (1 - leastSame) * cases.length, `${other.length} of ${cases.length} answers differ`);
    } finally {
      await at.close();
    }
  });
}
