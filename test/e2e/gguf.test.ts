/**
 * The demo model as a GGUF file of four bits, served by the daemon: vocabulary, chat template and stop ids come from its metadata, and every
 * answer of the evaluation set that has one right form is the answer of the float32 model.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { answerText } from '../../daemon/cli/eval/eval-set.js';
import { connect } from '../../rpc/client/node.js';
import type { ChatCompletionParams } from '../../rpc/client/types.js';
import { startTestDaemon } from '../helpers/daemon/daemon.js';
import { fixture } from '../helpers/native/native-engine.js';

interface Case {
  readonly task: string;
  readonly messages: unknown[];
  readonly tools?: unknown[];
  readonly got: string;
}

const cases = readFileSync(fixture('eval', 'demo.jsonl'), 'utf8')
  .trim()
  .split('\n')
  .map((line) => JSON.parse(line) as Case)
  .filter(({ task }) => task !== 'story');

test(`all ${cases.length} answers of the demo model in Q4_K are those of the float32 model`, async () => {
  const at = await startTestDaemon([`inference.model_name=${fixture('golden', 'quant-demo-q4k', 'model.gguf')}`]);
  try {
    const client = await connect({ url: at.ws });
    const answers = await Promise.all(
      cases.map(async ({ messages, tools }) => {
        const body = { messages, temperature: 0, ...(tools ? { tools } : {}) };
        const answer = await client.chat.completions.create(body as unknown as ChatCompletionParams & { stream: false });
        return answerText(answer.choices[0]?.message ?? {});
      }),
    );
    assert.equal(cases.length, 144);
    assert.deepEqual(
      answers,
      cases.map(({ got }) => got),
    );
    await client.close();
  } finally {
    await at.close();
  }
});
