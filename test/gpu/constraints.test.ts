/**
 * Constrained answers through a daemon on CUDA: many at once beside free ones, with graphs and without, and in a pool so small that they
 * are preempted. The masks are made by the host while the next step runs.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { connect } from '../../rpc/client/node.js';
import { startTestDaemon } from '../helpers/daemon/daemon.js';

const grammar = 'root ::= "<" [0-9]{5} ("-" [a-f ]{1,6})? ">"';
const form = /^<[0-9]{5}(-[a-f ]{1,6})?>$/;
const beginning = /^<[0-9]{5}-[a-f ]*>?$/;
const requests = 96;

for (const [name, sets] of [
  ['graphs', []],
  ['no graphs', ['inference.enforce_eager=true']],
  ['preempted', ['scheduler.max_model_len=256', 'cache.num_gpu_blocks_override=24', 'cache.enable_prefix_caching=false']],
] as const) {
  test(`${requests} constrained answers keep to their grammar beside as many free ones: ${name}`, async (t) => {
    const at = await startTestDaemon(['inference.device=cuda', `scheduler.max_num_sequences=${2 * requests}`, ...sets]);
    try {
      const client = await connect({ url: at.ws });
      const story = { messages: [{ role: 'user', content: 'Tell me a story about a fox.' }], temperature: 0, max_tokens: 60 };
      const alone = (await client.chat.completions.create(story)).choices[0]?.message.content;
      const answers = await Promise.all(
        Array.from({ length: requests }, async (_, seed) => {
          const constrained = { messages: [{ role: 'user', content: `Number ${seed}?` }], temperature: 1.3, seed, guided_grammar: grammar };
          const [free, kept] = await Promise.all([
            client.chat.completions.create(story),
            client.chat.completions.create({ ...constrained, max_tokens: 40 }),
          ]);
          assert.ok(free.choices[0]?.message.content?.startsWith(alone?.slice(0, 20) ?? '?'), 'a free answer is what it is alone');
          return kept.choices[0];
        }),
      );
      const whole = answers.filter((choice) => choice?.finish_reason === 'stop');
      for (const choice of answers) {
        assert.match(choice?.message.content ?? '', choice?.finish_reason === 'stop' ? form : beginning);
      }
      const { requests: counts } = await at.untilFreed();
      t.diagnostic(`${whole.length} of ${requests} whole, ${counts?.preempted_total} preempted`);
      assert.ok(whole.length > requests / 2);
      if (name === 'preempted') assert.ok((counts?.preempted_total ?? 0) > 0, 'nothing was preempted');
      await client.close();
    } finally {
      await at.close();
    }
  });
}
