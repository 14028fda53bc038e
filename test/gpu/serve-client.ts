/**
 * The clients of serve-bench.ts, in a process of their own: `streams` WebSocket connections with one streamed completion each, all begun
 * together. Prints one JSON line a round, read from the commands on stdin: {"prompt": tokens, "tokens": answer tokens, "vocab": ids}.
 *
 *   node dist/test/gpu/serve-client.js <ws url> <streams>
 */
import { createInterface } from 'node:readline';
import { median } from '../../daemon/cli/bench-limits.js';
import { connect } from '../../rpc/client/node.js';
import type { CompletionParams } from '../../rpc/client/types.js';

export interface Round {
  readonly prompt: number;
  readonly tokens: number;
  readonly vocab: number;
}

export interface RoundReport {
  /** Median over the streams of the time between two tokens, ms: from the first piece of an answer to the last, over its tokens less one. */
  readonly step_ms: number;
  /** Median over the streams, ms. */
  readonly first_ms: number;
  /** From the first request to the end of the last answer, ms. */
  readonly wall_ms: number;
}

const [url = '', streams = '1'] = process.argv.slice(2);
const clients = await Promise.all(Array.from({ length: Number(streams) }, () => connect({ url })));

/** The same prompt for a stream in every round, so that a warm prefix cache keeps prefills short. */
function prompt(stream: number, { prompt: length, vocab }: Round): number[] {
  return Array.from({ length }, (_, i) => (stream * 7919 + i * 104_729 + 1) % vocab);
}

async function round(wanted: Round): Promise<RoundReport> {
  const began = performance.now();
  const times = await Promise.all(
    clients.map(async (client, stream) => {
      const fixed = { temperature: 0, max_tokens: wanted.tokens, ignore_eos: true };
      const body = { ...fixed, prompt: prompt(stream, wanted) } as CompletionParams;
      let first = 0;
      let last = 0;
      const sent = performance.now();
      for await (const chunk of await client.completions.create({ ...body, stream: true })) {
        if (chunk.choices.length === 0) continue;
        last = performance.now();
        if (first === 0) first = last;
      }
      return { firstMs: first - sent, stepMs: (last - first) / (wanted.tokens - 1) };
    }),
  );
  return {
    step_ms: median(times.map((t) => t.stepMs)),
    first_ms: median(times.map((t) => t.firstMs)),
    wall_ms: performance.now() - began,
  };
}

for await (const line of createInterface({ input: process.stdin }))
  process.stdout.write(`${JSON.stringify(await round(JSON.parse(line) as Round))}\n`);
await Promise.all(clients.map((client) => client.close()));
