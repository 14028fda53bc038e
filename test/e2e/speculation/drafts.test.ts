/** A daemon that drafts: the answers of one that does not, counted in usage, statistics and metrics. */
import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { startTestDaemon, type TestDaemon } from '../../helpers/daemon/daemon.js';
import { lateRankModule } from '../../helpers/engine/late-rank.js';
import { fixture } from '../../helpers/native/native-engine.js';
import { story } from '../story.js';
import { fixtureNetworks } from './acceptance.js';

const sum = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0);
const indices = Array.from({ length: 8 }, (_, i) => i);
const ngram = ['speculative.method=ngram', 'speculative.num_tokens=4'];
const draft = ['speculative.method=draft', `speculative.model=${fixtureNetworks.draft()}`];
const eagle3 = ['speculative.method=eagle3', `speculative.model=${fixtureNetworks.eagle3()}`];
/** Adapters change the model, and no drafter knows them. */
const adapters = ['lora.enabled=true', `lora.folders=[${JSON.stringify(fixture())}]`, `lora.preload=["pirate=${fixture('lora')}"]`];
const ways: readonly { name: string; sets: readonly string[]; module?: string }[] = [
  { name: 'n-grams', sets: ngram },
  { name: 'n-grams on two ranks', sets: [...ngram, 'parallel.tensor_parallel_size=2'] },
  { name: 'n-grams on two ranks, one of them late', sets: [...ngram, 'parallel.tensor_parallel_size=2'], module: lateRankModule },
  { name: 'a small model', sets: draft },
  { name: 'a head on two ranks', sets: [...eagle3, 'parallel.tensor_parallel_size=2'] },
];

async function started(t: TestContext, sets: readonly string[] = [], module?: string): Promise<TestDaemon> {
  const at = await startTestDaemon(sets, module);
  t.after(() => at.close());
  return at;
}

interface Drafts {
  readonly accepted_prediction_tokens?: number;
  readonly rejected_prediction_tokens?: number;
}

async function answersOf(
  at: TestDaemon,
  extra: Record<string, unknown>,
): Promise<{ tokens: unknown[]; accepted: number; rejected: number }> {
  const socket = await at.open();
  const answers = await Promise.all(indices.map((i) => socket.call('chat.completions.create', { ...story(i, 60), ...extra })));
  await socket.close();
  const details = answers.map((a) => (a.usage as { completion_tokens_details?: Drafts } | undefined)?.completion_tokens_details);
  const total = (key: keyof Drafts): number => sum(details.map((d) => d?.[key] ?? 0));
  return {
    tokens: answers.map((a) => a.choices?.[0]?.token_ids),
    accepted: total('accepted_prediction_tokens'),
    rejected: total('rejected_prediction_tokens'),
  };
}

const requests = {
  greedy: {},
  drawn: { temperature: 0.8, top_p: 0.9, seed: 11, presence_penalty: 0.4 },
  'of an adapter': { model: 'pirate', temperature: 0 },
  'under a grammar': { guided_regex: '(one two three, ){2,20}', max_tokens: 60, ignore_eos: false },
};

test('the answers are those without drafts, whatever drafts, and what was drafted is counted', async (t) => {
  const plain = await started(t, adapters);
  const expected = await Promise.all(Object.values(requests).map((extra) => answersOf(plain, extra)));
  assert.equal((await plain.stats())['speculation'], undefined);
  for (const { name: way, sets, module } of ways) {
    const at = await started(t, [...sets, ...adapters], module);
    let accepted = 0;
    let rejected = 0;
    for (const [i, [name, extra]] of Object.entries(requests).entries()) {
      const got = await answersOf(at, extra);
      assert.deepEqual(got.tokens, expected[i]?.tokens, `${name}, ${way}`);
      accepted += got.accepted;
      rejected += got.rejected;
    }
    await at.untilFreed();
    const { speculation: counts } = (await at.stats()) as unknown as {
      speculation: {
        draft_tokens_total: number;
        accepted_tokens_total: number;
        accepted_per_position: number[];
        accepted_histogram: number[];
      };
    };
    assert.ok(accepted > 0 && rejected > 0, JSON.stringify({ accepted, rejected, counts }));
    // What comes behind the end of an answer is in the statistics alone.
    assert.ok(counts.accepted_tokens_total >= accepted && counts.draft_tokens_total >= accepted + rejected, JSON.stringify(counts));
    assert.equal(sum(counts.accepted_per_position), counts.accepted_tokens_total);
    assert.equal(sum(counts.accepted_histogram.map((samples, drafts) => samples * drafts)), counts.accepted_tokens_total);
    const metrics = await (await fetch(`${at.http}/metrics`)).text();
    const total = Number(/^vllm:spec_decode_num_accepted_tokens_total\{[^}]*\} (\d+)/m.exec(metrics)?.[1]);
    assert.equal(total, counts.accepted_tokens_total);
  }
});
