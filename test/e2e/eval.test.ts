/**
 * The evaluation set through the daemon: every answer is the one that another implementation (float32, greedy) gave, token by token,
 * alone and in a crowd, with and without the prefix cache, and in a pool so small that requests are preempted, by recompute and by
 * swapping.
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
  readonly want: string;
  readonly got: string;
  readonly prompt_tokens: number;
  readonly completion_ids: number[];
}

const cases = readFileSync(join(packageRoot(), 'test', 'fixtures', 'eval', 'demo.jsonl'), 'utf8')
  .trim()
  .split('\n')
  .map((line) => JSON.parse(line) as Case);

const small = ['cache.num_gpu_blocks_override=72', 'scheduler.max_model_len=1024', 'scheduler.max_num_batched_tokens=64'];
const swap = ['scheduler.preemption_mode=swap', 'cache.swap_space_bytes=268435456'];

const settings = [
  { name: 'alone, prefix cache on', inFlight: 1, sets: [], preempts: false },
  { name: 'alone, prefix cache off', inFlight: 1, sets: ['cache.enable_prefix_caching=false'], preempts: false },
  { name: '32 in flight, prefix cache on', inFlight: 32, sets: [], preempts: false },
  { name: '32 in flight, prefix cache off', inFlight: 32, sets: ['cache.enable_prefix_caching=false'], preempts: false },
  {
    name: '32 in flight in a pool that is too small for them',
    inFlight: 32,
    sets: small,
    preempts: true,
  },
  { name: '32 in flight in a pool that is too small, swapped', inFlight: 32, sets: [...small, ...swap], preempts: true, swaps: true },
  {
    name: '32 in flight in a pool that is too small, swapped, prefix cache off',
    inFlight: 32,
    sets: [...small, ...swap, 'cache.enable_prefix_caching=false'],
    preempts: true,
    swaps: true,
  },
];

for (const { name, inFlight, sets, preempts, swaps = false } of settings) {
  test(`all ${cases.length} cases are answered token by token as the reference does: ${name}`, async () => {
    const at = await startTestDaemon(sets);
    try {
      const client = await connect({ url: at.ws });
      let next = 0;
      const wrong: string[] = [];
      const exact = new Map<string, [right: number, all: number]>();
      const worker = async (): Promise<void> => {
        for (let i = next++; i < cases.length; i = next++) {
          const c = cases[i] as Case; // i < cases.length
          const body = { messages: c.messages, temperature: 0, return_token_ids: true, ...(c.tools ? { tools: c.tools } : {}) };
          const answer = await client.chat.completions.create(body as unknown as ChatCompletionParams & { stream: false });
          const choice = answer.choices[0];
          const text = answerText(choice?.message ?? {});
          if (text !== c.got) wrong.push(`${c.task}: ${JSON.stringify(text)} instead of ${JSON.stringify(c.got)}`);
          assert.deepEqual((choice as { token_ids?: number[] } | undefined)?.token_ids, c.completion_ids);
          assert.equal(answer.usage?.prompt_tokens, c.prompt_tokens);
          const [right, all] = exact.get(c.task) ?? [0, 0];
          exact.set(c.task, [right + (text === c.want ? 1 : 0), all + 1]);
        }
      };
      await Promise.all(Array.from({ length: inFlight }, worker));
      assert.deepEqual(wrong, []);
      for (const [task, [right, all]] of exact) if (task !== 'story') assert.equal(right, all, `${task} is exact in every case`);
      const stats = await at.untilFreed();
      assert.equal((stats.requests?.preempted_total ?? 0) > 0, preempts, `preempted ${stats.requests?.preempted_total} times`);
      assert.equal((await at.swaps()) > 0, swaps, 'by swapping');
      await client.close();
    } finally {
      await at.close();
    }
  });
}
