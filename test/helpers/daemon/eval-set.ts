/** The evaluation set through a daemon: the share of answers that are those of the float32 reference. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { answerText } from '../../../daemon/cli/eval/eval-set.js';
import { packageRoot } from '../../../native/index.js';
import { connect } from '../../../rpc/client/node.js';
import type { ChatCompletionParams } from '../../../rpc/client/types.js';
import { startTestDaemon } from './daemon.js';

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

/** A daemon, and how it is asked. */
export interface EvalSetting {
  readonly name: string;
  /** Requests at a time. */
  readonly inFlight: number;
  /** Of the configuration. */
  readonly sets: readonly string[];
  /** Requests are swapped, which else none is. */
  readonly swaps?: boolean;
}

/** Declares a test: at least 97 % of the cases are answered as in float32. */
export function testEvalSet({ name, inFlight, sets, swaps = false }: EvalSetting): void {
  test(`at least ${100 * leastSame} % of ${cases.length} cases are answered as in float32: ${name}`, async (t) => {
    const at = await startTestDaemon(sets);
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
      await Promise.all(Array.from({ length: inFlight }, worker));
      await client.close();
      const { requests } = await at.untilFreed();
      const swapped = await at.swaps();
      t.diagnostic(`preempted ${requests?.preempted_total} times, ${swapped} of them by swapping`);
      assert.equal(swapped > 0, swaps);
      t.diagnostic(`${cases.length - other.length} of ${cases.length} answers are the same`);
      for (const line of other.slice(0, 5)) t.diagnostic(line);
      assert.ok(other.length <= (1 - leastSame) * cases.length, `${other.length} of ${cases.length} answers differ`);
    } finally {
      await at.close();
    }
  });
}
