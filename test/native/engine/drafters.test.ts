/**
 * Networks that draft change the speed of an answer and nothing else: the work of drafted-work.ts with a small model, a head of EAGLE-3's and
 * a layer for multi-token prediction must get the tokens and log-probabilities of none. A drafter that is the model itself is right about
 * every token, which shows that its keys and values are those of the history, whatever becomes of blocks.
 * INFERD_DRAFTED_KINDS=all takes every way of sampling, with 10,000 tokens each.
 */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { EngineOptions } from '../../../native/index.js';
import { nativeError, openRanks } from '../../helpers/native/native-engine.js';
import { withModelFolder } from '../../helpers/native/tiny-model.js';
import { assertSame, BLOCKS, bothOf, drafting, type Kind, kinds, model, VOCAB, WARM } from './drafted-work.js';

const everyKind = process.env['INFERD_DRAFTED_KINDS'] === 'all';
const REQUESTS = everyKind ? 320 : 60;

const head = { ...model, draft_vocab_size: VOCAB, num_hidden_layers: 1, eagle_config: { eagle_aux_hidden_state_layer_ids: [0, 1, 2] } };
const deepseek = {
  architectures: ['DeepseekV3ForCausalLM'],
  model_type: 'deepseek_v3',
  vocab_size: VOCAB,
  hidden_size: 32,
  intermediate_size: 48,
  moe_intermediate_size: 16,
  num_hidden_layers: 2,
  num_nextn_predict_layers: 1,
  num_attention_heads: 2,
  num_key_value_heads: 2,
  n_shared_experts: 1,
  n_routed_experts: 4,
  num_experts_per_tok: 2,
  first_k_dense_replace: 1,
  kv_lora_rank: 16,
  q_lora_rank: 16,
  qk_rope_head_dim: 8,
  qk_nope_head_dim: 8,
  v_head_dim: 8,
  max_position_embeddings: 256,
  rope_theta: 10000,
  rms_norm_eps: 1e-6,
};

type Network = 'draft' | 'eagle3' | 'mtp';
const networks: Record<Network, { readonly target: Record<string, unknown>; readonly own: Record<string, unknown> | null }> = {
  draft: { target: model, own: { ...model, num_hidden_layers: 1 } },
  eagle3: { target: model, own: head },
  mtp: { target: deepseek, own: null },
};

function withNetwork<T>(
  method: Network,
  own: Record<string, unknown> | null,
  body: (folder: string, drafter: NonNullable<EngineOptions['drafts']>) => T,
): T {
  return withModelFolder(networks[method].target, (folder) =>
    withModelFolder(own, (modelPath) => body(folder, { ...drafting.drafts, method, ...(own === null ? {} : { modelPath }) })),
  );
}

/** Bits under several sequences at once are what sampling makes of them: one kind has everything. */
const taken: readonly (readonly [string, Kind])[] = everyKind
  ? Object.entries(kinds)
  : Object.entries(kinds).filter(([name]) => name === 'all of them');

for (const method of ['draft', 'eagle3', 'mtp'] as const) {
  describe(`with drafts of ${method} the tokens are those without`, () => {
    for (const [index, [name, kind]] of taken.entries()) {
      test(`under ${name}`, () => {
        withNetwork(method, networks[method].own, (folder, drafter) => {
          const { plain, drafted } = bothOf(folder, drafter, kind, { numRequests: REQUESTS, seed: index + 1 });
          assertSame(plain, drafted);
          // Heads with random weights are right now and then.
          assert.ok(drafted.accepted > 0 && drafted.accepted < drafted.drafted && drafted.preempted > 5, JSON.stringify(drafted.accepted));
          if (everyKind) assert.ok(drafted.generated >= 10_000, String(drafted.generated));
        });
      });
    }
  });
}

test('a draft model that is the model itself is right about every token, through prefix hits, swaps, forks and preemption', () => {
  withNetwork('draft', model, (folder, drafter) => {
    const { plain, drafted } = bothOf(folder, drafter, { sampling: { temperature: 0 } }, { numRequests: 80, seed: 3 });
    assert.deepEqual([...drafted.tokens].sort(), [...plain.tokens].sort());
    assert.ok(drafted.accepted > 500 && drafted.preempted > 5, JSON.stringify({ ...drafted, tokens: 0, logprobs: 0 }));
    assert.equal(drafted.accepted, drafted.drafted);
  });
});

test('a draft model may have a few more rows or fewer for its tokens, and neither drafts nor needs what only one of the two has', () => {
  const greedy = { sampling: { temperature: 0 } };
  withNetwork('draft', { ...model, vocab_size: VOCAB + 8 }, (folder, drafter) => {
    const { plain, drafted } = bothOf(folder, drafter, greedy, { numRequests: 40, seed: 3 });
    assertSame(plain, drafted);
    assert.ok(drafted.accepted > 200, JSON.stringify(drafted.accepted));
    assert.equal(drafted.accepted, drafted.drafted);
  });
  withNetwork('draft', { ...model, vocab_size: VOCAB - 4 }, (folder, drafter) => {
    const { plain, drafted } = bothOf(folder, drafter, greedy, { numRequests: 40, seed: 3 });
    assertSame(plain, drafted);
    assert.ok(drafted.accepted > 50 && drafted.accepted < drafted.drafted, JSON.stringify([drafted.accepted, drafted.drafted]));
  });
  withNetwork('draft', { ...model, vocab_size: VOCAB + 1025 }, (folder, drafter) =>
    assert.throws(
      () => bothOf(folder, drafter, greedy, { numRequests: 1, seed: 3 }),
      nativeError('unsupported', /vocabulary of 1049 tokens/),
    ),
  );
});

test('one that passes over steps of several rows without drafts is wrong about some, and the tokens stay', () => {
  withNetwork('draft', model, (folder, drafter) => {
    const { plain, drafted } = bothOf(folder, { ...drafter, maxRows: 1 }, { sampling: { temperature: 0 } }, { numRequests: 80, seed: 3 });
    assertSame(plain, drafted);
    assert.ok(drafted.accepted > 100 && drafted.accepted < drafted.drafted, JSON.stringify([drafted.accepted, drafted.drafted]));
  });
});

test('on two ranks, which give the same bits, and as far as they come before requests are aborted', () => {
  withNetwork('draft', networks.draft.own, (folder, drafter) => {
    const { plain, drafted } = bothOf(
      folder,
      drafter,
      { sampling: { temperature: WARM } },
      { numRequests: 40, seed: 5, aborts: true },
      (at, options) => openRanks(at, 2, options, BLOCKS, BLOCKS),
    );
    assert.ok(drafted.generated < plain.generated && drafted.accepted > 20, JSON.stringify(drafted.accepted));
    for (const [key, tokens] of drafted.tokens) assert.deepEqual(tokens, plain.tokens.get(key)?.slice(0, tokens.length), key);
  });
});
