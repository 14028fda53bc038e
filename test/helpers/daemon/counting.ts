/**
 * The counting oracle: many requests at once that each count through a range of their own, so that a key, a block or a token that reaches
 * the wrong sequence shows as a wrong number. The settings make batches, chunks, prefix hits and preemptions of every kind happen, and each
 * says by which counter one sees that it did.
 */
import assert from 'node:assert/strict';
import type { SchedulerStats } from '../../../actors/messages/calls.js';
import { connect, type InferdClient } from '../../../rpc/client/node.js';
import { startTestDaemon, type TestDaemon } from './daemon.js';

export interface CountingSetting {
  readonly name: string;
  /** For --set. */
  readonly sets: readonly string[];
  /** How often all ranges are counted through. */
  readonly rounds: number;
  /** What must have happened when all is done. */
  readonly happened: readonly ('prefix hits' | 'preemptions' | 'swaps')[];
}

/** Longest prompt and answer, tokens: "List the numbers from 48 to 72." and its 25 numbers. */
const MOST_TOKENS = 24 + 100;
const BLOCK_SIZE = 16;

/** Room for few of the sequences: however fast the steps, new ones come before enough old ones have ended. */
function tinyPool(requests: number): readonly string[] {
  const blocks = Math.max(64, Math.ceil((requests * Math.ceil(MOST_TOKENS / BLOCK_SIZE)) / 16));
  return [`cache.num_gpu_blocks_override=${blocks}`, 'scheduler.max_model_len=512'];
}

/** For `requests` at once. */
export function countingSettings(requests: number): readonly CountingSetting[] {
  const tiny = tinyPool(requests);
  const recompute = [...tiny, 'scheduler.preemption_mode=recompute'];
  const swap = [...tiny, 'scheduler.preemption_mode=swap', `cache.swap_space_bytes=${256 * 2 ** 20}`];
  // Next to as many decoding sequences there is room for a piece of a prompt only.
  const chunks = [`scheduler.max_num_batched_tokens=${requests + 8}`, 'scheduler.enable_chunked_prefill=true'];
  const noPrefixes = 'cache.enable_prefix_caching=false';
  return [
    { name: 'all in one batch', sets: [noPrefixes], rounds: 1, happened: [] },
    {
      name: 'prompts in chunks',
      sets: [noPrefixes, ...chunks, 'scheduler.max_model_len=512'],
      rounds: 1,
      happened: [],
    },
    { name: 'prefix hits', sets: [], rounds: 2, happened: ['prefix hits'] },
    {
      name: 'prefix hits in blocks of one token, which prompts share in part',
      sets: ['cache.block_size=1', `cache.num_gpu_blocks_override=${requests * (MOST_TOKENS + 8)}`, 'scheduler.max_model_len=512'],
      rounds: 2,
      happened: ['prefix hits'],
    },
    { name: 'a pool that is too small, computing again', sets: recompute, rounds: 1, happened: ['preemptions'] },
    {
      name: 'a pool that is too small, computing again, in chunks, without prefix cache',
      sets: [...recompute, ...chunks, noPrefixes],
      rounds: 1,
      happened: ['preemptions'],
    },
    { name: 'a pool that is too small, swapping', sets: swap, rounds: 1, happened: ['preemptions', 'swaps'] },
    {
      name: 'a pool that is too small, swapping, in chunks, without prefix cache',
      sets: [...swap, ...chunks, noPrefixes],
      rounds: 1,
      happened: ['preemptions', 'swaps'],
    },
  ];
}

interface Range {
  readonly prompt: string;
  readonly want: string;
}

/** Ranges of 9 to 25 numbers below 73, which the demo model counts without a mistake; no two are the same. */
export function ranges(count: number): readonly Range[] {
  const all = Array.from({ length: count }, (_, i) => {
    const first = (i * 13) % 49;
    const last = first + 8 + ((i + Math.floor(i / 49)) % 17);
    const prompt = i % 2 === 0 ? `Count from ${first} to ${last}.` : `List the numbers from ${first} to ${last}.`;
    return { prompt, want: Array.from({ length: last - first + 1 }, (_, k) => first + k).join(', ') };
  });
  assert.equal(new Set(all.map((range) => range.want)).size, count, 'every request counts through a range of its own');
  return all;
}

const connections = 8;
const pollMs = 5;

const statsOf = async (at: TestDaemon): Promise<SchedulerStats> => (await at.stats()) as unknown as SchedulerStats;

/** The prompt as the model reads it. */
const tokensOf = async (client: InferdClient, content: string): Promise<readonly number[]> =>
  (await client.call('tokenize', { messages: [{ role: 'user', content }] })).ids;

/** Answers to all prompts in one call: short answers of a fast device end sooner than as many calls are read, and would hardly meet. */
async function answers(client: InferdClient, prompts: readonly (readonly number[])[]): Promise<string[]> {
  const body = { prompt: prompts.map((ids) => [...ids]), temperature: 0, max_tokens: 200, stream: false as const };
  const { choices } = await client.completions.create(body);
  return [...choices].sort((a, b) => a.index - b.index).map(({ text }) => text ?? '');
}

/**
 * Counts through `requests` ranges at once on a daemon of its own with a setting, and holds every answer to the range.
 * @returns the daemon's statistics at the end, and the most sequences that were seen running together and blocks that were seen swapped.
 */
export async function countInParallel(
  requests: number,
  setting: CountingSetting,
  more: readonly string[] = [],
): Promise<{ readonly stats: SchedulerStats; readonly together: number; readonly swapped: number }> {
  const at = await startTestDaemon([`scheduler.max_num_sequences=${requests}`, ...setting.sets, ...more]);
  try {
    const clients = await Promise.all(Array.from({ length: connections }, () => connect({ url: at.ws })));
    const shares = clients.map((client, c) => ({ client, asked: ranges(requests).filter((_, i) => i % connections === c) }));
    const prompts = await Promise.all(shares.map(({ client, asked }) => Promise.all(asked.map(({ prompt }) => tokensOf(client, prompt)))));
    let together = 0;
    let swapped = 0;
    const look = async (): Promise<void> => {
      const { requests: r, kv } = await statsOf(at);
      together = Math.max(together, r.running);
      swapped = Math.max(swapped, kv.swap_used);
    };
    const poll = setInterval(() => void look().catch(() => undefined), pollMs); // the end of the daemon may overtake it
    const wrong: string[] = [];
    try {
      for (let round = 0; round < setting.rounds; round++) {
        await Promise.all(
          shares.map(async ({ client, asked }, c) => {
            const got = await answers(client, prompts[c] ?? []);
            asked.forEach(({ prompt, want }, i) => {
              if (got[i] !== want) wrong.push(`${prompt} -> ${got[i]}`);
            });
          }),
        );
      }
    } finally {
      clearInterval(poll);
    }
    await at.untilFreed();
    const stats = await statsOf(at);
    await Promise.all(clients.map((client) => client.close()));
    assert.deepEqual(wrong, [], `${wrong.length} of ${setting.rounds * requests} answers are not the range that was asked for`);
    const seen = {
      'prefix hits': stats.tokens.prefix_hit_total,
      preemptions: stats.requests.preempted_total,
      swaps: swapped,
    };
    for (const what of setting.happened) assert.ok(seen[what] > 0, `no ${what}: ${JSON.stringify(stats)}`);
    if (setting.happened.includes('swaps')) assert.equal(stats.kv.swap_used, 0, 'the swap space is empty again');
    return { stats, together, swapped };
  } finally {
    await at.close();
  }
}
