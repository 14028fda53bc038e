/** What /metrics shows, name by name: types, labels and edges as vLLM has them, written down here once more by hand. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Traffic } from '../../../daemon/front/traffic.js';
import { edgeText, expositionType } from '../../../daemon/metrics/exposition.js';
import { Metrics } from '../../../daemon/metrics/metrics.js';
import { lengthEdges } from '../../../daemon/metrics/observed.js';
import { FakeEngineClient } from '../../helpers/engine/fake-engine-client.js';
import { fakeModel } from '../../helpers/engine/fake-engine-handle.js';
import { deaf, generation } from '../../helpers/engine/generation.js';
import { testConfig } from '../../helpers/test-config.js';
import { Exposition } from '../../helpers/wire/exposition.js';

const FIRST_TOKEN = '0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1.0 2.5 5.0 7.5 10.0 20.0 40.0 80.0 160.0 640.0 2560.0'.split(
  ' ',
);
const TOKEN = '0.01 0.025 0.05 0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1.0 2.5 5.0 7.5 10.0 20.0 40.0 80.0'.split(' ');
const REQUEST = '0.3 0.5 0.8 1.0 1.5 2.0 2.5 5.0 10.0 15.0 20.0 30.0 40.0 50.0 60.0 120.0 240.0 480.0 960.0 1920.0 7680.0'.split(' ');
/** Of a model of 512 tokens. */
const LENGTH = '1.0 2.0 5.0 10.0 20.0 50.0 100.0 200.0 500.0'.split(' ');
const ANSWERS = '1.0 2.0 5.0 10.0 20.0'.split(' ');
const STEP = '1.0 8.0 16.0 32.0 64.0 128.0 256.0 512.0 1024.0 2048.0 4096.0 8192.0 16384.0'.split(' ');

/** Labels besides model_name and engine. */
const scalars: Readonly<Record<string, readonly [type: string, labels?: readonly string[]]>> = {
  'vllm:num_requests_running': ['gauge'],
  'vllm:num_requests_waiting': ['gauge'],
  'vllm:kv_cache_usage_perc': ['gauge'],
  'vllm:lora_requests_info': ['gauge', ['max_lora', 'running_lora_adapters', 'waiting_lora_adapters']],
  'vllm:cache_config_info': [
    'gauge',
    [
      'block_size',
      'cache_dtype',
      'enable_prefix_caching',
      'gpu_memory_utilization',
      'num_cpu_blocks',
      'num_gpu_blocks',
      'num_gpu_blocks_override',
      'sliding_window',
      'swap_space_bytes',
    ],
  ],
  'vllm:engine_sleep_state': ['gauge', ['sleep_state']],
  'vllm:prompt_tokens_total': ['counter'],
  'vllm:generation_tokens_total': ['counter'],
  'vllm:request_success_total': ['counter', ['finished_reason']],
  'vllm:num_preemptions_total': ['counter'],
  'vllm:prefix_cache_queries_total': ['counter'],
  'vllm:prefix_cache_hits_total': ['counter'],
  'vllm:external_prefix_cache_queries_total': ['counter'],
  'vllm:external_prefix_cache_hits_total': ['counter'],
  'vllm:prompt_tokens_by_source_total': ['counter', ['source']],
  'vllm:prompt_tokens_cached_total': ['counter'],
  'vllm:prompt_tokens_recomputed_total': ['counter'],
  'vllm:corrupted_requests_total': ['counter'],
  'vllm:admission_rejections_total': ['counter', ['reason']],
  'vllm:spec_decode_num_drafts_total': ['counter'],
  'vllm:spec_decode_num_draft_tokens_total': ['counter'],
  'vllm:spec_decode_num_accepted_tokens_total': ['counter'],
  'vllm:spec_decode_num_accepted_tokens_per_pos_total': ['counter', ['position']],
  'vllm:gpu_cache_usage_perc': ['gauge'],
  'vllm:cpu_cache_usage_perc': ['gauge'],
  'vllm:num_requests_swapped': ['gauge'],
  'vllm:gpu_prefix_cache_queries': ['counter'],
  'vllm:gpu_prefix_cache_hits': ['counter'],
  'vllm:gpu_prefix_cache_queries_total': ['counter'],
  'vllm:gpu_prefix_cache_hits_total': ['counter'],
  'vllm:avg_prompt_throughput_toks_per_s': ['gauge'],
  'vllm:avg_generation_throughput_toks_per_s': ['gauge'],
  'vllm:http_requests_total': ['counter', ['handler', 'method', 'status']],
  'vllm:num_requests_success_total': ['counter', ['finished_reason']],
};

const histograms: Readonly<Record<string, readonly string[]>> = {
  'vllm:time_to_first_token_seconds': FIRST_TOKEN,
  'vllm:inter_token_latency_seconds': TOKEN,
  'vllm:time_per_output_token_seconds': TOKEN,
  'vllm:request_time_per_output_token_seconds': TOKEN,
  'vllm:e2e_request_latency_seconds': REQUEST,
  'vllm:request_queue_time_seconds': REQUEST,
  'vllm:request_inference_time_seconds': REQUEST,
  'vllm:request_prefill_time_seconds': REQUEST,
  'vllm:request_decode_time_seconds': REQUEST,
  'vllm:request_prompt_tokens': LENGTH,
  'vllm:request_generation_tokens': LENGTH,
  'vllm:request_max_num_generation_tokens': LENGTH,
  'vllm:request_params_n': ANSWERS,
  'vllm:request_params_max_tokens': LENGTH,
  'vllm:request_prefill_kv_computed_tokens': LENGTH,
  'vllm:iteration_tokens_total': STEP,
};

const own: Readonly<Record<string, readonly [type: string, labels: readonly string[]]>> = {
  inferd_step_seconds: ['histogram', ['engine', 'model_name']],
  inferd_spec_decode_accepted_total: ['counter', ['accepted', 'engine', 'model_name']],
  inferd_connections: ['gauge', ['kind']],
  inferd_errors_total: ['counter', ['code']],
};

const ofModel = ['engine', 'model_name'];

async function shown(engine = new FakeEngineClient()): Promise<Exposition> {
  const traffic = new Traffic();
  traffic.answered('/health', 'GET', 200);
  traffic.failed(-32602);
  const metrics = new Metrics({ traffic, webSockets: () => 0 });
  const metered = metrics.metered({ engine, model: fakeModel, config: testConfig() });
  engine.refuseNext = { kind: 'overloaded' };
  metered.submit({ kind: 'ids', ids: [1] }, generation(), deaf);
  const { type, body } = await metrics.scrape();
  assert.equal(type, expositionType);
  return new Exposition(body);
}

/** With some tokens and one step. */
function steppedEngine(): FakeEngineClient {
  const engine = new FakeEngineClient();
  const counts = { edges: STEP.map(Number), counts: [...STEP.map(() => 0), 1], sum: 20_000 };
  const speculation = {
    drafts_total: 2,
    draft_tokens_total: 4,
    accepted_tokens_total: 1,
    accepted_per_position: [1, 0],
    accepted_histogram: [1, 1, 0],
  };
  const { stats } = engine.answers;
  assert.ok(stats);
  engine.answers = {
    ...engine.answers,
    steps: () => ({ seconds: counts, tokens: counts }),
    stats: (params) => ({ ...stats(params), speculation }),
  };
  return engine;
}

test('all names of vLLM are there with their types and labels', async () => {
  const exposition = await shown(steppedEngine());
  for (const [name, [type, labels = []]] of Object.entries(scalars)) {
    const family = exposition.family(name);
    assert.equal(family.type, type, name);
    assert.ok(family.lines.length > 0, name);
    for (const line of family.lines) assert.deepEqual(Object.keys(line.labels).sort(), [...ofModel, ...labels].sort(), name);
  }
});

test('histograms have their edges, written as vLLM writes them', async () => {
  const exposition = await shown(steppedEngine());
  for (const [name, edges] of Object.entries(histograms)) {
    assert.equal(exposition.family(name).type, 'histogram', name);
    assert.deepEqual(exposition.edges(name), [...edges, '+Inf'], name);
    for (const { labels } of exposition.family(name).lines) {
      assert.deepEqual([labels['model_name'], labels['engine']], ['fake', '0'], name);
    }
  }
});

test('other names are our own, of the process, or of Node', async () => {
  const exposition = await shown(steppedEngine());
  for (const [name, [type, labels]] of Object.entries(own)) {
    const family = exposition.family(name);
    assert.equal(family.type, type);
    for (const line of family.lines)
      assert.deepEqual(
        Object.keys(line.labels)
          .filter((l) => l !== 'le')
          .sort(),
        labels,
        name,
      );
  }
  const known = new Set([...Object.keys(scalars), ...Object.keys(histograms), ...Object.keys(own)]);
  const others = [...exposition.families.keys()].filter((name) => !known.has(name));
  assert.deepEqual(
    others.filter((name) => !/^(process|nodejs)_/.test(name)),
    [],
  );
  for (const name of ['process_resident_memory_bytes', 'process_start_time_seconds', 'process_cpu_seconds_total', 'process_open_fds']) {
    assert.ok(others.includes(name), name);
  }
});

test('every figure says what it is', async () => {
  for (const [name, { help }] of (await shown()).families) assert.match(help, /\S/, name);
});

test('states, sources and ends have a sample each', async () => {
  const exposition = await shown();
  const values = (name: string, label: string) => exposition.family(name).lines.map((l) => [l.labels[label], l.value]);
  assert.deepEqual(values('vllm:engine_sleep_state', 'sleep_state'), [
    ['awake', 1],
    ['weights_offloaded', 0],
    ['discard_all', 0],
  ]);
  assert.deepEqual(values('vllm:prompt_tokens_by_source_total', 'source'), [
    ['local_compute', 0],
    ['local_cache_hit', 0],
    ['external_kv_transfer', 0],
  ]);
  for (const name of ['vllm:request_success_total', 'vllm:num_requests_success_total']) {
    assert.deepEqual(values(name, 'finished_reason'), [
      ['stop', 0],
      ['length', 0],
      ['abort', 0],
      ['error', 0],
    ]);
  }
  assert.deepEqual(values('vllm:admission_rejections_total', 'reason'), [['queue_full', 1]]);
});

test('without an answer of the engine all names are there and unfinished requests wait', async () => {
  const engine = new FakeEngineClient({ auto: false });
  engine.answers = {};
  engine.submit({ kind: 'ids', ids: [1] }, generation(), deaf);
  const exposition = await shown(engine);
  for (const name of [...Object.keys(scalars), ...Object.keys(histograms)]) exposition.family(name);
  assert.equal(exposition.value('vllm:num_requests_running'), 0);
  assert.equal(exposition.value('vllm:num_requests_waiting'), 1);
});

test('lengths end at the longest possible; large edges are written as Go does', () => {
  assert.deepEqual(lengthEdges(512), [1, 2, 5, 10, 20, 50, 100, 200, 500]);
  assert.deepEqual(lengthEdges(1), [1]);
  assert.deepEqual(lengthEdges(2_000_000).slice(-3), [500_000, 1_000_000, 2_000_000]);
  assert.deepEqual([0.001, 1, 7.5, 500_000, 1e6, 2e6, 1e10, undefined].map(edgeText), [
    '0.001',
    '1.0',
    '7.5',
    '500000.0',
    '1e+06',
    '2e+06',
    '1e+10',
    '+Inf',
  ]);
});
