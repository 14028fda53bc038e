/**
 * Clients of serve-bench.ts, in a process of their own: `streams` WebSocket connections with one streamed completion each, all begun
 * together. Prints one JSON line a round, read from the commands on stdin: {"prompt": tokens, "tokens": answer tokens, "vocab": ids}.
 *
 *   node dist/test/gpu/serve-client.js <ws url> <streams> <number of the first stream>
 */
import { createInterface } from 'node:readline';
import { connect } from '../../rpc/client/node.js';
import type { CompletionParams } from '../../rpc/client/types.js';

export interface Round {
  readonly prompt: number;
  readonly tokens: number;
  readonly vocab: number;
}

/** One stream of one round; times in ms on a clock that all processes of the machine share. */
export interface StreamReport {
  readonly sentMs: number;
  /** When each piece came. */
  readonly atMs: readonly number[];
  /** How many tokens each piece held. */
  readonly tokens: readonly number[];
}

const [url = '', streams = '1', first = '0'] = process.argv.slice(2);
const clients = await Promise.all(Array.from({ length: Number(streams) }, () => connect({ url })));
const now = (): number => performance.timeOrigin + performance.now();

/** The same prompt for a stream in every round, so that a warm prefix cache keeps prefills short. */
function prompt(stream: number, { prompt: length, vocab }: Round): number[] {
  return Array.from({ length }, (_, i) => (stream * 7919 + i * 104_729 + 1) % vocab);
}

function round(wanted: Round): Promise<StreamReport[]> {
  return Promise.all(
    clients.map(async (client, i) => {
      const fixed = { temperature: 0, max_tokens: wanted.tokens, ignore_eos: true, return_token_ids: true, skip_special_tokens: false };
      const body = { ...fixed, prompt: prompt(Number(first) + i, wanted) } as CompletionParams;
      const report = { sentMs: now(), atMs: [] as number[], tokens: [] as number[] };
      for await (const chunk of await client.completions.create({ ...body, stream: true })) {
        const ids = chunk.choices[0]?.token_ids ?? [];
        if (ids.length === 0) continue;
        report.atMs.push(now());
        report.tokens.push(ids.length);
      }
      return report;
    }),
  );
}

for await (const line of createInterface({ input: process.stdin }))
  process.stdout.write(`${JSON.stringify(await round(JSON.parse(line) as Round))}\n`);
await Promise.all(clients.map((client) => client.close()));
